#!/usr/bin/python3
"""A deleted run is gone: its records, and its files on every server, also on
one that was away. Its id is free."""

import os

import grpc

from harness import cases
from harness import churn
from harness import client
from harness import cluster as cluster_module
from harness import damage
from harness import toy
from harness import wait

BOTH = ["server-0", "server-1"]


class DeleteTest(cluster_module.IntegrationTest):

    def play(self, run_id="run"):
        """A toy run to its end; returns its SHA-256."""
        members = toy.start(self.cluster, run_id=run_id)
        return toy.play(self.cluster, members, cases.seed(), run_id=run_id)

    def delete(self, run_id="run", **fields):
        return self.cluster.retry(self.cluster.runs.DeleteRun, run_id=run_id,
                                  **fields)

    def uid(self, run_id="run"):
        uid = self.cluster.runs.GetRun(run_id=run_id).run.run_uid
        self.assertRegex(uid, "^[0-9a-f]{32}$")
        return uid

    def assert_not_found(self, run_id="run"):
        for call in (self.cluster.runs.GetRun, self.cluster.state.GetRunState,
                     self.cluster.state.ListRounds):
            self.assertEqual(client.error_of(call, run_id=run_id).code,
                             grpc.StatusCode.NOT_FOUND)
        self.assertNotIn(run_id, [
            run.run_id for run in self.cluster.runs.ListRuns().runs])

    def test_the_records_and_the_files_of_every_server_go(self):
        self.play("other")
        self.play()
        uid = self.uid()
        for server in BOTH:
            self.assertTrue(damage.run_directories(self.cluster, server))
        self.assertEqual(self.delete().run_uid, uid)
        self.assert_not_found()
        churn.wait_gone(self.cluster)
        # Idempotent, and nobody is waited for any longer.
        wait.until("each server has reported it", lambda: not self.deleted())
        # The other run has all that it had.
        self.assertEqual(self.cluster.run_state("other").run.state,
                         cluster_module.COMPLETED)
        self.cluster.parameters_sha256("other")

    def deleted(self, run_id="run"):
        """Servers that still have files; none once the run is forgotten."""
        try:
            return list(self.delete(run_id).waiting_server_ids)
        except grpc.RpcError as error:
            self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
            return []

    def test_a_server_that_was_away_deletes_its_files_when_it_is_back(self):
        cluster = self.cluster
        self.play()
        cluster.kill("server-1")
        self.assertIn("server-1", self.delete().waiting_server_ids)
        churn.wait_gone(cluster, servers=["server-0"])
        wait.until("only the server that is away is waited for",
                   lambda: self.deleted() == ["server-1"])
        # The deletion is durable.
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        self.assertEqual(self.deleted(), ["server-1"])
        self.assertTrue(damage.run_directories(cluster, "server-1"))
        cluster.restart("server-1")
        churn.wait_gone(cluster)
        self.assert_not_found()

    def test_everyone_dies_right_after_a_deletion(self):
        cluster = self.cluster
        self.play()
        self.delete()
        for name in ["coordinator"] + BOTH:
            cluster.kill(name)
        for name in ["coordinator"] + BOTH:
            cluster.restart(name)
        cluster.coordinator.wait_ready(wait.PATIENCE_S)
        churn.wait_gone(cluster)
        self.assert_not_found()

    def test_the_same_id_again_is_another_run(self):
        cluster = self.cluster
        sha256 = self.play()
        first = self.uid()
        cluster.kill("server-1")
        self.delete(run_uid=first)
        cluster.restart("server-1")
        # At once, while files of the first may still be there.
        self.assertEqual(self.play(), sha256)
        second = self.uid()
        self.assertNotEqual(first, second)

        def only_the_second():
            cluster.check_alive()
            return all(
                [os.path.basename(path) for path in
                 damage.run_directories(cluster, server)] == ["run." + second]
                for server in BOTH)

        wait.until("the files of the first are gone", only_the_second)
        # A deletion of the first does not touch the second.
        try:
            self.assertEqual(self.delete(run_uid=first).run_uid, first)
        except grpc.RpcError as error:
            self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(cluster.parameters_sha256(), sha256)

    def test_a_run_that_has_not_ended_is_not_deleted(self):
        cluster = self.cluster
        members = toy.start(cluster)
        toy.play_round(members, 0, cases.seed())
        for steer in (None, cluster.runs.PauseRun, cluster.runs.ResumeRun):
            if steer is not None:
                steer(run_id="run")
            error = client.error_of(cluster.runs.DeleteRun, run_id="run")
            self.assertEqual((error.code, error.reason),
                             (grpc.StatusCode.FAILED_PRECONDITION,
                              "RUN_NOT_ENDED"))
        toy.play_round(members, 1, cases.seed())
        cluster.runs.CancelRun(run_id="run")
        self.delete()
        churn.wait_gone(cluster)
        self.assert_not_found()

    def test_a_run_with_a_fault_may_be_deleted(self):
        cluster = self.cluster
        members = toy.start(cluster)
        toy.play_round(members, 0, cases.seed())
        cluster.kill("server-1")
        log = damage.record_log(cluster, "server-1")
        damage.zero_page(log, 0)
        cluster.restart("server-1")

        def faulty():
            cluster.check_alive()
            return cluster.run_state().run.fault.code

        self.assertEqual(wait.until("the run has a fault", faulty),
                         "DATA_LOSS")
        self.delete()
        churn.wait_gone(cluster)
        self.assert_not_found()
        self.play("next")

    def test_a_run_that_was_never_there_is_not_found(self):
        self.cluster.start_service()
        self.assertEqual(client.error_of(self.cluster.runs.DeleteRun,
                                         run_id="nobody").code,
                         grpc.StatusCode.NOT_FOUND)

    def test_runs_that_are_deleted_leave_nothing(self):
        cluster = self.cluster
        cluster.start_service()
        before = None
        for index in range(20):
            churn.play_and_delete(cluster, index, cases.seed())
            if index == 4:
                churn.wait_gone(cluster, "run-*")
                before = churn.measure(cluster)
        churn.wait_gone(cluster, "run-*")
        self.assertEqual(list(cluster.runs.ListRuns().runs), [])
        # many_runs.py looks at memory too, which takes more runs to settle.
        self.assertEqual([grown for grown in churn.growth_beyond(
            before, churn.measure(cluster)) if grown.startswith("disk")], [])


if __name__ == "__main__":
    cases.main()
