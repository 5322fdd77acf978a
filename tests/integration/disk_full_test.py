#!/usr/bin/python3
"""A full disk is an error, and the run continues once there is space.

Each case has its own small tmpfs, which needs a private mount namespace: the
script restarts itself under `unshare --mount`, or skips if that is not
permitted.
"""

import errno
import os
import signal
import subprocess
import sys
import threading

import grpc

from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import wait

_INSIDE = "ATOLL_TEST_MOUNT_NAMESPACE"

# The space that a server has reserved is enough for about 65 rounds.
MANY_ROUNDS = 120
FEW_ROUNDS = 8


class Filler:
    """Takes every byte of a file system, also bytes freed later, until it is
    closed."""

    def __init__(self, path):
        self._path = os.path.join(path, "filler")
        self._end = threading.Event()
        self._full = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()
        assert self._full.wait(wait.PATIENCE_S), "the disk is never full"

    def _fill(self):
        pieces = [bytes(size) for size in (1 << 20, 4096, 1)]
        with open(self._path, "wb", buffering=0) as file:
            while not self._end.is_set():
                for piece in pieces:
                    try:
                        while True:
                            file.write(piece)
                    except OSError as error:
                        assert error.errno == errno.ENOSPC, error
                self._full.set()
                self._end.wait(0.001)

    def close(self):
        self._end.set()
        self._thread.join()
        os.unlink(self._path)


