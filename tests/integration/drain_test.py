#!/usr/bin/python3
"""SIGTERM in the middle of rounds: a program ends what it has accepted, exits
with 0, and its restart changes no bit."""

import signal

import grpc

from harness import cases
from harness import client as client_module
from harness import cluster as cluster_module
from harness import metrics
from harness import toy
from harness import wait


class DrainTest(cluster_module.IntegrationTest):

    def drain(self, name):
        process = self.cluster.processes[name]
        process.signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 0, process.tail())

    def drain_after_each_commit(self, name):
        """Three islands; returns the SHA-256 of the run."""
        values = self.run_values()
        cluster = self.cluster
        cluster.start_run(values)
        for count in range(1, values["schedule"]["round_count"]):
            cluster.wait_commits(count)
            self.drain(name)
            cluster.restart(name)
        return self.finish_strict(cluster, values)

    def reference(self):
        return self.once("undisturbed", lambda cluster: self.run_strict(
            cluster, self.run_values()))


class CoordinatorDrainTest(DrainTest):

    def test_a_drain_after_each_commit_changes_no_bit(self):
        self.assertEqual(self.drain_after_each_commit("coordinator"),
                         self.reference())

    def test_a_terminal_that_closes_drains_each_program(self):
        cluster = self.cluster
        cluster.start_service()
        cluster.create_run(self.run_values(
            {"schedule": {"round_count": 1000000}}))
        cluster.start_islands()
        cluster.wait_commits(1)
        for name, code in (("island-0", 12), ("server-0", 0),
                           ("coordinator", 0)):
            process = cluster.processes[name]
            process.signal(signal.SIGHUP)
            self.assertEqual(process.wait(), code, process.tail())

    def test_streams_end_with_what_a_caller_waits_out(self):
        cluster = self.cluster
        member = toy.start(cluster)[0]
        member.wait_open(0)
        events = cluster.state.WatchRun(run_id="run")
        next(events)  # The stream is open.
        self.drain("coordinator")
        error = client_module.error_of(lambda: events)
        self.assertEqual((error.code, error.reason),
                         (grpc.StatusCode.UNAVAILABLE, "STOPPING"))

    def test_counts_of_the_log_outlive_a_drain(self):
        cluster = self.cluster
        cluster.start_coordinator(
            arguments=metrics.flags(cluster, "coordinator"))
        cluster.start_servers(2)
        members = toy.start(cluster)
        toy.play(cluster, members, cases.seed())
        rounds = cluster.run_state().commit_seq

        def commits():
            cluster.check_alive()
            port = metrics.port(cluster, "coordinator")
            if metrics.get(port, metrics.READY)[0] != 200:
                return None  # It recovers.
            return metrics.scrape(port).get("atoll_commits_total", run="run")

        wait.until("the metrics show all rounds", lambda: commits() == rounds)
        self.drain("coordinator")
        metrics.flags(cluster, "coordinator")  # Removes the old port's file.
        cluster.restart("coordinator")
        wait.until("the metrics show all rounds again",
                   lambda: commits() == rounds)


if __name__ == "__main__":
    cases.main()
