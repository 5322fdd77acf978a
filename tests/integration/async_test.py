#!/usr/bin/python3
"""Async runs: every contribution makes a version, and no island waits."""

import collections
import signal
import threading

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import python_island
from harness import run_file
from harness import toy
from harness import wait

MAX_STALENESS = 6

# Changes that make a run of real islands async.
ASYNC = {
    "outer": {"optimizer": "delayed_nesterov", "learning_rate": 0.7,
              "momentum": 0.5, "buffer_count": 3, "weighting": "uniform"},
    "schedule": {"timing": "elastic", "max_staleness": MAX_STALENESS,
                 "min_quorum": 1, "inner_step_count": 8, "round_count": 36,
                 "lease_duration": "30s"},
    "evaluation": {"every_round_count": 6},
    "checkpoint_every_round_count": 10,
}

# The same for a toy run; numbers as in run.proto.
DELAYED_NESTEROV, NESTEROV, UNIFORM = 9, 3, 3
TOY = {
    "outer": {"optimizer": DELAYED_NESTEROV, "learning_rate": 0.7,
              "momentum": 0.9, "buffer_count": 2, "momentum_share": 0.25,
              "weighting": UNIFORM},
    "schedule": {"timing": 2, "min_quorum": 1, "max_staleness": 4,
                 "round_count": 7},
}


class Slowed:
    """A process that runs a quarter of the time, like a slow machine."""

    SLICE_S = 0.004

    def __init__(self, process, share=4):
        self._process = process
        self._share = share
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._over.wait(self.SLICE_S):
            self._process.signal(signal.SIGSTOP)
            self._over.wait(self.SLICE_S * (self._share - 1))
            self._process.signal(signal.SIGCONT)

    def close(self):
        self._over.set()
        self._thread.join()
        self._process.signal(signal.SIGCONT)


