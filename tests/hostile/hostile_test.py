#!/usr/bin/python3
"""One hostile island of four, enrolled like the others, in an elastic run.

The whole matrix is hostile_matrix.py, by hand.
"""

import math
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "..",
                             "integration")]

# pylint: disable=wrong-import-position
import hostile_runs
from harness import cases
from harness import cluster as cluster_module
from harness import gated

# One step a round: what the others train does not depend on speeds.
SHORT = {"schedule": {"inner_step_count": 1, "round_count": 12},
         "inner": {"warmup_step_count": 0},
         "outer": {"learning_rate": 1.0, "momentum": 0.0},
         "evaluation": {"every_round_count": 12, "batch_count": 4}}
HONEST, HOSTILE = 3, 1


class HostileTest(gated.GatedTest):

    def play(self, hostile_count, attack=None, is_bounded=True):
        values = hostile_runs.values(
            HONEST, hostile_count, {"data": {"path": self.text}}, SHORT)
        return hostile_runs.play(
            self.new_cluster("hostile-%d" % len(self._clusters), self.security),
            self.security, self.gate_dir, values, HONEST, hostile_count,
            attack and hostile_runs.ATTACKS[attack], is_bounded)

    def assert_out(self, result, *words):
        """The run ends, without a contribution of the named hostile island."""
        self.assertEqual(result.state.run.state, cluster_module.COMPLETED,
                         result.state.run.state_reason)
        hostile = hostile_runs.ENROLLED + "volunteer-h0"
        self.assertEqual(result.merged[hostile], 0)
        self.assertIn(hostile, result.named)
        for word in words:
            self.assertIn(word, result.reasons[hostile])
        honest = self.once("honest", lambda _: self.play(0))
        self.assertTrue(math.isfinite(honest.loss))
        self.assertLess(result.loss, honest.loss * 1.02)

    def test_one_huge_number_is_refused_and_its_island_named(self):
        self.assert_out(self.play(HOSTILE, "spike"), "NORM_TOO_LARGE")

    def test_no_number_is_refused_and_its_island_named(self):
        self.assert_out(self.play(HOSTILE, "nan"), "not finite",
                        "model.embed_tokens.weight")

    def test_a_number_far_ahead_is_refused_and_its_island_named(self):
        self.assert_out(self.play(HOSTILE, "seq"), "seq")

    def test_without_a_bound_one_huge_number_ends_the_training(self):
        honest = self.once("honest", lambda _: self.play(0))
        result = self.play(HOSTILE, "spike", is_bounded=False)
        self.assertGreater(result.loss, honest.loss * 1.02)


if __name__ == "__main__":
    cases.main()
