#!/usr/bin/python3
"""Islands whose trainer is another process, with real programs and NumPy.

A death of the trainer, of the exchange or of both changes no bit of a strict
run, and nothing counts twice."""

import hashlib
import json
import os
import signal
from unittest import mock

import numpy

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import numpy_trainer
from harness.numpy_trainer import atoll
from harness import processes
from harness import run_file
from harness import wait

EXTERNAL = run_file.merged(
    run_file.BASE, {"model": None, "data": None, "inner": None}, {
        "model": {"architecture": "external", "sequence_length": 1,
                  "tensors": "tensors.json"},
        "data": {"format": "external", "data_shard_count": 3},
        "inner": {"batch_size": numpy_trainer.BATCH},
        "schedule": {"round_count": 4, "inner_step_count": 4},
        # Each island evaluates, whichever slot it has.
        "evaluation": {"every_round_count": 1},
    })
STREAMING = {
    "layout": {"fragment_count": 2},
    "schedule": {"fragment_schedule": "staggered", "inner_step_count": 6,
                 "overlap_step_count": 2, "blend": 0.5},
}
ENCODED = {"exchange": {"up": "int8", "error_feedback": True, "down": "bf16"}}
ISLANDS = ("island-0", "island-1", "island-2")
_LOST, _LEFT = 3, 4  # v1.IslandState


