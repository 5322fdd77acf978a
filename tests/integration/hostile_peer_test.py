#!/usr/bin/python3
"""Peers that are too slow, read nothing, or send decompression bombs.

A server ends their streams within its bound and bounds its memory. The honest
islands end with the bits of the undisturbed run.
"""

import itertools
import socket
import threading
import zlib

import grpc

from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import metrics
from harness import processes
from harness import raw_http2
from harness import toy
from harness import wait

PUSH = "/atoll.v1.ParameterService/PushOuterGradient"
PULL = "/atoll.v1.ParameterService/PullParameters"
IMPORT = "/atoll.v1.ParameterService/ImportParameters"

# A stream ends after one to two of these plus a second.
WINDOW_S = 1

# One megabyte: more than an initial HTTP/2 window.
LARGE = {"layout": {"tensors": [
    {"name": "embedding", "shape": [512, 512], "dtype": 1, "tensor_class": 2,
     "fragment": 0, "init": {"kind": 2, "value": 0.02}}]}}

# Two cells at level ISLAND, of 64 and of 4 blocks; one round.
CELLS = {"layout": {"tensors": [
    {"name": "embedding", "shape": [512, 544], "dtype": 1, "tensor_class": 2,
     "fragment": 0, "init": {"kind": 2, "value": 0.02}}]},
    "schedule": {"round_count": 1}}

# More than the descriptors of a program with `ulimit -n 64`.
IDLE_CONNECTIONS = 70

AGAIN = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE,
         grpc.StatusCode.DEADLINE_EXCEEDED)


