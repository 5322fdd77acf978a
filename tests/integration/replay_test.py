#!/usr/bin/python3
"""Pins that keep contributions, and `atoll replay`, with real programs (G5)."""

import json

from harness import cases
from harness import cluster as cluster_module
from harness import damage
from harness import toy
from harness import wait

ROUNDS = 6
# Synchronous DiLoCo.
DILOCO = {"outer": {"optimizer": 3, "learning_rate": 0.7, "momentum": 0.9,
                    "weighting": 1},
          "schedule": {"round_count": ROUNDS}}


class ReplayTest(cluster_module.IntegrationTest):

    def play(self, members, first, last):
        for version in range(first, last):
            for member in members:
                member.wait_open(version)
            for contribution in toy.gradients(members, version, cases.seed()):
                self.cluster.retry(contribution.push)
            for member in members:
                member.wait_version(version + 1)
                if version + 1 < ROUNDS:
                    member.ready()

    def pin(self, *arguments, check=0):
        return self.cluster.run_cli("run", "pin", "run", "--id", "audit",
                                    *arguments, "-o", "json", check=check)

    def replay(self, *arguments, check=0):
        done = self.cluster.run_cli("replay", "run", "--from", "audit", "-o",
                                    "json", *arguments, check=check)
        return json.loads(done.stdout)

    def start(self, *changes):
        return toy.start(self.cluster, DILOCO, *changes)

    def test_the_rounds_after_a_pin_come_out_as_they_were_committed(self):
        members = self.start()
        self.play(members, 0, 2)
        pin = json.loads(self.pin("--keep-mb", "100").stdout)["data"]
        self.assertEqual(pin["cut"][0]["version"], "2")
        self.play(members, 2, ROUNDS)
        data = self.replay()["data"]
        self.assertEqual((data["commit_count"], data["agree_count"]), (4, 4))
        self.assertEqual([c["version"] for c in data["commits"]],
                         ["3", "4", "5", "6"])
        self.assertEqual([c["contribution_count"] for c in data["commits"]],
                         [2] * 4)
        rounds = {r.commit_seq: r for r in self.cluster.rounds()}
        for commit in data["commits"]:
            digest = rounds[int(commit["commit_seq"])].digest
            self.assertEqual(commit["replayed_digest"], "%016x%016x" % (
                digest.high, digest.low))
        # The momentum, element by element.
        self.assertEqual(data["states"],
                         [{"fragment": 0, "version": "6", "compared": True}])
        shown = self.cluster.run_cli("replay", "run", "--from", "audit",
                                     "--to", "4", check=0)
        self.assertIn("2 of 2 commits agree", shown.stdout)
        lines = self.cluster.run_cli("replay", "run", "--from", "audit", "-o",
                                     "jsonl", check=0).stdout.splitlines()
        self.assertEqual([json.loads(l)["data"]["agrees"] for l in lines],
                         [True] * 4)
        self.assertIn("audit", self.cluster.run_cli("run", "show", "run",
                                                    check=0).stdout)

    def test_a_byte_that_has_changed_names_its_contribution(self):
        members = self.start()
        self.pin("--keep-mb", "100")
        self.play(members, 0, 2)
        for path in damage.segments(self.cluster, "server-1"):
            damage.flip(path)
        error = self.replay(check=5)["error"]
        self.assertIn("slot 0 seq 1", error["message"])
        self.assertIn(".seg", error["message"])

    def test_it_says_which_server_it_waits_for(self):
        members = self.start()
        self.pin("--keep-mb", "100")
        self.play(members, 0, 2)
        address = self.cluster.server_address("server-0")
        self.cluster.kill("server-0")
        done = self.cluster.run_cli("replay", "run", "--from", "audit",
                                    "--patience", "8s", check=3)
        self.assertIn("waiting for server server-0 at %s, at most 8s" % address,
                      done.stderr)

    def test_kill_9_of_servers_loses_nothing_that_is_kept(self):
        members = self.start()
        self.pin("--keep-mb", "100")
        for version in range(ROUNDS):
            victim = "server-%d" % (version % 2)
            self.play(members, version, version + 1)
            self.cluster.kill(victim)
            self.cluster.restart(victim)
        self.cluster.kill("coordinator")
        self.cluster.restart("coordinator")
        self.cluster.wait_state(cluster_module.COMPLETED)
        wait.until("all servers are back", lambda: all(
            s.alive for s in self.cluster.run_state().servers))
        data = self.replay()["data"]
        self.assertEqual((data["commit_count"], data["agree_count"]),
                         (ROUNDS, ROUNDS))

    def test_a_release_frees_the_space(self):
        members = self.start()
        self.play(members, 0, 1)
        self.pin("--keep-mb", "100")
        self.play(members, 1, 4)
        # Two contributions per round; space for two more is reserved.
        self.assertGreaterEqual(
            len(damage.segments(self.cluster, "server-0")), 2 * 3)
        self.pin("--release")
        wait.until("it is free", lambda: len(damage.segments(
            self.cluster, "server-0")) <= 4)
        self.replay(check=8)

    def test_a_pin_keeps_no_more_than_its_bytes(self):
        members = self.start()
        # Some 80 KB a round: 64,000 elements' worth and a page a file.
        bytes_a_round = 2 * (4 * (150 * 100 + 30 * 31 + 1) + 2 * 4096)
        self.cluster.pin(pin_id="audit", keep_bytes_max=3 * bytes_a_round)
        self.play(members, 0, ROUNDS)
        data = self.replay()["data"]
        self.assertEqual((data["commit_count"], data["agree_count"]), (3, 3))
        error = self.replay("--to", "5", check=9)["error"]
        self.assertEqual(error["reason"], "BEYOND_WHAT_IS_KEPT")
        shown = self.cluster.run_cli("run", "show", "run", check=0).stdout
        self.assertIn("up to commit 3", shown)

    def test_level_island_has_nothing_to_keep(self):
        self.start({"durability": 3})
        error = json.loads(self.pin("--keep-mb", "1", check=9).stdout)["error"]
        self.assertEqual(error["reason"], "NOTHING_TO_KEEP")
        self.assertIn("PROCESS or MACHINE", error["message"])

    def test_what_cannot_be_replayed_is_said(self):
        self.start()
        error = self.replay(check=8)["error"]
        self.assertEqual(error["reason"], "NO_SUCH_PIN")
        self.pin()
        error = self.replay(check=9)["error"]
        self.assertEqual(error["reason"], "NOTHING_IS_KEPT")
        self.pin("--release")
        self.pin("--keep-mb", "1")
        error = self.replay(check=9)["error"]
        self.assertEqual(error["reason"], "NOTHING_TO_REPLAY")


if __name__ == "__main__":
    cases.main()
