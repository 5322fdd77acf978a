#!/usr/bin/python3
"""Elastic runs: an island dies for good; the rest continues."""

import os

from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import run_file
from harness import wait


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
        liar = cluster.join("run", "liar")
        liar.ready()

        def push(value, version):
            liar.wait_open(version)
            count = len(liar.random_values(0))
            liar.contribution([value] * count, version).push()
            liar.wait_version(version + 1)

        push(1e30, 0)
        honest = cluster.start_island("run", "honest")
        log = os.path.join(cluster.directory, "honest.log")

        def waits():
            cluster.check_alive()
            with open(log) as f:
                return "is not finite here; waits for a newer version" in (
                    f.read())

        wait.until("the honest island waits", waits)
        self.assertIsNone(honest.poll())
        self.assertEqual(self.merges("honest"), 0)
        # Back to 0, which is finite: it goes on.
        push(-1e30, 1)
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
        # Real islands here have equal speed (same threads and batches), so
        # Python islands report speeds: the coordinator's plan must follow the
        # reports.
        from harness import toy
        cluster = self.cluster
        members = toy.start(cluster, {"schedule": dict(
            toy.ELASTIC_SCHEDULE, inner_step_count=8, min_quorum=2)})
        for member, speed in zip(members, (1000.0, 260.0)):
            member.service.ReportProgress(
                tokens_per_second=speed, step=1, metadata=member.metadata,
                **member.who)
        toy.play_round(members, 0, cases.seed())
        toy.play_round(members, 1, cases.seed())
        fast, slow = members
        steps = {s.slot: s.step_count for member in members
                 for s in member.wait_open(2).slots}
        self.assertEqual(steps, {fast.slot: 8, slow.slot: 2})
        for contribution in toy.gradients(members, 2, cases.seed()):
            contribution.push()
        fast.wait_version(3)
        weights = [c.weight for c in cluster.rounds()[2].contributions]
        self.assertAlmostEqual(weights[0], 0.8, places=5)
        self.assertAlmostEqual(weights[1], 0.2, places=5)


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

if __name__ == "__main__":
    cases.main()
