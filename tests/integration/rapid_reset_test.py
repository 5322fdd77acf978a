#!/usr/bin/python3
"""Peers that open and reset streams as fast as they can.

One such attack on a fresh program keeps the bound of memory, and the calls of
others go on.
"""

import threading

from harness import cases
from harness import gated
from harness import rapid_reset
from harness import run_file
from harness import wait

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


def memory(process, name):
    with open("/proc/%d/status" % process.pid, encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file
                    if line.startswith(name + ":"))


class RapidResetTest(gated.GatedTest):

    def enrol(self):
        self.start(server_count=1)
        self.create_run(run_file.ELASTIC)
        self.cluster.start_volunteer("volunteer-0", self.token(),
                                     arguments=["--island-id=attic"])
        wait.until("it is a member", lambda: len(self.cluster.islands()) == 1)
        return self.enrolled("volunteer-0")

    def restart(self, program):
        """Returns the address of the fresh program, once it serves."""
        cluster = self.cluster
        cluster.kill(program)
        cluster.restart(program)
        address = (cluster.coordinator_address if program == "coordinator"
                   else cluster.server_address(program))
        wait.until("%s serves" % program, lambda: cluster.retry(
            cluster.client(address).health) == 1)
        return address

    def attack(self, certificate):
        cluster = self.cluster
        for program, path, with_message in CALLS:
            address = self.restart(program)
            process = cluster.processes[program]
            idle = memory(process, "VmRSS")
            attacker = threading.Thread(
                target=rapid_reset.send,
                args=(address, certificate, path, STREAMS, with_message))
            attacker.start()
            # The operator's calls go on meanwhile.
            cluster.retry(cluster.client(
                cluster.coordinator_address).service("RunService").GetRun,
                run_id="run")
            attacker.join()
            peak = memory(process, "VmHWM")
            self.assertLess(peak, 1.5 * idle + (64 << 20),
                            "%s: %d MiB idle, %d MiB after %s" % (
                                program, idle >> 20, peak >> 20, path))
            cluster.check_alive()

    def test_an_enrolled_island_takes_no_memory(self):
        certificate = self.enrol()
        self.attack(certificate)

    def test_a_revoked_island_takes_no_memory(self):
        certificate = self.enrol()
        self.cluster.may_end("volunteer-0")
        self.cluster.run_cli("island", "revoke", "run", "e-attic", check=0)
        self.cluster.processes["volunteer-0"].wait()
        self.attack(certificate)


if __name__ == "__main__":
    cases.main()
