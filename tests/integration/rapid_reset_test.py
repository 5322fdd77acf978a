#!/usr/bin/python3
"""Peers that open and reset streams as fast as they can.

One such attack on a fresh program keeps the bound of memory, and the calls of
others go on.
"""

import threading

from harness import cases
from harness import rapid_reset

STREAMS = 100000

# Each with whether a request comes before the reset: a call of several requests
# comes to its handler without one.
CALLS = [
    ("coordinator", "/atoll.v1.IslandService/WatchPlan", True),
    ("coordinator", "/atoll.v1.RunService/GetRun", True),
    ("coordinator", "/atoll.v1.RunService/NoSuchMethod", False),
    ("coordinator", "/grpc.health.v1.Health/Watch", True),
    ("coordinator",
     "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", False),
    ("server-0", "/atoll.v1.ParameterService/PushOuterGradient", False),
    ("server-0", "/atoll.v1.ParameterService/PullParameters", True),
]


class RapidResetTest(rapid_reset.AttackTest):

    def attack(self, certificate):
        cluster = self.cluster
        for program, path, with_message in CALLS:
            address = self.restart(program)
            process = cluster.processes[program]
            idle = rapid_reset.memory(process, "VmRSS")
            attacker = threading.Thread(
                target=rapid_reset.send,
                args=(address, certificate, path, STREAMS, with_message))
            attacker.start()
            # The operator's calls go on meanwhile.
            cluster.retry(cluster.client(
                cluster.coordinator_address).service("RunService").GetRun,
                run_id="run")
            attacker.join()
            peak = rapid_reset.memory(process, "VmHWM")
            self.assertLess(peak, rapid_reset.memory_max(idle),
                            "%s: %d MiB idle, %d MiB after %s" % (
                                program, idle >> 20, peak >> 20, path))
            cluster.check_alive()

    def test_an_enrolled_island_takes_no_memory(self):
        self.attack(*self.enrol("attic"))

    def test_a_revoked_island_takes_no_memory(self):
        certificates = self.enrol("attic")
        self.revoke("volunteer-0", "attic")
        self.attack(*certificates)


if __name__ == "__main__":
    cases.main()
