#!/usr/bin/python3
"""A full disk is an error, and the run goes on once there is space.

Each case has a small tmpfs of its own. That takes a private mount namespace:
the script starts itself again under `unshare --mount`, or skips where that is
not permitted.
"""

import errno
import os
import subprocess
import sys
import threading

from harness import cases
from harness import cluster as cluster_module
from harness import wait

_INSIDE = "ATOLL_TEST_MOUNT_NAMESPACE"


class Filler:
    """Takes every byte of a file system, also those that others free, until it
    is closed."""

    def __init__(self, path):
        self._path = os.path.join(path, "filler")
        self._end = threading.Event()
        self._full = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()
        assert self._full.wait(wait.PATIENCE_S), "the disk is never full"

    def _fill(self):
        with open(self._path, "wb", buffering=0) as file:
            while not self._end.is_set():
                for size in (1 << 20, 4096, 1):
                    try:
                        while True:
                            file.write(b"\0" * size)
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

    def full_then_free(self, disk, values, reference):
        """Fills the disk after two commits, sees the run stand still, makes
        room, and waits for the end."""
        cluster = self.cluster
        cluster.wait_commits(2)
        filler = Filler(disk)
        stalled = self.wait_stalled()
        self.assertLess(stalled, values["schedule"]["round_count"],
                        "the run ended with a full disk")
        filler.close()
        # What ended for want of space is started again, as a supervisor does.
        for name, process in list(cluster.processes.items()):
            if process.poll() is not None:
                self.assertGreaterEqual(
                    process.poll(), 0, "%s crashed:\n%s" %
                    (name, process.tail()))
                cluster.restart(name)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)
        self.assertEqual(cluster.parameters_sha256(), reference)

    def wait_stalled(self):
        """Waits until someone says in a log that there is no space."""
        cluster = self.cluster

        def told():
            for process in cluster.processes.values():
                text = process.tail(400).lower()
                if "no space" in text or "resource_exhausted" in text:
                    return True
            return False

        wait.until("someone reports the full disk", told)
        rounds = []
        wait.until("the state can be asked or the coordinator has ended",
                   lambda: rounds or self._ask(rounds))
        return rounds[0]

    def _ask(self, rounds):
        if self.cluster.processes["coordinator"].poll() is not None:
            rounds.append(0)
        else:
            rounds.append(self.cluster.run_state().commit_seq)
        return rounds

    def run_with_small_disk(self, victim):
        values = self.run_values({"schedule": {"round_count": 60}})
        reference = self.run_strict(self.new_cluster("undisturbed"), values)
        cluster = self.cluster
        disk = self.small_disk(victim)
        cluster.may_end(victim)
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(values)
        cluster.start_islands()
        for name in cluster.processes:
            cluster.may_end(name)
        self.full_then_free(disk, values, reference)

    def test_a_server_without_space_goes_on_once_there_is_some(self):
        self.run_with_small_disk("server-1")

    def test_an_island_without_space_goes_on_once_there_is_some(self):
        self.run_with_small_disk("island-1")

    def test_a_coordinator_without_space_goes_on_once_there_is_some(self):
        self.run_with_small_disk("coordinator")


def _enter():
    """Starts this script again in a mount namespace of its own."""
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