class HostilePeerTest(cluster_module.IntegrationTest):

    def start(self, *changes, window_s=WINDOW_S, arguments=()):
        """Starts a toy run of two islands and a server with short timeouts."""
        cluster = self.cluster
        cluster.start_coordinator()
        self.server = cluster.start_server(
            "server-0",
            arguments=["--slow-stream-s=%d" % window_s] + list(arguments))
        members = toy.start(cluster, *changes, server_count=1)
        self.address = cluster.server_address("server-0")
        for member in members:
            member.wait_open(0)
        return members

    def call(self, path, **kwargs):
        made = raw_http2.RawCall(self.address, path, **kwargs)
        self.addCleanup(made.close)
        return made

    def assert_ended(self, calls, each_tick=lambda call: None):
        """All of them end, whatever they do meanwhile."""

        def ended():
            self.cluster.check_alive()
            for call in calls:
                if call.look():
                    each_tick(call)
            return not any(call.is_open for call in calls)

        wait.until("%d streams are ended" % len(calls), ended)

    def play_through(self, members, version):
        """Plays a round with islands that retry retriable errors."""
        for member in members:
            member.wait_open(version)
        for contribution in toy.gradients(members, version, cases.seed()):
            for shard in range(len(members[0].plan.shards)):
                self.push_patiently(contribution, shard)
        for member in members:
            member.wait_version(version + 1)
            member.ready()

    def push_patiently(self, contribution, shard):

        def stored():
            try:
                return contribution.push_to(shard)[-1].stored
            except grpc.RpcError as error:
                if error.code() not in AGAIN:
                    raise
                self.codes.add(error.code())
                return None

        self.codes = set()
        wait.until("the contribution is stored", stored)

    def undisturbed(self, *changes, round_count=3):
        cluster = self.new_cluster("undisturbed")
        return toy.play(cluster, toy.start(cluster, *changes, server_count=1),
                        cases.seed(), round_count)

    # --- Slow streams -----------------------------------------------------------

    def test_fifty_pushes_of_a_byte_now_and_then_are_ended_and_harm_nobody(self):
        members = self.start()
        slow = [self.call(PUSH if i % 2 else IMPORT) for i in range(50)]
        # The beginning of a message that never ends.
        for call in slow:
            self.assertTrue(call.send(b"\0\0\0\x40\0"))
        self.play_through(members, 0)
        self.assert_ended(slow, lambda call: call.send(b"\0"))
        for call in slow:
            self.assertIn(b"moved less than", call.trailers)
        for version in (1, 2):
            self.play_through(members, version)
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(), self.undisturbed())

    def test_streams_that_fill_every_place_delay_an_island_and_no_more(self):
        # Long enough to have 256 at a time, also on a loaded machine.
        members = self.start(window_s=8)
        slow = []
        contribution = members[0].contribution(
            members[0].random_values("x"), 0)

        def refused():
            # Replace ended calls.
            slow[:] = [call for call in slow if call.look()]
            slow.extend(self.call(PUSH) for _ in range(256 - len(slow)))
            try:
                contribution.push_to(0, chunks=[])
            except grpc.RpcError as error:
                details = client.protocols.ErrorDetails(error)
                return (details.code == grpc.StatusCode.RESOURCE_EXHAUSTED
                        and details.retry_delay_s)
            return False

        wait.until("a push is refused", refused)
        self.assert_ended(slow)
        self.push_patiently(contribution, 0)

    def test_valid_chunks_one_by_one_and_far_between_are_too_slow_too(self):
        member, _ = self.start()
        contribution = member.contribution(member.random_values("a"), 0)
        method = self.cluster.client(self.address).service(
            "ParameterService").PushOuterGradient
        begin, end = contribution.blocks(0)
        ended = threading.Event()

        def trickle():
            yield method.request_class(header=contribution.header(0))
            # Repeat the smallest block: four bytes of payload.
            while not ended.wait(0.2):
                yield method.request_class(
                    chunk=contribution.chunk(end - 1, end))

        error = client.error_of(method, trickle(), metadata=member.metadata,
                                timeout=wait.PATIENCE_S)
        ended.set()
        self.assertEqual(error.code, grpc.StatusCode.DEADLINE_EXCEEDED,
                         str(error))
        self.assertIn("moved less than", error.message)
        # The received part is kept; only the rest is missing.
        missing = contribution.push_to(0)[0].missing
        self.assertEqual([(r.begin, r.end) for r in missing],
                         [(begin, end - 1)])

    def test_a_trickle_above_the_minimum_holds_up_neither_rounds_nor_the_end(
            self):
        slow, fast = self.start(LARGE, {"schedule": dict(
            toy.ELASTIC_SCHEDULE, min_quorum=1, island_count_min=2)})
        contribution = slow.contribution(slow.random_values("slow"), 0)
        # Each island has its own connection.
        own = client.Client(self.address)
        self.addCleanup(own.close)
        method = own.service("ParameterService").PushOuterGradient
        begin, end = contribution.blocks(0)
        stopped = threading.Event()
        sent = []

        def trickle():
            yield method.request_class(header=contribution.header(0))
            # Twice the minimum rate, again and again without the last block,
            # which never arrives.
            for block in itertools.cycle(range(begin, end - 1)):
                yield method.request_class(
                    chunk=contribution.chunk(block, block + 1))
                sent.append(block)
                if stopped.wait(WINDOW_S / 2):
                    return

        def take_all():
            errors.append(client.error_of(
                method, trickle(), metadata=slow.metadata,
                timeout=10 * wait.PATIENCE_S))

        errors = []
        pushing = threading.Thread(target=take_all)
        pushing.start()
        self.addCleanup(pushing.join)
        self.addCleanup(stopped.set)
        wait.until("it trickles", lambda: sent)
        # A reader of the newest version that stops reading.
        pulling = self.call(PULL, window=1000)
        pulling.send(raw_http2.message(self.pull_request(fast)), end=True)
        for version in range(3):
            self.play_through([fast], version)
        # Versions are committed and released. The slow peers end with the
        # server, which does not wait for them: it would be killed.
        self.cluster.may_end("server-0")
        self.assertEqual(self.server.stop(timeout=wait.PATIENCE_S), 0)
        pushing.join()
        self.assertIn(errors[0].code, AGAIN + (
            grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED),
                      str(errors[0]))

    # --- Calls that never complete ---------------------------------------------

    def trickle(self, path):
        """A call with one message, sent byte by byte."""
        call = self.call(path)
        self.assertTrue(call.send(b"\0\0\0\x40\0"))
        return call

    def test_a_request_that_never_ends_ends_with_its_connection(self):
        cluster = self.cluster
        flag = ["--connection-age-s=1"]
        cluster.start_coordinator(arguments=flag)
        self.server = cluster.start_server("server-0", arguments=flag)
        members = toy.start(cluster, server_count=1)
        calls = []
        for self.address, path in (
                (cluster.coordinator_address, "/atoll.v1.RunService/CreateRun"),
                (cluster.coordinator_address, "/atoll.v1.IslandService/Join"),
                (cluster.server_address("server-0"),
                 "/grpc.health.v1.Health/Check"),
                (cluster.server_address("server-0"), PULL)):
            calls += [self.trickle(path) for _ in range(5)]

        def closed():
            cluster.check_alive()
            for call in calls:
                if call.look():
                    call.send(b"\0")
            return not any(call.is_connected() for call in calls)

        wait.until("%d connections are closed" % len(calls), closed)
        # The other peers' calls were closed as often, and no data was lost.
        self.address = cluster.server_address("server-0")
        for version in range(3):
            self.play_through(members, version)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(cluster.parameters_sha256(), self.undisturbed())

    # --- Peers that read nothing -----------------------------------------------

    def pull_request(self, member):
        plan = member.newest_plan()
        service = self.cluster.client(self.address).service("ParameterService")
        return service.PullParameters.request_class(
            run_id="run", run_epoch=plan.run_epoch, fragment=0, version=0,
            layout_fingerprint=plan.layout_fingerprint,
            placement_epoch=plan.placement_epoch,
            shard=0).SerializeToString()

    def test_readers_who_do_not_read_are_ended_and_harm_nobody(self):
        member, _ = self.start(LARGE)
        request = raw_http2.message(self.pull_request(member))
        self.server_peak()
        stuck = [self.call(PULL, window=window)
                 for window in (65535, 1000, 0) for _ in range(17)]
        for call in stuck:
            call.send(request, end=True)
        before = self.cluster.parameters()
        self.assert_ended(stuck)
        self.assertGreater(max(call.answer_bytes for call in stuck), 30000)
        self.assertEqual(self.cluster.parameters(), before)
        # Fifty stuck chunks of 1 MiB and their sources.
        self.assertLess(self.server_peak(), 300 << 20)

    def test_pushers_who_take_no_answer_are_ended(self):
        member, _ = self.start()
        contribution = member.contribution(member.random_values("a"), 0)
        request = self.cluster.client(self.address).service(
            "ParameterService").PushOuterGradient.request_class

        def encoded(**fields):
            return raw_http2.message(request(**fields).SerializeToString())

        def stuck():
            call = self.call(PUSH, window=0, metadata=[
                (k, v) for k, v in member.metadata])
            call.send(encoded(header=contribution.header(0)))
            return call

        waiting = [stuck() for _ in range(3)]
        # One sends everything, unasked, and waits forever for "stored".
        whole = stuck()
        begin, end = contribution.blocks(0)
        for block in range(begin, end):
            whole.send(encoded(chunk=contribution.chunk(block, block + 1)))
        whole.send(b"", end=True)
        self.assert_ended(waiting + [whole])
        self.assertTrue(contribution.push_to(0)[0].stored)

    # --- Level ISLAND -----------------------------------------------------------

    def test_cells_that_nobody_finishes_are_bounded_and_harm_nobody(self):
        members = self.start(CELLS, {"durability": 3}, window_s=20,
                             arguments=["--live-merge-mib=2"])
        honest = toy.gradients(members, 0, cases.seed())
        # The second island sends only the first block of every cell.
        hostile = members[1].contribution(members[1].random_values("x"), 0)
        pushes = [threading.Thread(target=self.push_patiently, args=(one, 0))
                  for one in honest]
        pushes[0].start()
        # Either there is no memory for the second cell, or, if the honest
        # island has sent everything, the rest never arrives.
        with self.assertRaises(grpc.RpcError) as caught:
            hostile.push_to(0, chunks=[hostile.chunk(64 * cell, 64 * cell + 1)
                                       for cell in range(2)])
        details = client.protocols.ErrorDetails(caught.exception)
        self.assertIn((details.code, details.reason),
                      [(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL"),
                       (grpc.StatusCode.UNAVAILABLE, "BLOCKS_MISSING")],
                      details.message)
        # It may continue with another contribution: its old cells are dropped.
        honest[1].info["key"]["seq"] = members[1].next_seq
        members[1].next_seq += 1
        pushes[1].start()
        for push in pushes:
            push.join()
        for member in members:
            member.wait_version(1)
            member.ready()
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(),
                         self.undisturbed(CELLS, round_count=1))

    # --- Bombs ------------------------------------------------------------------

    def server_peak(self, process=None):
        """Peak memory since the last call, in bytes."""
        pid = (process or self.server).pid
        with open("/proc/%d/status" % pid, encoding="ascii") as file:
            peak = [int(line.split()[1]) << 10 for line in file
                    if line.startswith("VmHWM")]
        with open("/proc/%d/clear_refs" % pid, "w", encoding="ascii") as file:
            file.write("5")
        return peak[0]

    def test_a_little_that_unfolds_to_much_takes_no_memory(self):
        member, _ = self.start()
        unfolded = 256 << 20
        squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
        nothing = bytes(1 << 20)
        bomb = b"".join(squeeze.compress(nothing)
                        for _ in range(unfolded >> 20)) + squeeze.flush()
        self.assertLess(len(bomb), 1 << 20)
        control = "/atoll.v1.%s"
        targets = [
            (self.server, self.address, PUSH),
            (self.server, self.address, PULL),
            (self.server, self.address, "/grpc.health.v1.Health/Check"),
        ] + [(self.cluster.processes["coordinator"],
              self.cluster.coordinator_address, control % name)
             for name in ("RunService/CreateRun", "IslandService/Join",
                          "TrainingStateService/GetRunState")]
        for process, self.address, path in targets:
            for encoding in ("gzip", "deflate", None):
                with self.subTest(path=path, encoding=encoding):
                    before = self.server_peak(process)
                    call = self.call(path, metadata=[
                        ("grpc-encoding", encoding)] if encoding else ())
                    call.send(raw_http2.message(bomb, compressed=True),
                              end=True)
                    self.assert_ended([call])
                    self.assertLess(self.server_peak(process) - before,
                                    unfolded // 4)
        self.assertEqual(member.heartbeat().lease_duration.seconds, 600)

    def test_a_huge_message_takes_no_more_than_the_quota_of_its_port(self):
        coordinator = self.cluster.start_coordinator()
        self.address = self.cluster.coordinator_address
        quota = 256 << 20
        piece = bytes(1 << 20)
        idle = self.server_peak(coordinator)
        call = self.call("/atoll.v1.RunService/CreateRun")
        # gRPC checks a message's length only when it is complete.
        call.send(b"\0\xff\xff\xff\xff")
        for _ in range(2 * quota // len(piece)):
            call.send(piece)
        self.assert_ended([call])
        self.assertLess(self.server_peak(coordinator), idle + quota * 9 // 8)
        self.assertEqual(self.cluster.coordinator.health(), 1)

    def test_idle_connections_shut_no_port_where_descriptors_are_few(self):
        few = ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh"]
        cluster = self.cluster
        cluster.start_coordinator(
            prefix=few, arguments=metrics.flags(cluster, "coordinator"))
        cluster.start_server("server-0", prefix=few,
                             arguments=metrics.flags(cluster, "server-0"))
        for name, address in (
                ("coordinator", cluster.coordinator_address),
                ("server-0", cluster.server_address("server-0"))):
            metrics_port = metrics.port(cluster, name)
            wait.until(name + " is ready", lambda: metrics.get(
                metrics_port, metrics.READY)[0] == 200)
            host, port = address.rsplit(":", 1)
            idle = [socket.create_connection((host, int(port)))
                    for _ in range(IDLE_CONNECTIONS)]
            # New connections, as of an operator and of a kubelet.
            self.assertEqual(client.Client(address).health(), 1)
            self.assertEqual(metrics.get(metrics_port, metrics.LIVE)[0], 200)
            shown = metrics.scrape(metrics_port)
            self.assertGreater(
                shown.get("atoll_shut_connections_total", port=port), 0)
            for connection in idle:
                connection.close()
            self.assertEqual(client.Client(address).health(), 1)
            self.assertEqual(metrics.get(metrics_port, metrics.READY),
                             (200, "ok\n"))


if __name__ == "__main__":
    cases.main()
