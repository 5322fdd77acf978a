#!/usr/bin/python3
"""SIGTERM in the middle of rounds: a program ends what it has accepted, exits
with 0, and its restart changes no bit."""

import signal
import sys

import grpc

from harness import cases
from harness import client as client_module
from harness import cluster as cluster_module
from harness import gated
from harness import metrics
from harness import toy
from harness import wait

# Starts a program whose messages have no reader. Python ignores SIGPIPE, and a
# program would inherit that.
NO_READER = [sys.executable, "-c", """
import os, signal, sys
reader, writer = os.pipe()
os.dup2(writer, 1)
os.dup2(writer, 2)
os.close(reader)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""]


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


class TerminalTest(gated.GatedTest):

    def test_a_terminal_that_closes_drains_each_program(self):
        cluster = self.cluster
        cluster.start_coordinator()  # Makes its log.
        cluster.kill("coordinator")
        cluster.start_coordinator(prefix=NO_READER)
        cluster.start_gate(self.gate_dir, prefix=NO_READER)
        cluster.start_server("server-0", prefix=NO_READER)
        self.create_run({"server_count": 1,
                         "schedule": {"round_count": 1000000}})
        cluster.start_volunteer("volunteer-0", self.token(), prefix=NO_READER)
        cluster.wait_commits(1)
        for name, code in (("volunteer-0", 12), ("gate", 0), ("server-0", 0),
                           ("coordinator", 0)):
            process = cluster.processes[name]
            # A terminal that closes sends it more than once.
            process.signal(signal.SIGHUP)
            process.signal(signal.SIGHUP)
            self.assertEqual(process.wait(), code, name)


if __name__ == "__main__":
    cases.main()
