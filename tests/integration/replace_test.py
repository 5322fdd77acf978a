#!/usr/bin/python3
"""`atoll server replace`: a run continues after a server's disk is lost.

"The bits" are the SHA-256 of the undisturbed run's parameters at that commit.
"""

import json
import os
import shutil

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import faults
from harness import mirror
from harness import toy
from harness import wait

VICTIM = "server-1"
ISLANDS = ("island-0", "island-1", "island-2")
FROM = "round-10"


def replace(cluster, *arguments, check=0):
    """`atoll server replace server-1`; returns the envelope's data, or its
    error."""
    done = cluster.run_cli("server", "replace", VICTIM, "--yes", *arguments,
                           "-o", "json", check=check)
    answer = json.loads(done.stdout)
    return answer["data"] if check == 0 else answer["error"]


def sha256_of_pin(cluster, pin_id):
    pinned = cluster.pin(pin_id=pin_id)
    layout = arithmetic.LayoutView(pinned.run.spec.layout)
    return layout.parameters_sha256(cluster.parameters(pinned=pinned))


def lose_disk(cluster, copy=None):
    """The victim is killed and its directory deleted; `copy` takes its
    place."""
    directory = os.path.join(cluster.directory, VICTIM)
    cluster.kill(VICTIM)
    shutil.rmtree(directory)
    if copy is not None:
        os.rename(copy, directory)


def accept(cluster):
    """Waits until the coordinator takes the victim's next process."""
    def accepted():
        cluster.check_alive()
        return not cluster.runs.ReplaceServer(server_id=VICTIM).registered

    wait.until("the next process of the server is accepted", accepted)


def wait_mirrored(cluster, pin_id):
    def whole():
        cluster.check_alive()
        found = cluster.checkpoints().get(pin_id)
        return found is not None and found.pin.HasField("mirror")

    wait.until("%s is in the mirror" % pin_id, whole)


