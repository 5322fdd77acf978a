#!/usr/bin/python3
"""A server's disk that fails: the run reports the file and the cause, nothing
is lost or counted twice, and on a repaired disk the run ends with the same
bits."""

import errno

import grpc

from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import wait

VICTIM = "server-1"


class DiskErrorTest(cluster_module.IntegrationTest):

    def start(self, durability):
        """Returns the victim's disk. The run stands still after two commits,
        until the coordinator restarts."""
        self.values = self.run_values({"durability": durability,
                                       "schedule": {"round_count": 6}})
        self.reference, spec = self.once(durability, lambda cluster: (
            self.run_strict(cluster, self.values), cluster.spec()))
        disk = self.cluster.break_disk_of(VICTIM)
        self.cluster.start_up_to(2, spec)
        return disk

    def shown(self):
        shown = processes.run_cli("run", "show", "run", "--coordinator",
                                  self.cluster.coordinator_address, check=0)
        return " ".join(shown.stdout.split())

    def stops(self, durability, call, part):
        """The run stops until the server restarts on a repaired disk."""
        cluster = self.cluster
        disk = self.start(durability)
        disk.fail(call, part, errno.EIO)
        cluster.restart("coordinator")
        state = cluster.wait_state(cluster_module.PAUSED)
        for told in (state.run.state_reason, self.shown()):
            self.assertIn("on server %s has stopped" % VICTIM, told)
            self.assertIn(part, told)
            self.assertIn("Input/output error", told)
            self.assertIn("restart %s, then run `atoll run resume run`" %
                          VICTIM, told)
        disk.repair()
        self.assertEqual(cluster.run_state().run.state, cluster_module.PAUSED)
        with self.assertRaises(grpc.RpcError):
            cluster.runs.ResumeRun(run_id="run")
        cluster.kill(VICTIM)
        cluster.restart(VICTIM)

        def resumed():
            try:
                return cluster.runs.ResumeRun(run_id="run").run
            except grpc.RpcError:
                return None

        wait.until("the run is resumed", resumed)
        self.assertEqual(self.finish_strict(cluster, self.values),
                         self.reference)

    def passes(self, call, part, error_number, text):
        """The fault is shown while it lasts, and the run recovers by itself."""
        cluster = self.cluster
        disk = self.start("process")
        disk.fail(call, part, error_number)
        cluster.restart("coordinator")
        wait.until("the operator is told",
                   lambda: any(s.blocked_reason for s in
                               cluster.run_state().servers))
        told = self.shown()
        self.assertIn("retrying", told)
        self.assertIn(part, told)
        self.assertIn(text, told)
        disk.repair()
        self.assertEqual(self.finish_strict(cluster, self.values),
                         self.reference)

    def test_a_log_that_cannot_be_written(self):
        self.stops("process", "write", ".seg")

    def test_a_log_that_cannot_be_written_at_level_machine(self):
        self.stops("machine", "write", ".seg")

    def test_a_log_that_cannot_be_synced(self):
        self.stops("machine", "sync", ".seg")

    def test_records_that_cannot_be_written(self):
        self.stops("process", "write", "/records/")

    def test_records_that_cannot_be_synced(self):
        self.stops("machine", "sync", "/records/")

    def test_versions_that_cannot_be_written(self):
        self.stops("process", "write", "/versions/")

    def test_versions_that_cannot_be_synced(self):
        self.stops("machine", "sync", "/versions/")

    def test_a_log_on_a_disk_that_is_read_only_for_a_while(self):
        self.passes("write", ".seg", errno.EROFS, "Read-only file system")

    def test_a_log_on_a_disk_that_is_full_for_a_while(self):
        self.passes("write", ".seg", errno.ENOSPC, "No space left on device")

    def test_a_version_on_a_disk_that_is_read_only_for_a_while(self):
        self.passes("write", "/versions/", errno.EROFS,
                    "Read-only file system")


if __name__ == "__main__":
    cases.main()
