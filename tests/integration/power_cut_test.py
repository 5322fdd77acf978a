#!/usr/bin/python3
"""A power failure at level `machine`: unsynced writes are lost, all or some.

As kill_test, but the victim restarts with only what it had synced
(harness/power.py). StormTest cuts the power again and again, in the middle of
writes. By hand, as many cuts as wanted:

    tests/integration/power_cut_test.py --cuts 1000
"""

import collections
import os
import random
import shutil
import signal
import sys
import time

import grpc

from harness import cases
from harness import cluster as cluster_module
from harness import power
from harness import processes
from harness import wait

# Points just before or after a process reports that something is durable.
POINTS = [
    ("coordinator", "coordinator.run.after"),
    ("coordinator", "coordinator.open.after@2"),
    ("coordinator", "coordinator.seal.after@2"),
    ("coordinator", "coordinator.commit.before@2"),
    ("coordinator", "coordinator.commit.after@2"),
    ("coordinator", "coordinator.snapshot.before@3"),
    ("coordinator", "coordinator.snapshot.after@3"),
    ("server-0", "server.run.after"),
    ("server-1", "server.version0.after"),
    ("server-0", "server.stored.before@2"),
    ("server-1", "server.stored.after@2"),
    ("server-0", "server.prepared.after@2"),
    ("server-1", "server.state.sealed@2"),
    ("server-0", "server.state.renamed@2"),
    ("server-1", "server.state.after@2"),
    ("island-1", "island.save.after@2"),
    ("island-1", "island.pushed.after@2"),
]

# Points at which a server always has unsynced writes: records of chunks, an
# unfinished version. At other points it depends on concurrent pushes.
LOSSES = {"server.stored.before@2", "server.prepared.after@2",
          "server.state.sealed@2"}


class PowerCutTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"durability": "machine"})

    def setUp(self):
        super().setUp()
        self.reference, self.spec = self.once("undisturbed", lambda cluster: (
            self.run_strict(cluster, self.values), cluster.spec()))

    def cut_at(self, victim, point):
        cluster = self.cluster
        disk = cluster.cut_power_of(victim)
        self.assert_a_death_changes_no_bit(
            cluster, self.values, self.reference, victim, point,
            lambda armed: cluster.start_armed(self.spec, armed))
        if point in LOSSES:
            self.assertTrue(disk.losses[0], "the cut lost nothing")

    # --- Controls: a broken promise is detected --------------------------------

    def lie_to(self, victim, point):
        cluster = self.cluster
        cluster.cut_power_of(victim, lies=True)
        cluster.guard(victim)
        cluster.start_armed(self.spec, {victim: point})
        cluster.await_death(victim + " lost everything")

    def test_a_coordinator_that_did_not_sync_has_lost_its_runs(self):
        self.lie_to("coordinator", "coordinator.commit.after@2")
        with self.assertRaises(grpc.RpcError) as caught:
            self.cluster.run_state()
        # The log of `init` is left. A server that was heard first has seen more.
        if caught.exception.code() != grpc.StatusCode.NOT_FOUND:
            self.assertIn("older copy", caught.exception.details())

    def test_a_server_that_did_not_sync_a_commit_is_refused(self):
        # It has lost its identity too, so it comes with another directory.
        self.lie_to("server-0", "server.state.after@2")
        server = self.cluster.processes["server-0"]
        wait.until("the coordinator sees that the directory is another",
                   lambda: "runs have shards in data directory" in
                   server.tail())

    def test_an_island_that_did_not_sync_its_save_ends_with_other_bits(self):
        self.lie_to("island-1", "island.pushed.after@2")
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertNotEqual(self.cluster.parameters_sha256(), self.reference)

    def test_the_power_of_all_machines_fails_at_once(self):
        cluster = self.cluster
        names = ["coordinator", "server-0", "server-1", "island-0", "island-1",
                 "island-2"]
        for name in names:
            cluster.cut_power_of(name)
        cluster.start_armed(self.spec, {})
        cluster.wait_commits(2)
        for name in names:
            cluster.kill(name)
        for name in names:
            cluster.restart(name)
        self.assertEqual(self.finish_strict(cluster, self.values),
                         self.reference)


