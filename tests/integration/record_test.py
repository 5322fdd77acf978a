#!/usr/bin/python3
"""What the record says of a run's work: the losses that its islands computed,
and what became of every token that they read."""

import os
import re

from harness import cases
from harness import cluster as cluster_module
from harness import run_file
from harness import wait

STREAMING = {
    "layout": {"fragment_count": 2},
    "schedule": {"fragment_schedule": "staggered", "inner_step_count": 5,
                 "overlap_step_count": 2},
}
# An elastic run whose rounds wait for no island after the first: all of them
# train for rounds that close without them.
HASTY = {"schedule": {"min_quorum": 1, "grace_window": "0s",
                      "lease_duration": "30s", "round_count": 20}}

ASYNC = {
    "outer": {"optimizer": "delayed_nesterov", "learning_rate": 0.7,
              "momentum": 0.5, "buffer_count": 3, "weighting": "uniform"},
    "schedule": {"timing": "elastic", "max_staleness": 1, "min_quorum": 1,
                 "inner_step_count": 8, "round_count": 36,
                 "lease_duration": "30s"},
}

# "contribution 2: 3 steps, training loss 5.4321, 812 tokens/s".
_LOGGED = re.compile(
    r"contribution (\d+): (\d+) steps, training loss ([^,]+),")


