#!/usr/bin/python3
"""What an island tells of its rounds, and how it ends: phases, metrics, signals
and exit codes."""

import datetime
import json
import re
import signal

from harness import cases
from harness import cluster as cluster_module
from harness import metrics
from harness import wait

# Exit code of an island that SIGTERM ended.
TERMINATED = 12

PHASES = ["TRAIN", "ENCODE", "PUSH", "WAIT", "MERGE", "APPLY"]

STREAMING = {
    "layout": {"fragment_count": 2},
    "schedule": {
        "fragment_schedule": "staggered",
        "inner_step_count": 5,
        "overlap_step_count": 2,
    },
}
# Long enough to see an island in the middle.
LONG = {"schedule": {"round_count": 12, "inner_step_count": 20}}
ENDLESS = {"schedule": {"timing": "elastic", "grace_window": "1s",
                        "min_quorum": 1, "round_count": 100000}}


def seconds(duration):
    """Of proto3's JSON: "1.5s"."""
    return float(duration[:-1])


def moment(timestamp):
    """Seconds of an RFC 3339 time, whose fraction may have nine digits."""
    match = re.match(r"(.*?)(\.\d+)?Z$", timestamp)
    whole = datetime.datetime.fromisoformat(match.group(1) + "+00:00")
    return whole.timestamp() + float(match.group(2) or 0)


