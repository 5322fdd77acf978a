#!/usr/bin/python3
"""The coordinator's disk fails for a while: calls are refused with a code that
callers wait out, its health says so, and once the disk works it goes on by
itself to the same bits."""

import errno

import grpc

from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import wait

SERVING, NOT_SERVING = 1, 2  # grpc.health.v1.

# Logs and tables of its store, not its own output.
STORE = "/coordinator/0"


class CoordinatorDiskTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"durability": "machine",
                                     "schedule": {"round_count": 40}})

    def wait_health(self, status):
        def is_so():
            self.cluster.check_alive()
            return self.cluster.coordinator.health() == status

        wait.until("the coordinator's health is %d" % status, is_so)

    def fails_for_a_while(self, call, error_number, code, reason,
                          arguments=()):
        cluster = self.cluster
        reference, spec = self.once("undisturbed", lambda made: (
            self.run_strict(made, self.values), made.spec()))
        disk = cluster.break_disk_of("coordinator")
        cluster.start_service(arguments=arguments)
        cluster.create_run_of(spec)
        cluster.start_islands()
        cluster.wait_commits(3)
        epoch = cluster.run_state().run.run_epoch
        for _ in range(2):
            disk.fail(call, STORE, error_number)
            self.wait_health(NOT_SERVING)
            for method in (cluster.runs.GetRun, cluster.runs.PauseRun,
                           cluster.state.GetRunState):
                details = client.error_of(method, run_id="run")
                self.assertEqual((details.code, details.reason),
                                 (code, reason))
                self.assertIn("tries again until its disk works",
                              details.message)
            disk.repair()
            self.wait_health(SERVING)
            at = cluster.run_state()
            self.assertEqual(at.run.run_epoch, epoch)
            self.assertFalse(at.run.HasField("fault"))
            cluster.wait_commits(at.commit_seq + 2)
        self.assertEqual(self.finish_strict(cluster, self.values), reference)
        self.assertEqual(
            [island.state for island in cluster.islands()
             if island.state == cluster_module.LOST], [])
        # The records that it stored before and after are whole.
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        self.assertEqual(self.finish_strict(cluster, self.values), reference)
        self.assertFalse(cluster.run_state().run.HasField("fault"))

    def test_a_log_that_cannot_be_written(self):
        self.fails_for_a_while("write", errno.EIO,
                               grpc.StatusCode.UNAVAILABLE, "DISK_FAILS")

    def test_a_log_that_cannot_be_synced(self):
        self.fails_for_a_while("sync", errno.EIO,
                               grpc.StatusCode.UNAVAILABLE, "DISK_FAILS")

    def test_a_log_that_cannot_be_synced_while_it_takes_snapshots(self):
        self.fails_for_a_while("sync", errno.EIO,
                               grpc.StatusCode.UNAVAILABLE, "DISK_FAILS",
                               cluster_module.SNAPSHOTS)

    def test_a_log_on_a_full_disk(self):
        self.fails_for_a_while("write", errno.ENOSPC,
                               grpc.StatusCode.RESOURCE_EXHAUSTED,
                               "DISK_FULL")


if __name__ == "__main__":
    cases.main()
