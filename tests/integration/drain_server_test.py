#!/usr/bin/python3
"""SIGTERM of a parameter server: it ends soon, with 0, and loses nothing that
it acknowledged, not even in a power failure at level `process`."""

import signal

import grpc

from harness import cases
from harness import cluster as cluster_module
from harness import metrics
from harness import toy
from harness import wait

# A server must end within the 30 s that Kubernetes waits before it kills.
BOUND_S = 30

USAGE = 2


class DrainServerTest(cluster_module.IntegrationTest):

    def terminate(self, name):
        process = self.cluster.processes[name]
        process.signal(signal.SIGTERM)
        self.assertEqual(process.wait(BOUND_S), 0, process.tail())

    def rolls_through(self, durability):
        """Every server is ended and started once during a strict run."""
        values = self.run_values({"durability": durability,
                                  "schedule": {"round_count": 12}})
        reference = self.once("undisturbed", lambda cluster: self.run_strict(
            cluster, values))
        cluster = self.cluster
        for index in range(2):
            cluster.cut_power_of("server-%d" % index)
        cluster.start_run(values)
        for index in range(2):
            name = "server-%d" % index
            cluster.wait_commits(2 + 3 * index)
            self.terminate(name)
            cluster.restart(name)
        self.assertEqual(self.finish_strict(cluster, values), reference)

    def test_a_rolling_restart_changes_no_bit(self):
        self.rolls_through("machine")

    def test_a_rolling_restart_with_a_power_cut_at_level_process(self):
        self.rolls_through("process")

    def test_what_was_acknowledged_is_not_asked_for_again(self):
        cluster = self.cluster
        cluster.cut_power_of("server-0")
        members = toy.start(cluster, {"durability": 2}, server_count=1)
        members[0].wait_open(0)
        push = members[0].contribution(members[0].random_values("one"), 0)
        push.push()
        self.terminate("server-0")
        cluster.restart("server-0")

        def answer():
            try:
                return push.push_to(0, chunks=[])
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE,
                                        grpc.StatusCode.FAILED_PRECONDITION):
                    raise
                return None

        # To the header alone.
        answers = wait.until("the server answers a push", answer)
        self.assertTrue(answers[-1].stored)

    def test_the_metrics_port_says_that_the_server_is_ready(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_server("server-0",
                             arguments=metrics.flags(cluster, "server-0"))
        port = metrics.port(cluster, "server-0")
        self.assertEqual(metrics.get(port, metrics.LIVE)[0], 200)
        self.assertEqual(metrics.get(port, metrics.READY)[0], 200)
        status, text = metrics.get(port, metrics.METRICS)
        self.assertEqual(status, 200)
        for line in ("atoll_ready 1", 'atoll_server_shards{state="serving"} 0',
                     'atoll_push_bytes_total{codec="int8"} 0',
                     "atoll_fsync_duration_seconds_count",
                     "atoll_disk_free_bytes"):
            self.assertIn(line, text)
        self.terminate("server-0")

    def test_a_placeholder_that_is_unknown_is_a_usage_error(self):
        cluster = self.cluster
        cluster.start_coordinator()
        with self.assertRaisesRegex(AssertionError, "ended with %d" % USAGE):
            cluster.start_server("server-0",
                                 arguments=["--advertise={pod}:{port}"])
        cluster.may_end("server-0")
        self.assertIn("{pod}", cluster.processes["server-0"].tail())

    def test_the_advertised_address_follows_the_template(self):
        cluster = self.cluster
        cluster.start_coordinator()
        # Resolves to a loopback address on every machine.
        cluster.start_server("server-0",
                             arguments=["--advertise=127.0.0.{ordinal+1}:{port}"])
        toy.create(cluster, {"server_count": 1})

        def address():
            servers = cluster.run_state().servers
            return servers and servers[0].placement.address

        wait.until("server-0 is placed", address)
        self.assertEqual(address(), cluster.server_address("server-0"))


if __name__ == "__main__":
    cases.main()
