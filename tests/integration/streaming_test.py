#!/usr/bin/python3
"""Streaming runs with real programs: staggered fragments, answers applied some
steps after their push. The same bits for any death; training continues."""

from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import run_file
from harness import wait

STREAMING = {
    "layout": {"fragment_count": 2},
    "schedule": {
        "fragment_schedule": "staggered",
        "inner_step_count": 5,
        "round_count": 5,
        "overlap_step_count": 2,
        "blend": 0.5,
    },
    # Each evaluation is by another island.
    "evaluation": {"every_round_count": 1},
}
EAGER = {"schedule": {"blend": 0.0, "overlap_step_count": 4, "eager": True}}
ENCODED = {"exchange": {"up": "int8", "error_feedback": True, "down": "bf16"}}

# Points passed once in a strict run. The others are armed for a later hit,
# after several fragments were in flight.
ONCE = ("island.joined.", "island.evaluated.")
# An undisturbed run does not pass these.
NEVER = ("island.leave.",)


class StreamingTest(cluster_module.IntegrationTest):

    def reference(self, *changes):
        values = self.run_values(STREAMING, *changes)
        return self.once(changes, lambda c: self.run_strict(c, values))

    def kill_at(self, victim, name, *changes):
        values = self.run_values(STREAMING, *changes)
        self.assert_a_death_changes_no_bit(
            self.cluster, values, self.reference(*changes), victim, name,
            lambda armed: self.cluster.start_run(values, armed))

    def test_one_server_gives_the_same_bits(self):
        values = self.run_values(STREAMING, {"server_count": 1})
        self.assertEqual(self.run_strict(self.cluster, values),
                         self.reference())

    def test_each_option_changes_the_bits(self):
        seen = [self.reference(), self.reference(EAGER)]
        for index, change in enumerate((
                {"blend": 0.0}, {"overlap_step_count": 3},
                {"fragment_schedule": "together"})):
            values = self.run_values(STREAMING, {"schedule": change})
            cluster = self.new_cluster("changed-%d" % index)
            seen.append(self.run_strict(cluster, values))
            cluster.close()
        self.assertEqual(len(set(seen)), len(seen))

    def test_killed_at_a_commit_of_the_coordinator(self):
        self.kill_at("coordinator", "coordinator.commit.after@3")

    def test_killed_while_a_shard_stores(self):
        self.kill_at("server-1", "server.stored.before@4")

    def test_an_eager_island_killed_between_push_and_answer(self):
        self.kill_at("island-1", "island.pushed.after@3", EAGER)

    def test_an_island_with_encoded_parameters_and_feedback_killed(self):
        self.kill_at("island-1", "island.trained.after@13", ENCODED)

    def test_an_elastic_run_loses_an_island_and_takes_it_back(self):
        values = self.run_values(STREAMING, run_file.ELASTIC,
                                 {"schedule": {"max_ahead_steps": 2}})
        self.cluster.start_run(values)
        self.assert_taken_back(self.cluster, "island-1", "island-1", values)

    def kill_after_every_commit(self, *changes):
        longer = {"schedule": {"round_count": 6}}
        values = self.run_values(STREAMING, longer, *changes)
        reference = self.reference(longer, *changes)
        self.cluster.start_run(values)
        kills = self.cluster.kill_after_every_commit(6)
        self.assertEqual(self.finish_strict(self.cluster, values), reference,
                         kills)
        self.assertGreaterEqual(len(kills), 5, "too few kills to prove it")

    def test_a_kill_after_every_commit_changes_no_bit(self):
        self.kill_after_every_commit()

    def test_nor_does_it_where_all_but_the_first_save_are_records(self):
        self.kill_after_every_commit(
            ENCODED, {"inner": {"save_every_syncs": 1000}})

    def test_islands_train_on_while_every_server_is_away(self):
        """G10: they train until the step at which the answer is due."""
        rounds = 12
        changes = {"schedule": {"overlap_step_count": 4, "round_count": rounds},
                   "evaluation": {"every_round_count": 0}}
        values = self.run_values(STREAMING, changes)
        cluster = self.cluster
        servers = ["server-0", "server-1"]
        cluster.start_run(values, {s: "server.commit.after@2" for s in servers})
        for server in servers:
            cluster.await_failpoint(server)
        pushes = [5 * v + p for v in range(rounds) for p in (3, 5)]

        def waiting():
            cluster.check_alive()
            steps = [island.progress.step for island in cluster.islands()]
            return len(steps) == 3 and all(s - 4 in pushes for s in steps)

        # Islands report once a second, so one look could be chance.
        wait.until("the islands wait for an answer", waiting)
        before = [island.progress.step for island in cluster.islands()]
        wait.until("they still do", waiting)
        self.assertTrue(all(s < 5 * rounds for s in before), before)
        for server in servers:
            cluster.restart(server)
        self.assertEqual(self.finish_strict(cluster, values),
                         self.reference(changes))


def _add_cases():
    for name in processes.failpoints(processes.CLI, "island"):
        if ".unknown." in name or name.startswith(NEVER):
            continue
        armed = name if name.startswith(ONCE) else name + "@4"

        def case(self, name=armed):
            self.kill_at("island-1", name)

        setattr(StreamingTest, "test_" + name.replace(".", "_"), case)


_add_cases()

if __name__ == "__main__":
    cases.main()
