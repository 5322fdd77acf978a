#!/usr/bin/python3
"""Durability `island` with islands of several real processes: each pushes what
it holds, and cells that two of them share are put together. The bits are those
of level process with an island a process, whoever dies."""

import random

from harness import cases
from harness import cluster as cluster_module
from harness import wait

BASE = {"model": {"kv_head_count": 2}}
LEVEL = {"durability": "island"}
FRAGMENTS = {"layout": {"fragment_count": 2}}
ENCODED = {"exchange": {"up": "int8", "error_feedback": True, "down": "bf16"}}
STREAMING = {
    "layout": {"fragment_count": 2},
    "schedule": {"fragment_schedule": "staggered", "inner_step_count": 6,
                 "overlap_step_count": 4, "blend": 0.5},
}

# Meshes of the second and the third island, and their processes: they are cut
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
        """`together`: an island is one process."""
        armed = armed or {}
        cluster.start_coordinator(failpoint=armed.get("coordinator"))
        for index in range(2):
            name = "server-%d" % index
            cluster.start_server(name, failpoint=armed.get(name))
        cluster.create_run(values)
        # One after the other: who comes first has the first data shard.
        cluster.start_island("run", "island-0",
                             failpoint=armed.get("island-0"))
        for index, (mesh, process_count) in enumerate(MESHES, 1):
            wait.until("%d islands have joined" % index,
                       lambda: len(cluster.islands()) >= index)
            cluster.start_mesh_island("island-%d" % index, mesh,
                                      1 if together else process_count, armed)

    def finish(self, cluster, values):
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)
        return cluster.parameters_sha256()

    def reference(self, *changes):
        """SHA-256 of the same run at level process, an island a process."""
        cls = type(self)
        key = repr(changes)
        if not hasattr(cls, "_references"):
            cls._references = {}
        if key not in cls._references:
            cluster = self.new_cluster("reference-%d" % len(cls._references))
            values = self.run_values(BASE, *changes)
            self.start(cluster, values, together=True)
            cls._references[key] = self.finish(cluster, values)
            cluster.close()
        return cls._references[key]

    def same_bits(self, *changes):
        values = self.run_values(BASE, LEVEL, *changes)
        reference = self.reference(*changes)
        self.start(self.cluster, values)
        self.assertEqual(self.finish(self.cluster, values), reference)

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
        reference = self.reference(*changes)
        cluster = self.cluster
        cluster.guard(victim)
        self.start(cluster, values, {victim: point})
        self.assertEqual(self.finish(cluster, values), reference)
        self.assertEqual(cluster.deaths, [victim],
                         "%s was never reached" % point)

    def test_a_process_dies_while_fragments_are_in_flight(self):
        self.killed_at("island-2.1", "island.trained.after@13", STREAMING)

    def test_a_process_killed_after_every_commit(self):
        generator = random.Random(cases.seed())
        changes = {"schedule": {"round_count": 6}}
        values = self.run_values(BASE, LEVEL, changes)
        reference = self.reference(changes)
        cluster = self.cluster
        self.start(cluster, values)
        kills = []
        for event in cluster.events():
            if not event.HasField("round_committed"):
                continue
            if event.round_committed.version >= 6:
                break
            victim = generator.choice(sorted(cluster.processes))
            cluster.kill(victim)
            cluster.restart(victim)
            kills.append(victim)
        self.assertEqual(self.finish(cluster, values), reference, kills)
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
