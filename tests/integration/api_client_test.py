#!/usr/bin/python3
"""A Python client that knows only an address reads a run's history."""

import datetime
import json

import grpc

from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import processes
from harness import protocols
from harness import toy
from harness import wait

COORDINATOR_SERVICES = {
    "atoll.v1.IslandService",
    "atoll.v1.RunService",
    "atoll.v1.ServerService",
    "atoll.v1.TrainingStateService",
}


class ApiClientTest(cluster_module.IntegrationTest):

    def test_reflection_lists_all_services(self):
        self.cluster.start_coordinator()
        self.cluster.start_servers(1)
        names = set(self.cluster.coordinator.schema.service_names())
        self.assertLessEqual(COORDINATOR_SERVICES, names)
        server = self.cluster.client(self.cluster.server_address("server-0"))
        self.assertIn("atoll.v1.ParameterService",
                      server.schema.service_names())
        # Reflection suffices to make every method's messages.
        for name in COORDINATOR_SERVICES:
            service = self.cluster.coordinator.service(name.split(".")[-1])
            self.assertTrue(service.method_names)

    def test_health_is_served_by_all(self):
        self.cluster.start_coordinator()
        self.cluster.start_servers(1)
        for address in (self.cluster.coordinator_address,
                        self.cluster.server_address("server-0")):
            self.assertEqual(self.cluster.client(address).health(),
                             protocols.HEALTH_SERVING)

    def test_lists_runs_in_pages(self):
        self.cluster.start_coordinator()
        ids = ["run-%02d" % i for i in range(7)]
        for run_id in reversed(ids):
            toy.create(self.cluster, run_id=run_id)
        seen, token, pages = [], "", 0
        while True:
            page = self.cluster.runs.ListRuns(page_size=3, page_token=token)
            seen += [run.run_id for run in page.runs]
            for run in page.runs:
                self.assertEqual(len(run.spec.layout.tensors), 0)
            pages += 1
            token = page.next_page_token
            if not token:
                break
        self.assertEqual(seen, ids)
        self.assertEqual(pages, 3)

    def test_pages_through_rounds(self):
        cluster = self.cluster
        members = toy.start(cluster, {"schedule": {"round_count": 7}})
        toy.play(cluster, members, cases.seed(), round_count=7)
        in_pages = cluster.rounds(page_size=2)
        self.assertEqual([r.commit_seq for r in in_pages],
                         [r.commit_seq for r in cluster.rounds()])
        self.assertEqual([r.version for r in in_pages], list(range(1, 8)))
        after = cluster.state.ListRounds(run_id="run", after_commit_seq=5)
        self.assertTrue(all(r.commit_seq > 5 for r in after.rounds))
        for r in in_pages:
            self.assertEqual(len(r.contributions), 2)
            self.assertGreater(r.outer_gradient_norm, 0)
            for c in r.contributions:
                self.assertEqual(c.payload_bytes,
                                 4 * members[0].layout.fragments[0]
                                 .element_count)
                self.assertGreater(c.norm, 0)
            times = [t.seconds + t.nanos * 1e-9 for t in
                     (r.open_time, r.seal_time, r.commit_time)]
            self.assertEqual(times, sorted(times))
            self.assertGreater(times[0], 1.6e9)

    def test_watch_resumes_by_revision_and_misses_nothing(self):
        cluster = self.cluster
        members = toy.start(cluster)
        toy.play(cluster, members, cases.seed())
        everything = list(cluster.events())
        revisions = [e.revision for e in everything]
        self.assertEqual(revisions, sorted(revisions))
        kinds = {e.WhichOneof("event") for e in everything}
        self.assertLessEqual({"run_state_changed", "island_changed",
                              "round_opened", "round_sealed",
                              "round_committed"}, kinds)
        commits = [e.round_committed.version for e in everything
                   if e.WhichOneof("event") == "round_committed"]
        self.assertEqual(commits, [1, 2, 3])
        middle = revisions[len(revisions) // 2]
        rest = list(cluster.events(after_revision=middle))
        self.assertEqual([e.SerializeToString() for e in rest],
                         [e.SerializeToString() for e in everything
                          if e.revision > middle])

    def test_watch_goes_on_over_a_restart_of_the_coordinator(self):
        cluster = self.cluster
        members = toy.start(cluster)
        events = cluster.events()
        seen = []

        def follow(version):
            for event in events:
                seen.append(event)
                if (event.WhichOneof("event") == "round_committed" and
                        event.round_committed.version >= version):
                    return

        toy.play_round(members, 0, cases.seed())
        follow(1)
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        cluster.coordinator.wait_ready(wait.PATIENCE_S)
        for version in range(1, 3):
            toy.play_round(members, version, cases.seed())
        follow(3)
        revisions = [e.revision for e in seen]
        self.assertEqual(revisions, sorted(revisions))
        self.assertEqual([e.round_committed.version for e in seen
                          if e.WhichOneof("event") == "round_committed"],
                         [1, 2, 3])

    def test_what_is_compacted_is_listed_and_the_watch_goes_on(self):
        cluster = self.cluster
        cluster.start_coordinator(arguments=["--log-records-max=1"])
        cluster.start_servers(2)
        members = toy.start(cluster, {"schedule": {"round_count": 9}})
        for version in range(8):
            toy.play_round(members, version, cases.seed())
        error = client.error_of(cluster.state.WatchRun, run_id="run",
                                after_revision=1)
        self.assertEqual(error.code, grpc.StatusCode.OUT_OF_RANGE)
        self.assertEqual(error.reason, "REVISION_COMPACTED")
        before = cluster.rounds(page_size=3)
        self.assertEqual([r.version for r in before], list(range(1, 9)))
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        cluster.coordinator.wait_ready(wait.PATIENCE_S)
        self.assertEqual([r.SerializeToString() for r in cluster.rounds()],
                         [r.SerializeToString() for r in before])
        events = cluster.events(
            after_revision=cluster.run_state().run.revision)
        toy.play_round(members, 8, cases.seed())
        self.assertIn(9, [e.round_committed.version for e in events])
        # `run watch` does both, and shows no round twice.
        done = processes.run_cli(
            "run", "watch", "run", "--after", "1", "-o", "jsonl",
            "--coordinator", cluster.coordinator_address, check=0)
        shown = [json.loads(line)["data"]
                 for line in done.stdout.splitlines()]
        self.assertEqual([int(e["round_committed"]["version"]) for e in shown
                          if "round_committed" in e], list(range(1, 10)))
        self.assertEqual(shown[-1]["run_state_changed"]["state"],
                         "RUN_STATE_COMPLETED")

    def test_metrics_have_a_point_for_every_round(self):
        cluster = self.cluster
        members = toy.start(cluster)
        for member in members:
            member.service.ReportProgress(
                step=1, tokens_per_second=100.0, loss=3.5, loss_step_count=4,
                token_count=64, sent_bytes=10, received_bytes=20,
                metadata=member.metadata, **member.who)
        toy.play(cluster, members, cases.seed())
        series = {s.name: s for s in
                  cluster.state.GetMetrics(run_id="run").series}
        self.assertEqual(len(series["outer/gradient_norm"].points), 3)
        one = cluster.state.GetMetrics(
            run_id="run", names=["outer/gradient_norm"]).series
        self.assertEqual([s.name for s in one], ["outer/gradient_norm"])

    def test_pins_are_listed_and_keep_their_cut_readable(self):
        cluster = self.cluster
        members = toy.start(cluster, {"schedule": {"round_count": 6}})
        toy.play_round(members, 0, cases.seed())
        pinned = cluster.pin(pin_id="mine", lease_duration={"seconds": 60})
        again = cluster.pin(pin_id="mine")
        self.assertEqual(pinned.pin, again.pin)
        before = cluster.parameters(pinned=pinned)
        for version in range(1, 5):
            toy.play_round(members, version, cases.seed())
        self.assertEqual(cluster.parameters(pinned=pinned), before)
        listed = cluster.state.ListCheckpoints(run_id="run").checkpoints
        mine = [c for c in listed if c.pin.pin_id == "mine"]
        self.assertEqual(len(mine), 1)
        self.assertFalse(mine[0].pin.checkpoint)
        until = datetime.datetime.fromtimestamp(mine[0].expire_time.seconds)
        self.assertGreater(until, datetime.datetime.now())
        cluster.pin(pin_id="mine", release=True)
        self.assertNotIn("mine", [
            c.pin.pin_id for c in
            cluster.state.ListCheckpoints(run_id="run").checkpoints])
        toy.play_round(members, 5, cases.seed())
        cluster.wait_state(cluster_module.COMPLETED)
        final = [c for c in cluster.state.ListCheckpoints(
            run_id="run").checkpoints if c.pin.checkpoint]
        self.assertEqual([f.version for f in final[-1].pin.cut], [6])

    def test_errors_carry_a_reason_for_programs(self):
        self.cluster.start_coordinator()
        error = client.error_of(self.cluster.runs.GetRun, run_id="nobody")
        self.assertEqual(error.code, grpc.StatusCode.NOT_FOUND)
        self.assertNotEqual(error.reason, "")
        self.assertIn("nobody", error.message)


class ListenerTest(cluster_module.IntegrationTest):

    def assert_refuses(self, relative, *arguments):
        process = processes.Process(
            "refuses", [processes.binary(relative), "--listen=0.0.0.0:0",
                        "--data-dir=" + self.root + "/refuses",
                        "--port-file=" + self.root + "/refuses.port"] +
            list(arguments), self.root + "/refuses.log")
        self.addCleanup(process.stop)
        self.assertNotEqual(process.wait(), 0)
        for word in ("--tls-cert", "--insecure"):
            self.assertIn(word, process.tail())

    def test_a_coordinator_off_loopback_asks_for_tls(self):
        self.assert_refuses(processes.COORDINATOR)

    def test_a_server_off_loopback_asks_for_tls(self):
        self.assert_refuses(processes.SERVER, "--server-id=a",
                            "--coordinator=127.0.0.1:1")


if __name__ == "__main__":
    cases.main()
