#!/usr/bin/python3
"""Bad input gives an error that says what to do, and the run continues.

An island in Python sends invalid input. Each case then plays the run to its end
and compares it with an undisturbed run.
"""

import contextlib
import struct

import grpc

from harness import arithmetic
from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import protocols
from harness import toy
from harness import wait

INVALID = grpc.StatusCode.INVALID_ARGUMENT
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
NOT_FOUND = grpc.StatusCode.NOT_FOUND
ABORTED = grpc.StatusCode.ABORTED
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
DATA_LOSS = grpc.StatusCode.DATA_LOSS
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
EXISTS = grpc.StatusCode.ALREADY_EXISTS
OUT_OF_RANGE = grpc.StatusCode.OUT_OF_RANGE

BAD_IDS = ["", "A", "a/b", "../up", "a" * 64, "a b", "ä", "a.b", "a\n"]


class BadInputTest(cluster_module.IntegrationTest):

    def setUp(self):
        super().setUp()
        self.seed = cases.seed()

    def assert_error(self, code, call, *args, **kwargs):
        codes = code if isinstance(code, tuple) else (code,)

        def decided():
            # A server may get a round's plan after the islands.
            details = client.error_of(call, *args, **kwargs)
            is_behind = details.reason == "PLAN_BEHIND"
            return None if is_behind and UNAVAILABLE not in codes else details

        details = wait.until("the server has the plan", decided)
        self.assertIn(details.code, codes, str(details))
        self.assertGreater(len(details.message), 10, str(details))
        self.assertTrue(details.reason or details.fields,
                        "neither ErrorInfo nor BadRequest: %s" % details)
        if details.reason:
            self.assertRegex(details.reason, "^[A-Z0-9_]+$")
            self.assertEqual(details.domain, "atoll.v1", str(details))
        return details

    def peaceful(self):
        """SHA-256 of the undisturbed toy run; played once."""
        cls = type(self)
        if not hasattr(cls, "_peaceful"):
            cluster = self.new_cluster("peaceful")
            members = toy.start(cluster)
            cls._peaceful = toy.play(cluster, members, self.seed)
            cluster.close()
        return cls._peaceful

    @contextlib.contextmanager
    def disturbed(self):
        """A toy run with its first round open; it must end like the undisturbed
        one."""
        self.peaceful()
        members = toy.start(self.cluster)
        for member in members:
            member.wait_open(0)
        yield members
        self.cluster.check_alive()
        self.assertEqual(toy.play(self.cluster, members, self.seed),
                         self.peaceful())

    def clean_pair(self):
        """SHA-256 of an undisturbed run of two islands, at slots 1 and 2."""
        cls = type(self)
        if not hasattr(cls, "_pair"):
            cluster = self.new_cluster("pair")
            members = toy.start(cluster, toy.TRIO, island_count=3)
            members[0].leave()
            cls._pair = toy.play(cluster, members[1:], self.seed, 2)
            cluster.close()
        return cls._pair

    @contextlib.contextmanager
    def with_a_liar(self):
        """Yields (liar, honest) in an open round. Then the liar leaves, and the
        run must end like that of the two honest islands."""
        self.clean_pair()
        liar, *honest = toy.start(self.cluster, toy.TRIO, island_count=3)
        for member in [liar] + honest:
            member.wait_open(0)
        yield liar, honest
        self.cluster.check_alive()
        liar.leave()
        self.assertEqual(toy.play(self.cluster, honest, self.seed, 2),
                         self.clean_pair())

    # --- Operators --------------------------------------------------------------

    def test_create_run_names_every_wrong_field(self):
        self.cluster.start_coordinator()
        runs = self.cluster.runs
        wrong = [
            ({"layout": {"fragment_count": 0}}, "layout.fragment_count"),
            ({"layout": {"tensors": []}}, "layout.tensors"),
            ({"schedule": {"timing": 0}}, "schedule.timing"),
            ({"schedule": {"inner_step_count": 0}},
             "schedule.inner_step_count"),
            ({"schedule": {"round_count": -1}}, "schedule.round_count"),
            ({"schedule": {"island_count_min": 0}},
             "schedule.island_count_min"),
            ({"schedule": {"sample_fraction": 1.5}},
             "schedule.sample_fraction"),
            ({"schedule": {"sample_fraction": float("nan")}},
             "schedule.sample_fraction"),
            ({"schedule": {"grace_window": {"seconds": 1}}},
             "schedule.grace_window"),
            ({"outer": {"optimizer": 0}}, "outer.optimizer"),
            ({"outer": {"learning_rate": 0.0}}, "outer.learning_rate"),
            ({"outer": {"learning_rate": float("inf")}},
             "outer.learning_rate"),
            ({"outer": {"optimizer": 3, "momentum": 1.0}}, "outer.momentum"),
            ({"outer": {"weighting": 77}}, "outer.weighting"),
            ({"inner": {"batch_size": 0}}, "inner.batch_size"),
            ({"inner": {"optimizer": 0}}, "inner.optimizer"),
            ({"data": {"data_shard_count": 0}}, "data.data_shard_count"),
            ({"data": {"validation_fraction": 1.0}},
             "data.validation_fraction"),
            ({"server_count": 0}, "server_count"),
            ({"server_count": -3}, "server_count"),
        ]
        for change, field in wrong:
            with self.subTest(change=change):
                spec = toy.run_file.merged(toy.SPEC, change)
                details = self.assert_error(INVALID, runs.CreateRun,
                                            run_id="wrong", spec=spec)
                self.assertTrue(
                    any(("spec." + field).startswith(f) or
                        f.startswith("spec." + field)
                        for f in details.fields),
                    "%s is not among %s" % (field, details.fields))
        self.assert_error(NOT_FOUND, runs.GetRun, run_id="wrong")

    def test_create_run_refuses_wrong_tensors(self):
        self.cluster.start_coordinator()
        good = toy.TENSORS[0]
        for change in ({"name": ""}, {"name": "a/../b"}, {"shape": []},
                       {"shape": [0]}, {"shape": [-1, 4]},
                       {"shape": [1 << 40, 1 << 40]}, {"dtype": 0},
                       {"tensor_class": 0}, {"fragment": 1},
                       {"fragment": -1}, {"name": "norm.gain"},
                       {"init": {"kind": 2, "value": float("nan")}},
                       {"init": {"kind": 0}}):
            with self.subTest(change=change):
                tensors = [dict(good, **change)] + toy.TENSORS[1:]
                self.assert_error(
                    INVALID, self.cluster.runs.CreateRun, run_id="wrong",
                    spec=toy.run_file.merged(toy.SPEC,
                                             {"layout": {"tensors": tensors}}))

    def test_ids_are_checked_wherever_they_come_in(self):
        self.cluster.start_coordinator()
        islands = self.cluster.coordinator.service("IslandService")
        servers = self.cluster.coordinator.service("ServerService")
        toy.create(self.cluster)
        for bad in BAD_IDS:
            with self.subTest(id=bad):
                self.assert_error(INVALID, self.cluster.runs.CreateRun,
                                  run_id=bad, spec=toy.SPEC)
                self.assert_error((INVALID, NOT_FOUND),
                                  self.cluster.runs.GetRun, run_id=bad)
                self.assert_error(
                    INVALID, islands.Join, run_id="run", island_id=bad,
                    capabilities={"devices": [{"kind": "cpu"}]})
                self.assert_error(INVALID, servers.RegisterServer,
                                  server_id=bad, address="127.0.0.1:1",
                                  incarnation=1)
                self.assert_error((INVALID, PRECONDITION),
                                  self.cluster.runs.ExportCheckpoint,
                                  run_id="run", pin_id=bad)

    def test_an_unknown_run_is_not_found_everywhere(self):
        self.cluster.start_coordinator()
        c = self.cluster
        islands = c.coordinator.service("IslandService")
        for method in (c.runs.GetRun, c.runs.PauseRun, c.runs.ResumeRun,
                       c.runs.CancelRun, c.state.GetRunState,
                       c.state.ListIslands, c.state.ListRounds,
                       c.state.GetMetrics, c.state.WatchRun,
                       c.state.ListCheckpoints):
            self.assert_error(NOT_FOUND, method, run_id="nobody")
        self.assert_error(NOT_FOUND, c.runs.ExportCheckpoint, run_id="nobody",
                          pin_id="a")
        self.assert_error(NOT_FOUND, islands.Join, run_id="nobody",
                          island_id="a",
                          capabilities={"devices": [{"kind": "cpu"}]})

    def test_the_same_run_id_with_another_spec_conflicts(self):
        self.cluster.start_coordinator()
        first = toy.create(self.cluster)
        self.assertEqual(toy.create(self.cluster).create_time,
                         first.create_time)
        self.assert_error(EXISTS, self.cluster.runs.CreateRun, run_id="run",
                          spec=toy.run_file.merged(toy.SPEC,
                                                   {"init": {"seed": 8}}))

    def test_pages_and_revisions_out_of_range_are_refused(self):
        self.cluster.start_coordinator()
        toy.create(self.cluster)
        c = self.cluster
        for method in (c.state.ListIslands, c.state.ListRounds,
                       c.state.ListCheckpoints):
            self.assert_error(INVALID, method, run_id="run", page_size=-1)
            self.assert_error(INVALID, method, run_id="run",
                              page_token="no token of ours")
        self.assert_error(INVALID, c.runs.ListRuns, page_size=-1)
        self.assert_error(INVALID, c.runs.ListRuns, page_token="x" * 1000)
        self.assert_error(OUT_OF_RANGE, c.state.WatchRun, run_id="run",
                          after_revision=1 << 60)
        self.assert_error(INVALID, c.state.GetMetrics, run_id="run",
                          names=["no/such/metric"])

    def test_bytes_that_are_no_message_are_an_error(self):
        self.cluster.start_coordinator()
        for junk in (b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f", b"\x08"):
            with self.assertRaises(grpc.RpcError):
                self.cluster.runs.CreateRun(junk)
        with self.assertRaises(grpc.RpcError):
            self.cluster.runs.CreateRun(b"\x0a\x80\x80\x80\x04" +
                                        b"a" * (8 << 20))
        self.cluster.check_alive()
        self.assertEqual(len(self.cluster.runs.ListRuns().runs), 0)

    # --- Islands: control -------------------------------------------------------

    def test_calls_without_the_session_secret_are_refused(self):
        with self.disturbed() as (member, other):
            service = member.service
            calls = [(service.Heartbeat, {}), (service.WatchPlan, {}),
                     (service.ReportReady, {"commit_seq": 0}),
                     (service.ReportProgress, {"step": 1}),
                     (service.Leave, {"reason": "a lie"})]
            for method, fields in calls:
                for metadata in ((), (("atoll-session", "00" * 32),),
                                 other.metadata,
                                 (("atoll-session", "nothing hex"),)):
                    self.assert_error(
                        (UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED),
                        method, metadata=metadata, **member.who, **fields)

    def test_an_older_epoch_is_aborted(self):
        with self.disturbed() as (member, _):
            old = member.who
            old_metadata = member.metadata
            member.join()
            member.ready()
            self.assertGreater(member.epoch, old["island_epoch"])
            for metadata in (old_metadata, member.metadata):
                self.assert_error(ABORTED, member.service.Heartbeat,
                                  metadata=metadata, **old)
                self.assert_error(ABORTED, member.service.WatchPlan,
                                  metadata=metadata, **old)
                self.assert_error(ABORTED, member.service.Leave,
                                  metadata=metadata, reason="old", **old)

    def test_progress_that_is_no_number_is_refused(self):
        with self.disturbed() as (member, _):
            for fields in ({"step": -1}, {"loss": float("nan"),
                                          "loss_step_count": 1},
                           {"tokens_per_second": float("inf")},
                           {"tokens_per_second": -1.0},
                           {"gradient_norm": float("nan")},
                           {"evaluations": [{"loss": float("nan"),
                                             "token_count": 1}]}):
                with self.subTest(fields=fields):
                    self.assert_error(INVALID, member.service.ReportProgress,
                                      metadata=member.metadata, **member.who,
                                      **fields)

    # --- Islands: data ----------------------------------------------------------

    def test_a_push_with_a_wrong_header_changes_nothing(self):
        with self.with_a_liar() as (member, (other, _)):
            good = member.contribution(member.random_values("lies"), 0)

            def header(**changes):
                return dict(good.header(0), **changes)

            def info(**changes):
                made = dict(good.info)
                key = dict(made["key"], **changes.pop("key", {}))
                made.update(changes, key=key)
                return {"info": made}

            table = [
                (NOT_FOUND, dict(run_id="nobody")),
                ((INVALID, NOT_FOUND), dict(run_id="../../etc")),
                (ABORTED, dict(shard=1)),
                (ABORTED, dict(shard=-1)),
                (ABORTED, dict(shard=1 << 30)),
                (ABORTED, dict(layout_fingerprint=1)),
                (ABORTED, dict(placement_epoch=0)),
                # Newer than the server's plan, which may be old.
                (UNAVAILABLE, dict(placement_epoch=1 << 40)),
                (UNAVAILABLE, dict(island_epoch=99)),
                (ABORTED, dict(island_epoch=0)),
                ((INVALID, UNAUTHENTICATED, PRECONDITION),
                 info(key={"slot": 63})),
                ((INVALID, UNAUTHENTICATED, PRECONDITION),
                 info(key={"slot": -1})),
                ((UNAUTHENTICATED, PRECONDITION,
                  grpc.StatusCode.PERMISSION_DENIED),
                 info(key={"slot": other.slot})),
                (INVALID, info(key={"fragment": 5})),
                (INVALID, info(key={"fragment": -1})),
                (INVALID, info(key={"seq": 0})),
                (INVALID, info(key={"seq": -7})),
                (ABORTED, info(key={"run_epoch": 0})),
                (UNAVAILABLE, info(key={"run_epoch": 99})),
                (INVALID, info(codec=0)),
                (INVALID, info(codec=99)),
                (INVALID, info(anchor_version=-1)),
                (INVALID, info(step_count=-1)),
                (INVALID, info(token_count=-1)),
                (INVALID, info(data_begin=5, data_end=1)),
            ]
            for code, changes in table:
                with self.subTest(changes=changes):
                    self.assert_error(code, good.push_to, 0,
                                      header=header(**changes))
            with self.subTest("no secret"):
                self.assert_error(
                    (UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED),
                    good.push_to, 0, metadata=())
            with self.subTest("another's secret"):
                self.assert_error(
                    (UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED),
                    good.push_to, 0, metadata=other.metadata)

    def test_a_chunk_with_a_wrong_checksum_can_be_sent_again(self):
        with self.disturbed() as members:
            good, _ = toy.gradients(members, 0, self.seed)
            begin, end = good.blocks(0)
            self.assert_error(DATA_LOSS, good.push_to, 0,
                              chunks=[good.chunk(begin, end, crc_flip=1)])
            # A correct payload with wrong numbers has a wrong checksum.
            shifted = dict(good.chunk(begin, begin + 1), first_block=begin + 1)
            self.assert_error(DATA_LOSS, good.push_to, 0, chunks=[shifted])
            for member in members:
                member.next_seq = 1

    def bent_chunks(self, good):
        begin, end = good.blocks(0)
        payload = good.chunk(begin, end)["payload"]
        return [
            ("a short payload", good.chunk(begin, end, payload=payload[:-4])),
            ("a torn payload", good.chunk(begin, end, payload=payload[:-1])),
            ("a long payload", good.chunk(begin, end,
                                          payload=payload + b"\0" * 4)),
            ("no payload", good.chunk(begin, end, payload=b"")),
            ("a block past the end", good.chunk(
                begin, end, first_block=end, block_count=end - begin)),
            ("a negative block", good.chunk(begin, end, first_block=-1)),
            ("a huge count", good.chunk(begin, end, block_count=0x7fffffff)),
            ("no blocks", good.chunk(begin, end, block_count=0,
                                     payload=b"")),
            ("a huge first block", good.chunk(begin, end,
                                              first_block=1 << 62)),
            ("another codec", good.chunk(begin, end, codec=9)),
            ("another key", good.chunk(begin, end, key={"seq": 77})),
        ]

    def test_each_bent_chunk_is_refused_and_the_run_goes_on(self):
        members = toy.start(self.cluster, {"schedule": {
            "timing": 2, "min_quorum": 1, "grace_window": {},
            "round_count": 1000}}, island_count=2)
        liar, honest = members
        count = 11
        for index in range(count):
            for member in members:
                member.wait_open(index)
            bad = liar.contribution(liar.random_values("bent"), index)
            name, chunk = self.bent_chunks(bad)[index]
            with self.subTest(name):
                self.assert_error(INVALID, bad.push_to, 0, chunks=[chunk])
            toy.gradients([honest], index, self.seed)[0].push()
            for member in members:
                member.wait_version(index + 1)
                member.ready()
        self.cluster.check_alive()
        merged = {c.info.key.slot for r in self.cluster.rounds()
                  for c in r.contributions
                  if c.outcome == cluster_module.MERGED}
        self.assertEqual(merged, {honest.slot})

    def poisoned(self, poison):
        """Rounds of three islands, one of which always pushes poison: the run
        equals that of the other two."""
        members = toy.start(self.cluster, toy.TRIO, island_count=3)
        poisoner = members[0]
        honest = members[1:]
        for version in range(2):
            for member in members:
                member.wait_open(version)
            values = poisoner.random_values("poison %d" % version)
            bad = poisoner.contribution(poison(values), version)
            details = self.assert_error(INVALID, bad.push_to, 0)
            for contribution in toy.gradients(honest, version, self.seed):
                contribution.push()
            for member in members:
                member.wait_version(version + 1)
                member.ready()
            outcome = poisoner.wait_outcome(bad.seq)
            self.assertEqual(outcome.outcome, cluster_module.REJECTED)
            self.assertNotEqual(outcome.reason, "")
            self.assertTrue(details.message)
        self.cluster.wait_state(cluster_module.COMPLETED)
        return self.cluster.parameters_sha256()

    def test_nan_is_refused_as_a_whole(self):
        def poison(values):
            values[7] = float("nan")
            return values
        self.assertEqual(self.poisoned(poison), self.clean_pair())

    def test_infinity_is_refused_as_a_whole(self):
        def poison(values):
            values[4097] = float("-inf")
            return values
        self.assertEqual(self.poisoned(poison), self.clean_pair())

    def test_a_norm_beyond_the_bound_is_refused_as_a_whole(self):
        self.assertEqual(self.poisoned(lambda v: [x + 1e6 for x in v]),
                         self.clean_pair())

    def test_a_norm_that_overflows_is_refused_as_a_whole(self):
        self.assertEqual(self.poisoned(lambda v: [3e38 for _ in v]),
                         self.clean_pair())

    def test_another_digest_under_the_same_key_is_aborted(self):
        with self.disturbed() as (member, _):
            first, = toy.gradients([member], 0, self.seed)
            begin, end = first.blocks(0)
            self.assert_error(UNAVAILABLE, first.push_to, 0,
                              chunks=[first.chunk(begin, begin + 1)])
            member.next_seq -= 1
            lie = member.contribution(member.random_values("lie"), 0)
            self.assert_error(ABORTED, lie.push_to, 0)
            self.assertEqual(lie.seq, first.seq)
            member.next_seq -= 1

    def test_a_payload_that_differs_from_its_digest_is_refused(self):
        members = toy.start(self.cluster, {"schedule": {
            "min_quorum": 1, "island_count_min": 2}})
        liar, honest = members
        for member in members:
            member.wait_open(0)
        lie = liar.contribution(liar.random_values("truth"), 0)
        honest.contribution(honest.random_values("truth"), 0).push()
        other = liar.random_values("lie")
        lie.payload = arithmetic.to_bytes(other)
        # A single shard cannot detect this. The bits must not depend on which
        # shard checks, so the outcome must name the parts in any case.
        try:
            lie.push()
        except grpc.RpcError as error:
            details = protocols.ErrorDetails(error)
            self.assertIn(details.code, (INVALID, DATA_LOSS, ABORTED))
        for member in members:
            member.wait_version(1)
        self.cluster.check_alive()
        self.assertNotEqual(liar.wait_outcome(lie.seq).outcome, 0)

    def test_a_push_in_pieces_in_any_order_and_twice_counts_once(self):
        with self.disturbed() as members:
            first, second = toy.gradients(members, 0, self.seed)
            for shard in range(2):
                begin, end = first.blocks(shard)
                pieces = [first.chunk(b, b + 1) for b in range(begin, end)]
                if len(pieces) > 1:
                    self.assert_error(UNAVAILABLE, first.push_to, shard,
                                      chunks=[pieces[-1]])
                    again = first.push_to(shard, chunks=list(
                        reversed(pieces[:-1])))
                    missing = [(r.begin, r.end) for r in again[0].missing]
                    self.assertEqual(missing, [(begin, end - 1)])
                    self.assertTrue(again[-1].stored)
                else:
                    first.push_to(shard)
                # A repeated push: the shard already has it.
                self.assertTrue(first.push_to(shard)[0].stored)
            for member in members:
                member.next_seq = 1
            self.assertEqual(first.seq, 1)

    def test_a_push_for_a_round_that_is_over_is_late_or_stale(self):
        members = toy.start(self.cluster, {"schedule": dict(
            toy.ELASTIC_SCHEDULE, min_quorum=1, grace_window={})})
        slow, fast = members
        for version in range(2):
            fast.wait_open(version)
            toy.gradients([fast], version, self.seed)[0].push()
            fast.wait_version(version + 1)
            fast.ready()
        old = slow.contribution(slow.random_values("old"), 0, step_count=4)
        slow.newest_plan()
        try:
            old.push()
        except grpc.RpcError as error:
            self.assertIn(error.code(), (ABORTED, PRECONDITION))
        else:
            self.assertIn(slow.wait_outcome(old.seq).outcome,
                          (cluster_module.LATE, cluster_module.STALE))
        for r in self.cluster.rounds():
            for c in r.contributions:
                if c.outcome == cluster_module.MERGED:
                    self.assertEqual(c.info.key.slot, fast.slot)

    def test_tokens_that_an_island_claims_beyond_the_plan_do_not_count(self):
        members = toy.start(self.cluster)
        for member in members:
            member.wait_open(0)
        boaster, modest = members
        boaster.contribution(boaster.random_values("a"), 0,
                             token_count=1 << 50).push()
        modest.contribution(modest.random_values("b"), 0).push()
        boaster.wait_version(1)
        first = self.cluster.rounds()[0]
        self.assertEqual([c.weight for c in first.contributions], [0.5, 0.5])

    # --- Readers of parameters --------------------------------------------------

    def test_a_wrong_pull_is_refused(self):
        with self.disturbed() as (member, _):
            plan = member.newest_plan()
            service = self.cluster.client(plan.shards[0].address).service(
                "ParameterService")
            good = dict(run_id="run", run_epoch=plan.run_epoch, fragment=0,
                        version=0, layout_fingerprint=plan.layout_fingerprint,
                        placement_epoch=plan.placement_epoch, shard=0)
            for code, changes in [
                (NOT_FOUND, dict(run_id="nobody")),
                ((NOT_FOUND, INVALID), dict(run_id="..")),
                (ABORTED, dict(shard=1)),
                (INVALID, dict(fragment=1)),
                (INVALID, dict(fragment=-1)),
                ((INVALID, PRECONDITION), dict(version=-2)),
                (PRECONDITION, dict(version=5)),
                (PRECONDITION, dict(version=1 << 62)),
                (ABORTED, dict(layout_fingerprint=3)),
                (UNAVAILABLE, dict(placement_epoch=1 << 40)),
                (UNAVAILABLE, dict(run_epoch=77)),
                (INVALID, dict(range={"begin": 0, "end": 1 << 40})),
                (INVALID, dict(range={"begin": 5, "end": 1})),
                (INVALID, dict(range={"begin": -5, "end": 1})),
            ]:
                with self.subTest(changes=changes):
                    self.assert_error(code, service.PullParameters,
                                      **dict(good, **changes))

    def test_junk_on_the_bulk_methods_is_an_error(self):
        with self.disturbed() as (member, _):
            service = self.cluster.client(
                member.newest_plan().shards[0].address).service(
                    "ParameterService")
            begin_chunk = struct.pack("<BB", 0x7a, 0x7f)
            for junk in (b"", b"\xff" * 64, b"\x0a\xff\xff\xff\xff\x0f",
                         begin_chunk, b"\x7a\x80\x80\x80\x80\x10",
                         b"\x0a\x02\x0a\x7f"):
                for method in (service.PushOuterGradient,
                               service.ImportParameters):
                    with self.subTest(junk=junk, method=method.kind):
                        self.assert_error(
                            (INVALID, grpc.StatusCode.INTERNAL,
                             PRECONDITION, NOT_FOUND, UNAUTHENTICATED),
                            method, [junk], metadata=member.metadata)
            # A chunk before any header.
            self.assert_error(
                (INVALID, UNAUTHENTICATED, NOT_FOUND),
                service.PushOuterGradient,
                [service.PushOuterGradient.request_class(
                    chunk={"first_block": 0, "block_count": 1})],
                metadata=member.metadata)


if __name__ == "__main__":
    cases.main()
