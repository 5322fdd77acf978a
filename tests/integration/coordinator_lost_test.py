#!/usr/bin/python3
"""`atoll-coordinator restore`: servers and islands continue after the coordinator's
disk is lost.

"The bits" are the SHA-256 of the undisturbed run's parameters at that commit.
"""

import glob
import os
import shutil
import signal
import subprocess

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import faults
from harness import gated
from harness import mirror
from harness import processes
from harness import run_file
from harness import toy
from harness import wait

ISLANDS = ("island-0", "island-1", "island-2")
FROM = "round-10"
JUMP = 10**9

FROM_MIRROR = ("restore_log.jump.before", "restore_log.jump.after",
               "restore_log.batch.after")
FROM_COPY = ("restore_log.copy.before", "restore_log.copy.after",
             "restore_log.supersede.after", "restore_log.rename.after")


def data_dir(cluster):
    return os.path.join(cluster.directory, "coordinator")


def call(*arguments, check=0):
    """Runs atoll-coordinator to its end; returns what it prints."""
    done = subprocess.run(
        [processes.binary(processes.COORDINATOR)] + list(arguments),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=wait.PATIENCE_S, check=False)
    assert done.returncode == check, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def restore(cluster, source, *flags, failpoint="", check=0):
    """`atoll-coordinator restore` in place of the lost directory."""
    armed = ["--failpoint=" + failpoint] if failpoint else []
    return call(*armed, "restore", "--data-dir=" + data_dir(cluster),
                "--from=" + source, *flags, check=check)


def keep_secret(cluster):
    """Writes the log's secret to a file; returns the flag for a restore."""
    path = os.path.join(cluster.directory, "log.secret")
    call("secret", "--data-dir=" + data_dir(cluster), "--output=" + path)
    return "--secret-file=" + path


def mirror_url(cluster):
    return "file://" + cluster.mirror


def lose(cluster):
    """The coordinator is killed and its directory deleted."""
    cluster.kill("coordinator")
    shutil.rmtree(data_dir(cluster))


def copy(cluster):
    """Copies the directory while the coordinator is down, and starts it again;
    returns the copy."""
    target = data_dir(cluster) + ".older"
    cluster.kill("coordinator")
    shutil.copytree(data_dir(cluster), target)
    cluster.restart("coordinator")
    return target


def wait_mirrored(cluster, pin_id):
    def whole():
        cluster.check_alive()
        found = cluster.checkpoints().get(pin_id)
        return found is not None and found.pin.HasField("mirror")

    wait.until("%s is in the mirror" % pin_id, whole)


def wait_described(cluster, text):
    """Waits until the newest cluster object has `text`."""
    def described():
        cluster.check_alive()
        names = sorted(glob.glob(
            os.path.join(cluster.mirror, "cluster", "*", "*.json")))
        if not names:
            return False
        try:
            with open(names[-1], encoding="utf-8") as file:
                return text in file.read()
        except FileNotFoundError:
            return False  # It was collected.

    wait.until("the mirror's cluster object has %s" % text, described)


def sha256_of_pin(cluster, pin_id):
    pinned = cluster.pin(pin_id=pin_id)
    layout = arithmetic.LayoutView(pinned.run.spec.layout)
    return layout.parameters_sha256(cluster.parameters(pinned=pinned))


