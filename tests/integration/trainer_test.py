#!/usr/bin/python3
"""Islands whose trainer is another process, with real programs and NumPy.

A death of the trainer, of the exchange or of both changes no bit of a strict
run, and nothing counts twice."""

import hashlib
import json
import os
import re
import signal
from unittest import mock

import numpy

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import model_files
from harness import numpy_trainer
from harness.numpy_trainer import atoll
from harness import processes
from harness import run_file
from harness import variance_trainer
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
              trainer=cluster_module.NUMPY_TRAINER, islands=ISLANDS):
        with open(os.path.join(cluster.directory, "tensors.json"), "w",
                  encoding="utf-8") as file:
            json.dump(tensors, file)
        cluster.start_service()
        cluster.create_run(values)
        for island in islands:
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
            options = {"coordinator": self.cluster.coordinator_address,
                       "server_count": 1,
                       # No other key of the preset has to be given.
                       "schedule": {"round_count": 1, "timing": "strict",
                                    "island_count_min": 2}}
            for _ in range(2):  # The second call changes nothing.
                atoll.create_run("run", arrays=arrays, **options)
            with self.assertRaisesRegex(atoll.Error, "OTHER_SPEC"):
                atoll.create_run(
                    "run", arrays={**arrays, "b": arrays["b"] + 1}, **options)
        found = self.cluster.parameters()[0]
        self.assertEqual(
            sorted(numpy.frombuffer(found, "<f4").tolist()),
            sorted(numpy.concatenate([a.ravel() for a in arrays.values()])
                   .tolist()))

    def test_a_loop_that_gives_only_losses_ends_a_run_of_create_run(self):
        self.cluster.start_service()
        arrays = {tensor["name"]: numpy.zeros(tensor["shape"], "f4")
                  for tensor in numpy_trainer.TENSORS["tensors"]}
        with mock.patch.dict(os.environ, {
                "ATOLL_BINARY": processes.binary(processes.CLI)}):
            atoll.create_run(
                "run", arrays=arrays,
                coordinator=self.cluster.coordinator_address,
                server_count=1, schedule={
                    "round_count": 3, "inner_step_count": 4,
                    "island_count_min": 2, "min_quorum": 2})
        for island in ISLANDS[:2]:
            self.cluster.start_trainer_island(
                island, trainer=cluster_module.NUMPY_TRAINER +
                ("--count=nothing",))
        self.cluster.wait_state(cluster_module.COMPLETED)
        for island in ISLANDS[:2]:
            trainer = self.cluster.processes["trainer-of-" + island]
            self.assertEqual(trainer.wait(), 0, trainer.tail())
        merged = [c for r in self.cluster.rounds() for c in r.contributions
                  if c.weight > 0]
        self.assertEqual(len(merged), 6)
        for contribution in merged:
            self.assertEqual(contribution.token_count,
                             contribution.info.step_count)

    def test_an_island_that_counts_another_unit_is_refused_and_says_why(self):
        for unit, words, why in (
                ("steps", "--says=samples", "the island counts samples, and "
                 "the run weighs contributions by steps"),
                ("samples", "--count=tokens", "NO_WEIGHT"),
                ("tokens", "--count=nothing", "NO_WEIGHT")):
            with self.subTest(words):
                cluster = self.new_cluster("unit-" + unit)
                values = self.run_values(
                    {"weight_unit": unit, "schedule": {"island_count_min": 1,
                                                       "min_quorum": 1},
                     "model": {"sequence_length": 1 if unit == "tokens"
                               else None}})
                self.start(cluster, values, islands=ISLANDS[:1],
                           trainer=cluster_module.NUMPY_TRAINER + (words,))
                for name in ("island-0", "trainer-of-island-0"):
                    cluster.may_end(name)
                trainer = cluster.processes["trainer-of-island-0"]
                self.assertEqual(trainer.wait(), 1)
                self.assertIn(why, trainer.tail())
                self.assertNotEqual(cluster.processes["island-0"].wait(), 0)
                self.assertEqual(cluster.rounds(), [])
                cluster.close()

    def create_with(self, arrays):
        self.cluster.start_service()
        with mock.patch.dict(os.environ, {
                "ATOLL_BINARY": processes.binary(processes.CLI)}):
            atoll.create_run(
                "run", arrays=arrays, server_count=1,
                coordinator=self.cluster.coordinator_address,
                schedule={"round_count": 1})

    def template(self, name, tensors, weights="model.safetensors"):
        folder = os.path.join(self.cluster.directory, name)
        os.mkdir(folder)
        with open(os.path.join(folder, weights), "wb") as file:
            file.write(model_files.encode(tensors))
        with open(os.path.join(folder, "config.json"), "w",
                  encoding="ascii") as file:
            file.write('{"of": "a person"}')
        return folder

    def export(self, name, template, check=0):
        folder = os.path.join(self.cluster.directory, name)
        done = self.cluster.run_cli("run", "export", "run", folder,
                                    "--template", template, "-o", "json",
                                    check=check)
        return folder, json.loads(done.stdout)

    def test_an_export_from_a_template_has_all_of_its_tensors(self):
        generator = numpy.random.default_rng(cases.seed())

        def drawn(*shape):
            return generator.standard_normal(shape, "f4")

        def f32(array):
            return ("F32", list(array.shape), array.tobytes())

        def bf16(array):
            bits = array.view("<u4")
            bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16
            return ("BF16", list(array.shape), bits.astype("<u2").tobytes())

        new = {"embed.weight": drawn(30, 7), "_ue5_.bias": drawn(7)}
        self.create_with(new)
        old, frozen = drawn(30, 7), drawn(30, 7)
        count = ("I64", [], numpy.int64(3).tobytes())
        template = self.template("template", {
            "lm_head.weight": bf16(old), "embed.weight": bf16(old),
            "frozen.weight": bf16(frozen), "å.bias": f32(drawn(7)),
            "norm.count": count})
        folder, answer = self.export("model", template)
        self.assertEqual(model_files.read(folder), {
            "lm_head.weight": bf16(new["embed.weight"]),
            "embed.weight": bf16(new["embed.weight"]),
            "frozen.weight": bf16(frozen), "å.bias": f32(new["_ue5_.bias"]),
            "norm.count": count})
        self.assertEqual(answer["data"]["template"], {
            "filled_count": 2, "kept_count": 2, "left_out": [],
            "tied": ["lm_head.weight = embed.weight"]})
        with open(os.path.join(folder, "config.json"),
                  encoding="ascii") as file:
            self.assertEqual(file.read(), '{"of": "a person"}')
        # Another model is refused before anything is written.
        other = self.template("other", {"embed.weight": f32(old)})
        folder, answer = self.export("none", other, check=4)
        self.assertIn("_ue5_.bias", answer["error"]["message"])
        self.assertFalse(os.path.exists(folder))

    def test_an_export_of_an_adapter_has_the_adapters_files(self):
        generator = numpy.random.default_rng(cases.seed())
        prefix = "base_model.model.h.0."
        shapes = {"lora_A": (2, 7), "lora_B": (30, 2)}
        new = {key: generator.standard_normal(shape, "f4")
               for key, shape in shapes.items()}
        self.create_with({"%s%s.default.weight" % (prefix, key): array
                          for key, array in new.items()})
        template = self.template("template", {
            "%s%s.weight" % (prefix, key): ("F32", list(shape), bytes(
                4 * shape[0] * shape[1])) for key, shape in shapes.items()},
            weights="adapter_model.safetensors")
        folder, _ = self.export("adapter", template)
        self.assertEqual(sorted(os.listdir(folder)), [
            "adapter_model.safetensors", "config.json", "manifest.json"])
        self.assertEqual(model_files.read(folder, "adapter_model"), {
            "%s%s.weight" % (prefix, key): ("F32", list(array.shape),
                                            array.tobytes())
            for key, array in new.items()})

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
        # They have copies; a member's is from the run's end.
        for island in ("late", "island-0"):
            cluster.start_trainer_island(island)
            trainer = cluster.processes["trainer-of-" + island]
            self.assertEqual(trainer.wait(), 0, trainer.tail())
            self.assertEqual(trainer.tail(1000).count(said), 2)
        # One bit of a copy has changed, and another island has none.
        copy = os.path.join(cluster.directory, "late", "run.late.final")
        self.assertEqual(os.stat(copy).st_mode & 0o777, 0o600)
        with open(copy, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last, = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        for island, count in (("late", 2), ("later", 0)):
            cluster.start_trainer_island(island)
            for name in (island, "trainer-of-" + island):
                cluster.may_end(name)
            trainer = cluster.processes["trainer-of-" + island]
            self.assertNotEqual(trainer.wait(), 0)
            self.assertIn("run export", trainer.tail())
            self.assertEqual(trainer.tail(1000).count(said), count)
        cluster.close()

    def trainer_with(self, *arguments):
        return cluster_module.NUMPY_TRAINER + arguments

    def test_an_island_with_another_frozen_base_is_refused(self):
        self.start(self.cluster, self.run_values(run_file.ELASTIC, {
            "schedule": {"round_count": 100000}}),
                   trainer=self.trainer_with("--base=seed-1"))
        self.cluster.wait_commits(1)
        self.cluster.start_trainer_island(
            "other", trainer=self.trainer_with("--base=seed-2"))
        self.cluster.may_end("other")
        self.cluster.may_end("trainer-of-other")
        for name in ("other", "trainer-of-other"):
            self.assertNotEqual(self.cluster.processes[name].wait(), 0)
        said = self.cluster.processes["trainer-of-other"].tail()
        for part in ("island other", "island island-[012]", "frozen param"):
            self.assertRegex(said, part)
        self.assertNotIn("other",
                         [i.island_id for i in self.cluster.islands()])
        # One that had a place before its hello gives it up.
        self.cluster.start_trainer_island("placed", trainer=self.trainer_with(
            "--base=seed-2", "--samples=1000"))
        for name in ("trainer-of-placed", "placed"):
            self.cluster.may_end(name)
            self.assertNotEqual(self.cluster.processes[name].wait(), 0)
        self.assertEqual([i.state for i in self.cluster.islands()
                          if i.island_id == "placed"], [_LEFT])
        # One with the same base may join.
        self.cluster.start_trainer_island(
            "same", trainer=self.trainer_with("--base=seed-1"))
        wait.until("the island with the same base is there", lambda: "same" in
                   [i.island_id for i in self.cluster.islands()])
        self.cluster.runs.CancelRun(run_id="run")

    def test_trainers_that_join_first_have_shards_of_their_own(self):
        values = self.run_values()
        self.start(self.cluster, values,
                   trainer=self.trainer_with("--samples=1000"))
        # Joining first changes no bit.
        self.assertEqual(self.finish(self.cluster, values), self.reference())
        said = sorted(
            line for island in ISLANDS for line in self.cluster.processes[
                "trainer-of-" + island].tail(1000).splitlines()
            if line.startswith("joined "))
        self.assertEqual(said, ["joined %d %d 3" % (n, n) for n in range(3)])

    def test_islands_with_the_same_samples_are_warned(self):
        values = self.run_values(run_file.ELASTIC, {
            "schedule": {"round_count": 100000}})
        self.start(self.cluster, values,
                   trainer=self.trainer_with("--samples=1000"))
        self.cluster.wait_commits(1)
        # Three data shards, and a fourth island.
        self.cluster.start_trainer_island(
            "fourth", trainer=self.trainer_with("--samples=1000"))

        def warned():
            self.cluster.check_alive()
            return len(self.cluster.run_state().warnings) == 2

        wait.until("two islands are warned", warned)
        self.assertEqual(self.cluster.run_cli(
            "run", "show", "run", check=0).stdout.count("warning"), 2)
        shown = json.loads(self.cluster.run_cli(
            "run", "show", "run", "-o", "json", check=0).stdout)["data"]
        islands = [w["island_id"] for w in shown["warnings"]]
        self.assertIn("fourth", islands)
        for name in islands:
            wait.until("the trainer of %s is warned" % name,
                       lambda name=name: "the same sample numbers as island" in
                       self.cluster.processes[
                           "trainer-of-" + name].tail(100000))
        self.cluster.runs.CancelRun(run_id="run")

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
        values = self.run_values()
        self.start(self.cluster, values, islands=("island-0", "island-2"))
        self.cluster.start_trainer_island(
            "island-1", trainer=self.trainer_with("--stop-at=6"))
        pid = self.cluster.processes["trainer-of-island-1"].pid

        def stopped():
            self.cluster.check_alive()
            return os.waitid(os.P_PID, pid,
                             os.WSTOPPED | os.WNOHANG | os.WNOWAIT)

        def is_silent():
            # An island that has not reported yet has no progress.
            return any(island.progress.trainer_silence_seconds >= 5
                       for island in self.cluster.islands()
                       if island.island_id == "island-1")

        wait.until("the trainer has stopped", stopped)
        try:
            wait.until("the trainer is silent", is_silent)
            status = "island", "status", "run", "island-1"
            shown = json.loads(self.cluster.run_cli(
                *status, "-o", "json", check=0).stdout)["data"]
            self.assertGreaterEqual(
                shown["progress"]["trainer_silence_seconds"], 5)
            self.assertIn("has not answered for",
                          self.cluster.run_cli(*status, check=0).stdout)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.finish(self.cluster, values), self.reference())

    def test_a_trainer_of_the_standard_library(self):
        values = self.run_values({"inner": {"batch_size": 8}})
        self.start(self.cluster, values, trainer=cluster_module.STDLIB_TRAINER,
                   tensors={"version": 1, "tensors": [
                       {"name": "w", "shape": [3]}, {"name": "b", "shape": [1]},
                   ]})
        self.finish(self.cluster, values)

    def test_a_buffer_is_averaged_and_a_failed_evaluation_is_told(self):
        values = self.run_values(
            {"inner": {"batch_size": variance_trainer.BATCH}})
        self.start(self.cluster, values,
                   trainer=cluster_module.VARIANCE_TRAINER,
                   tensors=variance_trainer.TENSORS)
        self.finish(self.cluster, values)
        schedule = values["schedule"]
        kept = 0.5 ** schedule["inner_step_count"]
        mean = sum(variance_trainer.observed(shard) for shard in range(3)) / 3
        wanted = numpy.ones(variance_trainer.ELEMENTS)
        for _ in range(schedule["round_count"]):
            wanted = kept * wanted + (1 - kept) * mean
        found = numpy.frombuffer(self.cluster.parameters()[0], "<f4")[3:]
        self.assertGreater(found.min(), 0)
        numpy.testing.assert_allclose(found, wanted, rtol=1e-5)
        # Islands 1, 2 and 0 evaluated the first three versions, and island 1
        # the last.
        evaluations = [r.evaluation for r in self.cluster.rounds()]
        self.assertEqual([e.version for e in evaluations], [1, 2, 3, 4])
        for evaluation in evaluations[:3]:
            self.assertEqual(evaluation.failure, "the held-out loss is nan")
        self.assertEqual(evaluations[3].failure, "")
        self.assertEqual(evaluations[3].loss, 2)
        shown = self.cluster.run_cli("run", "show", "run", check=0).stdout
        self.assertRegex(shown, r"validation loss .*2\.0000 .*version 4")
        self.assertNotIn("not evaluated", shown)
        listed = self.cluster.run_cli("round", "list", "run", check=0).stdout
        self.assertEqual(listed.count(" failed "), 3)

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

    def test_a_wait_for_the_coordinator_is_the_newest_line_of_the_log(self):
        self.start(self.cluster, self.run_values(run_file.ELASTIC, {
            "schedule": {"round_count": 100000}}))
        self.cluster.wait_commits(2)
        self.cluster.kill("coordinator")

        def newest(island):
            # A trainer quotes these lines (_news.py) and no others.
            with open(self.cluster.processes[island].log_path,
                      encoding="utf-8", errors="replace") as log:
                lines = [line for line in log.read().splitlines()
                         if line[:1] in ("I", "W", "E") and "] " in line]
            return lines[-1] if lines else ""

        for island in ISLANDS:
            wait.until(island + " says that the coordinator is away",
                       lambda island=island: newest(island).endswith(
                           "] the coordinator is away"))

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

    def test_a_trainer_hears_of_steps_that_do_not_count(self):
        self.start(self.cluster, self.run_values(run_file.ELASTIC, {
            "schedule": {"round_count": 100000}}))
        self.cluster.wait_commits(2)
        trainer = self.cluster.processes["trainer-of-island-1"]

        def is_told():
            trainer.signal(signal.SIGSTOP)
            try:
                # The rounds move on.
                self.cluster.wait_commits(
                    self.cluster.run_state().commit_seq + 4)
            finally:
                trainer.signal(signal.SIGCONT)
            self.cluster.wait_commits(self.cluster.run_state().commit_seq + 4)
            return re.search(
                r"steps since version \d+ of fragment 0 do not count|"
                r"is not merged: (LATE|STALE)", trainer.tail(200))

        # If it stops while it takes new parameters, it loses no steps.
        wait.until("the trainer is told", is_told)
        self.cluster.runs.CancelRun(run_id="run")

    def test_a_trainer_without_losses_hears_that_its_parameters_are_lost(self):
        self.start(self.cluster, self.run_values(run_file.ELASTIC, {
            "schedule": {"round_count": 100000}}),
                   trainer=self.trainer_with("--nan-at=6"))
        trainer = self.cluster.processes["trainer-of-island-1"]
        wait.until("the trainer is told", lambda: re.search(
            "fragment 0 has a value that is not finite: its steps are lost",
            trainer.tail(200)))
        self.cluster.runs.CancelRun(run_id="run")

    def test_a_trainer_that_changes_nothing_hears_of_it(self):
        self.start(self.cluster, self.run_values(run_file.ELASTIC, {
            "schedule": {"round_count": 100000}}),
                   trainer=self.trainer_with("--rate=0"))
        trainer = self.cluster.processes["trainer-of-island-1"]
        wait.until("the trainer is told", lambda: re.search(
            r"contribution \d+ of fragment 0 has changed nothing \(norm 0\)",
            trainer.tail(200)))
        self.cluster.runs.CancelRun(run_id="run")

    def test_a_trainer_whose_exchange_is_stopped_does_not_think_it_complete(
            self):
        self.start(self.cluster, self.run_values(run_file.ELASTIC, {
            "schedule": {"round_count": 100000}}))
        self.cluster.wait_commits(2)
        for name in ("island-1", "trainer-of-island-1"):
            self.cluster.may_end(name)
        self.cluster.processes["island-1"].signal(signal.SIGTERM)
        trainer = self.cluster.processes["trainer-of-island-1"]
        self.assertNotEqual(trainer.wait(), 0)
        self.assertIn("has left the run before its end",
                      trainer.tail())
        self.assertNotRegex(trainer.tail(), "(?m)^final ")
        self.cluster.runs.CancelRun(run_id="run")

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
