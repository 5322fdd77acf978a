#!/usr/bin/python3
"""`atoll run restore URL`: another cluster continues a run of the mirror after
the coordinator and all servers are lost.

"The bits" are the SHA-256 of the undisturbed run's parameters at that commit.
"""

import json
import os
import shutil

import grpc

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import mirror
from harness import toy
from harness import wait

ISLANDS = ("island-0", "island-1", "island-2")
JUMP = 1000  # Of the run_epoch.

# The program that dies at each step of the new cluster, and its failpoints.
POINTS = [("coordinator", "coordinator.run"),
          ("coordinator", "coordinator.placement"),
          ("server-1", "server.run"),
          ("server-1", "server.download"),
          ("server-1", "server.restore")]


def sha256_of_pin(cluster, pin_id):
    pinned = cluster.pin(pin_id=pin_id)
    layout = arithmetic.LayoutView(pinned.run.spec.layout)
    return layout.parameters_sha256(cluster.parameters(pinned=pinned))


def wait_mirrored(cluster, pin_id):
    def whole():
        cluster.check_alive()
        found = cluster.checkpoints().get(pin_id)
        return found is not None and found.pin.HasField("mirror")

    wait.until("%s is in the mirror" % pin_id, whole)


def lose_all(cluster):
    """Kills every program of the cluster, and deletes all but the mirror."""
    for name in list(cluster.processes):
        cluster.kill(name)
        shutil.rmtree(os.path.join(cluster.directory, name),
                      ignore_errors=True)


def restore(cluster, *arguments, check=0):
    """`atoll run restore URL`; returns the envelope's data, or its error."""
    done = cluster.run_cli("run", "restore", "file://" + cluster.mirror,
                           "--run-id", "run", *arguments, "-o", "json",
                           check=check)
    answer = json.loads(done.stdout)
    return answer["data"] if check == 0 else answer["error"]


def newest_manifest(cluster):
    """AdoptRunRequest.manifest of the mirror's newest checkpoint."""
    found = mirror.checkpoints(cluster)
    manifest = dict(found[max(found)])
    del manifest["parts"]
    return json.dumps(manifest).encode()


class StrictAdoptTest(cluster_module.IntegrationTest):
    """Islands that train."""

    FROM = "round-10"

    def test_everything_is_lost_and_the_run_continues_on_three_servers(self):
        values = self.run_values({"checkpoint_every_round_count": 10,
                                  "checkpoint": {"mirror": True},
                                  "schedule": {"round_count": 40}})

        def undisturbed(cluster):
            mirror.use(cluster)
            self.run_strict(cluster, values)
            return sha256_of_pin(cluster, self.FROM), cluster.spec()

        expected, spec = self.once("undisturbed", undisturbed)
        lost = self.cluster
        mirror.use(lost)
        lost.start_armed(spec, {})
        lost.wait_commits(14)
        # Else it may complete first.
        lost.runs.PauseRun(run_id="run")
        wait_mirrored(lost, self.FROM)
        lose_all(lost)

        cluster = self.new_cluster("new")
        cluster.mirror = lost.mirror
        cluster.start_coordinator()
        cluster.start_servers(3)
        dry = restore(cluster, "--server-count", "3", "--dry-run")
        self.assertEqual((dry["pin_id"], dry["server_count"], dry["changed"]),
                         (self.FROM, 3, False))
        done = restore(cluster, "--server-count", "3", "--yes")
        self.assertEqual(
            (done["pin_id"], done["cut_commit_seq"], done["run_epoch"],
             done["server_count"], done["changed"]),
            (self.FROM, "11", str(1 + JUMP), 3, True))
        self.assertEqual(len(cluster.run_state().servers), 3)
        self.assertEqual(sha256_of_pin(cluster, self.FROM), expected)

        cluster.start_islands()
        cluster.wait_state(cluster_module.COMPLETED)
        rounds = cluster.rounds()
        self.assertEqual([r.version for r in rounds], list(range(11, 41)))
        for name in ISLANDS:
            self.assertEqual(cluster.processes[name].wait(), 0, name)
        # The checkpoint from which it continues is copied again.
        wait.until("every checkpoint is of the new epoch", lambda: {
            c.pin.mirror.run_epoch
            for c in cluster.checkpoints().values()} == {1 + JUMP})
        self.assertEqual({epoch for epoch, _ in mirror.checkpoints(cluster)},
                         {1 + JUMP})


