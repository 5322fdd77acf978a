#!/usr/bin/python3
"""Elastic runs: an island dies for good, or is refused; the rest continues."""

import grpc

import os

import statistics

import grpc

from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import python_island
from harness import run_file
from harness import toy
from harness import wait

_TOY = {"schedule": {"timing": 2, "min_quorum": 2, "island_count_min": 3,
                     "grace_window": {"seconds": 600}, "round_count": 1000}}


class ElasticTest(cluster_module.IntegrationTest):

    def start(self, failpoint=None):
        cluster = self.cluster
        self.values = self.run_values(run_file.ELASTIC)
        cluster.start_run(self.values, {"island-1": failpoint})
        return cluster

    def island(self, name):
        for island in self.cluster.islands():
            if island.island_id == name:
                return island
        return None

    def merges(self, name):
        island = self.island(name)
        return 0 if island is None else island.merged_count

    def assert_rest_goes_on(self, after_commit):
        cluster = self.cluster

        def lost():
            cluster.check_alive()
            island = self.island("island-1")
            return island is None or island.state == cluster_module.LOST

        wait.until("island-1 is lost", lost)
        cluster.wait_commits(after_commit + 3)

        def read_again():
            cluster.check_alive()
            held = {}
            for island in cluster.islands():
                if island.state == cluster_module.READY:
                    held[island.island_id] = set(island.data_shards)
            everything = set().union(*held.values()) if held else set()
            if everything != {0, 1, 2}:
                return None
            for r in cluster.rounds()[-20:]:
                for c in r.contributions:
                    if (c.outcome == cluster_module.MERGED and
                            c.island_id != "island-1" and
                            c.info.data_shard in self.lost_shards):
                        return True
            return None

        wait.until("the lost data shard is read by another", read_again)
        rounds = self.assert_rounds_whole(cluster, self.values)
        cluster.runs.CancelRun(run_id="run")
        return rounds

    def test_a_poisoned_version_ends_no_honest_island(self):
        cluster = self.cluster
        self.values = self.run_values(
            run_file.ELASTIC,
            {"schedule": {"island_count_min": 1, "lease_duration": "600s"},
             "outer": {"optimizer": "sgd", "learning_rate": 1.0,
                       "momentum": None, "weighting": "uniform"}})
        cluster.start_service()
        cluster.create_run(self.values)
        cluster.wait_state(cluster_module.ACTIVE)
        liar = cluster.join("run", "liar")
        liar.ready()

        def push(value, version):
            liar.wait_open(version)
            count = len(liar.random_values(0))
            liar.contribution([value] * count, version).push()
            liar.wait_version(version + 1)

        push(1e18, 0)
        honest = cluster.start_island("run", "honest")
        log = os.path.join(cluster.directory, "honest.log")

        def waits():
            cluster.check_alive()
            with open(log) as f:
                return "is not finite here; waits for a newer version" in (
                    f.read())

        wait.until("the honest island is ready", lambda: (
            self.island("honest") is not None and
            self.island("honest").state == cluster_module.READY))
        push(0.0, 1)  # The next round asks both.
        wait.until("the honest island waits", waits)
        self.assertIsNone(honest.poll())
        self.assertEqual(self.merges("honest"), 0)
        # Back to 0, which is finite: it goes on.
        push(-1e18, 2)
        wait.until("the honest island is merged", lambda: (
            cluster.check_alive(), self.merges("honest") > 0)[1])
        self.assertIsNone(honest.poll())

    def die_at(self, name):
        cluster = self.start(failpoint=name + "@2")
        joined = []

        def remember():
            island = self.island("island-1")
            if island is not None and island.data_shards:
                joined[:] = list(island.data_shards)
            cluster.check_alive()
            return cluster.processes["island-1"].poll() is not None

        wait.until("island-1 reaches " + name, remember)
        cluster.await_failpoint("island-1")
        self.lost_shards = set(joined) or {0, 1, 2}
        self.assert_rest_goes_on(cluster.run_state().commit_seq)

    def test_kill_from_outside(self):
        cluster = self.start()
        cluster.wait_commits(3)
        # On a loaded machine its lease may have ended for a moment.
        self.lost_shards = set(wait.until(
            "island-1 has data shards",
            lambda: self.island("island-1").data_shards))
        cluster.kill("island-1")
        self.assert_rest_goes_on(cluster.run_state().commit_seq)

    def test_a_lost_island_comes_back_and_contributes(self):
        cluster = self.start()
        cluster.wait_commits(3)
        cluster.kill("island-1")
        before = cluster.run_state().commit_seq
        wait.until("island-1 is lost", lambda: self.island(
            "island-1").state == cluster_module.LOST)
        cluster.restart("island-1")

        def back():
            cluster.check_alive()
            return [c for r in cluster.rounds() if r.commit_seq > before + 1
                    for c in r.contributions if c.island_id == "island-1" and
                    c.outcome == cluster_module.MERGED]

        wait.until("island-1 is merged again", back)
        self.assert_rounds_whole(cluster, self.values)
        cluster.runs.CancelRun(run_id="run")

    def test_a_server_and_the_coordinator_come_back_to_waiting_islands(self):
        cluster = self.start()
        cluster.wait_commits(3)
        for name in ("server-1", "coordinator", "server-0"):
            before = cluster.run_state().commit_seq
            cluster.kill(name)
            cluster.restart(name)
            cluster.wait_commits(before + 3)
        self.assert_rounds_whole(cluster, self.values)
        cluster.runs.CancelRun(run_id="run")

    def test_an_island_says_what_it_can_do_when_it_joins(self):
        cluster = self.start()
        cluster.wait_commits(1)
        for island in cluster.islands():
            device, = island.capabilities.devices
            self.assertEqual(device.kind, "cpu")
            self.assertNotEqual(device.name, "")
            self.assertGreater(device.memory_bytes, 1 << 30)
            # Measured before the first round, so that it already fits.
            self.assertGreater(island.capabilities.tokens_per_second, 0)
        cluster.runs.CancelRun(run_id="run")

    def test_a_slow_island_gets_fewer_steps_and_less_weight(self):
        # Before the first measurement the claims of Join decide.
        cluster = self.cluster
        toy.start(cluster, {"schedule": dict(
            toy.ELASTIC_SCHEDULE, inner_step_count=8, min_quorum=3,
            island_count_min=3)}, island_count=0)
        members = [cluster.join("run", "python-%d" % i,
                                tokens_per_second=speed)
                   for i, speed in enumerate((1000.0, 1000.0, 260.0))]
        for member in members:
            member.ready()
        steps = [s.step_count for member in members
                 for s in member.wait_open(0).slots if s.slot == member.slot]
        self.assertEqual(steps, [8, 8, 2])
        for contribution in toy.gradients(members, 0, cases.seed()):
            contribution.push()
        members[0].wait_version(1)
        weights = [c.weight for c in cluster.rounds()[0].contributions]
        for weight, expected in zip(weights, (8 / 18, 8 / 18, 2 / 18)):
            self.assertAlmostEqual(weight, expected, places=5)

    def test_a_false_claim_changes_nobody_elses_steps(self):
        cluster = self.cluster
        steps = 16
        cluster.start_service()
        cluster.create_run(self.run_values(run_file.ELASTIC, {
            "schedule": {"inner_step_count": steps, "min_quorum": 3,
                         "island_count_min": 4, "lease_duration": "30s"},
            "data": {"data_shard_count": 4}}))
        cluster.wait_state(cluster_module.ACTIVE)
        cluster.start_islands()
        liar = cluster.join("run", "liar", tokens_per_second=1e12)
        liar.ready()
        zeros = [0.0] * liar.layout.fragments[0].element_count
        pushed = set()

        def lie():
            """It pushes an untrained model as soon as it is asked."""
            cluster.check_alive()
            liar.service.ReportProgress(tokens_per_second=1e12, step=1,
                                        metadata=liar.metadata, **liar.who)
            version = liar.newest_plan().cut[0].version
            opened = python_island.find_open(liar.plan, 0, version)
            if opened is not None and version not in pushed:
                pushed.add(version)
                try:
                    liar.contribution(zeros, version).push()
                except grpc.RpcError as error:
                    # The others were there before it.
                    self.assertIn(error.code(), (
                        grpc.StatusCode.ABORTED,
                        grpc.StatusCode.FAILED_PRECONDITION))
            merged = [r for r in cluster.rounds()
                      if any(c.island_id == "liar" and
                             c.outcome == cluster_module.MERGED
                             for c in r.contributions)]
            return merged if len(merged) >= 8 else None

        merged = wait.until("the liar is merged in 8 rounds", lie)
        self.assertGreater(min(i.steps_per_second
                               for i in cluster.islands()), 0)
        cluster.runs.CancelRun(run_id="run")
        parts = [c for r in merged for c in r.contributions
                 if c.outcome == cluster_module.MERGED]
        honest = [c.info.step_count for c in parts if c.island_id != "liar"]
        self.assertGreaterEqual(statistics.median(honest), steps, honest)
        weights = [c.weight for c in parts if c.island_id == "liar"]
        self.assertLess(statistics.mean(weights), 0.5, weights)


