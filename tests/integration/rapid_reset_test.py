#!/usr/bin/python3
"""Peers that open and reset streams as fast as they can.

Such an attack on a fresh program keeps the bound of memory, and the calls of
others go on. So does one that dials again for each connection that is shut.
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
DIALS_AGAIN = ("server-0", "/atoll.v1.ParameterService/PushOuterGradient",
               False)


class RapidResetTest(rapid_reset.AttackTest):

    def attack(self, certificate, calls=None, connections=1):
        cluster = self.cluster
        for program, path, with_message in calls or CALLS:
            address = self.restart(program)
            process = cluster.processes[program]
            idle = rapid_reset.memory(process, "VmRSS")
            attacker = threading.Thread(
                target=rapid_reset.flood,
                args=(address, certificate, path, STREAMS, with_message,
                      connections))
            attacker.start()
            # The operator's calls go on meanwhile.
            cluster.retry(cluster.client(
                cluster.coordinator_address).service("RunService").GetRun,
                run_id="run")
            attacker.join()
            peak = rapid_reset.memory(process, "VmHWM")
            bound = rapid_reset.memory_max(idle)
            self.assertLess(peak, bound, "%s: %d MiB idle, %d MiB after %s" % (
                program, idle >> 20, peak >> 20, path))
            cluster.check_alive()

    def test_an_enrolled_island_takes_no_memory(self):
        self.attack(*self.enrol("attic"))

    def test_a_revoked_island_takes_no_memory(self):
        certificates = self.enrol("attic")
        self.revoke("volunteer-0", "attic")
        self.attack(*certificates)

    def test_a_peer_that_dials_again_takes_little_memory(self):
        self.attack(*self.enrol("attic"), calls=[DIALS_AGAIN], connections=200)


if __name__ == "__main__":
    cases.main()
