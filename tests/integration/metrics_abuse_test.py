#!/usr/bin/python3
"""Abuse of the coordinator's metrics port, while a run goes on.

The coordinator's memory stays bounded, no island loses its lease, and the run
ends with the bits. By hand, `--strict` also asserts that 99 of 100 heartbeats
are answered within 100 ms, which a busy machine may not keep.
"""

import json
import random
import resource
import socket
import sys
import threading
import time

from harness import cases
from harness import cluster as cluster_module
from harness import metrics
from harness import wait

GROWTH_BYTES_MAX = 32 << 20
BODY_BYTES = 1 << 30
# A sender that is cut off may have sent this much: the kernel's buffers of
# both ends.
SENT_BYTES_MAX = 64 << 20
# Fits no limit on headers.
ENDLESS_BYTES = 64 << 20
HEARTBEAT_P99_S_MAX = 0.1
# Rounds that commit under each abuse.
ABUSED_COMMITS = 3

STRICT = "--strict" in sys.argv


class Peer:
    """One connection of an abuser."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port),
                                                timeout=wait.PATIENCE_S)
        self._socket.setblocking(False)
        self.received = b""
        self.sent_bytes = 0
        self.is_open = True

    def tick(self, data=b""):
        """Sends as much of `data` as the kernel takes, and reads the answer."""
        if not self.is_open:
            return
        try:
            if data:
                self.sent_bytes += self._socket.send(data)
        except BlockingIOError:
            pass
        except OSError:
            return self.close()
        try:
            part = self._socket.recv(1 << 16)
            self.received += part
            if not part:
                self.close()
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def close(self):
        self.is_open = False
        self._socket.close()


def await_closed(what, peers, data=lambda peer: b""):
    """Until the other end has closed them all; `data` is sent meanwhile."""

    def closed():
        for peer in peers:
            peer.tick(data(peer) if peer.is_open else b"")
        return not any(peer.is_open for peer in peers)

    wait.until("the port closes " + what, closed)


def send_until_closed(what, port, head, piece, bytes_max):
    """Sends `head`, then `piece` up to `bytes_max`; returns the Peer."""
    peer = Peer(port)
    peer.tick(head)
    deadline = time.monotonic() + wait.PATIENCE_S
    while peer.is_open and peer.sent_bytes < bytes_max:
        peer.tick(piece)
        if time.monotonic() > deadline:
            raise wait.TimedOut("the port does not close " + what)
    peer.close()
    return peer


def slow_headers(test, port):
    peers = [Peer(port) for _ in range(100)]
    for peer in peers:
        peer.tick(b"GET /metrics HTTP/1.1\r\nX: ")
    # A byte every 20 ms: never idle, never done.
    await_closed("slow senders", peers, lambda peer: b"x")
    test.assertFalse(any(b" 200 " in peer.received for peer in peers))


def idle_connections(test, port):
    peers = [Peer(port) for _ in range(1000)]
    test.assertEqual(metrics.get(port, metrics.LIVE)[0], 200)
    await_closed("idle connections", peers)


def large_bodies(test, port):
    for method in ("POST", "PUT", "GET"):
        for length in ("Content-Length: %d" % BODY_BYTES,
                       "Content-Length: %d\r\nExpect: 100-continue" %
                       BODY_BYTES,
                       "Transfer-Encoding: chunked"):
            head = "%s /metrics HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % (
                method, length)
            peer = send_until_closed("a large body", port, head.encode(),
                                     b"x" * (1 << 20), BODY_BYTES)
            test.assertLess(peer.sent_bytes, SENT_BYTES_MAX, head)
            test.assertNotIn(b" 200 ", peer.received)


def garbage(test, port):
    generator = random.Random(cases.seed())
    peers = [Peer(port) for _ in range(60)]
    for peer in peers:
        peer.tick(generator.randbytes(generator.randrange(1, 4096)))
    await_closed("garbage", peers)


def endless_headers(test, port):
    for piece in (b"x" * (1 << 16), b"X: y\r\n" * 10000):
        peer = send_until_closed(
            "endless headers", port, b"GET /metrics HTTP/1.1\r\nX: ", piece,
            ENDLESS_BYTES)
        test.assertLess(peer.sent_bytes, ENDLESS_BYTES)
        test.assertNotIn(b" 200 ", peer.received)


def pipelines(test, port):
    for _ in range(50):
        peer = send_until_closed("a pipeline", port, b"",
                                 b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" *
                                 1000, ENDLESS_BYTES)
        test.assertLessEqual(peer.received.count(b"HTTP/1.1 200"), 1)


ABUSES = [slow_headers, idle_connections, large_bodies, garbage,
          endless_headers, pipelines]


class PeakMemory:
    """The greatest resident memory of a process from now on, above now's."""

    def __init__(self, pid):
        self._path = "/proc/%d/" % pid
        with open(self._path + "clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # The peak becomes what is resident now.
        self._start = self._read("VmRSS")

    def growth_bytes(self):
        return self._read("VmHWM") - self._start

    def _read(self, name):
        with open(self._path + "status", encoding="ascii") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return int(line.split()[1]) << 10
        raise AssertionError("no " + name)


class Attacker(threading.Thread):
    """Repeats one abuse until `finish`."""

    def __init__(self, test, attack, port, pid):
        super().__init__()
        self._test, self._attack, self._port = test, attack, port
        self._memory = PeakMemory(pid)
        self._is_enough = threading.Event()
        self._error = None
        self.start()

    def run(self):
        try:
            while True:
                self._attack(self._test, self._port)
                if self._is_enough.is_set():
                    return
        except (AssertionError, OSError) as error:
            self._error = error

    def finish(self):
        """Ends with the abuse in progress; raises what failed."""
        self._is_enough.set()
        self.join()
        if self._error:
            raise self._error
        growth = self._memory.growth_bytes()
        name = self._attack.__name__
        print("%s: %.1f MiB" % (name, growth / (1 << 20)), flush=True)
        self._test.assertLess(growth, GROWTH_BYTES_MAX, name)


class MetricsAbuseTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"schedule": {"round_count": 60}})

    def test_abuse_of_the_metrics_port_disturbs_no_run(self):
        reference, spec = self.once("undisturbed", lambda cluster: (
            self.run_strict(cluster, self.values), cluster.spec()))
        cluster = self.cluster
        cluster.start_service(arguments=metrics.flags(cluster, "coordinator"))
        port = metrics.port(cluster, "coordinator")
        cluster.create_run_of(spec)
        cluster.start_islands(arguments=["-o", "json"])
        cluster.wait_commits(1)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        pid = cluster.processes["coordinator"].pid
        for attack in ABUSES:
            attacker = Attacker(self, attack, port, pid)
            try:
                cluster.runs.ResumeRun(run_id="run")
                cluster.wait_commits(cluster.run_state().commit_seq +
                                     ABUSED_COMMITS)
                # Else the run may end before the last abuse.
                cluster.runs.PauseRun(run_id="run")
            finally:
                attacker.finish()
        cluster.runs.ResumeRun(run_id="run")
        sha256 = self.finish_strict(cluster, self.values)
        self.assertEqual(sha256, reference)
        self.assertEqual(metrics.get(port, metrics.READY), (200, "ok\n"))
        self.assertEqual(metrics.scrape(port).get("atoll_ready"), 1)
        for event in cluster.events():
            self.assertNotEqual(event.island_changed.state,
                                cluster_module.LOST, event)
            if event.run_state_changed.state == cluster_module.COMPLETED:
                break
        self.show_heartbeats()

    def show_heartbeats(self):
        for index in range(3):
            process = self.cluster.processes["island-%d" % index]
            self.assertEqual(process.wait(), 0)
            with open(process.log_path, errors="replace") as file:
                log = file.read()
            said = json.loads(log[log.rindex('{\n  "schema_version"'):])["data"]
            latency = said["heartbeat_latency_seconds"]
            print("%s: %s" % (process.name, latency), flush=True)
            if STRICT:
                self.assertLess(latency["p99"], HEARTBEAT_P99_S_MAX)


if __name__ == "__main__":
    if STRICT:
        sys.argv.remove("--strict")
    cases.main()