class TwoClustersTest(cluster_module.IntegrationTest):
    """Another cluster continues the run while the old one still lives."""

    CHANGES = {"checkpoint_every_round_count": 1,
               "checkpoint": {"mirror": True, "keep_count": 2},
               "schedule": {"round_count": 1000}}

    def play(self, cluster, members, count):
        """`count` rounds from the run's newest version on."""
        first = cluster.run_state().cut[0].version
        for version in range(first, first + count):
            toy.play_round(members, version, cases.seed())

    def test_each_keeps_its_checkpoints_and_one_is_the_owner(self):
        old = self.cluster
        mirror.use(old)
        old_members = toy.start(old, self.CHANGES)
        self.play(old, old_members, 3)
        mirror.wait_whole(old)

        new = self.new_cluster("new")
        new.mirror = old.mirror
        new.start_coordinator()
        new.start_servers(2)
        done = restore(new, "--yes")
        self.assertEqual((done["pin_id"], done["run_epoch"]),
                         ("round-3", str(1 + JUMP)))
        wait.until("the new cluster is the owner",
                   lambda: mirror.owner(new)["run_epoch"] == str(1 + JUMP))
        # It copies the checkpoint from which it began.
        wait_mirrored(new, "round-3")
        before = {c for e, c in mirror.checkpoints(new) if e == 1}
        self.assertNotIn(4, before)
        self.assertIn(3, before)

        # The old one goes on, and neither copies nor removes anything there.
        self.play(old, old_members, 4)
        shown = wait.until(
            "the old cluster says so",
            lambda: old.run_state().mirror.error or None)
        self.assertIn(mirror.owner(new)["cluster_id"], shown)
        self.assertIn("atoll run restore run", shown)
        told = old.run_cli("run", "show", "run").stdout
        self.assertIn("atoll run cancel run", " ".join(told.split()))
        self.assertIn("mirror", old.run_cli("doctor", "--operator",
                                            check=None).stdout)

        # The new one collects its own.
        members = [new.join("run", "python-%d" % i) for i in range(2)]
        for member in members:
            member.ready()
        self.play(new, members, 4)
        wait.until("every checkpoint of the new one is in the mirror", lambda: all(
            c.pin.HasField("mirror") for c in new.checkpoints().values()))
        mirrored = {c.pin.commit_seq for c in new.checkpoints().values()
                    if c.pin.HasField("mirror")}
        found = mirror.checkpoints(new, whole=False)
        self.assertEqual({c for e, c in found if e == 1}, before)
        self.assertEqual({c for e, c in found if e > 1}, mirrored)
        self.assertEqual(new.run_state().mirror.error, "")

        # The old one takes the run back, above the other's epoch.
        old.run_cli("run", "restore", "run", "--yes")
        self.assertEqual(old.run_state().run.run_epoch, 2 + JUMP)
        wait.until("it is the owner again", lambda: (
            mirror.owner(new)["run_epoch"] == str(2 + JUMP)))
        wait.until("its error has ended",
                   lambda: old.run_state().mirror.error == "")
        self.play(new, members, 2)
        wait.until("the new cluster says so",
                   lambda: new.run_state().mirror.error)
        self.assertLessEqual({place for place in found if place[0] > 1},
                             set(mirror.checkpoints(new, whole=False)))

    def test_a_run_that_is_adopted_again_has_new_numbers(self):
        cluster = self.cluster
        mirror.use(cluster)
        self.play(cluster, toy.start(cluster, self.CHANGES), 2)
        mirror.wait_whole(cluster)
        new = self.new_cluster("new")
        new.mirror = cluster.mirror
        new.start_coordinator()
        new.start_servers(2)
        place = "1/3"
        for jumps in (1, 2):
            done = restore(new, "--from", place, "--yes")
            self.assertEqual(done["run_epoch"], str(1 + JUMP * jumps))
            wait.until("it is the owner", lambda: (
                mirror.owner(new)["run_epoch"] == done["run_epoch"]))
            place = "commit:2"
            new.run_cli("run", "cancel", "run", check=0)
            new.run_cli("run", "delete", "run", check=0)