class StrictReplaceTest(cluster_module.IntegrationTest):
    """Islands that train, and a mirror."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"checkpoint_every_round_count": 10,
                                     "checkpoint": {"mirror": True},
                                     "schedule": {"round_count": 40}})

    def setUp(self):
        super().setUp()

        def undisturbed(cluster):
            mirror.use(cluster)
            self.run_strict(cluster, self.values)
            return sha256_of_pin(cluster, FROM), cluster.spec()

        self.expected, self.spec = self.once("undisturbed", undisturbed)

    def start(self):
        cluster = self.cluster
        mirror.use(cluster)
        cluster.start_armed(self.spec, {})
        cluster.wait_commits(14)
        # Else it may complete first. A restore resumes it.
        cluster.runs.PauseRun(run_id="run")
        wait_mirrored(cluster, FROM)

    def test_a_deleted_directory_comes_back_from_the_mirror(self):
        cluster = self.cluster
        self.start()
        pids = {name: cluster.processes[name].pid for name in ISLANDS}
        lose_disk(cluster)
        # A new directory is refused, and the run says which command helps.
        cluster.restart(VICTIM)
        cluster.may_end(VICTIM)
        cluster.processes[VICTIM].wait()
        fault = faults.wait_fault(cluster, "OTHER_DIRECTORY")
        self.assertIn(VICTIM, fault["expected"])
        self.assertEqual(fault["next_command"],
                         "atoll server replace " + VICTIM)
        accept(cluster)
        cluster.restart(VICTIM)
        done = replace(cluster)
        run, = done["runs"]
        self.assertEqual((run["run_id"], run["pin_id"], run["cut_commit_seq"]),
                         ("run", FROM, "11"))

        self.finish_strict(cluster, self.values)
        self.assertEqual(sha256_of_pin(cluster, FROM), self.expected)
        self.assertEqual({name: cluster.processes[name].pid
                          for name in ISLANDS}, pids)
        for name in ISLANDS:
            self.assertEqual(cluster.processes[name].wait(), 0, name)
        # Typed again it restores nothing.
        self.assertEqual(replace(cluster)["runs"], [])


class ToyReplaceTest(cluster_module.IntegrationTest):
    """Islands in Python: the test decides what is pushed, and when."""

    CHANGES = {"checkpoint_every_round_count": 1,
               "schedule": {"round_count": 7}}
    MIRRORED = dict(CHANGES, checkpoint={"mirror": True})

    def setUp(self):
        super().setUp()
        self.expected = self.once("undisturbed", lambda cluster: toy.play(
            cluster, toy.start(cluster, self.CHANGES), cases.seed(), 7))

    def play(self, first, last):
        """Plays rounds; each is durable on all servers before the next."""
        for version in range(first, last):
            toy.play_round(self.members, version, cases.seed())
            wait.until("every server has persisted it", lambda: all(
                s.persisted_commit_seq == self.cluster.run_state().commit_seq
                for s in self.cluster.run_state().servers))

    def go_on(self, version, run_epoch=2):
        """The islands continue from the restored version, to the end."""
        for member in self.members:
            member.wait_plan("the restore is in the plan",
                             lambda plan: plan.run_epoch == run_epoch)
            self.assertEqual(member.plan.cut[0].version, version)
            member.ready()
        self.play(version, 7)
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(), self.expected)

    def start_mirrored(self):
        """Plays five rounds; the mirror has the newest checkpoint."""
        cluster = self.cluster
        mirror.use(cluster)
        self.members = toy.start(cluster, self.MIRRORED)
        self.play(0, 5)
        wait_mirrored(cluster, "round-5")

    def test_the_shard_goes_to_another_server(self):
        cluster = self.cluster
        self.start_mirrored()
        cluster.start_server("server-2")
        lose_disk(cluster)
        done = replace(cluster, "--with", "server-2")
        self.assertEqual(done["server_id"], "server-2")
        run, = done["runs"]
        self.assertEqual(run["pin_id"], "round-5")
        owners = {s.placement.server_id
                  for s in cluster.run_state().servers}
        self.assertEqual(owners, {"server-0", "server-2"})
        self.go_on(5)

    def test_a_disk_that_is_lost_again_before_the_next_commit(self):
        cluster = self.cluster
        self.start_mirrored()
        for epoch in (2, 3):
            lose_disk(cluster)
            accept(cluster)
            cluster.restart(VICTIM)
            run, = replace(cluster)["runs"]
            self.assertEqual((run["pin_id"], run["run_epoch"]),
                             ("round-5", str(epoch)))
        self.go_on(5, run_epoch=3)

    def test_without_a_mirror_nothing_can_be_had(self):
        cluster = self.cluster
        self.members = toy.start(cluster, self.CHANGES)
        self.play(0, 3)
        cluster.wait_durable("round-3")
        lose_disk(cluster)
        accept(cluster)
        cluster.restart(VICTIM)
        error = replace(cluster, check=9)
        self.assertEqual(error["reason"], "NOT_DURABLE")
        self.assertIn(VICTIM, error["message"])
        self.assertIn("atoll run import", error["hint"])
        self.assertEqual(cluster.run_state().run.run_epoch, 1)

    def incarnation(self):
        server, = [s for s in self.cluster.run_state().servers
                   if s.placement.server_id == VICTIM]
        return server.placement.incarnation

    def test_an_older_copy_is_accepted(self):
        cluster = self.cluster
        self.members = toy.start(cluster, self.CHANGES)
        self.play(0, 3)
        cluster.wait_durable("round-1", "round-2", "round-3")
        directory = os.path.join(cluster.directory, VICTIM)
        cluster.kill(VICTIM)
        shutil.copytree(directory, directory + ".older")
        # Two more starts, so that the copy's next one is not the newest.
        for last in (False, True):
            before = self.incarnation()
            cluster.restart(VICTIM)
            wait.until("the server is back",
                       lambda: self.incarnation() > before)
            if not last:
                cluster.kill(VICTIM)
        self.play(3, 5)
        lose_disk(cluster, copy=directory + ".older")
        accept(cluster)
        cluster.restart(VICTIM)
        run, = replace(cluster)["runs"]
        self.assertEqual((run["pin_id"], run["lost_commit_count"]),
                         ("round-3", "2"))
        self.go_on(3)


if __name__ == "__main__":
    cases.main()
