#!/usr/bin/python3
"""Rapid reset on fresh coordinators and servers, as a table in Markdown.

    rapid_reset_table.py [--count 20] [--streams 100000] [--connections 1]

Each program is killed and started again before it is attacked, by an enrolled
and by a revoked island in turn. An attacker whose connection ends opens the
next, up to --connections. Meanwhile an operator calls the same program, one
call after another. Needs the programs of `bazel build -c opt //...`, or
ATOLL_BIN. Ends with 1 if a program needed more than 1.5 times its idle memory
and 64 MiB, or a call of the operator failed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

_TREE = os.path.normpath(os.path.join(os.path.dirname(
    os.path.realpath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(_TREE, "tests", "integration"))

# pylint: disable=wrong-import-position
import grpc

from harness import certificates
from harness import rapid_reset

# By program: the path, and how each stream ends.
CALLS = {
    "coordinator": ("/atoll.v1.RunService/GetRun",
                    rapid_reset.request_and_reset),
    "server-0": ("/atoll.v1.ParameterService/PushOuterGradient",
                 rapid_reset.reset),
}


def attack(address, cert, key, program, streams, connections):
    """The attacker, a process of its own. Prints the streams that it sent."""
    path, end = CALLS[program]
    certificate = certificates.Certificate(cert, key, "")
    print(rapid_reset.flood(address, certificate, path, int(streams),
                            end, int(connections)))


class RapidResetTable(rapid_reset.AttackTest):

    def measure(self, options):
        enrolled, revoked = self.enrol("attic", "cellar")
        self.revoke("volunteer-1", "cellar")
        print("| program | certificate | idle MiB | peak MiB | bound MiB | "
              "streams | s | calls of another | failed | p50 ms | most ms |")
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        good = True
        for program in CALLS:
            for i in range(options.count):
                kind, certificate = (("enrolled", enrolled),
                                     ("revoked", revoked))[i % 2]
                row = self.attack(program, certificate, options)
                good &= row.pop("good")
                print("| %s | %s | %s |" % (program, kind, " | ".join(
                    str(cell) for cell in row.values())), flush=True)
        self.cluster.check_alive()
        return good

    def attack(self, program, certificate, options):
        address = self.restart(program)
        process = self.cluster.processes[program]
        caller = self.caller(address, self.security.certificate(
            self.security.issue("operator", "other")))
        caller.health()
        idle = rapid_reset.memory(process, "VmRSS")
        begin = time.monotonic()
        attacker = subprocess.Popen(
            [sys.executable, os.path.realpath(__file__), "attack", address,
             certificate.cert, certificate.key, program, str(options.streams),
             str(options.connections)], stdout=subprocess.PIPE, text=True)
        latencies, failed = [], 0
        while attacker.poll() is None:
            start = time.monotonic()
            try:
                caller.health()
            except grpc.RpcError:
                failed += 1
            latencies.append(1e3 * (time.monotonic() - start))
        seconds = time.monotonic() - begin
        sent = int(attacker.communicate()[0])
        peak = rapid_reset.memory(process, "VmHWM")
        bound = rapid_reset.memory_max(idle)
        return {
            "good": peak < bound and failed == 0,
            "idle": idle >> 20, "peak": peak >> 20, "bound": int(bound) >> 20,
            "streams": sent, "seconds": "%.1f" % seconds,
            "calls": len(latencies), "failed": failed,
            "p50": "%.1f" % statistics.median(latencies),
            "most": "%.1f" % max(latencies),
        }


def main():
    if sys.argv[1:2] == ["attack"]:
        attack(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20,
                        help="attacks on each program")
    parser.add_argument("--streams", type=int, default=100000)
    parser.add_argument("--connections", type=int, default=1)
    options = parser.parse_args()
    RapidResetTable.setUpClass()
    test = RapidResetTable("measure")
    try:
        test.setUp()
        good = test.measure(options)
    finally:
        test.doCleanups()
        RapidResetTable.tearDownClass()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