class StormTest(cluster_module.IntegrationTest):
    """One run after the other in which the disks of the coordinator and the
    servers lose power in the middle of writes: in a sync, around a record, or at
    any moment. Each run ends with the bits of the undisturbed run."""

    CUTS = 36  # In ./tests/run.sh.
    CUTS_A_RUN_MAX = 12
    VICTIMS = ("coordinator", "server-0", "server-1")

    def test_each_run_ends_with_the_bits_of_the_undisturbed_run(self):
        values = self.run_values({"durability": "machine",
                                  "schedule": {"round_count": 40},
                                  "checkpoint_every_round_count": 7})
        made = self.cluster
        reference = self.run_strict(made, values)
        spec = made.spec()
        made.close()
        self.reached = set()  # Failpoints.
        self.left = {}        # Failpoints to pick, by program.
        cut_count = run_count = 0
        while cut_count < self.CUTS:
            # ATOLL_TEST_SEED repeats from this run on.
            seed = cases.seed() + run_count
            self.cluster = self.new_cluster("storm-%d" % seed)
            self.cuts = []
            try:
                cuts = self.storm(random.Random(seed), values, spec, reference)
            except Exception:
                print("seed %d: %s" % (seed, self.cuts), flush=True)
                raise
            print("seed %d, %d cuts: %s" % (seed, len(cuts), ", ".join(
                "%s at %s" % cut for cut in cuts)), flush=True)
            self.cluster.close()
            shutil.rmtree(self.cluster.directory)
            cut_count += len(cuts)
            run_count += 1
        print("seed %d: %d cuts, in syncs, at %d different records and at any "
              "moment; each of %d runs ended with the undisturbed bits" % (
                  cases.seed(), cut_count, len(self.reached - {"a sync"}),
                  run_count), flush=True)

    def storm(self, chance, values, spec, reference):
        """Plays one run; returns its cuts."""
        cluster = self.cluster
        self.chance = chance
        self.disks = {
            name: cluster.cut_power_of(name, seed=self.chance.random())
            for name in self.VICTIMS}
        self.points = {name: None for name in self.VICTIMS}
        cluster.start_coordinator(
            arguments=self.chance.choice(((), cluster_module.SNAPSHOTS)))
        cluster.start_servers(2)
        cluster.create_run_of(spec)
        cluster.start_islands()
        self.plan_cut()
        wait.until("the run ends", self.cut_until_the_end, 600)
        # A run that was reported as completed is still completed after a cut.
        self.kill(self.VICTIMS)
        self.cut_the_dead(may_arm=False)
        self.assertEqual(self.finish_strict(cluster, values), reference)
        return self.cuts

    def plan_cut(self):
        """One victim dies at a random moment, or all at once, unless a
        failpoint is first."""
        self.moment = time.monotonic() + self.chance.uniform(
            0, 3 if any(self.points.values()) else 0.5)
        self.next = ([self.chance.choice(self.VICTIMS)]
                     if self.chance.random() < 0.9 else self.VICTIMS)

    def cut_until_the_end(self):
        cluster = self.cluster
        self.cut_the_dead()
        cluster.check_alive()
        try:
            state = cluster.runs.GetRun(run_id="run").run.state
        except grpc.RpcError as error:
            # It died, or has not been dialled again.
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            state = None
        if (len(self.cuts) < self.CUTS_A_RUN_MAX and
                time.monotonic() > self.moment):
            self.kill(self.next)
            self.plan_cut()
        return state == cluster_module.COMPLETED

    def kill(self, names):
        for name in names:
            if self.cluster.processes[name].poll() is None:
                self.points[name] = None
                self.cluster.kill(name)

    def cut_the_dead(self, may_arm=True):
        for name in self.VICTIMS:
            if self.cluster.processes[name].poll() != -signal.SIGKILL:
                continue
            point = self.points[name]
            self.cuts.append((name, point or "any moment"))
            if point is not None:
                self.reached.add(point)
                self.plan_cut()
            self.points[name] = armed = None
            how = self.chance.random()
            if not may_arm or len(self.cuts) >= self.CUTS_A_RUN_MAX:
                pass
            elif how < 0.6:
                self.points[name] = "a sync"
                self.disks[name].arm(self.chance.randint(1, 40))
            elif how < 0.9:
                self.points[name] = self.pick_point(name)
                armed = "%s@%d" % (self.points[name],
                                   self.chance.choice((1, 1, 2, 3)))
            self.cluster.restart(name, armed)

    def pick_point(self, name):
        """Each point of a program once, then those that were reached."""
        program = name.split("-")[0]
        if program not in self.left:
            self.left[program] = processes.failpoints(_PROGRAMS[program],
                                                      program)
        left = self.left[program]
        if not left:
            left += sorted(n for n in self.reached
                           if n.startswith(program)) or processes.failpoints(
                               _PROGRAMS[program], program)
        return left.pop(self.chance.randrange(len(left)))


