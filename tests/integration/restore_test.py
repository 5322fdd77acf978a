#!/usr/bin/python3
"""`atoll run restore`: a run goes back to a checkpoint, in place, and trains on.

"The bits" are the SHA-256 of the undisturbed run's parameters at that commit.
Islands in Python push the same values for the same version, so their run also
ends with the undisturbed run's parameters.
"""

import json
import os
import shutil
import signal

from harness import arithmetic
from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import damage
from harness import faults
from harness import toy
from harness import wait

VICTIM = "server-1"
ISLANDS = ("island-0", "island-1", "island-2")
FROM = "round-10"


def restore(cluster, *arguments, check=0):
    """`atoll run restore run`; returns the envelope's data, or its error."""
    done = cluster.run_cli("run", "restore", "run", *arguments, "-o", "json",
                           check=check)
    answer = json.loads(done.stdout)
    return answer["data"] if check == 0 else answer["error"]


def sha256_of_pin(cluster, pin_id):
    pinned = cluster.pin(pin_id=pin_id)
    layout = arithmetic.LayoutView(pinned.run.spec.layout)
    return layout.parameters_sha256(cluster.parameters(pinned=pinned))


class StrictRestoreTest(cluster_module.IntegrationTest):
    """Islands that train."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"checkpoint_every_round_count": 10,
                                     "schedule": {"round_count": 40}})

    def setUp(self):
        super().setUp()

        def undisturbed(cluster):
            self.run_strict(cluster, self.values)
            return sha256_of_pin(cluster, FROM), cluster.spec()

        self.expected, self.spec = self.once("undisturbed", undisturbed)

    def start(self, armed=None):
        """Runs to a few commits after the checkpoint."""
        cluster = self.cluster
        cluster.start_armed(self.spec, armed or {})
        cluster.wait_commits(14)
        cluster.wait_durable(FROM)

    def finish(self, run_epoch=2):
        """The run completes; its history has one past."""
        cluster = self.cluster
        self.finish_strict(cluster, self.values)
        state = cluster.run_state()
        self.assertEqual(state.run.run_epoch, run_epoch)
        newest = state.run.restored
        self.assertEqual((newest.run_epoch, newest.pin_id),
                         (run_epoch, FROM))
        self.assertEqual(newest.cut_commit_seq, 11)
        self.assertGreaterEqual(newest.commit_seq, 15)
        lost = range(newest.cut_commit_seq, newest.commit_seq + 1)
        for r in cluster.rounds():
            self.assertNotIn(r.commit_seq, lost)
        self.assertEqual(sha256_of_pin(cluster, FROM), self.expected)

    def test_islands_go_on_by_themselves_and_the_run_completes(self):
        cluster = self.cluster
        self.start()
        # Else it may complete first. A restore resumes it.
        cluster.runs.PauseRun(run_id="run")
        pids = {name: cluster.processes[name].pid for name in ISLANDS}
        asked = restore(cluster, "--from", FROM, "--dry-run")
        self.assertFalse(asked["changed"])
        self.assertGreaterEqual(int(asked["lost_commit_count"]), 4)
        self.assertGreater(int(asked["lost_token_count"]), 0)
        self.assertEqual(cluster.run_state().run.run_epoch, 1)
        # There is no terminal to ask at.
        error = restore(cluster, "--from", FROM, check=2)
        self.assertIn("--yes", error["hint"])
        self.assertEqual(cluster.run_state().run.run_epoch, 1)

        done = restore(cluster, "--from", FROM, "--yes")
        self.assertTrue(done["changed"])
        self.assertEqual((done["run_epoch"], done["pin_id"],
                          done["cut_commit_seq"]), ("2", FROM, "11"))
        self.finish()
        self.assertEqual({name: cluster.processes[name].pid
                          for name in ISLANDS}, pids)
        for name in ISLANDS:
            self.assertEqual(cluster.processes[name].wait(), 0, name)
        self.check_what_readers_see()

    def check_what_readers_see(self):
        cluster = self.cluster
        shown = " ".join(cluster.run_cli("run", "show", "run",
                                         check=0).stdout.split())
        self.assertIn("to %s, the state after commit 10, at " % FROM, shown)
        self.assertEqual(
            faults.shown(cluster)["run"]["restored"]["pin_id"], FROM)
        data = json.loads(cluster.run_cli("metrics", "run", "-o", "json",
                                          check=0).stdout)["data"]
        mark, = data["restores"]
        lost = range(int(mark["cut_commit_seq"]), int(mark["commit_seq"]))
        for series in data["series"]:
            if series["name"] != "outer/gradient_norm":
                continue
            self.assertEqual(len(series["points"]), 40)
            for point in series["points"]:
                self.assertNotIn(int(point["commit_seq"]), lost)
        listed = cluster.run_cli("round", "list", "run", check=0).stdout
        self.assertIn("restored to the state after commit 10", listed)
        path = os.path.join(cluster.directory, "curves.csv")
        cluster.run_cli("run", "watch", "run", "--csv", path, check=0)
        with open(path, encoding="utf-8") as file:
            rows = [line.rstrip("\n").split(",") for line in file][1:]
        self.assertEqual(len(rows), 41)
        self.assertEqual([row[0] for row in rows if not row[1]],
                         [mark["commit_seq"]])

    def test_the_newest_cut_is_the_checkpoint_bit_for_bit(self):
        cluster = self.cluster
        self.start()
        for name in ISLANDS:
            cluster.kill(name)
        error = restore(cluster, "--from", "commit:7", "--yes", check=8)
        self.assertEqual(error["reason"], "NO_CHECKPOINT")
        self.assertIn(FROM, error["message"])
        done = restore(cluster, "--from", "commit:10", "--yes")
        self.assertEqual(done["pin_id"], FROM)
        self.assertEqual(cluster.parameters_sha256(), self.expected)
        # Typed again before the next commit it changes nothing.
        again = restore(cluster, "--from", "commit:10", "--yes")
        self.assertEqual((again["changed"], again["run_epoch"]), (False, "2"))
        for name in ISLANDS:
            cluster.restart(name)
        self.finish()

    def test_a_completed_run_is_restored_and_completes_again(self):
        cluster = self.cluster
        cluster.start_armed(self.spec, {})
        cluster.wait_state(cluster_module.COMPLETED)
        for name in ISLANDS:
            self.assertEqual(cluster.processes[name].wait(), 0, name)
        cluster.wait_durable(FROM, "final")
        done = restore(cluster, "--from", FROM, "--yes")
        self.assertEqual(done["lost_commit_count"], "30")
        for name in ISLANDS:
            cluster.restart(name)
        self.finish()

    def test_a_cancelled_run_is_refused(self):
        cluster = self.cluster
        self.start()
        cluster.runs.CancelRun(run_id="run")
        restore(cluster, "--from", FROM, "--yes", check=9)
        run = cluster.runs.GetRun(run_id="run").run
        self.assertEqual(run.run_epoch, 1)

    def test_islands_that_die_around_a_restore_come_back(self):
        cluster = self.cluster
        self.start()
        # One sleeps over the restore, one dies before it and one after it.
        cluster.processes["island-0"].signal(signal.SIGSTOP)
        cluster.kill("island-1")
        restore(cluster, "--from", FROM, "--yes")
        cluster.kill("island-2")
        cluster.processes["island-0"].signal(signal.SIGCONT)
        cluster.restart("island-1")
        cluster.restart("island-2")
        self.finish()

    def kill_at(self, victim, point):
        """The victim dies once; then the same command goes on."""
        cluster = self.cluster
        self.start({victim: point})
        # It also waits for what the victim does not do yet.
        cluster.run_cli("run", "restore", "run", "--from", FROM, "--yes",
                        "--patience", "1s", "--timeout", "5s")
        cluster.await_failpoint(victim)
        cluster.restart(victim)
        cluster.coordinator.wait_ready(wait.PATIENCE_S)
        restore(cluster, "--from", FROM, "--yes")
        # Typed after further commits it is another restore.
        epoch = cluster.run_state().run.run_epoch
        self.assertIn(epoch, (2, 3))
        self.finish(epoch)

    def test_the_coordinator_dies_before_it_has_decided(self):
        self.kill_at("coordinator", "coordinator.restore.before")

    def test_the_coordinator_dies_after_it_has_decided(self):
        self.kill_at("coordinator", "coordinator.restore.after")

    def test_a_server_dies_before_it_has_gone_back(self):
        self.kill_at(VICTIM, "server.restore.before")

    def test_a_server_dies_after_it_has_gone_back(self):
        self.kill_at(VICTIM, "server.restore.after")


class ToyRestoreTest(cluster_module.IntegrationTest):
    """Islands in Python: the test decides what is pushed, and when."""

    CHANGES = {"checkpoint_every_round_count": 1,
               "schedule": {"round_count": 7}}

    def setUp(self):
        super().setUp()
        self.expected = self.once("undisturbed", lambda cluster: toy.play(
            cluster, toy.start(cluster, self.CHANGES), cases.seed(), 7))

    def play(self, first, last):
        """Plays rounds; each is durable on both servers before the next."""
        for version in range(first, last):
            toy.play_round(self.members, version, cases.seed())
            wait.until("every server has persisted it", lambda: all(
                s.persisted_commit_seq == self.cluster.run_state().commit_seq
                for s in self.cluster.run_state().servers))

    def go_on(self, version):
        """The islands continue from the restored version, to the end."""
        for member in self.members:
            member.wait_plan("the restore is in the plan",
                             lambda plan: plan.run_epoch == 2)
            self.assertEqual(member.plan.cut[0].version, version)
            member.ready()
        self.play(version, 7)
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(), self.expected)

    def test_a_poisoned_model_goes_back_to_the_checkpoint_before(self):
        self.members = toy.start(self.cluster, self.CHANGES)
        self.play(0, 3)
        self.cluster.wait_durable("round-3")
        for member in self.members:
            member.wait_open(3)
        for member in self.members:
            count = member.layout.fragments[0].element_count
            member.contribution([1e30] * count, 3).push()
        for member in self.members:
            member.wait_version(4)
        self.cluster.wait_durable("round-3")
        done = restore(self.cluster, "--from", "round-3", "--yes")
        self.assertEqual(done["lost_commit_count"], "1")
        self.go_on(3)

    def test_contributions_of_the_lost_past_are_refused(self):
        cluster = self.cluster
        self.members = toy.start(cluster, self.CHANGES)
        self.play(0, 3)
        cluster.wait_durable("round-2")
        for member in self.members:
            member.wait_open(3)
        old = self.members[0].contribution(
            self.members[0].random_values("old"), 3)
        old.push()
        late = self.members[1].contribution(
            self.members[1].random_values("late"), 3)
        restore(cluster, "--from", "round-2", "--yes")
        details = client.error_of(late.push)
        self.assertEqual(details.code.name, "ABORTED")
        self.go_on(2)
        for r in cluster.rounds():
            for c in r.contributions:
                if r.commit_seq > 3:
                    self.assertEqual(c.info.key.run_epoch, 2)

    def restore_an_older_copy(self, coordinator_restarts):
        """A server's directory of two commits ago is put in its place."""
        cluster = self.cluster
        self.members = toy.start(cluster, self.CHANGES)
        self.play(0, 3)
        cluster.wait_durable("round-1", "round-2", "round-3")
        directory = os.path.join(cluster.directory, VICTIM)
        cluster.kill(VICTIM)
        shutil.copytree(directory, directory + ".older")
        cluster.restart(VICTIM)
        self.play(3, 5)
        cluster.wait_durable("round-5")
        cluster.kill(VICTIM)
        if coordinator_restarts:
            cluster.kill("coordinator")
        os.rename(directory, directory + ".newest")
        os.rename(directory + ".older", directory)
        before = damage.versions(cluster, VICTIM)
        if coordinator_restarts:
            cluster.restart("coordinator")
        cluster.restart(VICTIM)

        # At the newest COMMIT the log knew of commit 4 alone.
        acknowledged = 4 if coordinator_restarts else 5
        fault = faults.wait_fault(cluster, "SHARD_BEHIND")
        self.assertIn("commit %d" % acknowledged, fault["expected"])
        self.assertIn(VICTIM, fault["expected"])
        self.assertIn("commit 3", fault["found"])
        cluster.wait_state(cluster_module.PAUSED)
        # Nothing was merged, and nothing removed.
        self.assertEqual(damage.versions(cluster, VICTIM), before)
        server, = [s for s in cluster.run_state().servers
                   if s.placement.server_id == VICTIM]
        self.assertEqual((server.persisted_commit_seq,
                          server.acknowledged_commit_seq), (3, acknowledged))
        text = " ".join(cluster.run_cli("run", "show", "run",
                                        check=0).stdout.split())
        self.assertIn("server %s has commit 3, it acknowledged %d" % (
            VICTIM, acknowledged), text)

        # With both servers' reports it names what both hold.
        wait.until("the newest checkpoint that both hold is named", lambda: (
            faults.shown(cluster)["run"]["fault"]["next_command"] ==
            "atoll run restore run --from round-3"))
        error = restore(cluster, "--from", "round-5", "--yes", check=9)
        self.assertEqual(error["reason"], "NOT_DURABLE")
        self.assertIn(VICTIM, error["message"])
        done = restore(cluster, "--yes")
        self.assertEqual((done["pin_id"], done["lost_commit_count"]),
                         ("round-3", "2"))
        self.go_on(3)
        self.assertFalse(cluster.run_state().run.HasField("fault"))

    def test_an_older_copy_of_a_server_is_found_and_brought_back(self):
        self.restore_an_older_copy(coordinator_restarts=False)

    def test_the_log_knows_it_too(self):
        self.restore_an_older_copy(coordinator_restarts=True)

    def lose_version(self, version):
        """Plays four rounds; the victim then starts without a version."""
        cluster = self.cluster
        self.members = toy.start(cluster, self.CHANGES)
        self.play(0, 4)
        cluster.wait_durable("round-1", "round-2", "round-3", "round-4")
        cluster.kill(VICTIM)
        path, = [p for p in damage.versions(cluster, VICTIM)
                 if p.endswith("f0-v%d.ver" % version)]
        damage.remove(path)
        cluster.restart(VICTIM)

    def test_the_newest_version_that_is_lost_is_brought_back(self):
        cluster = self.cluster
        self.lose_version(4)
        faults.wait_fault(cluster, "DATA_LOSS")
        command = wait.until("a checkpoint is named", lambda: (
            faults.shown(cluster)["run"]["fault"]["next_command"]
            if "restore" in
            faults.shown(cluster)["run"]["fault"]["next_command"] else None))
        self.assertEqual(command, "atoll run restore run --from round-3")
        cluster.run_cli(*command.split()[1:], "--yes", check=0)
        self.go_on(3)

    def test_a_cut_that_a_server_has_lost_is_refused(self):
        cluster = self.cluster
        self.lose_version(2)
        wait.until("the loss is reported", lambda: any(
            shard.fault for shard in cluster.checkpoints()["round-2"].shards))
        error = restore(cluster, "--from", "round-2", "--yes", check=9)
        self.assertEqual(error["reason"], "NOT_DURABLE")
        self.assertIn(VICTIM, error["message"])
        self.assertEqual(cluster.run_state().run.run_epoch, 1)
        cluster.wait_durable("round-1")
        restore(cluster, "--from", "round-1", "--yes")
        self.go_on(1)


if __name__ == "__main__":
    cases.main()
