#!/usr/bin/python3
"""Logs with a torn end, and logs that lack what was synced.

A torn record is a write that nobody was told of: the program drops it, and the
run ends with the bits. Damage of a synced record is a fault with a name: the
program starts, deletes nothing, and what is whole can still be read.
"""

import json
import os

import grpc

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import damage
from harness import faults
from harness import wait

VICTIM = "server-1"


class DamageTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"durability": "machine",
                                     "checkpoint_every_round_count": 1,
                                     "checkpoint": {"keep_count": 32},
                                     "schedule": {"round_count": 20}})

    def setUp(self):
        super().setUp()
        self.reference, self.spec = self.once("undisturbed", lambda cluster: (
            self.run_strict(cluster, self.values), cluster.spec()))
        # GetRun leaves it out.
        self.spec.checkpoint.keep_count = 32

    def start(self, commit_count):
        self.cluster.start_service()
        self.cluster.create_run_of(self.spec)
        self.cluster.start_islands()
        self.cluster.wait_commits(commit_count)

    def assert_kept(self, name, before):
        """Every file of before is there with the same bytes."""
        now = faults.tree(os.path.join(self.cluster.directory, name))
        self.assertEqual({path: now.get(path) == data
                          for path, data in before.items()},
                         dict.fromkeys(before, True))

    # --- Torn records ------------------------------------------------------------

    def test_a_torn_record_at_the_end_of_the_coordinators_logs(self):
        self.start(2)
        self.cluster.kill("coordinator")
        for path in damage.coordinator_logs(self.cluster):
            damage.append_torn_record(path)
        self.cluster.restart("coordinator")
        self.assertEqual(self.finish_strict(self.cluster, self.values),
                         self.reference)

    def test_a_torn_record_at_the_end_of_a_servers_records(self):
        self.start(2)
        self.cluster.kill(VICTIM)
        damage.append_torn_frame(damage.record_log(self.cluster, VICTIM))
        self.cluster.restart(VICTIM)
        self.assertEqual(self.finish_strict(self.cluster, self.values),
                         self.reference)

    def test_torn_records_everywhere_after_all_died_at_once(self):
        self.start(2)
        names = list(self.cluster.processes)
        for name in names:
            self.cluster.kill(name)
        for path in damage.coordinator_logs(self.cluster):
            damage.append_torn_record(path)
        for name in self.cluster.server_ids:
            damage.append_torn_frame(damage.record_log(self.cluster, name))
        for name in names:
            self.cluster.restart(name)
        self.assertEqual(self.finish_strict(self.cluster, self.values),
                         self.reference)

    # --- Synced records ----------------------------------------------------------

    def parameters_of_checkpoints(self):
        """SHA-256 of each checkpoint, by pin_id."""
        cluster = self.cluster
        found = {}
        for pin_id in cluster.checkpoints():
            pinned = cluster.pin(pin_id=pin_id)
            layout = arithmetic.LayoutView(pinned.run.spec.layout)
            found[pin_id] = layout.parameters_sha256(
                cluster.parameters(pinned=pinned))
        return found

    def test_a_coordinator_without_synced_records_deletes_nothing(self):
        cluster = self.cluster
        self.start(1)
        self.assertEqual(self.finish_strict(cluster, self.values),
                         self.reference)
        expected = self.parameters_of_checkpoints()
        cluster.kill("coordinator")
        log, = [path for path in damage.coordinator_logs(cluster)
                if path.endswith(".log")]
        # The second half of the records are those of rounds.
        at = os.path.getsize(log) * 2 // 3
        page = damage.zero_page(log, at)
        before = faults.tree(os.path.join(cluster.directory, "coordinator"))
        held = {name: faults.tree(os.path.join(cluster.directory, name, "runs"))
                for name in cluster.server_ids}
        cluster.restart("coordinator")
        faults.wait_fault(cluster, "LOG_DAMAGED")
        not_serving = 2
        self.assertEqual(cluster.retry(cluster.coordinator.health),
                         not_serving)

        # Checkpoints that are whole can be read.
        shown = faults.shown(cluster)
        newest = shown["checkpoints"][-1]["pin"]["pin_id"]
        self.assertNotIn(newest, ("final", "round-20"))
        model = os.path.join(cluster.directory, "model")
        cluster.run_cli("run", "export", "run", model, "--checkpoint", newest,
                        check=0)
        with open(os.path.join(model, "manifest.json"),
                  encoding="utf-8") as file:
            self.assertEqual(json.load(file)["parameters_sha256"],
                             expected[newest])

        # Nothing new is accepted.
        for call, fields in ((cluster.runs.CancelRun, {"run_id": "run"}),
                             (cluster.runs.PauseRun, {"run_id": "run"}),
                             (cluster.runs.ExportCheckpoint,
                              {"run_id": "run", "pin_id": newest,
                               "release": True})):
            with self.assertRaises(grpc.RpcError) as refused:
                cluster.retry(call, **fields)
            self.assertEqual(refused.exception.code(),
                             grpc.StatusCode.FAILED_PRECONDITION)
        wait.until("the servers are back", lambda: all(
            server.alive for server in cluster.run_state().servers))
        self.assert_kept("coordinator", before)
        for name, files in held.items():
            now = faults.tree(os.path.join(cluster.directory, name, "runs"))
            self.assertLessEqual(set(files), set(now), name)

        # With the bytes back it is the run that it was.
        cluster.kill("coordinator")
        damage.write_back(log, at, page)
        cluster.restart("coordinator")
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertIsNone(faults.shown(cluster)["run"].get("fault"))
        self.assertEqual(cluster.parameters_sha256(), self.reference)

    def test_a_server_without_synced_records_names_the_file(self):
        cluster = self.cluster
        self.start(3)
        cluster.kill(VICTIM)
        log = damage.record_log(cluster, VICTIM)
        found = damage.frames(log)
        # One in the middle, which a later one knows to be synced.
        synced_seq = max(header[5] for _, _, header in found)
        offset, size, _ = [frame for frame in found
                           if frame[2][4] <= synced_seq][-1]
        at = offset + size // 2
        page = damage.zero_page(log, at)
        before = faults.tree(os.path.dirname(log))
        held = faults.tree(os.path.join(cluster.directory, VICTIM, "runs"))
        cluster.restart(VICTIM)
        fault = faults.wait_fault(cluster, "DATA_LOSS")
        told = " ".join(fault.values())
        self.assertIn(VICTIM, told)
        self.assertIn(os.path.basename(log), told)
        self.assertEqual(faults.tree(os.path.dirname(log)), before)
        self.assertEqual(
            set(faults.tree(os.path.join(cluster.directory, VICTIM, "runs"))),
            set(held))
        self.assertIsNone(cluster.processes[VICTIM].poll())

        cluster.kill(VICTIM)
        damage.write_back(log, at, page)
        cluster.restart(VICTIM)

        faults.wait_gone(cluster)
        self.assertEqual(self.finish_strict(cluster, self.values),
                         self.reference)


if __name__ == "__main__":
    cases.main()
