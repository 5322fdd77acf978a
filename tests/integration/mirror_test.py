#!/usr/bin/python3
"""Checkpoints leave the machines: --mirror and `[checkpoint] mirror`."""

import json
import os
import subprocess

from harness import cases
from harness import cluster as cluster_module
from harness import faults
from harness import mirror
from harness import processes
from harness import toy
from harness import wait

CHANGES = {"schedule": {"round_count": 4},
           "checkpoint_every_round_count": 1,
           "checkpoint": {"keep_count": 2, "mirror": True}}


class MirrorTest(cluster_module.IntegrationTest):

    def play(self, members, first, last):
        for version in range(first, last):
            toy.play_round(members, version, cases.seed())

    def test_the_mirror_has_what_the_run_keeps(self):
        cluster = self.cluster
        mirror.use(cluster)
        members = toy.start(cluster, CHANGES)
        self.play(members, 0, 4)
        cluster.wait_state(cluster_module.COMPLETED)
        found = mirror.wait_whole(cluster)
        self.assertEqual(max(found)[1], 5)
        for manifest in found.values():
            self.assertEqual(manifest["run_id"], "run")
            self.assertEqual(manifest["shard_count"], 2)
            self.assertEqual(len(manifest["members"]), 2)
            for member in manifest["members"]:
                self.assertNotIn("session_sha256", member["member"])
                self.assertNotIn("token_id", member["member"])
                self.assertGreater(int(member["member"]["next_seq"]), 1)
        shown = faults.shown(cluster)["mirror"]
        self.assertEqual((shown["commit_seq"], shown["lag"]), ("5", "0"))
        self.assertTrue(shown["last_success_time"])
        self.assertEqual(shown.get("error", ""), "")

        checked = cluster.run_cli(
            "doctor", "--operator", "--mirror", "file://" + cluster.mirror,
            "-o", "json")
        result, = [c for c in json.loads(checked.stdout)["data"]["checks"]
                   if c["id"] == "mirror"]
        self.assertEqual(result["result"], "PASSED")

        self.assertTrue(mirror.cluster_objects(cluster))
        listed = processes.run_cli("checkpoint", "list",
                                   "file://" + cluster.mirror, "-o", "json",
                                   check=0)
        self.assertEqual(len(json.loads(listed.stdout)["data"]["checkpoints"]),
                         len(found))

        # A restart does not start over.
        stamps = mirror.stamps(cluster)
        for name in ("coordinator", "server-0", "server-1"):
            cluster.kill(name)
            cluster.restart(name)
        cluster.coordinator.wait_ready(wait.PATIENCE_S)
        again = faults.shown(cluster)["mirror"]
        self.assertEqual(again["last_success_time"],
                         shown["last_success_time"])
        mirror.wait_whole(cluster)
        self.assertEqual(mirror.stamps(cluster), stamps)

    def doctor(self, name):
        done = self.cluster.run_cli("doctor", "--operator", "-o", "json")
        result, = [c["result"] for c in json.loads(done.stdout)["data"]["checks"]
                   if c["id"] == name]
        return result

    def test_the_mirror_knows_the_cluster_and_not_its_secret(self):
        cluster = self.cluster
        mirror.use(cluster)
        toy.start(cluster, CHANGES)

        def known():
            newest = mirror.cluster_object(cluster)
            return newest if newest and any(
                "placed" in run for run in newest.get("runs", [])) else None

        newest = wait.until("the mirror knows the run and its servers", known)
        run, = newest["runs"]
        self.assertEqual(run["run_id"], "run")
        self.assertEqual(sorted(run["placed"]["server_ids"]),
                         ["server-0", "server-1"])
        self.assertEqual([s["server_id"] for s in newest["servers"]],
                         ["server-0", "server-1"])

        self.assertEqual(self.doctor("log_secret"), "WARN")
        done = subprocess.run(
            [processes.binary(processes.COORDINATOR), "secret", "--data-dir",
             os.path.join(cluster.directory, "coordinator")],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=wait.PATIENCE_S, check=True)
        secret = done.stdout.strip()
        self.assertRegex(secret, "^[0-9a-f]{32}$")
        self.assertEqual(self.doctor("log_secret"), "PASSED")
        for path in mirror.cluster_objects(cluster):
            with open(path, encoding="utf-8") as file:
                self.assertNotIn(secret, file.read())

        # A restart is another start.
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        starts = [s["start_id"] for s in newest["starts"]]

        def goes_on():
            found = mirror.cluster_object(cluster)
            return found and len(found["starts"]) > len(starts) and found

        later = wait.until("the mirror knows the new start", goes_on)
        self.assertEqual([s["start_id"] for s in later["starts"]][:-1], starts)
        self.assertGreater(int(later["log_index"]), int(newest["log_index"]))
        wait.until("the two newest objects stay",
                   lambda: len(mirror.cluster_objects(cluster)) == 2)

    def test_a_coordinator_without_a_mirror_refuses_the_run(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        path = cluster.write_run_file(self.run_values(CHANGES))
        refused = cluster.run_cli("run", "create", path, "--run-id", "run",
                                  check=9)
        self.assertIn("--mirror URL", " ".join(refused.stderr.split()))

    def test_a_server_without_a_mirror_says_so(self):
        cluster = self.cluster
        mirror.use(cluster)
        cluster.start_coordinator()
        cluster.start_server("server-0")
        cluster.mirror = None
        cluster.start_server("server-1")
        members = toy.start(cluster, CHANGES)
        self.play(members, 0, 1)

        def told():
            return [s for s in cluster.run_state().servers
                    if "has no mirror" in s.blocked_reason]

        server, = wait.until("run show says why", told)
        self.assertEqual(server.placement.server_id, "server-1")
        # The run goes on all the same.
        self.play(members, 1, 4)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(faults.shown(cluster)["mirror"].get(
            "commit_seq", "0"), "0")

    def test_a_mirror_that_is_away_says_so_and_comes_back(self):
        cluster = self.cluster
        mirror.use(cluster)
        with open(cluster.mirror, "w", encoding="utf-8"):
            pass  # A file, in which there is no directory.
        members = toy.start(cluster, CHANGES)
        self.play(members, 0, 1)
        wait.until("run show says why", lambda: all(
            "to the mirror failed" in s.blocked_reason
            for s in cluster.run_state().servers))
        os.unlink(cluster.mirror)
        self.play(members, 1, 4)
        cluster.wait_state(cluster_module.COMPLETED)
        mirror.wait_whole(cluster)


if __name__ == "__main__":
    cases.main()