def _add_cases():
    names = processes.failpoints(processes.CLI, "island")
    assert names, "no failpoint in the island"
    for name in names:
        # Only an island that ends by itself reaches these points.
        if name.startswith(("island.leave.", "island.evaluated.")):
            continue
        if name.startswith("island.joined."):
            continue
        setattr(ElasticTest, "test_killed_at_" + name.replace(".", "_"),
                lambda self, name=name: self.die_at(name))


_add_cases()

class RefusedTest(cluster_module.IntegrationTest):

    def start(self, *changes):
        self.members = toy.start(self.cluster, _TOY, *changes,
                                 island_count=3)
        for member in self.members:
            member.wait_open(0)
        return self.members

    def cli(self, *command):
        done = processes.run_cli(*command, "--coordinator",
                                 self.cluster.coordinator_address, check=0)
        return " ".join(done.stdout.split())

    def refused_event(self):
        """The first refused contribution that the run's events tell."""
        return next(c for event in self.cluster.events()
                    for c in (list(event.contributions_refused.contributions) +
                              list(event.round_committed.contributions))
                    if c.outcome == cluster_module.REJECTED)

    def assert_not_paused_before(self, version):
        for event in self.cluster.events():
            self.assertNotEqual(event.run_state_changed.state,
                                cluster_module.PAUSED)
            if event.round_committed.version == version:
                return

    def play(self, members, version):
        for contribution in toy.gradients(members, version, cases.seed()):
            contribution.push()
        for member in self.members:
            member.wait_version(version + 1)
            member.ready()

    def test_a_nan_is_an_absence_and_its_island_and_tensor_are_named(self):
        bad, *good = self.start()
        with self.assertRaises(grpc.RpcError):
            toy.poison(bad, 0).push()
        self.play(good, 0)
        state = self.cluster.run_state()
        self.assertEqual(state.run.state, cluster_module.ACTIVE)
        sitting, = state.sitting_out
        name = sitting.island_id
        self.assertEqual(name, "python-0")
        self.assertEqual((sitting.refused_count, sitting.until_commit_seq),
                         (1, 2))
        tensors = [t.name for t in
                   self.cluster.runs.GetRun(run_id="run").run.spec.layout
                   .tensors]
        self.assertTrue(any("of tensor %s, has a value that is not finite" % t
                            in sitting.reason for t in tensors),
                        sitting.reason)
        self.assertIn("round 1, inner steps 1 to ", sitting.reason)
        shown = self.cli("run", "show", "run")
        self.assertIn(name + ": 1 refused, sits out until commit 2: ", shown)
        self.assertIn("not finite", shown)
        for shown in (("list", "run"), ("status", "run", name)):
            # The lines are wrapped.
            words = self.cli("island", *shown).split()
            self.assertIn("1 refused: ", " ".join(words))
            self.assertIn("not finite", " ".join(words))
        event = self.refused_event()
        self.assertEqual(event.island_id, name)
        self.assertIn("not finite", event.reason)
        # It is not asked in the next round, and then it is.
        self.play(good, 1)
        for member in self.members:
            member.wait_open(2)
        self.play(self.members, 2)
        self.assertFalse(self.cluster.run_state().sitting_out)
        self.assert_not_paused_before(3)

    def test_a_round_that_needs_the_island_waits_and_does_not_pause(self):
        bad, *good = self.start({"schedule": {"min_quorum": 3}})
        for contribution in toy.gradients(good, 0, cases.seed()):
            contribution.push()
        with self.assertRaises(grpc.RpcError):
            toy.poison(bad, 0).push()

        def waits():
            run = self.cluster.run_state().run
            self.assertEqual(run.state, cluster_module.ACTIVE)
            return "python-0 sits out" in run.state_reason and run

        self.assertIn("not finite", wait.until("it waits",
                                               waits).state_reason)
        event = self.refused_event()
        self.assertEqual(event.island_id, "python-0")
        # Asked again for want of others; what the others pushed counts.
        bad.wait_open(0)
        toy.gradients([bad], 0, cases.seed())[0].push()
        for member in self.members:
            member.wait_version(1)

    def test_a_merge_that_is_not_finite_goes_on_without_the_largest(self):
        bad, *good = self.start({"outer": {"learning_rate": 100.0}})
        huge = toy.overflow(bad, 0).push()
        self.play(good, 0)
        outcome = bad.wait_outcome(huge.seq)
        self.assertEqual(outcome.outcome, cluster_module.REJECTED)
        self.assertTrue(outcome.reason.startswith("MERGE_NOT_FINITE: "),
                        outcome.reason)
        first = self.cluster.rounds()[0]
        self.assertEqual({c.island_id for c in first.contributions
                          if c.outcome == cluster_module.MERGED},
                         {"python-1", "python-2"})
        self.assertEqual(self.cluster.run_state().run.state,
                         cluster_module.ACTIVE)


if __name__ == "__main__":
    cases.main()