class ToyAdoptTest(cluster_module.IntegrationTest):
    """Islands in Python: the test decides what is pushed, and when."""

    CHANGES = {"checkpoint_every_round_count": 1,
               "checkpoint": {"mirror": True},
               "schedule": {"round_count": 7}}

    def setUp(self):
        super().setUp()

        def undisturbed(cluster):
            mirror.use(cluster)
            sha256 = toy.play(cluster, toy.start(cluster, self.CHANGES),
                              cases.seed(), 7)
            return sha256, sha256_of_pin(cluster, "round-5")

        def lost(cluster):
            mirror.use(cluster)
            members = toy.start(cluster, self.CHANGES)
            for version in range(5):
                toy.play_round(members, version, cases.seed())
            mirror.wait_whole(cluster)
            return cluster.mirror

        self.expected, self.expected_cut = self.once("undisturbed", undisturbed)
        self.lost = self.once("lost", lost)
        self.use(self.cluster)

    def use(self, cluster):
        """A cluster that is empty, and a mirror with the lost run."""
        mirror.use(cluster)
        shutil.copytree(self.lost, cluster.mirror)

    def go_on(self, cluster):
        """The islands join again, from the cut to the end."""
        members = [cluster.join("run", "python-%d" % i) for i in range(2)]
        for slot, member in enumerate(members):
            self.assertEqual(member.slot, slot)
            member.ready()
        for version in (5, 6):
            toy.play_round(members, version, cases.seed())
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(cluster.parameters_sha256(), self.expected)

    def test_a_cluster_of_another_size_goes_on_with_the_same_bits(self):
        for count in (1, 3):
            cluster = self.new_cluster("servers-%d" % count)
            self.use(cluster)
            cluster.start_coordinator()
            cluster.start_servers(count)
            done = restore(cluster, "--server-count", str(count), "--yes")
            self.assertEqual((done["pin_id"], done["changed"]),
                             ("round-5", True))
            self.assertEqual(sha256_of_pin(cluster, "round-5"),
                             self.expected_cut)
            # Typed again it changes nothing, and asks nothing.
            again = restore(cluster, "--server-count", str(count))
            self.assertEqual((again["run_epoch"], again["changed"]),
                             (done["run_epoch"], False))
            self.go_on(cluster)
            error = restore(cluster, "--server-count", str(count), "--yes",
                            "--from", "round-5", check=None)
            self.assertEqual(error["reason"], "RUN_EXISTS")
            cluster.close()

    def test_a_kill_at_each_step(self):
        for victim, prefix in POINTS:
            for moment in ("before", "after"):
                point = "%s.%s" % (prefix, moment)
                with self.subTest(point):
                    cluster = self.new_cluster(point)
                    self.use(cluster)
                    self.kill_at(cluster, victim, point)
                    cluster.close()

    def kill_at(self, cluster, victim, point):
        cluster.start_coordinator(
            failpoint=point if victim == "coordinator" else None)
        cluster.start_servers(3, {victim: point})
        try:
            cluster.runs.AdoptRun(manifest=newest_manifest(cluster),
                                  server_count=3)
        except grpc.RpcError as error:
            self.assertEqual(victim, "coordinator", error)
        cluster.await_failpoint(victim)
        cluster.restart(victim)
        cluster.coordinator.wait_ready(wait.PATIENCE_S)
        done = restore(cluster, "--server-count", "3", "--yes")
        self.assertEqual((done["pin_id"], done["run_epoch"]),
                         ("round-5", str(1 + JUMP)))
        self.assertEqual(sha256_of_pin(cluster, "round-5"), self.expected_cut)
        self.go_on(cluster)

    def test_an_older_checkpoint_by_name(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        error = restore(cluster, "--from", "round-6", "--yes", check=8)
        self.assertEqual(error["reason"], "NO_CHECKPOINT")
        self.assertIn("round-5", error["message"])
        done = restore(cluster, "--from", "commit:4", "--yes")
        self.assertEqual((done["pin_id"], done["server_count"]),
                         ("round-4", 2))
        # In place it can go back to where it began, and nowhere else.
        cluster.run_cli("run", "restore", "run", "--from", "round-3", "--yes",
                        check=8)

    def test_a_server_whose_mirror_lacks_the_checkpoint_says_so(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_server("server-0")
        whole = cluster.mirror
        cluster.mirror = os.path.join(cluster.directory, "other")
        cluster.start_server("server-1")
        cluster.mirror = whole
        error = restore(cluster, "--yes", check=5)
        self.assertIn("server-1", error["message"])
        self.assertIn("--mirror", error["message"])
        # With the right one it goes there.
        cluster.kill("server-1")
        cluster.restart("server-1")
        wait.until("every shard is at the cut", lambda: all(
            s.persisted_commit_seq == cluster.run_state().commit_seq
            for s in cluster.run_state().servers))
        self.assertEqual(restore(cluster, "--yes")["pin_id"], "round-5")
        cluster.runs.ResumeRun(run_id="run")
        self.go_on(cluster)

    def test_a_cluster_without_a_mirror_refuses(self):
        cluster = self.cluster
        whole, cluster.mirror = cluster.mirror, None
        cluster.start_coordinator()
        cluster.mirror = whole
        error = restore(cluster, "--yes", check=9)
        self.assertEqual(error["reason"], "NO_MIRROR")
        error = restore(cluster, check=2)
        self.assertIn("--dry-run", error["hint"])


if __name__ == "__main__":
    cases.main()