class TrainerTest(cluster_module.IntegrationTest):

    def run_values(self, *changes):
        return run_file.merged(EXTERNAL, *changes)

    def start(self, cluster, values, armed=None,
              tensors=numpy_trainer.TENSORS,
              trainer=cluster_module.NUMPY_TRAINER):
        with open(os.path.join(cluster.directory, "tensors.json"), "w",
                  encoding="utf-8") as file:
            json.dump(tensors, file)
        cluster.start_service()
        cluster.create_run(values)
        for island in ISLANDS:
            cluster.start_trainer_island(island, armed, trainer=trainer)

    def finish(self, cluster, values):
        sha256 = self.finish_strict(cluster, values)
        for island in ISLANDS:
            # Both processes end by themselves, with 0.
            for name in (island, "trainer-of-" + island):
                if name not in cluster.deaths:
                    self.assertEqual(cluster.processes[name].wait(), 0,
                                     cluster.processes[name].tail())
        return sha256

    def final_line(self, cluster):
        """What a trainer says that has the run's parameters."""
        pinned = cluster.pin()
        parameters = cluster.parameters(pinned=pinned)
        view = arithmetic.LayoutView(pinned.run.spec.layout)
        values = b""
        for _, fragment, first, count in view.places:
            offsets = view.fragments[fragment].block_offsets
            values += parameters[fragment][
                4 * offsets[first]:4 * offsets[first + count]]
        return "final " + hashlib.sha256(values).hexdigest()

    def test_a_run_begins_with_the_values_of_the_call_that_creates_it(self):
        self.cluster.start_service()
        generator = numpy.random.default_rng(cases.seed())
        arrays = {"w": generator.standard_normal((30, 7), "f4"),
                  "b": generator.standard_normal(7, "f4")}
        with mock.patch.dict(os.environ, {
                "ATOLL_BINARY": processes.binary(processes.CLI)}):
            for _ in range(2):  # The second call changes nothing.
                atoll.create_run(
                    "run", arrays=arrays,
                    coordinator=self.cluster.coordinator_address,
                    server_count=1, schedule={"round_count": 1})
            with self.assertRaisesRegex(atoll.Error, "OTHER_SPEC"):
                atoll.create_run(
                    "run", arrays={**arrays, "b": arrays["b"] + 1},
                    coordinator=self.cluster.coordinator_address,
                    server_count=1, schedule={"round_count": 1})
        found = self.cluster.parameters()[0]
        self.assertEqual(
            sorted(numpy.frombuffer(found, "<f4").tolist()),
            sorted(numpy.concatenate([a.ravel() for a in arrays.values()])
                   .tolist()))

    def test_at_the_end_trainers_have_the_runs_parameters(self):
        for index, changes in enumerate(((), (STREAMING, ENCODED))):
            cluster = self.new_cluster("end-%d" % index)
            values = self.run_values(*changes)
            self.start(cluster, values)
            self.finish(cluster, values)
            said = self.final_line(cluster)
            for island in ISLANDS:
                self.assertIn(
                    said, cluster.processes["trainer-of-" + island].tail())
            cluster.close()

    def test_a_trainer_after_the_end_has_the_runs_parameters_or_an_error(self):
        cluster = self.new_cluster("late")
        values = self.run_values(STREAMING, ENCODED)
        self.start(cluster, values)
        self.finish(cluster, values)
        said = self.final_line(cluster)
        # It was never a member, and trains a step on what it gets.
        cluster.start_trainer_island("late")
        for name in ("late", "trainer-of-late"):
            self.assertEqual(cluster.processes[name].wait(), 0,
                             cluster.processes[name].tail())
        self.assertIn(said, cluster.processes["trainer-of-late"].tail())
        for server in ("server-0", "server-1"):
            cluster.kill(server)
        cluster.start_trainer_island("later")
        trainer = cluster.processes["trainer-of-later"]
        self.assertNotEqual(trainer.wait(), 0)
        self.assertIn("run export", trainer.tail())
        self.assertNotIn("final", trainer.tail())
        cluster.close()

    def reference(self, *changes):
        values = self.run_values(*changes)

        def run(cluster):
            self.start(cluster, values)
            return self.finish(cluster, values)

        return self.once(changes, run)

    def kill_at(self, victim, point, *changes):
        values = self.run_values(*changes)
        self.assert_a_death_changes_no_bit(
            self.cluster, values, self.reference(*changes), victim, point,
            lambda armed: self.start(self.cluster, values, armed))
        if victim == "island-1" and not changes:
            # The trainer outlives its exchange, and continues where it is.
            self.assert_not_rewound(self.cluster)

    def assert_not_rewound(self, cluster):
        trainer = cluster.processes["trainer-of-island-1"]
        self.assertEqual(trainer.wait(), 0, trainer.tail())
        self.assertIn("rewound 0\n", trainer.tail())

    def test_it_trains(self):
        self.reference()
        values = self.run_values()
        self.start(self.cluster, values)
        self.assertEqual(self.finish(self.cluster, values), self.reference())
        losses = [r.evaluation.loss for r in self.cluster.rounds()
                  if r.HasField("evaluation")]
        self.assertGreater(len(losses), 1)
        self.assertLess(losses[-1], losses[0])

    def test_a_round_has_the_trainers_own_numbers(self):
        values = self.run_values({"schedule": {"round_count": 100000}})
        self.start(self.cluster, values)

        def reported():
            self.cluster.check_alive()
            return [r for r in self.cluster.rounds() if "rmse" in r.metrics]

        # An island reports once a second: not in each of these rounds.
        found = wait.until("a round has the metric", reported)
        self.assertGreater(found[0].metrics["rmse"], 0)
        self.cluster.runs.CancelRun(run_id="run")

    def test_a_trainer_that_hangs_is_told_of(self):
        longer = {"schedule": {"round_count": 200}}
        values = self.run_values(longer)
        expected = self.reference(longer)
        self.start(self.cluster, values)
        self.cluster.wait_commits(1)
        pid = self.cluster.processes["trainer-of-island-1"].pid
        os.kill(pid, signal.SIGSTOP)

        def silence():
            shown = json.loads(self.cluster.run_cli(
                "island", "status", "run", "island-1", "-o", "json",
                check=0).stdout)["data"]
            # An island that has not reported yet has no progress.
            return shown.get("progress", {}).get("trainer_silence_seconds", 0)

        try:
            wait.until("the trainer is silent", lambda: silence() >= 5)
            text = self.cluster.run_cli("island", "status", "run", "island-1",
                                        check=0).stdout
            self.assertIn("has not answered for", text)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.finish(self.cluster, values), expected)

    def test_a_trainer_of_the_standard_library(self):
        values = self.run_values({"inner": {"batch_size": 8}})
        self.start(self.cluster, values, trainer=cluster_module.STDLIB_TRAINER,
                   tensors={"version": 1, "tensors": [
                       {"name": "w", "shape": [3]}, {"name": "b", "shape": [1]},
                   ]})
        self.finish(self.cluster, values)

    def test_streaming_gives_other_bits(self):
        self.assertEqual(
            len({self.reference(), self.reference(STREAMING),
                 self.reference(STREAMING, ENCODED)}), 3)

    def test_a_kill_of_both_at_once(self):
        values = self.run_values()
        expected = self.reference()
        self.start(self.cluster, values)
        self.cluster.wait_commits(1)
        for name in ("island-1", "trainer-of-island-1"):
            self.cluster.kill(name)
        for name in ("trainer-of-island-1", "island-1"):
            self.cluster.restart(name)
        self.assertEqual(self.finish(self.cluster, values), expected)

    def test_an_async_run_takes_every_contribution_once(self):
        values = self.run_values(run_file.ELASTIC, {
            "outer": {"weighting": "uniform"},
            "schedule": {"max_staleness": 4, "grace_window": None,
                         "round_count": 30},
        })
        self.start(self.cluster, values)
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assert_rounds_whole(self.cluster, values)

    def test_an_elastic_island_leaves_once_its_trainer_is_killed(self):
        self.start(self.cluster, self.run_values(run_file.ELASTIC, {
            "schedule": {"round_count": 100000}}))
        self.cluster.wait_commits(2)
        self.cluster.kill("trainer-of-island-1")

        def has_left():
            island, = [i for i in self.cluster.islands()
                       if i.island_id == "island-1"]
            self.assertNotEqual(island.state, _LOST)  # Its lease's end.
            return island.state == _LEFT

        wait.until("island-1 has left", has_left)

    def test_an_elastic_run_loses_an_exchange_and_rewinds_no_trainer(self):
        values = self.run_values(run_file.ELASTIC, {
            "schedule": {"round_count": 30}})
        self.start(self.cluster, values)
        for commits in (3, 9):
            self.cluster.wait_commits(commits)
            self.cluster.kill("island-1")
            self.cluster.wait_commits(commits + 3)  # The rounds move on.
            self.cluster.restart("island-1")
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assert_not_rewound(self.cluster)

    def test_an_elastic_run_loses_a_trainer_and_takes_it_back(self):
        values = self.run_values(STREAMING, run_file.ELASTIC, {
            "schedule": {"max_ahead_steps": 2}})
        self.start(self.cluster, values)
        self.assert_taken_back(self.cluster, "trainer-of-island-1", "island-1",
                               values)


def add_deaths():
    """A test for each point at which a process may die."""
    # Points passed once in a run.
    once = ("island.joined.", "island.evaluated.")
    never = ("island.leave.",)

    def add(victim, point, *changes):
        name = "test_%s_killed_at_%s%s" % (
            victim.replace("-", "_"), point.replace(".", "_").replace("@", "_"),
            "_streaming" if changes else "")
        setattr(TrainerTest, name,
                lambda self: self.kill_at(victim, point, *changes))

    for name in processes.failpoints(processes.CLI, "island"):
        if not name.startswith(never):
            add("island-1", name if name.startswith(once) else name + "@2")
    for point in ("step@6", "save@3", "saved@2", "load@1"):
        add("trainer-of-island-1", point)
    for point in ("step@9", "saved@4"):
        add("trainer-of-island-1", point, STREAMING)
    add("island-1", "island.pushed.after@3", STREAMING, ENCODED)


add_deaths()

if __name__ == "__main__":
    cases.main()
