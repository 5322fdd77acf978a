#!/usr/bin/python3
"""Islands with different meshes in one run: one rank; two that share a model;
four, tensor and pipeline parallel, in two processes."""

import math
import os

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import run_file
from harness import wait

MODEL = {"model": {"kv_head_count": 2}}

# The tolerance. Sums in another order round differently, and AdamW amplifies
# that. The effect is measured in the same run on single ranks, with each step's
# batch in parts. A mesh makes as many roundings in other places, so its
# distance is similar; the root of the sum of squares over all parameters
# averages out chance. FACTOR times that distance is allowed. The epsilon is
# large, so that an update is smooth in the gradient: otherwise a few elements
# with tiny gradients dominate the distance.
FACTOR = 4
# The held-out loss is one number and may agree by chance. It may change as much
# as the run's own loss changes over such a distance, plus the rounding of a
# loss that is summed and reported in f32.
LOSS_ROUNDING = 1e-6


def distance(a, b):
    """The Euclidean distance of f32 bytes."""
    return math.dist(arithmetic.from_bytes(a), arithmetic.from_bytes(b))


class MeshTest(cluster_module.IntegrationTest):

    def start(self, cluster, values, armed=None, flags=((), ()),
              directory=None):
        """`flags`: extra flags of the second and the third island; the third
        saves in `directory`."""
        cluster.start_service(armed)
        cluster.create_run(values)
        cluster.start_mesh_islands(
            (("dp_shard=2", 1, *flags[0]), ("tp=2,pp=2", 2, *flags[1])), armed,
            directory)

    def finish(self, cluster, values):
        """(SHA-256, held-out loss) of a strict run."""
        sha = self.finish_strict(cluster, values)

        def evaluated():
            cluster.check_alive()
            evaluation = cluster.run_state().evaluation
            return (evaluation.version == values["schedule"]["round_count"] and
                    evaluation)

        return sha, wait.until("the last version is evaluated", evaluated).loss

    def undisturbed(self):
        values = self.run_values(MODEL)

        def make(cluster):
            self.start(cluster, values)
            made = self.finish(cluster, values)
            for name in ("island-1", "island-2.0", "island-2.1"):
                process = cluster.processes[name]
                self.assertEqual(process.wait(), 0, process.tail())
            return made

        return self.once("undisturbed", make)

    def course(self, name, start):
        """[(parameters, held-out loss)] after rounds 2 and 4 of a run with the
        islands that `start(cluster)` starts."""
        values = self.run_values(MODEL, {"checkpoint_every_round_count": 2,
                                         "inner": {"epsilon": 0.01}})
        cluster = self.new_cluster(name)
        cluster.start_service()
        cluster.create_run(values)
        start(cluster)
        self.finish(cluster, values)
        course = []
        for a_round, pin_id in ((2, "round-2"), (4, "final")):
            pinned = cluster.pin(pin_id=pin_id)
            self.assertEqual(pinned.pin.cut[0].version, a_round)
            loss = cluster.rounds()[a_round - 1].evaluation.loss
            self.assertGreater(loss, 0)
            course.append((cluster.parameters(pinned=pinned)[0], loss))
        cluster.close()
        return course

    def test_three_meshes_learn_what_single_ranks_learn(self):
        def on_ranks(*flags):
            return lambda cluster: cluster.start_islands(arguments=flags)

        one = self.course("one", on_ranks())
        parts = self.course("parts", on_ranks("--micro-batches", "2"))
        meshes = self.course("meshes", lambda cluster: (
            cluster.start_mesh_islands((("dp_shard=2", 1),
                                        ("tp=2,pp=2", 2)))))
        (halfway, halfway_loss), (end, end_loss) = one
        slope = abs(end_loss - halfway_loss) / distance(end, halfway)
        allowed = FACTOR * distance(parts[-1][0], end)
        apart = distance(meshes[-1][0], end)
        loss_apart = abs(meshes[-1][1] - end_loss)
        print("meshes are %g apart, %g allowed; their losses %g, a slope of %g"
              % (apart, allowed, loss_apart, slope))
        self.assertLessEqual(apart, allowed)
        self.assertLessEqual(loss_apart, slope * allowed + LOSS_ROUNDING)
        self.assertGreater(apart, 0)
        # A control of the tolerance: two rounds are much further apart.
        self.assertLess(allowed, 0.01 * distance(end, halfway))

    def test_what_ranks_keep_and_in_which_order_changes_no_bit(self):
        values = self.run_values(MODEL)
        cluster = self.cluster
        self.start(cluster, values, flags=(
            ("--checkpointing", "full", "--optimizer-dir",
             cluster.directory),
            ("--pipeline", "gpipe", "--checkpointing", "selective")))
        self.assertEqual(self.finish(cluster, values), self.undisturbed())

    def killed_at(self, victim, failpoint):
        values = self.run_values(MODEL)
        cluster = self.cluster
        cluster.guard(victim)
        self.start(cluster, values, {victim: failpoint})
        cluster.await_death("%s is reached" % failpoint)
        self.assertEqual(self.finish(cluster, values), self.undisturbed())

    def test_a_process_that_dies_in_a_step_changes_no_bit(self):
        self.killed_at("island-2.1", "island.trained.after@5")

    def test_process_zero_dies_before_a_push_and_no_bit_changes(self):
        self.killed_at("island-2.0", "island.push.before@2")

    def test_one_process_goes_on_from_the_save_of_two_and_no_bit_changes(self):
        values = self.run_values(MODEL)
        cluster = self.cluster
        self.start(cluster, values, {"island-2.0": "island.push.before@2"},
                   directory="island-2-saves")
        cluster.await_failpoint("island-2.0")
        cluster.kill("island-2.1")
        saves = os.path.join(cluster.directory, "island-2-saves")
        self.assertEqual(self.saved(saves), [
            "run.island-2.0-of-2.save", "run.island-2.1-of-2.save"])
        cluster.start_mesh_island("island-2", "tp=2,pp=2",
                                  directory="island-2-saves")
        self.assertEqual(self.finish(cluster, values), self.undisturbed())
        # No local checkpoint of two parts is left.
        self.assertEqual(self.saved(saves), ["run.island-2.save"])

    @staticmethod
    def saved(directory):
        return sorted(f for f in os.listdir(directory) if f.endswith(".save"))

    def test_the_run_goes_on_without_a_process_and_takes_it_back(self):
        values = self.run_values(MODEL, run_file.ELASTIC)
        cluster = self.cluster
        self.start(cluster, values)

        def merged_after(commit_seq):
            cluster.check_alive()
            return {c.island_id for r in cluster.rounds()
                    if r.commit_seq > commit_seq for c in r.contributions
                    if c.outcome == cluster_module.MERGED}

        wait.until("all islands are merged",
                   lambda: len(merged_after(0)) == 3)
        cluster.kill("island-2.1")
        before = cluster.run_state().commit_seq
        # Contributions in flight may still be merged.
        cluster.wait_commits(before + 6)
        wait.until("the others go on", lambda: merged_after(before + 3) ==
                   {"island-0", "island-1"})
        cluster.restart("island-2.1")
        after = cluster.run_state().commit_seq
        wait.until("the third is back",
                   lambda: "island-2" in merged_after(after))
        self.assert_rounds_whole(cluster, values)
        cluster.runs.CancelRun(run_id="run")

    def test_who_may_not_begin_again_ends_with_a_code_of_its_own(self):
        values = self.run_values(MODEL, run_file.ELASTIC,
                                 {"schedule": {"island_count_min": 2}})
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(values)
        cluster.start_island("run", "island-0")
        cluster.start_mesh_island("island-1", "dp_shard=2", 2,
                                  arguments=["--restarts", "0"])
        cluster.wait_commits(2)
        cluster.may_end("island-1.1")
        cluster.kill("island-1.0")
        process = cluster.processes["island-1.1"]
        self.assertEqual(process.wait(), 11, process.tail())
        cluster.runs.CancelRun(run_id="run")

    def test_a_mesh_that_cannot_be_is_refused_with_a_sentence(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(self.run_values(MODEL))
        join = ["join", cluster.coordinator_address, "--run", "run",
                "--island-id", "island-0"]
        for arguments, code, sentence in (
                (["--mesh", "tp=3", "--processes", "2",
                  "--rendezvous", "127.0.0.1:1"], 2, "cannot share evenly"),
                (["--mesh", "tp=2", "--processes", "2"], 2, "HOST:PORT"),
                (["--mesh", "dp=2"], 2, "dp"),
                (["--mesh", "dp_shard=4"], 4, "batch"),
                (["--mesh", "pp=3"], 4, "layers")):
            ended = processes.run_cli(*(join + arguments))
            self.assertEqual(ended.returncode, code, ended)
            self.assertIn(sentence, ended.stderr)


if __name__ == "__main__":
    cases.main()