class DiskFullTest(cluster_module.IntegrationTest):

    def setUp(self):
        if not os.environ.get(_INSIDE):
            self.skipTest("needs `unshare --mount` (root, or user namespaces);"
                          " not permitted here")
        super().setUp()

    def small_disk(self, name, size="96m"):
        path = os.path.join(self.cluster.directory, name)
        os.makedirs(path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + size, "tmpfs",
                        path], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", path])
        return path

    def told(self):
        return any(word in process.tail(400).lower()
                   for process in self.cluster.processes.values()
                   for word in ("no space", "resource_exhausted"))

    def revive(self):
        """Restarts ended processes like a supervisor; none may crash."""
        for name, process in list(self.cluster.processes.items()):
            if process.poll() is None:
                continue
            self.assertGreaterEqual(process.poll(), 0, "%s crashed:\n%s" % (
                name, process.tail()))
            if process.poll() > 0:
                self.cluster.restart(name)

    def finish(self, values, reference):
        for name in self.cluster.processes:
            self.cluster.may_end(name)

        def completed():
            self.revive()
            try:
                return self.cluster.run_state().run.state == \
                    cluster_module.COMPLETED
            except grpc.RpcError:
                return False

        wait.until("the run ends", completed)
        self.assert_strict_run_whole(self.cluster, values)
        self.assertEqual(self.cluster.parameters_sha256(), reference)

    def prepare(self, victim, round_count):
        """(values, SHA-256 of the undisturbed run, the victim's disk)."""
        values = self.run_values({"schedule": {"round_count": round_count}})
        reference, self.spec = self.once(round_count, lambda cluster: (
            self.run_strict(cluster, values), cluster.spec()))
        return values, reference, self.small_disk(victim)

    def fill_in_mid_run(self, victim):
        """Reserved space may be used; without it a write is an error. In both
        cases the run ends with the right bits once there is space."""
        values, reference, disk = self.prepare(victim, MANY_ROUNDS)
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run_of(self.spec)
        cluster.start_islands()
        cluster.wait_commits(2)
        for name in cluster.processes:
            cluster.may_end(name)
        filler = Filler(disk)
        self.wait_told_or_completed(victim)
        filler.close()
        self.finish(values, reference)

    def wait_told_or_completed(self, victim):
        """The reserved space may be enough for all remaining rounds."""

        def settled():
            if self.told() or self.cluster.processes[victim].poll() is not None:
                return True
            state = self.cluster.run_state().run.state
            return state == cluster_module.COMPLETED

        wait.until("the run ends, or someone reports the full disk", settled)

    def fill_before_the_run(self, victim):
        """Nothing is reserved yet: a process must report the lack of space."""
        values, reference, disk = self.prepare(victim, FEW_ROUNDS)
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        filler = Filler(disk)
        for name in cluster.processes:
            cluster.may_end(name)
        cluster.create_run_of(self.spec)
        cluster.start_islands()
        wait.until("someone reports the full disk", self.told)
        filler.close()
        self.finish(values, reference)

    def fill_before_the_start(self, victim, start, prepare=lambda disk: None):
        """It ends with an error that names the cause, and starts later."""
        disk = self.small_disk(victim)
        prepare(disk)
        filler = Filler(disk)
        self.cluster.may_end(victim)
        with self.assertRaises(AssertionError):
            start()
        process = self.cluster.processes[victim]
        self.assertGreater(process.wait(), 0, process.tail())
        self.assertIn("o space", process.tail())
        filler.close()
        start()

    def test_a_server_whose_disk_gets_full_goes_on(self):
        self.fill_in_mid_run("server-1")

    def stop_on_a_full_disk(self, victim, fill):
        """Stopped without space, the process ends, and restarts later."""
        values, reference, disk = self.prepare(
            victim, MANY_ROUNDS if fill == "in mid run" else FEW_ROUNDS)
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        if fill == "in mid run":
            cluster.create_run_of(self.spec)
            cluster.start_islands()
            cluster.wait_commits(2)
        filler = Filler(disk)
        for name in cluster.processes:
            cluster.may_end(name)
        if fill == "before the run":
            cluster.create_run_of(self.spec)
            cluster.start_islands()
            for name in cluster.processes:
                cluster.may_end(name)
        self.wait_told_or_completed(victim)
        process = cluster.processes[victim]
        process.signal(signal.SIGTERM)
        self.assertGreaterEqual(process.wait(), 0, process.tail())
        filler.close()
        cluster.restart(victim)
        self.finish(values, reference)

    def test_a_server_ends_when_asked_on_a_disk_that_got_full(self):
        self.stop_on_a_full_disk("server-1", "in mid run")

    def test_a_server_ends_when_asked_without_room_for_a_run(self):
        self.stop_on_a_full_disk("server-1", "before the run")

    def test_an_island_whose_disk_gets_full_goes_on(self):
        # It reserves nothing for its next save.
        values, reference, disk = self.prepare("island-1", FEW_ROUNDS)
        self.cluster.start_up_to(2, self.spec)
        self.cluster.may_end("island-1")
        filler = Filler(disk)
        self.cluster.restart("coordinator")
        wait.until("someone reports the full disk", self.told)
        filler.close()
        self.finish(values, reference)

    def test_a_coordinator_whose_disk_gets_full_goes_on(self):
        self.fill_in_mid_run("coordinator")

    def test_a_server_without_room_for_a_run_says_so_and_goes_on(self):
        self.fill_before_the_run("server-1")

    def test_an_island_without_room_for_its_save_says_so_and_goes_on(self):
        self.fill_before_the_run("island-1")

    def test_a_coordinator_on_a_full_disk_says_so_and_starts_later(self):
        self.fill_before_the_start("coordinator",
                                   self.cluster.start_coordinator,
                                   processes.init_coordinator)

    def test_a_server_on_a_full_disk_says_so_and_starts_later(self):
        self.cluster.start_coordinator()
        self.fill_before_the_start(
            "server-0", lambda: self.cluster.start_server("server-0"))


def _enter():
    if os.environ.get(_INSIDE):
        return
    probe = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             "mount -t tmpfs -o size=1m tmpfs /mnt"]
    if subprocess.run(probe, stderr=subprocess.DEVNULL).returncode != 0:
        return
    os.environ[_INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private",
                          sys.executable, "-B"] + sys.argv)


if __name__ == "__main__":
    _enter()
    cases.main()
