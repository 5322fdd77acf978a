#!/usr/bin/python3
"""Peers that open streams as fast as they can, and reset or hold them.

Such an attack on a fresh program keeps the bound of memory, and the calls of
others go on. So does one that dials again for each connection that is shut, and
one that sends messages in frames of a few bytes.
"""

import struct
import threading

from harness import cases
from harness import rapid_reset
from harness import raw_http2
from harness import wait

STREAMS = 100000

# Each with how its streams end: a call of several requests comes to its handler
# without one.
CALLS = [
    ("coordinator", "/atoll.v1.IslandService/WatchPlan",
     rapid_reset.request_and_reset),
    ("coordinator", "/atoll.v1.RunService/GetRun",
     rapid_reset.request_and_reset),
    ("coordinator", "/atoll.v1.RunService/NoSuchMethod", rapid_reset.reset),
    ("coordinator", "/grpc.health.v1.Health/Watch",
     rapid_reset.request_and_reset),
    ("coordinator",
     "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
     rapid_reset.reset),
    ("server-0", "/atoll.v1.ParameterService/PushOuterGradient",
     rapid_reset.reset),
    ("server-0", "/atoll.v1.ParameterService/PullParameters",
     rapid_reset.request_and_reset),
]
DIALS_AGAIN = ("server-0", "/atoll.v1.ParameterService/PushOuterGradient",
               rapid_reset.reset)
# Without a request, so that gRPC gives no call to a handler.
UNSEEN = [("coordinator", "/atoll.v1.IslandService/WatchPlan", end)
          for end in (rapid_reset.hold, rapid_reset.bad_message)]
UNSEEN_STREAMS = 20000
# For 100 connections without headers a coordinator that does not count such
# streams took 662 MiB (tests/benchmarks/results/rapid_reset.md): for 40, twice
# the bound.
CROWD_CONNECTIONS = 40
CROWD_STREAMS = 500
# By method: the headers of a byte that each stream has besides. gRPC would take
# 400 from a peer that acknowledges nothing; 80 are within every bound.
CROWDS = [("/atoll.v1.IslandService/WatchPlan", 80),
          ("/atoll.v1.RunService/GetRun", 400),
          ("/grpc.health.v1.Health/Watch", 0)]

# One message of each call, in frames of so many bytes (CVE-2026-84304).
SMALL_FRAMES = [("coordinator", "/atoll.v1.IslandService/Join", 1),
                ("coordinator", "/atoll.v1.RunService/GetRun", 24),
                ("server-0", "/atoll.v1.ParameterService/PushOuterGradient", 1),
                ("server-0", "/atoll.v1.ParameterService/PullParameters", 24)]
SMALL_FRAMES_CONNECTIONS = 4
SMALL_FRAMES_BYTES = 21 << 20


class RapidResetTest(rapid_reset.AttackTest):

    def attack(self, certificate, calls=CALLS, connections=1, streams=STREAMS,
               bomb=False, **bound):
        cluster = self.cluster
        for program, path, end in calls:
            address = self.restart(program)
            process = cluster.processes[program]
            idle = rapid_reset.memory(process, "VmRSS")
            attacker = threading.Thread(
                target=rapid_reset.flood,
                args=(address, certificate, path, streams, end, connections,
                      bomb))
            attacker.start()
            # The operator's calls go on meanwhile.
            cluster.retry(cluster.client(
                cluster.coordinator_address).service("RunService").GetRun,
                run_id="run")
            attacker.join()
            self.check_memory(program, idle, path, **bound)

    def check_memory(self, program, idle, path, **bound):
        peak = rapid_reset.memory(self.cluster.processes[program], "VmHWM")
        self.assertLess(
            peak, rapid_reset.memory_max(idle, **bound),
            "%s: %d MiB idle, %d MiB after %s" % (
                program, idle >> 20, peak >> 20, path))
        self.cluster.check_alive()

    def test_an_enrolled_island_takes_no_memory(self):
        self.attack(*self.enrol("attic"))

    def test_a_revoked_island_takes_no_memory(self):
        certificates = self.enrol("attic")
        self.revoke("volunteer-0", "attic")
        self.attack(*certificates)

    def test_a_peer_that_dials_again_takes_little_memory(self):
        # On a busy machine it once took 142 MiB. A server that did not shut such
        # connections took 1,206.
        self.attack(*self.enrol("attic"), calls=[DIALS_AGAIN], connections=200,
                    more=128 << 20)

    def test_streams_with_many_headers_and_no_request_take_little_memory(self):
        self.attack(*self.enrol("attic"), calls=UNSEEN, connections=20,
                    streams=UNSEEN_STREAMS, bomb=True)

    def test_messages_in_small_frames_take_little_memory(self):
        certificate, = self.enrol("attic")
        piece = bytes(16 << 10)
        for program, path, frame_bytes in SMALL_FRAMES:
            address = self.restart(program)
            idle = rapid_reset.memory(self.cluster.processes[program], "VmRSS")
            calls = [raw_http2.RawCall(address, path, certificate=certificate)
                     for _ in range(SMALL_FRAMES_CONNECTIONS)]
            for call in calls:
                self.addCleanup(call.close)
                call.send(struct.pack(">BI", 0, SMALL_FRAMES_BYTES))
            for _ in range(SMALL_FRAMES_BYTES // len(piece) - 1):
                # A call whose connection has ended sends no more.
                for call in calls:
                    call.send(piece, frame_bytes=frame_bytes)
            self.cluster.retry(self.cluster.client(
                self.cluster.coordinator_address).service("RunService").GetRun,
                run_id="run")
            self.check_memory(program, idle, path)
            wait.until("the connections are ended", lambda: not any(
                call.look() for call in calls))

    def test_many_connections_of_held_streams_take_little_memory(self):
        enrolled = self.enrol("attic", "cellar")
        other = self.security.certificate(self.security.issue(
            "operator", "other"))
        for path, headers in CROWDS:
            address = self.restart("coordinator")
            idle = rapid_reset.memory(self.cluster.processes["coordinator"],
                                      "VmRSS")
            crowd = rapid_reset.Crowd(address, enrolled, path,
                                      CROWD_CONNECTIONS, CROWD_STREAMS, headers)
            attacker = threading.Thread(target=crowd.attack)
            attacker.start()
            # Others come meanwhile and afterwards, each on a new connection.
            while attacker.is_alive():
                self.cluster.retry(self.caller(address, other).health)
            attacker.join()
            self.cluster.retry(self.caller(address, other).health)
            self.check_memory("coordinator", idle, path)
            crowd.close()


if __name__ == "__main__":
    cases.main()