class AsyncTest(cluster_module.IntegrationTest):

    def start(self, armed=None, **changes):
        self.values = self.run_values(ASYNC, changes)
        self.cluster.start_run(self.values, armed)
        return self.cluster

    def merged_of(self, rounds):
        """Merged contributions by island, in the order of versions."""
        merged = collections.defaultdict(list)
        for r in rounds:
            for c in r.contributions:
                if c.outcome == cluster_module.MERGED:
                    merged[c.island_id].append((r.version, c))
        return merged

    def assert_async_run_whole(self):
        """One contribution per version, each once, none too stale; every
        outcome is recorded."""
        cluster = self.cluster
        rounds = self.assert_rounds_whole(cluster, self.values)
        self.assertEqual(len(rounds), self.values["schedule"]["round_count"] *
                         self.values.get("layout", {}).get("fragment_count",
                                                           1))
        for r in rounds:
            sealed, = [c for c in r.contributions
                       if c.outcome == cluster_module.MERGED]
            self.assertEqual(sealed.weight, 1.0)
            staleness = r.version - 1 - sealed.info.anchor_version
            self.assertGreaterEqual(staleness, 0)
            self.assertLessEqual(staleness, MAX_STALENESS)
        decided = collections.Counter(
            (i.island_id, i.merged_count) for i in cluster.islands())
        merged = self.merged_of(rounds)
        for island_id, count in decided:
            self.assertEqual(count, len(merged[island_id]), island_id)
        return rounds

    def test_a_run_of_three_islands_ends_with_checkpoints_and_evaluations(self):
        cluster = self.start()
        cluster.wait_state(cluster_module.COMPLETED)
        rounds = self.assert_async_run_whole()
        merged = self.merged_of(rounds)
        self.assertEqual(sorted(merged), ["island-0", "island-1", "island-2"])
        # No island waited: some contributions are from older versions.
        self.assertTrue(any(
            r.version - 1 > c.info.anchor_version
            for r in rounds for c in r.contributions))
        # No window of a data shard counts twice.
        ranges = collections.defaultdict(list)
        for contributions in merged.values():
            for _, c in contributions:
                ranges[c.info.data_shard].append(
                    (c.info.data_begin, c.info.data_end))
        for shard, seen in ranges.items():
            for before, after in zip(seen, seen[1:]):
                self.assertLessEqual(before[1], after[0], "shard %d" % shard)
        cluster.wait_durable("round-10", "round-20", "round-30", "final")
        self.assertEqual(cluster.parameters_sha256(), cluster.export_sha256())

        def evaluated():
            return cluster.run_state().evaluation.version == 36

        wait.until("the last version is evaluated", evaluated)

    def test_a_slow_island_gets_fewer_steps_and_holds_nobody_up(self):
        cluster = self.start(schedule={"round_count": 100000,
                                       "inner_step_count": 40})
        slowed = Slowed(cluster.processes["island-2"])
        self.addCleanup(slowed.close)

        def settled():
            cluster.check_alive()
            merged = self.merged_of(cluster.rounds()[-60:])
            if len(merged) < 3 or min(len(m) for m in merged.values()) < 3:
                return None
            steps = {island: m[-1][1].info.step_count
                     for island, m in merged.items()}
            return (steps["island-2"] <= 24 and
                    max(steps["island-0"], steps["island-1"]) >= 30)

        wait.until("DyLU gives the slow one fewer steps", settled)
        # It keeps being merged. tests/simulation checks how often, because
        # there nothing else takes time.
        before = cluster.run_state().commit_seq

        def merged_again():
            cluster.check_alive()
            later = [r for r in cluster.rounds()[before:]]
            return len(self.merged_of(later).get("island-2", ())) >= 3

        wait.until("the slow island is merged three times more", merged_again)
        cluster.runs.CancelRun(run_id="run")

    def test_two_fragments_in_codecs_both_ways_and_two_deaths(self):
        cluster = self.start(
            armed={"island-1": "island.pushed.after@4",
                   "server-0": "server.commit.after@9"},
            exchange={"up": "int8", "down": "bf16", "error_feedback": True},
            layout={"fragment_count": 2})
        alive = {"island-1", "server-0"}

        def both_died():
            cluster.check_alive()
            for name in sorted(alive):
                if cluster.processes[name].poll() is not None:
                    cluster.await_failpoint(name)
                    cluster.restart(name)
                    alive.discard(name)
            return not alive

        wait.until("both have died, in any order", both_died)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_async_run_whole()

    def die_and_end(self, name, point):
        cluster = self.start({name: point})
        cluster.await_failpoint(name)
        cluster.restart(name)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_async_run_whole()

    def test_killed_at_a_seal(self):
        self.die_and_end("coordinator", "coordinator.seal.after@5")

    def test_killed_before_a_commit(self):
        self.die_and_end("coordinator", "coordinator.commit.before@5")

    def test_killed_after_it_prepared(self):
        self.die_and_end("server-1", "server.prepared.after@5")

    def test_killed_after_stored(self):
        self.die_and_end("server-0", "server.stored.after@5")

    def test_killed_after_its_save(self):
        self.die_and_end("island-1", "island.save.after@2")

    def test_killed_while_it_trains(self):
        self.die_and_end("island-0", "island.trained.after@5")

    # --- Python islands: the test controls each push -----------------------------

    def play(self, name, order, seed, server_count, outer=None):
        """Pushes contributions in `order`, (member, anchor) each. Returns the
        parameters of each version, as bytes, and the contributions."""
        cluster = self.new_cluster(name)
        members = toy.start(cluster, TOY, {"outer": outer or {}},
                            server_count=server_count)
        run = cluster.runs.GetRun(run_id="run").run
        theta = [cluster.parameters()[0]]
        sent = []
        for version, (index, anchor) in enumerate(order):
            member = members[index]
            member.wait_version(version)
            values = member.random_values("%s %d" % (seed, version))
            contribution = member.contribution(values, anchor, step_count=1)
            sent.append(values)
            contribution.push()
            outcome = member.wait_outcome(contribution.seq)
            self.assertEqual(outcome.outcome, cluster_module.MERGED)
            theta.append(python_island.pull(cluster, run, member.plan.shards,
                                            version + 1))
        cluster.wait_state(cluster_module.COMPLETED)
        cluster.close()
        return theta, sent

    ORDER = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 2), (0, 4), (1, 5)]

    def test_the_servers_take_the_steps_of_the_papers_algorithm_3(self):
        theta, sent = self.play("one", self.ORDER, cases.seed(), 2)
        n, c, beta, rate = 2, 0.25, 0.9, 0.7
        x = list(arithmetic.from_bytes(theta[0]))
        m, buffered = [0.0] * len(x), [0.0] * len(x)
        for t, g in enumerate(sent):
            buffered = [b + v for b, v in zip(buffered, g)]
            share = c
            if (t + 1) % n == 0:
                m = [beta * a + b / n for a, b in zip(m, buffered)]
                buffered = [0.0] * len(x)
                share = 1 - c * n + c
            x = [a - rate * (share * beta * b + v / n)
                 for a, b, v in zip(x, m, g)]
            for a, b in zip(x, arithmetic.from_bytes(theta[t + 1])):
                self.assertLess(abs(a - b), 1e-5 * (1 + abs(a)))

    def test_the_same_log_gives_the_same_bits_on_one_and_three_servers(self):
        one, _ = self.play("one", self.ORDER, cases.seed(), 1)
        three, _ = self.play("three", self.ORDER, cases.seed(), 3)
        self.assertTrue(one == three, "the bits depend on the shard count")
        naive = {"optimizer": NESTEROV, "buffer_count": 0,
                 "momentum_share": 0.0}
        other, _ = self.play("naive", self.ORDER, cases.seed(), 1, naive)
        self.assertEqual(one[0], other[0])
        self.assertFalse(one[-1] == other[-1], "the rules differ in nothing")

    def test_what_is_too_old_is_stale_and_the_run_goes_on(self):
        first, second = toy.start(self.cluster, TOY)
        early = second.contribution(second.random_values("early"), 0,
                                    step_count=1)
        half = second.contribution(second.random_values("half"), 0,
                                   step_count=1)
        half.push_to(0)
        for version in range(5):
            first.wait_version(version)
            first.contribution(first.random_values(version), version,
                               step_count=1).push()
        first.wait_version(5)
        outcome = second.wait_outcome(half.seq)
        self.assertEqual(outcome.outcome, cluster_module.STALE)
        # Too stale by one: accepted and then reported as STALE, possibly before
        # the other shard has it.
        early.push_to(0)
        outcome = second.wait_outcome(early.seq)
        self.assertEqual(outcome.outcome, cluster_module.STALE)
        for version in (5, 6):
            second.wait_version(version)
            second.contribution(second.random_values(version), version,
                                step_count=1).push()
        self.cluster.wait_state(cluster_module.COMPLETED)

    def test_what_makes_no_sense_is_refused_at_creation(self):
        self.cluster.start_coordinator()
        for changes, sentence in (
                ({"outer": {"merge": toy.RDA}}, "nothing to compare"),
                ({"outer": {"merge": toy.MEDIAN}}, "nothing to compare"),
                ({"outer": {"weighting": 1}}, "nothing to weigh"),
                ({"schedule": {"timing": 1}}, "a strict run"),
                ({"schedule": {"max_staleness": 0}}, "for async runs"),
                ({"schedule": {"min_quorum": 2}}, "immediately"),
                ({"durability": 3}, "ISLAND needs to know")):
            with self.assertRaises(Exception) as caught:
                toy.create(self.cluster, run_file.merged(TOY, changes))
            self.assertIn(sentence, str(caught.exception))


if __name__ == "__main__":
    cases.main()