class StrictLostTest(cluster_module.IntegrationTest):
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
        """Runs to a few commits after the checkpoint, which is in the
        mirror."""
        cluster = self.cluster
        mirror.use(cluster)
        cluster.start_armed(self.spec, {})
        cluster.wait_commits(14)
        # Else it may complete first. A restore resumes it.
        cluster.runs.PauseRun(run_id="run")
        wait_mirrored(cluster, FROM)
        wait_described(cluster, '"server-1"')

    def check_goes_on(self, told, pids, restores=1, first_round=11):
        """The peers that lived on complete the run. `restores`: from the same
        source. A copy has the rounds before it, the mirror has none."""
        cluster = self.cluster
        self.assertIn("run run: continues from commit 10 (%s of " % FROM, told)
        cluster.restart("coordinator")
        cluster.wait_state(cluster_module.COMPLETED)
        state = cluster.run_state()
        self.assertEqual(state.run.run_epoch, 1 + 1000 * restores)
        self.assertEqual((state.run.restored.pin_id,
                          state.run.restored.commit_seq),
                         (FROM, JUMP * restores))
        rounds = cluster.rounds()
        self.assertEqual([r.version for r in rounds], list(range(first_round, 41)))
        for r in rounds:
            self.assertEqual([c.info.key.slot for c in r.contributions],
                             [0, 1, 2])
        self.assertEqual(sha256_of_pin(cluster, FROM), self.expected)
        self.assertEqual(
            {name: cluster.processes[name].pid for name in pids}, pids)
        for name in ISLANDS:
            self.assertEqual(cluster.processes[name].wait(), 0, name)

    def pids(self):
        return {name: self.cluster.processes[name].pid
                for name in ISLANDS + ("server-0", "server-1")}

    def test_from_the_mirror_with_the_secret(self):
        cluster = self.cluster
        self.start()
        secret = keep_secret(cluster)
        pids = self.pids()
        lose(cluster)
        # It asks for a decision, and changes nothing before.
        told = restore(cluster, mirror_url(cluster), check=4)
        self.assertIn("--without-secret", told)
        self.assertFalse(os.path.exists(data_dir(cluster)))
        told = restore(cluster, mirror_url(cluster), secret)
        self.check_goes_on(told, pids)
        # A log that has started is no longer replaced.
        told = restore(cluster, mirror_url(cluster), secret, check=9)
        self.assertIn("has a log", told)

    def test_from_the_mirror_without_the_secret(self):
        cluster = self.cluster
        self.start()
        pids = self.pids()
        lose(cluster)
        told = restore(cluster, mirror_url(cluster), "--without-secret")
        self.check_goes_on(told, pids)

    def test_from_an_older_copy_of_the_directory(self):
        cluster = self.cluster
        mirror.use(cluster)
        cluster.start_armed(self.spec, {})
        cluster.wait_commits(12)
        cluster.runs.PauseRun(run_id="run")
        cluster.wait_durable(FROM)
        older = copy(cluster)
        cluster.retry(cluster.runs.ResumeRun, run_id="run")
        cluster.wait_commits(cluster.run_state().commit_seq + 2)
        cluster.runs.PauseRun(run_id="run")
        pids = self.pids()
        lose(cluster)
        self.check_goes_on(restore(cluster, older), pids, first_round=1)

    def test_the_lost_coordinator_that_comes_back_is_refused(self):
        cluster = self.cluster
        self.start()
        secret = keep_secret(cluster)
        pids = self.pids()
        lost = os.path.join(cluster.directory, "lost")
        cluster.kill("coordinator")
        os.rename(data_dir(cluster), lost)
        told = restore(cluster, mirror_url(cluster), secret)
        cluster.restart("coordinator")
        cluster.wait_commits(JUMP + 1)
        cluster.kill("coordinator")
        cluster.start_other_coordinator(lost)
        faults.wait_fault(cluster, "LOG_BEHIND")
        cluster.kill("coordinator")
        self.check_goes_on(told, pids)


    def test_of_two_restores_from_one_copy_the_newer_wins(self):
        cluster = self.cluster
        self.start()
        older = copy(cluster)
        pids = self.pids()
        lose(cluster)
        restore(cluster, older)
        first = os.path.join(cluster.directory, "first")
        cluster.restart("coordinator")
        cluster.wait_commits(JUMP + 1)
        # Else it may complete first.
        cluster.retry(cluster.runs.PauseRun, run_id="run")
        cluster.kill("coordinator")
        os.rename(data_dir(cluster), first)
        told = restore(cluster, older)
        cluster.restart("coordinator")
        cluster.wait_commits(2 * JUMP + 1)
        cluster.kill("coordinator")
        cluster.start_other_coordinator(first)
        faults.wait_fault(cluster, "LOG_BEHIND")
        cluster.kill("coordinator")
        self.check_goes_on(told, pids, restores=2, first_round=1)


class ToyLostTest(cluster_module.IntegrationTest):
    """Islands in Python: the test decides what is pushed, and when."""

    CHANGES = {"checkpoint_every_round_count": 1,
               "schedule": {"round_count": 5}}
    MIRRORED = dict(CHANGES, checkpoint={"mirror": True})

    def play(self, members, first, last):
        for version in range(first, last):
            toy.play_round(members, version, cases.seed())

    def test_a_kill_at_each_step_and_the_same_command_again(self):
        cluster = self.cluster
        expected = self.once("undisturbed", lambda other: toy.play(
            other, toy.start(other, self.CHANGES), cases.seed(), 5))
        mirror.use(cluster)
        self.play(toy.start(cluster, self.MIRRORED), 0, 3)
        wait_mirrored(cluster, "round-3")
        wait_described(cluster, '"server-1"')
        secret = keep_secret(cluster)
        older = copy(cluster)
        lose(cluster)
        sources = [(older, (), point) for point in FROM_COPY]
        sources += [(mirror_url(cluster), (secret,), point)
                    for point in FROM_MIRROR]
        for source, flags, point in sources:
            with self.subTest(point=point):
                shutil.rmtree(data_dir(cluster), ignore_errors=True)
                restore(cluster, source, *flags, failpoint=point,
                        check=-signal.SIGKILL)
                told = restore(cluster, source, *flags)
                self.assertIn("continues from commit 3 (round-3 of ", told)
                self.assertFalse(
                    os.path.exists(data_dir(cluster) + ".restoring"))
        cluster.restart("coordinator")
        cluster.retry(cluster.runs.GetRun, run_id="run")
        members = [cluster.join("run", "python-%d" % i) for i in range(2)]
        for member in members:
            self.assertGreater(member.epoch, 1000)
            member.wait_plan("the restore is in the plan",
                             lambda plan: plan.run_epoch > 1000)
            member.ready()
        self.play(members, 3, 5)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(cluster.parameters_sha256(), expected)


class EnrolledLostTest(gated.GatedTest):
    """A volunteer, which had a join string once."""

    def test_a_volunteer_goes_on_without_a_new_string(self):
        cluster = self.cluster
        mirror.use(cluster)
        self.start()
        self.create_run(run_file.ELASTIC, {
            "checkpoint_every_round_count": 5, "checkpoint": {"mirror": True},
            "schedule": {"round_count": 1000000}})
        cluster.start_volunteer("volunteer-0", self.token())
        wait_described(cluster, '"identities"')
        wait.until("a checkpoint is in the mirror", lambda: any(
            c.pin.HasField("mirror") for c in cluster.checkpoints().values()))
        secret = keep_secret(cluster)
        lose(cluster)
        restore(cluster, mirror_url(cluster), secret)
        cluster.restart("coordinator")
        cluster.wait_commits(JUMP + 2)
        self.assertIsNone(cluster.processes["volunteer-0"].poll())
        self.assertEqual(len(cluster.islands()), 1)


if __name__ == "__main__":
    cases.main()
