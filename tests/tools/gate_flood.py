#!/usr/bin/python3
"""Bad tokens as fast as one core can send them, while an island trains.

    gate_flood.py [--seconds 20] [--threads 8] [--flooder PROGRAM]

Needs the programs of `bazel build -c opt //...`, or ATOLL_BIN and --flooder.
Prints the tries a second, the gate's memory, and the island's heartbeat
latencies; ends with 1 if the gate needed more than 96 MiB or the p99 reached
100 ms.
"""

import argparse
import json
import os
import signal
import subprocess
import sys

_TREE = os.path.normpath(os.path.join(os.path.dirname(
    os.path.realpath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(_TREE, "tests", "integration"))

from harness import gated  # pylint: disable=wrong-import-position

MEMORY_MAX_MIB = 96
P99_MAX_S = 0.1


def memory_mib(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        return next(int(l.split()[1]) for l in file
                    if l.startswith("VmHWM")) / 1024


class GateFlood(gated.GatedTest):

    def flood(self, options):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run({"server_count": 1,
                         "schedule": {"round_count": 1000000}})
        cluster.start_volunteer("volunteer-0", self.token(),
                                arguments=["-o", "json"])
        cluster.wait_commits(1)
        flood = subprocess.run(
            [options.flooder, self.token("--uses=2"), str(options.seconds),
             str(options.threads)], check=True, stdout=subprocess.PIPE)
        counts = json.loads(flood.stdout)
        tries, answers = counts["tries"], counts["answers"]
        memory = memory_mib(cluster.processes["gate"].pid)
        volunteer = cluster.processes["volunteer-0"]
        volunteer.signal(signal.SIGINT)
        volunteer.wait()
        log = volunteer.tail(400)
        data = json.loads(log[log.index('{\n  "schema'):])["data"]
        latency = data["heartbeat_latency_seconds"]
        print("%.0f tries a second, %.0f answered; gate %.1f MiB at most; "
              "%d heartbeats, p50 %.1f ms, p99 %.1f ms, most %.1f ms" %
              (tries / options.seconds, answers / options.seconds, memory,
               latency["count"], 1e3 * latency["p50"], 1e3 * latency["p99"],
               1e3 * latency["max"]))
        return memory < MEMORY_MAX_MIB and latency["p99"] < P99_MAX_S


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--flooder", default=os.path.join(
        _TREE, "bazel-bin", "tests", "tools", "gate_flooder"))
    options = parser.parse_args()
    GateFlood.setUpClass()
    test = GateFlood("flood")
    test.setUp()
    try:
        good = test.flood(options)
    finally:
        test.doCleanups()
        GateFlood.tearDownClass()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
