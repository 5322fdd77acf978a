#!/usr/bin/python3
"""Merge rules from end to end: the same bits for any distribution of the work,
and a hostile minority."""

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import python_island
from harness import toy


class MergeTest(cluster_module.IntegrationTest):

    def play(self, cluster, merge, server_count=2, island_count=5):
        members = toy.start(cluster, *toy.robust(
            merge, {"schedule": {"round_count": 2}},
            island_count=island_count), island_count=island_count,
            server_count=server_count)
        sha = toy.play(cluster, members, cases.seed(), 2)
        cluster.close()
        return sha

    def expect_same_bits(self, merge):
        one = self.play(self.new_cluster("one"), merge, server_count=1)
        self.assertEqual(self.play(self.new_cluster("three"), merge,
                                   server_count=3), one)
        mean = self.once("mean", lambda made: self.play(made, {"rule": 1}))
        self.assertNotEqual(mean, one)

    def test_rda_gives_the_same_bits_on_one_and_three_servers(self):
        self.expect_same_bits(toy.RDA)

    def test_norm_clip_gives_the_same_bits_on_one_and_three_servers(self):
        self.expect_same_bits(toy.NORM_CLIP)

    def test_the_median_gives_the_same_bits_on_one_and_three_servers(self):
        self.expect_same_bits(toy.MEDIAN)

    def test_a_trimmed_mean_gives_the_same_bits_on_one_and_three_servers(self):
        self.expect_same_bits(toy.TRIMMED_MEAN)

    def test_centred_clip_gives_the_same_bits_on_one_and_three_servers(self):
        self.expect_same_bits(toy.CENTRED_CLIP)

    def test_krum_gives_the_same_bits_on_one_and_three_servers(self):
        self.expect_same_bits(toy.KRUM)

    def test_mda_gives_the_same_bits_on_one_and_three_servers(self):
        self.expect_same_bits(toy.MDA)

    def test_krum_with_one_far_away_is_the_run_of_the_others(self):
        self.expect_run_of_the_others(toy.KRUM)

    def test_mda_with_one_far_away_is_the_run_of_the_others(self):
        self.expect_run_of_the_others(toy.MDA)

    def expect_run_of_the_others(self, merge):
        honest = self.play(self.new_cluster("honest"),
                           dict(merge, byzantine_count=0), island_count=4)
        members = toy.start(self.cluster, *toy.robust(
            merge, {"schedule": {"round_count": 2}}), island_count=5)
        liar = max(members, key=lambda member: member.slot)
        others = [member for member in members if member is not liar]
        for version in range(2):
            for member in members:
                member.wait_open(version)
            lies = [1e4 * value for value in liar.random_values(version)]
            liar.contribution(lies, version).push()
            for contribution in toy.gradients(others, version, cases.seed()):
                contribution.push()
            for member in members:
                member.wait_version(version + 1)
                member.ready()
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(), honest)

    def test_what_a_verdict_says_is_what_the_servers_apply(self):
        cluster = self.cluster
        members = toy.start(cluster, *toy.robust(
            toy.KRUM, {"schedule": {"round_count": 2}}), island_count=5)
        run = cluster.runs.GetRun(run_id="run").run

        def theta(version):
            return arithmetic.from_bytes(python_island.pull(
                cluster, run, members[0].plan.shards, version))

        before = theta(0)
        for member in members:
            member.wait_open(0)
        sent = toy.gradients(members, 0, cases.seed())
        for contribution in sent:
            contribution.push()
        members[0].wait_version(1)
        after = theta(1)
        # Krum takes one contribution unchanged; the step subtracts it.
        matches = [contribution for contribution in sent if all(
            abs(b - g - a) <= 1e-6 for b, g, a in
            zip(before, arithmetic.from_bytes(contribution.payload), after))]
        self.assertEqual(len(matches), 1)

    def test_a_norm_without_bound_is_refused(self):
        members = toy.start(self.cluster, *toy.robust(
            toy.NORM_CLIP, {"schedule": {"min_quorum": 4, "round_count": 1}}),
            island_count=5)
        for member in members:
            member.wait_open(0)
        liar = members[2]
        lie = liar.contribution([1e30] * len(liar.random_values(0)), 0)
        lie.push()
        others = [member for member in members if member is not liar]
        for contribution in toy.gradients(others, 0, cases.seed()):
            contribution.push()
        outcome = liar.wait_outcome(lie.seq)
        self.assertEqual(outcome.outcome, cluster_module.REJECTED)
        self.assertIn("norm", outcome.reason)
        self.cluster.wait_state(cluster_module.COMPLETED)

    def test_what_makes_no_sense_is_refused_at_creation(self):
        self.cluster.start_coordinator()
        for merge, count, field in (
                (toy.KRUM, 4, "byzantine_count"),
                (dict(toy.TRIMMED_MEAN, byzantine_count=2), 4,
                 "byzantine_count"),
                (dict(toy.MDA, byzantine_count=2), 4, "byzantine_count"),
                ({"rule": 5, "clip_factor": 2.0}, 4, "clip_factor"),
                (dict(toy.KRUM, selected_count=3), 5, "selected_count"),
                ({"rule": 6, "iteration_count": 65}, 4, "iteration_count")):
            with self.assertRaises(Exception) as caught:
                toy.create(self.cluster, *toy.robust(merge,
                                                     island_count=count))
            self.assertIn("spec.outer.merge." + field, str(caught.exception))


if __name__ == "__main__":
    cases.main()
