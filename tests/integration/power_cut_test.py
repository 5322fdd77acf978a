#!/usr/bin/python3
"""A power failure at level `machine`: unsynced writes are lost.

As kill_test, but the victim restarts with only what it had synced
(harness/power.py).
"""

import os
import signal
import sys

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
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_a_server_that_did_not_sync_a_commit_stops(self):
        self.lie_to("server-0", "server.state.after@2")
        server = self.cluster.processes["server-0"]
        wait.until("the shard sees what it lost",
                   lambda: "this shard is at version 0" in server.tail())

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

    def run_script(self, **kwargs):
        disk = power.Disk(os.path.join(self.cluster.directory, "disk"),
                          **kwargs)
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
    cases.main()
