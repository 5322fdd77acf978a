#!/usr/bin/python3
"""Runs that end by merged tokens: they have the bits of the rounds that merge
as many, and end at the same commit if the coordinator dies near the end."""

import grpc

from harness import cases
from harness import cluster as cluster_module
from harness import toy
from harness import wait

# The harness's run has three islands and rounds of 3 steps of 2 x 32 tokens.
ROUNDS = 4
ROUND_TOKENS = 3 * 3 * 2 * 32

# Fragment 0 is pushed after 3, 8, 13 … steps, fragment 1 after 5, 10, 15.
STREAMING = {
    "layout": {"fragment_count": 2},
    "schedule": {"fragment_schedule": "staggered", "inner_step_count": 5,
                 "overlap_step_count": 2, "blend": 0.5},
    "evaluation": {"every_round_count": 2},
}
STREAMING_TOKENS = 15 * 3 * 2 * 32

ASYNC = {
    "outer": {"optimizer": "delayed_nesterov", "learning_rate": 0.7,
              "momentum": 0.5, "buffer_count": 3, "weighting": "uniform"},
    "schedule": {"timing": "elastic", "max_staleness": 6, "min_quorum": 1,
                 "inner_step_count": 8, "lease_duration": "30s"},
    "evaluation": {"every_round_count": 6},
}
CONTRIBUTION_TOKENS = 8 * 2 * 32  # At most.
ASYNC_TOKENS = 12 * CONTRIBUTION_TOKENS - 100

# Where the coordinator dies: around the SEAL and the COMMIT of the last round.
# The batch of that COMMIT also holds the last checkpoint and the end.
SYNC_POINTS = ("commit.after@3", "open.after@4", "seal.before@4",
               "seal.after@4", "commit.before@4", "commit.after@4",
               "pin.before", "state.after@2")
STREAMING_POINTS = ("commit.before@6", "commit.after@6", "commit.before@7",
                    "commit.after@7", "state.before@2")
ASYNC_POINTS = ("seal.after@12", "commit.before@12", "commit.after@12",
                "state.before@2", "state.after@2")


class BudgetTest(cluster_module.IntegrationTest):

    def by_tokens(self, token_count, *changes):
        return self.run_values({"schedule": {"token_count": token_count,
                                             "round_count": None}}, *changes)

    def play(self, cluster, values, point=None):
        armed = {}
        if point is not None:
            cluster.guard("coordinator")
            armed["coordinator"] = "coordinator." + point
        cluster.start_run(values, armed, cluster_module.SNAPSHOTS)
        if point is not None:
            cluster.await_death("%s is reached" % point)
        cluster.wait_state(cluster_module.COMPLETED)
        state = cluster.run_state()
        self.assertIn("its budget of", state.run.state_reason)
        # Each commit has the merged tokens so far, and none comes after the
        # end.
        told = [r.merged_token_count for r in cluster.rounds()]
        self.assertEqual(told, sorted(told))
        self.assertEqual(told[-1], state.merged_token_count)
        return state

    def undisturbed(self, name, values):
        """SHA-256 and merged tokens of the run without a death; played once."""
        def make(cluster):
            state = self.play(cluster, values)
            return cluster.parameters_sha256(), state.merged_token_count

        return self.once(name, make)

    def test_a_budget_of_a_runs_tokens_gives_the_bits_of_its_rounds(self):
        by_rounds = self.run_values({"schedule": {"round_count": ROUNDS}})
        cluster = self.new_cluster("rounds")
        expected = self.run_strict(cluster, by_rounds)
        cluster.close()
        values = self.by_tokens(ROUNDS * ROUND_TOKENS)
        state = self.play(self.cluster, values)
        self.assertEqual(state.merged_token_count, ROUNDS * ROUND_TOKENS)
        self.assert_strict_run_whole(self.cluster, by_rounds)
        self.assertEqual(self.cluster.parameters_sha256(), expected)
        share = "{0:,} of {0:,} (100.0 %)".format(ROUNDS * ROUND_TOKENS)
        for command in (("show", "run"), ("watch", "run")):
            said = self.cluster.run_cli("run", *command, check=0).stdout
            self.assertIn(share, said)

    def test_a_run_without_a_length_or_with_a_bad_one_is_refused(self):
        self.cluster.start_coordinator()
        for schedule, reason in (
                ({"round_count": 0, "token_count": 0}, "set one or both"),
                ({"round_count": 0, "token_count": -1}, "in [32, "),
                ({"round_count": 0, "token_count": 31}, "one inner step"),
                ({"round_count": 3, "token_count": 2**62}, "at most 2^53")):
            with self.assertRaises(grpc.RpcError) as refused:
                toy.create(self.cluster, {"schedule": schedule})
            self.assertEqual(refused.exception.code(),
                             grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn(reason, refused.exception.details())

    def kill_sync(self, point):
        # One token more than three rounds: the fourth is the last.
        values = self.by_tokens((ROUNDS - 1) * ROUND_TOKENS + 1)
        expected = self.undisturbed("sync", values)
        state = self.play(self.cluster, values, point)
        self.assertEqual(state.merged_token_count, ROUNDS * ROUND_TOKENS)
        self.assert_rounds_whole(self.cluster, values)
        self.assertEqual((self.cluster.parameters_sha256(),
                          state.merged_token_count), expected)

    def kill_streaming(self, point):
        values = self.by_tokens(STREAMING_TOKENS, STREAMING)
        expected = self.undisturbed("streaming", values)
        state = self.play(self.cluster, values, point)
        self.assertEqual([f.version for f in state.cut], [4, 3])
        self.assert_rounds_whole(self.cluster, values)
        self.assertEqual((self.cluster.parameters_sha256(),
                          state.merged_token_count), expected)
        # The evaluation of the last cut names its newest version.
        wait.until("the last cut is evaluated", lambda: (
            self.cluster.run_state().evaluation.version == 4))

    def kill_async(self, point):
        values = self.by_tokens(ASYNC_TOKENS, ASYNC)
        state = self.play(self.cluster, values, point)
        merged = [r.merged_token_count for r in self.cluster.rounds()]
        self.assertLess(merged[-2], ASYNC_TOKENS)
        self.assertGreaterEqual(merged[-1], ASYNC_TOKENS)
        self.assertLess(merged[-1], ASYNC_TOKENS + CONTRIBUTION_TOKENS)
        self.assertEqual(state.merged_token_count, merged[-1])
        self.assert_rounds_whole(self.cluster, values)


def _add_cases():
    for kind, points in (("sync", SYNC_POINTS),
                         ("streaming", STREAMING_POINTS),
                         ("async", ASYNC_POINTS)):
        for point in points:
            def case(self, kind=kind, point=point):
                getattr(self, "kill_" + kind)(point)

            title = "test_%s_killed_at_%s" % (
                kind, point.replace(".", "_").replace("@", "_"))
            setattr(BudgetTest, title, case)


_add_cases()

if __name__ == "__main__":
    cases.main()