_PROGRAMS = {"coordinator": processes.COORDINATOR, "server": processes.SERVER}


class InitTest(cluster_module.IntegrationTest):
    """`atoll-coordinator init`, cut at each of its syncs, and run again."""

    ID = "0123456789abcdef" * 2

    def init(self, disk):
        process = processes.Process(
            "init", [processes.binary(processes.COORDINATOR), "init",
                     "--data-dir=" + disk.directory, "--cluster-id=" + self.ID],
            disk.directory + ".log", disk.environment())
        status = process.wait()
        process.stop()
        return status, process.tail()

    def make(self, name, **kwargs):
        """Cuts at one sync more each time, until none is left. Returns the
        number of cuts."""
        for sync_count in range(1, 100):
            disk = power.Disk(os.path.join(
                self.cluster.directory, "%s-%d" % (name, sync_count)), **kwargs)
            disk.arm(sync_count)
            status, said = self.init(disk)
            if status == 0:
                return sync_count - 1
            self.assertEqual(status, -signal.SIGKILL, said)
            disk.cut()
            status, said = self.init(disk)
            # The record may have reached the disk before the cut.
            self.assertIn(status, (0, 9), said)
            self.assertIn(self.ID, said)
            self.cluster.start_coordinator(data_dir=disk.directory)
            self.cluster.kill("coordinator")
        raise AssertionError("it syncs without an end")

    def test_an_interrupted_init_continues(self):
        self.assertGreater(self.make("synced"), 3)

    def test_an_init_that_is_cut_in_the_middle_of_writes_continues(self):
        for seed in range(3):
            self.assertGreater(self.make("seed-%d" % seed, seed=seed), 3)


