#!/usr/bin/python3
"""Streaming runs with an island of several real processes: the bits of the same
meshes in one process each, for any death; training continues."""

from harness import cases
from harness import cluster as cluster_module
from harness import run_file

BASE = {
    "model": {"kv_head_count": 2},
    "layout": {"fragment_count": 2},
    "schedule": {
        "fragment_schedule": "staggered",
        "inner_step_count": 5,
        "round_count": 4,
        "overlap_step_count": 2,
        "blend": 0.5,
    },
}
EAGER = {"schedule": {"blend": 0.0, "overlap_step_count": 4, "eager": True}}
WITHOUT_OVERLAP = {"schedule": {"blend": 0.0, "overlap_step_count": 0}}
ENCODED = {"exchange": {"up": "int8", "error_feedback": True, "down": "bf16"}}
TWO_BIT = {"exchange": {"up": "two_bit", "error_feedback": True},
           "schedule": {"blend": 0.0, "eager": True}}

# Where a process of the third island kills itself, armed for a hit while
# fragments are in flight. Both processes write local checkpoints, and either
# may lack the newest.
POINTS = [
    (0, "island.trained.after@12", ()),
    (1, "island.trained.after@12", (ENCODED,)),
    (0, "island.encode.before@4", ()),
    (1, "island.encode.before@4", (EAGER,)),
    (0, "island.save.before@3", (ENCODED,)),
    (1, "island.save.before@4", (ENCODED,)),
    (0, "island.save.agreed@4", ()),
    (1, "island.save.agreed@3", (EAGER,)),
    (1, "island.save.after@4", (WITHOUT_OVERLAP,)),
    (0, "island.push.before@4", (ENCODED,)),
    (1, "island.push.before@3", (WITHOUT_OVERLAP,)),
    (0, "island.pushed.after@4", ()),
    (1, "island.pushed.after@3", (EAGER,)),
    (0, "island.pulled.after@5", (ENCODED,)),
    (1, "island.pulled.after@5", ()),
]


class MeshStreamingTest(cluster_module.IntegrationTest):

    def start(self, cluster, values, process_count=2, armed=None):
        """Starts islands of one rank; of two that share a model; of four,
        tensor and pipeline parallel, in `process_count` processes."""
        cluster.start_service(armed)
        cluster.create_run(values)
        cluster.start_mesh_islands(
            [("dp_shard=2", 1), ("tp=2,pp=2", process_count)], armed)

    def in_one_process(self, *changes):
        """SHA-256 of the undisturbed run with one process per island; played
        once."""
        values = self.run_values(BASE, *changes)

        def make(cluster):
            self.start(cluster, values, process_count=1)
            return self.finish_strict(cluster, values)

        return self.once(changes, make)

    def same_bits(self, *changes):
        values = self.run_values(BASE, *changes)
        reference = self.in_one_process(*changes)
        self.start(self.cluster, values)
        self.assertEqual(self.finish_strict(self.cluster, values), reference)
        for name in ("island-2.0", "island-2.1"):
            process = self.cluster.processes[name]
            self.assertEqual(process.wait(), 0, process.tail())

    def test_overlap_and_blend(self):
        self.same_bits()

    def test_eager(self):
        self.same_bits(EAGER)

    def test_without_overlap(self):
        self.same_bits(WITHOUT_OVERLAP)

    def test_encoded_both_ways_with_feedback(self):
        self.same_bits(ENCODED)

    def test_two_bits_with_feedback_eager(self):
        self.same_bits(TWO_BIT)

    def test_settings_have_bits_of_their_own(self):
        settings = ((), (EAGER,), (WITHOUT_OVERLAP,), (ENCODED,), (TWO_BIT,))
        seen = {self.in_one_process(*changes) for changes in settings}
        self.assertEqual(len(seen), len(settings))

    def killed_at(self, victim, failpoint, *changes):
        values = self.run_values(BASE, *changes)
        self.assert_a_death_changes_no_bit(
            self.cluster, values, self.in_one_process(*changes), victim,
            failpoint,
            lambda armed: self.start(self.cluster, values, armed=armed))

    def test_a_server_that_dies_with_half_of_a_contribution(self):
        self.killed_at("server-1", "server.stored.before@4", ENCODED)

    def test_an_elastic_run_loses_a_process_and_takes_it_back(self):
        values = self.run_values(BASE, ENCODED, run_file.ELASTIC,
                                 {"schedule": {"max_ahead_steps": 2}})
        cluster = self.cluster
        self.start(cluster, values)
        self.assert_taken_back(cluster, "island-2.1", "island-2", values)


def _add_cases():
    for index, point, changes in POINTS:
        def case(self, index=index, point=point, changes=changes):
            self.killed_at("island-2.%d" % index, point, *changes)
        title = "test_process_%d_dies_at_%s" % (
            index, point.split("@")[0].replace(".", "_"))
        setattr(MeshStreamingTest, title, case)


_add_cases()

if __name__ == "__main__":
    cases.main()
