#!/usr/bin/python3
"""A run that changes nothing equals plain training, bit for bit.

One island, H = 1, outer SGD with rate 1: theta - 1 * (theta - theta') is
theta'. For inner SGD as a multiply and a subtract this holds exactly in f32.
With AdamW plain_training takes the same rounding step.
"""

import os
import subprocess
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(_HERE, "..", "integration"))

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import processes  # noqa: E402

_PLAIN = "tests/conformance/plain_training"


class PlainTrainingTest(cluster_module.IntegrationTest):

    def values(self, *changes):
        return self.run_values({
            "server_count": 2,
            "data": {"data_shard_count": 1},
            "outer": {"optimizer": "sgd", "learning_rate": 1.0,
                      "momentum": 0.0},
            "schedule": {"inner_step_count": 1, "round_count": 12,
                         "island_count_min": 1, "min_quorum": 1},
            "evaluation": {"every_round_count": 5},
        }, *changes)

    def train(self, values, *flags):
        """Returns the parameters of (the run, plain training, version 0)."""
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(values["server_count"])
        cluster.create_run(values)
        cluster.wait_state(cluster_module.ACTIVE)
        first = cluster.parameters(pinned=cluster.pin(pin_id="first"))[0]
        cluster.start_island("run", "island-0")
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)
        return (cluster.parameters()[0], self.twin(first, flags), first)

    def twin(self, first, flags):
        paths = {}
        spec = self.cluster.runs.GetRun(run_id="run").run.spec
        for name, data in (("spec", spec.SerializeToString()),
                           ("parameters", first), ("out", b"")):
            paths[name] = os.path.join(self.cluster.directory, name + ".bin")
            with open(paths[name], "wb") as file:
                file.write(data)
        command = [processes.binary(_PLAIN)] + list(flags)
        for name, path in paths.items():
            command += ["--" + name, path]
        subprocess.run(command, check=True)
        with open(paths["out"], "rb") as file:
            return file.read()

    def test_inner_sgd_equals_plain_training_bit_for_bit(self):
        run, twin, first = self.train(self.values({"inner": {
            "optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.0}}))
        self.assertNotEqual(run, first)
        self.assertEqual(run == twin, True, "the parameters differ")

    def test_inner_adamw_equals_plain_training_with_the_same_rounding(self):
        run, twin, first = self.train(self.values(), "--round-trip")
        self.assertNotEqual(run, first)
        self.assertEqual(run == twin, True, "the parameters differ")

    def test_another_outer_rate_does_not_equal_plain_training(self):
        # A control: the comparison can fail.
        run, twin, _ = self.train(self.values({"outer": {
            "learning_rate": 0.5}}, {"inner": {
                "optimizer": "sgd", "learning_rate": 0.1,
                "weight_decay": 0.0}}))
        self.assertEqual(run == twin, False, "the parameters are equal")


if __name__ == "__main__":
    cases.main()
