#!/usr/bin/python3
"""Durability `island` with islands of several real processes. Each pushes the
part it holds; cells shared by two processes are joined. The bits are those of
level process with one process per island, for any death."""

from harness import cases
from harness import cluster as cluster_module

BASE = {"model": {"kv_head_count": 2}}
LEVEL = {"durability": "island"}
FRAGMENTS = {"layout": {"fragment_count": 2}}
ENCODED = {"exchange": {"up": "int8", "error_feedback": True, "down": "bf16"}}
STREAMING = {
    "layout": {"fragment_count": 2},
    "schedule": {"fragment_schedule": "staggered", "inner_step_count": 6,
                 "overlap_step_count": 4, "blend": 0.5},
}

# Meshes and process counts of the second and third island; they cut the model
# at different places.
MESHES = (("dp_shard=2", 2), ("tp=2,pp=2", 4))

POINTS = [
    ("server-0", "server.stored.before@2"),
    ("server-1", "server.prepared.before@2"),
    ("server-0", "server.prepared.after@2"),
    ("server-1", "server.commit.after@2"),
    ("server-0", "server.state.before@2"),
    ("coordinator", "coordinator.seal.after@2"),
    ("island-1.1", "island.push.before@2"),
    ("island-1.0", "island.pushed.after@2"),
    ("island-2.3", "island.push.before@3"),
    ("island-2.2", "island.save.agreed@2"),
]


class MeshIslandLevelTest(cluster_module.IntegrationTest):

    def start(self, cluster, values, armed=None, together=False):
        """`together`: one process per island."""
        cluster.start_service(armed)
        cluster.create_run(values)
        cluster.start_mesh_islands(
            [(mesh, 1 if together else count) for mesh, count in MESHES],
            armed)

    def reference(self, *changes):
        values = self.run_values(BASE, *changes)

        def make(cluster):
            self.start(cluster, values, together=True)
            return self.finish_strict(cluster, values)

        return self.once(changes, make)

    def same_bits(self, *changes):
        values = self.run_values(BASE, LEVEL, *changes)
        reference = self.reference(*changes)
        self.start(self.cluster, values)
        self.assertEqual(self.finish_strict(self.cluster, values), reference)

    def test_the_bits_of_level_process(self):
        self.same_bits()

    def test_fragments_that_are_merged_one_after_the_other(self):
        self.same_bits(FRAGMENTS)

    def test_encoded_both_ways_with_feedback(self):
        self.same_bits(ENCODED)

    def test_streaming(self):
        self.same_bits(STREAMING)

    def killed_at(self, victim, point, *changes):
        values = self.run_values(BASE, LEVEL, *changes)
        self.assert_a_death_changes_no_bit(
            self.cluster, values, self.reference(*changes), victim, point,
            lambda armed: self.start(self.cluster, values, armed))

    def test_a_process_dies_while_fragments_are_in_flight(self):
        self.killed_at("island-2.1", "island.trained.after@13", STREAMING)

    def test_a_process_killed_after_every_commit(self):
        changes = {"schedule": {"round_count": 6}}
        values = self.run_values(BASE, LEVEL, changes)
        reference = self.reference(changes)
        self.start(self.cluster, values)
        kills = self.cluster.kill_after_every_commit(6)
        self.assertEqual(self.finish_strict(self.cluster, values), reference,
                         kills)
        self.assertGreaterEqual(len(kills), 4, "too few kills to prove it")


def _add_cases():
    for victim, point in POINTS:
        def case(self, victim=victim, point=point):
            self.killed_at(victim, point)
        title = "test_%s_dies_at_%s" % (
            victim.replace("-", "_").replace(".", "_"),
            point.split("@")[0].replace(".", "_"))
        setattr(MeshIslandLevelTest, title, case)


_add_cases()

if __name__ == "__main__":
    cases.main()
