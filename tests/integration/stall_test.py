#!/usr/bin/python3
"""A coordinator that stands still for longer than every lease: nobody is lost
by it, and the run ends with the bits."""

import signal
import time

from harness import cases
from harness import cluster as cluster_module
from harness import wait

LEASE_S = 10


class StallTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"schedule": {
            "round_count": 40, "lease_duration": "%ds" % LEASE_S}})

    def start(self):
        self.reference, spec = self.once("undisturbed", lambda cluster: (
            self.run_strict(cluster, self.values), cluster.spec()))
        self.cluster.start_service(
            arguments=["--server-lease-s=%d" % LEASE_S])
        self.cluster.create_run_of(spec)
        self.cluster.start_islands()

    def stall(self, *names):
        """Stops the processes until each lease is long over. The stall is the
        subject here, so this waits for time to pass."""
        for name in names:
            self.cluster.processes[name].signal(signal.SIGSTOP)
        end = time.monotonic() + 1.5 * LEASE_S
        wait.until("the leases are over", lambda: time.monotonic() > end)
        for name in names:
            self.cluster.processes[name].signal(signal.SIGCONT)

    def assert_nobody_was_lost(self):
        for event in self.cluster.events():
            self.assertNotEqual(event.island_changed.state,
                                cluster_module.LOST, event)
            self.assertFalse(event.HasField("round_aborted"), event)
            if event.run_state_changed.state == cluster_module.COMPLETED:
                break

    def stalls(self, *names):
        cluster = self.cluster
        self.start()
        cluster.wait_commits(3)
        self.stall(*names)
        self.assertEqual(self.finish_strict(cluster, self.values),
                         self.reference)
        self.assert_nobody_was_lost()
        with open(cluster.processes["coordinator"].log_path,
                  errors="replace") as file:
            self.assertIn("read no calls for ", file.read())

    def test_a_stopped_coordinator_loses_nobody(self):
        self.stalls("coordinator")

    def test_a_stopped_machine_with_coordinator_and_servers_loses_nobody(self):
        self.stalls("coordinator", "server-0", "server-1")


if __name__ == "__main__":
    cases.main()