class PhasesTest(cluster_module.IntegrationTest):

    def phases(self, cluster):
        """[(round, contribution, {phase: its time})] of `round list`, once
        every island has reported its last synchronization and ended."""
        for name in sorted(cluster.processes):
            if name.startswith("island-"):
                process = cluster.processes[name]
                self.assertEqual(process.wait(), 0, process.tail())
        listed = cluster.run_cli("round", "list", "run", "-o", "json", check=0)
        found = []
        for a_round in json.loads(listed.stdout)["data"]["rounds"]:
            for contribution in a_round["contributions"]:
                times = {t["phase"][len("PHASE_"):]: t
                         for t in contribution["phases"]}
                self.assertEqual(len(times), len(contribution["phases"]))
                found.append((a_round, contribution, times))
        return found

    def assert_all_phases(self, found, values):
        last = values["schedule"]["round_count"]
        for a_round, contribution, times in found:
            expected = list(PHASES)
            # Only the island that evaluates pulls the last version.
            if int(a_round["version"]) == last and "APPLY" not in times:
                expected.remove("APPLY")
            self.assertEqual(sorted(times), sorted(expected), contribution)
            for time in times.values():
                self.assertGreaterEqual(seconds(time["duration"]), 0)

    def test_a_strict_round_shows_the_six_phases_of_each_island(self):
        values = self.run_values()
        self.run_strict(self.cluster, values)
        found = self.phases(self.cluster)
        self.assertEqual(len(found), 3 * 4)
        self.assert_all_phases(found, values)
        for a_round, contribution, times in found:
            total = (moment(a_round["commit_time"]) -
                     moment(a_round["open_time"]))
            length = {name: seconds(t["duration"])
                      for name, t in times.items()}
            # These lie between OPEN and COMMIT. Times have microseconds.
            self.assertLessEqual(length["TRAIN"] + length["ENCODE"],
                                 total + 0.001, contribution)
            self.assertLessEqual(length["MERGE"], total + 0.001, contribution)
            # One after the other, by the clock of the island.
            end = 0
            for name in ("TRAIN", "ENCODE", "PUSH", "WAIT", "APPLY"):
                if name in times:
                    start = moment(times[name]["start_time"])
                    self.assertGreaterEqual(start, end - 0.001, contribution)
                    end = start + length[name]

    def test_a_streaming_round_shows_the_six_phases_of_each_island(self):
        values = self.run_values(STREAMING)
        self.run_strict(self.cluster, values)
        found = self.phases(self.cluster)
        self.assertEqual(len(found), 2 * 3 * 4)
        self.assert_all_phases(found, values)
        for _, contribution, times in found:
            start = {name: moment(t["start_time"])
                     for name, t in times.items()}
            for before, after in zip(("TRAIN", "ENCODE", "PUSH"),
                                     ("ENCODE", "PUSH", "WAIT")):
                self.assertLessEqual(start[before], start[after],
                                     contribution)

    # --- Metrics --------------------------------------------------------------

    def start_with_metrics(self, island_id, arguments=()):
        """Returns the port of its metrics."""
        self.cluster.start_island(
            "run", island_id,
            arguments=metrics.flags(self.cluster, island_id) + list(arguments))
        return metrics.port(self.cluster, island_id)

    def test_an_island_serves_its_metrics_and_is_ready_once_it_holds_a_cut(
            self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.create_run(self.run_values(LONG))
        # Without servers the run does not start.
        port = self.start_with_metrics("island-0")
        self.assertEqual(metrics.get(port, metrics.LIVE)[0], 200)
        status, why = wait.until(
            "the island waits for the run's start",
            lambda: (lambda a: a if "starting" in a[1] else None)(
                metrics.get(port, metrics.READY)))
        self.assertEqual(status, 503, why)
        cluster.start_servers(2)
        cluster.start_island("run", "island-1")
        cluster.start_island("run", "island-2")
        wait.until("the island is ready",
                   lambda: metrics.get(port, metrics.READY)[0] == 200)

        def after_a_round():
            cluster.check_alive()
            found = metrics.scrape(port)
            return found if found.get("atoll_round_duration_seconds_count",
                                      run="run", phase="apply") else None

        found = wait.until("a round is in the metrics", after_a_round)
        for name, labels in (
                ("atoll_train_loss", {}),
                ("atoll_trained_tokens_total", {}),
                ("atoll_tokens_per_second", {}),
                ("atoll_push_bytes_total", {"codec": "f32"}),
                ("atoll_pull_bytes_total", {"codec": "f32"})):
            self.assertGreater(found.get(name, run="run", **labels), 0)
        for phase in ("train", "encode", "push", "wait"):
            self.assertGreater(found.get("atoll_round_duration_seconds_count",
                                         run="run", phase=phase), 0)
        self.assertEqual(found.get("atoll_ready"), 1)
        self.assertNotIn('island="', metrics.get(port, metrics.METRICS)[1])

    # --- How an island ends ---------------------------------------------------

    def wait_member(self, island_id, state):
        wait.until("%s is in state %d" % (island_id, state), lambda: [
            i for i in self.cluster.islands()
            if i.island_id == island_id and i.state == state])

    def terminate(self, name):
        self.cluster.may_end(name)
        process = self.cluster.processes[name]
        process.signal(signal.SIGTERM)
        self.assertEqual(process.wait(), TERMINATED, process.tail())

    def test_sigterm_keeps_a_strict_island_a_member_and_the_same_bits(self):
        cluster = self.cluster
        values = self.run_values(LONG)
        expected = self.once(
            "long", lambda cluster: self.run_strict(cluster, values))
        cluster.start_run(values)
        cluster.wait_commits(2)
        self.terminate("island-1")
        states = {i.island_id: i.state for i in cluster.islands()}
        self.assertEqual(states["island-1"], cluster_module.READY)
        cluster.restart("island-1")
        self.assertEqual(self.finish_strict(cluster, values), expected)

    def test_sigterm_makes_an_elastic_island_leave(self):
        cluster = self.cluster
        cluster.start_run(self.run_values(ENDLESS))
        self.wait_member("island-1", cluster_module.READY)
        self.terminate("island-1")
        self.wait_member("island-1", cluster_module.LEFT)
        cluster.restart("island-1")
        self.wait_member("island-1", cluster_module.READY)

    def test_a_join_of_a_complete_run_ends_without_an_error(self):
        self.run_strict(self.cluster, self.run_values())
        process = self.cluster.start_island("run", "island-9")
        self.assertEqual(process.wait(), 0, process.tail())
        self.assertIn("run run is complete", process.tail())

    def test_an_island_waits_for_a_run_that_is_created_later(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        process = cluster.start_island("run", "nobody")
        cluster.may_end("nobody")
        self.assertEqual(process.wait(), 8, process.tail())
        cluster.start_islands(arguments=["--wait-for-run", "10m"])
        for index in range(3):
            waiting = cluster.processes["island-%d" % index]
            wait.until("an island waits for its run",
                       lambda: "cannot read the run yet" in waiting.tail())
        values = self.run_values()
        cluster.create_run(values)
        self.finish_strict(cluster, values)


if __name__ == "__main__":
    cases.main()