class DiskTest(cluster_module.IntegrationTest):
    """Tests the tool with a program that syncs some of its writes."""

    SCRIPT = """
import os, signal, sys
os.chdir(sys.argv[1])
def write(path, text, sync):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, text)
    if sync: os.fsync(fd)
    os.close(fd)
def sync_directory(path):
    fd = os.open(path, os.O_RDONLY); os.fsync(fd); os.close(fd)
write("synced", b"one", True)
write("unsynced bytes", b"one", False)
write("old name", b"moved", True)
os.mkdir("unsynced directory")
write("unsynced directory/file", b"x", True)
write("kept", b"before", True)
sync_directory(".")
write("synced", b"two", False)
os.fdatasync(os.open("synced", os.O_RDONLY))
write("synced", b"three", False)
write("unsynced entry", b"one", True)
os.rename("old name", "new name")
os.unlink("kept")
write("born of a used number", b"new", True)
os.kill(os.getpid(), signal.SIGKILL)
"""

    def run_script(self, sync_count=0, **kwargs):
        disk = power.Disk(os.path.join(self.cluster.directory, "disk"),
                          **kwargs)
        disk.arm(sync_count)
        with open(os.path.join(disk.directory, "from before"), "w") as file:
            file.write("x")
        process = processes.Process(
            "script", [sys.executable, "-c", self.SCRIPT, disk.directory],
            self.cluster.directory + "/script.log", disk.environment())
        self.assertEqual(process.wait(), -signal.SIGKILL, process.tail())
        process.stop()
        disk.cut()
        return disk

    def contents(self, disk):
        result = {}
        for name in os.listdir(disk.directory):
            path = os.path.join(disk.directory, name)
            result[name] = os.listdir(path) if os.path.isdir(path) else \
                open(path, "rb").read()
        return result

    def test_what_was_synced_is_there_and_nothing_else(self):
        disk = self.run_script()
        self.assertEqual(self.contents(disk), {
            "from before": b"x", "synced": b"onetwo", "unsynced bytes": b"",
            "old name": b"moved", "unsynced directory": [], "kept": b"before"})
        self.assertEqual(disk.losses, [[
            "born of a used number", "kept", "new name", "old name", "synced",
            "unsynced bytes", "unsynced directory/file", "unsynced entry"]])

    def test_in_the_middle_of_writes_each_page_and_entry_is_there_or_not(self):
        seen = collections.defaultdict(set)
        for seed in range(30):
            disk = self.run_script(seed=seed)
            found = self.contents(disk)
            shutil.rmtree(disk.directory)
            self.assertEqual(found["from before"], b"x")
            self.assertEqual(found["synced"][:6], b"onetwo")
            # The directory's entries are of one moment.
            entries = frozenset(found)
            seen["entries"].add(entries)
            if "new name" in entries:
                self.assertEqual(found["new name"], b"moved")
                self.assertNotIn("old name", entries)
            else:
                self.assertEqual(found["old name"], b"moved")
            seen["synced"].add(found["synced"])
        self.assertEqual(len(seen["entries"]), 2, seen)
        self.assertLessEqual({b"onetwo", b"onetwothree", b"onetwo" + bytes(5)},
                             seen["synced"])

    def test_pages_are_mixed_one_by_one(self):
        page = power.PAGE
        chance = random.Random(cases.seed())
        old = b"a" * (page + 10)
        new = b"b" * (2 * page) + b"c" * 10
        for _ in range(200):
            mixed = power.mix_pages(old, new, chance)
            self.assertLessEqual(len(old), len(mixed))
            self.assertLessEqual(len(mixed), len(new))
            self.assertIn(mixed[:page],
                          (b"a" * page, b"b" * page, bytes(page)))
        # An append leaves what is before it in its page.
        self.assertEqual(
            {power.mix_pages(b"ab", b"abcd", chance)[:2] for _ in range(50)},
            {b"ab"})

    def test_a_cut_in_a_sync_comes_before_its_end(self):
        disk = self.run_script(sync_count=1)
        self.assertEqual(self.contents(disk), {"from before": b"x"})
        # The first was that of the file "synced".
        self.assertEqual(disk.losses, [["synced"]])

    def test_a_disk_that_lies_keeps_what_was_there_before(self):
        disk = self.run_script(lies=True)
        self.assertEqual(self.contents(disk), {"from before": b"x"})


def _add_cases():
    for victim, point in POINTS:
        def case(self, victim=victim, point=point):
            self.cut_at(victim, point)
        name = "test_%s_%s" % (victim.replace("-", "_"), point.replace(
            ".", "_").replace("@", "_"))
        setattr(PowerCutTest, name, case)


_add_cases()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--cuts"]:
        StormTest.CUTS = int(sys.argv[2])
        sys.argv[1:] = ["StormTest"]
    cases.main()