class RecordTest(cluster_module.IntegrationTest):

    def logged(self, cluster, island_id):
        """Steps and training losses of an island's contributions, by seq."""
        with open(os.path.join(cluster.directory, island_id + ".log"),
                  encoding="utf-8", errors="replace") as log:
            return {int(seq): (int(steps), float(loss))
                    for seq, steps, loss in _LOGGED.findall(log.read())}

    def losses(self, cluster, unlogged_max=0):
        """The losses of the rounds, each of which is the mean of what its
        islands computed. By fragment and version: another order of commits is
        no other run. An island that died may not have logged one."""
        logged = {island.island_id: self.logged(cluster, island.island_id)
                  for island in cluster.islands()}
        losses = {}
        unlogged = set()
        for r in cluster.rounds():
            merged = [c for c in r.contributions
                      if c.outcome == cluster_module.MERGED]
            self.assertTrue(merged)
            for c in merged:
                self.assertTrue(c.info.HasField("training_loss"), c)
                if c.info.key.seq not in logged[c.island_id]:
                    unlogged.add((c.island_id, c.info.key.seq))
                    continue
                _, computed = logged[c.island_id][c.info.key.seq]
                # The log has six digits.
                self.assertAlmostEqual(c.info.training_loss, computed,
                                       delta=1e-5 * computed)
            mean = sum(c.info.training_loss for c in merged) / len(merged)
            self.assertEqual(r.training_loss, mean)
            losses[r.fragment, r.version] = r.training_loss
        self.assertLessEqual(len(unlogged), unlogged_max, unlogged)
        return losses

    def run_twice(self, point, *changes):
        """Two runs with the same losses. In the second one island-1 dies at
        `point`."""
        values = self.run_values(*changes)
        first = self.cluster
        first_sha = self.run_strict(first, values)
        losses = self.losses(first)
        self.assertEqual(len(losses), len(first.rounds()))
        self.assertGreater(len(set(losses.values())), 1)
        second = self.new_cluster("second")
        self.assert_a_death_changes_no_bit(
            second, values, first_sha, "island-1", point,
            lambda armed: second.start_run(values, armed))
        self.assertEqual(self.losses(second, unlogged_max=1), losses)

    def test_a_death_before_a_push_changes_no_loss(self):
        self.run_twice("island.save.after@2")

    def test_a_death_between_pushes_of_a_stream_changes_no_loss(self):
        self.run_twice("island.trained.after@9", STREAMING)

    def assert_every_token_is_named(self, *changes):
        values = self.run_values(*changes)
        fragments = values.get("layout", {}).get("fragment_count", 1)
        cluster = self.cluster
        cluster.start_run(values)
        cluster.wait_state(cluster_module.COMPLETED)
        names = ["island-%d" % index for index in range(3)]
        for name in names:
            process = cluster.processes[name]
            self.assertEqual(process.wait(), 0, process.tail())

        def settled():
            # Servers tell of late pushes after the run's end too.
            islands = {i.island_id: i for i in cluster.islands()}
            self.seen = {name: (fragments * islands[name].progress.token_count,
                                islands[name].totals) for name in names}
            return all(
                read == totals.merged_token_count +
                totals.unmerged_token_count + totals.unpushed_token_count
                for read, totals in self.seen.values())

        wait.until("every token is named", settled)
        self.assertGreater(sum(read for read, _ in self.seen.values()), 0)
        merged = sum(c.info.token_count for r in cluster.rounds()
                     for c in r.contributions
                     if c.outcome == cluster_module.MERGED)
        self.assertEqual(merged, sum(totals.merged_token_count
                                     for _, totals in self.seen.values()))

    def test_every_token_stands_in_an_outcome_or_a_counter(self):
        self.assert_every_token_is_named(run_file.ELASTIC, HASTY)

    def test_so_does_every_token_of_a_stream(self):
        self.assert_every_token_is_named(
            run_file.ELASTIC, HASTY, STREAMING,
            {"schedule": {"max_ahead_steps": 2}})

    def test_so_does_every_token_of_an_async_run(self):
        self.assert_every_token_is_named(ASYNC)

    def test_so_does_every_token_of_a_strict_run(self):
        self.assert_every_token_is_named()

    def test_a_saved_contribution_outlives_its_process_and_its_round(self):
        values = self.run_values(run_file.ELASTIC, HASTY,
                                 {"schedule": {"round_count": 100000}})
        cluster = self.cluster
        cluster.start_run(values, {"island-1": "island.push.before@2"})
        cluster.await_failpoint("island-1")
        saved = sum(steps for steps, _ in
                    self.logged(cluster, "island-1").values())
        cluster.wait_commits(len(cluster.rounds()) + 2)
        cluster.restart("island-1")

        def member():
            cluster.check_alive()
            island, = [i for i in cluster.islands()
                       if i.island_id == "island-1"]
            return island

        wait.until("it trains again",
                   lambda: member().progress.token_count > 0)
        cluster.may_end("island-1")
        cluster.processes["island-1"].stop()
        # Its last report comes before it leaves.
        wait.until("it has left",
                   lambda: member().state == cluster_module.LEFT)

        def named():
            self.seen = saved, member()
            totals = self.seen[1].totals
            steps = (totals.merged_step_count + totals.unmerged_step_count +
                     totals.unpushed_step_count)
            tokens = (totals.merged_token_count + totals.unmerged_token_count +
                      totals.unpushed_token_count)
            read = self.seen[1].progress.token_count
            return tokens >= read + saved * tokens // steps

        # Servers tell of late pushes.
        wait.until("what both processes made is named", named)
        cluster.runs.CancelRun(run_id="run")

    def test_an_island_that_leaves_tells_why(self):
        cluster = self.cluster
        cluster.start_run(self.run_values(run_file.ELASTIC))
        cluster.wait_commits(2)
        cluster.may_end("island-1")
        cluster.processes["island-1"].stop()

        def left():
            cluster.check_alive()
            island, = [i for i in cluster.islands()
                       if i.island_id == "island-1"]
            return island if island.state == cluster_module.LEFT else None

        island = wait.until("island-1 has left", left)
        self.assertEqual(island.leave.reason, "stop requested")
        self.assertGreater(island.leave.step, 0)
        self.assertTrue(island.leave.HasField("loss"))
        listed = cluster.run_cli("island", "list", "run", check=0)
        self.assertIn("left: stop requested (at step", listed.stdout)
        cluster.runs.CancelRun(run_id="run")
        # The events end with the run.
        told = [e.island_changed for e in cluster.events()
                if e.island_changed.island_id == "island-1"]
        self.assertEqual(told[-1].leave, island.leave)


if __name__ == "__main__":
    cases.main()
