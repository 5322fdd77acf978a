#!/usr/bin/python3
"""Durability `island`: contributions are merged on arrival (live merge).

The bits are those of a run at level process, for any distribution of the work
and any death. Before a round is prepared its islands push again; a prepared
round survives the server.
"""

import random

from harness import cases
from harness import cluster as cluster_module

LEVEL = {"durability": "island"}

# Where a server, the coordinator or an island kills itself: around every record
# that decides who still has a contribution.
POINTS = [
    ("server-0", "server.stored.before@2"),
    ("server-1", "server.stored.after@2"),
    ("server-0", "server.prepared.before@2"),
    ("server-1", "server.prepared.after@2"),
    ("server-0", "server.commit.before@2"),
    ("server-1", "server.commit.after@2"),
    ("server-0", "server.state.before@2"),
    ("server-1", "server.state.sealed@2"),
    ("server-0", "server.state.renamed@2"),
    ("server-1", "server.state.after@2"),
    ("coordinator", "coordinator.seal.before@2"),
    ("coordinator", "coordinator.seal.after@2"),
    ("coordinator", "coordinator.commit.before@2"),
    ("coordinator", "coordinator.commit.after@2"),
    ("island-1", "island.push.before@2"),
    ("island-1", "island.pushed.after@2"),
]


class IslandLevelTest(cluster_module.IntegrationTest):

    def reference(self):
        """SHA-256 of the same run at level process."""
        return self.once("level process", lambda cluster: self.run_strict(
            cluster, self.run_values()))

    def test_one_server_gives_the_bits_of_level_process(self):
        values = self.run_values(LEVEL, {"server_count": 1})
        self.assertEqual(self.run_strict(self.cluster, values),
                         self.reference())

    def test_three_servers_and_another_order_give_the_same_bits(self):
        order = ["island-0", "island-1", "island-2"]
        random.Random(cases.seed()).shuffle(order)
        values = self.run_values(LEVEL, {"server_count": 3})
        self.assertEqual(self.run_strict(self.cluster, values, islands=order),
                         self.reference(), order)

    def test_cells_in_parts_over_several_streams_give_the_same_bits(self):
        # Under this cap a chunk is 3 blocks of f32, a push has three streams,
        # and a cell has 64 blocks.
        model = {
            "server_count": 1,
            "model": {"hidden_size": 128, "intermediate_size": 512,
                      "layer_count": 4, "sequence_length": 32},
            "inner": {"batch_size": 1},
            "schedule": {"round_count": 2, "inner_step_count": 1},
            "evaluation": {"every_round_count": 0},
        }
        reference = self.run_strict(self.new_cluster("process"),
                                    self.run_values(model))
        values = self.run_values(LEVEL, model)
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(1)
        cluster.create_run(values)
        for island in ("island-0", "island-1", "island-2"):
            cluster.start_island("run", island, arguments=["--up=20Mb/s"])
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)
        self.assertEqual(cluster.parameters_sha256(), reference)

    def test_fragments_that_are_merged_one_after_the_other(self):
        fragments = {"layout": {"fragment_count": 2}}
        reference = self.run_strict(self.new_cluster("whole"),
                                    self.run_values(fragments))
        self.assertEqual(
            self.run_strict(self.cluster, self.run_values(LEVEL, fragments)),
            reference)

    def test_streaming_pushes_wait_for_one_commit_after_the_other(self):
        # Two fragments are in flight, and a restarted island has both.
        streaming = {
            "layout": {"fragment_count": 2},
            "schedule": {"fragment_schedule": "staggered",
                         "inner_step_count": 6, "overlap_step_count": 4,
                         "blend": 0.5},
            "exchange": {"up": "int8", "error_feedback": True},
        }
        reference = self.run_strict(self.new_cluster("process"),
                                    self.run_values(streaming))
        values = self.run_values(LEVEL, streaming)
        for index, (victim, point) in enumerate((
                ("server-1", "server.prepared.before@4"),
                ("server-0", "server.commit.after@5"),
                ("island-1", "island.trained.after@14"),
                ("island-2", "island.save.after@5"))):
            cluster = self.new_cluster("killed-%d" % index)
            self.assert_a_death_changes_no_bit(
                cluster, values, reference, victim, point,
                lambda armed: cluster.start_run(values, armed))
            cluster.close()

    def test_a_sealed_round_goes_on_without_an_island_that_is_gone(self):
        cluster = self.cluster
        values = self.run_values(LEVEL, {
            "schedule": {"lease_duration": "10s", "min_quorum": 2},
            "evaluation": {"every_round_count": 0}})
        cluster.start_run(values, {"server-0": "server.prepared.before@2"})
        # Sealed contributions are in no log, and one owner does not return.
        cluster.await_failpoint("server-0")
        cluster.kill("island-2")
        cluster.restart("server-0")
        cluster.wait_state(cluster_module.COMPLETED)
        rounds = self.assert_rounds_whole(cluster, values)
        self.assertEqual([r.attempt for r in rounds][:3], [0, 1, 0])
        merged = [[c.island_id for c in r.contributions
                   if c.outcome == cluster_module.MERGED] for r in rounds]
        self.assertEqual([sorted(ids) for ids in merged],
                         [["island-0", "island-1", "island-2"]] +
                         [["island-0", "island-1"]] * 3)

    def test_a_server_or_an_island_killed_after_every_commit(self):
        values = self.run_values(LEVEL, {"schedule": {"round_count": 6}})
        reference = self.run_strict(
            self.new_cluster("undisturbed"),
            self.run_values({"schedule": {"round_count": 6}}))
        self.cluster.start_run(values)
        kills = self.cluster.kill_after_every_commit(6)
        self.assertEqual(self.finish_strict(self.cluster, values), reference,
                         kills)
        self.assertGreaterEqual(len(kills), 4, "too few kills to prove it")

    def kill_at(self, victim, point):
        values = self.run_values(LEVEL)
        self.assert_a_death_changes_no_bit(
            self.cluster, values, self.reference(), victim, point,
            lambda armed: self.cluster.start_run(values, armed))


def _add_cases():
    for victim, point in POINTS:
        def case(self, victim=victim, point=point):
            self.kill_at(victim, point)
        title = "test_%s_dies_at_%s" % (
            victim.replace("-", "_"), point.split("@")[0].replace(".", "_"))
        setattr(IslandLevelTest, title, case)


_add_cases()

if __name__ == "__main__":
    cases.main()
