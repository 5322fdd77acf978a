#!/usr/bin/python3
"""A NAT forgets the islands' control connections, again and again.

    forgotten_flows.py [--times 20] [--timing elastic|strict|both]
                       [--leases 10 30]

Each time nothing arrives any longer on the connections that exist, in either
direction, and neither end is told. Each time waits for two more commits. Ends with 1 if a process ended, or if
a strict run's parameters differ from those of an undisturbed run.
Needs the programs of `bazel build //...`, or ATOLL_BIN.
"""

import argparse
import os
import sys
import tempfile
import time

_TREE = os.path.normpath(os.path.join(os.path.dirname(
    os.path.realpath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(_TREE, "tests", "integration"))

# pylint: disable=wrong-import-position
from harness import cluster as cluster_module
from harness import cutter
from harness import run_file
from harness import text
from harness import wait

ISLAND_COUNT = 3
# Of a strict run: commits for each time, and some to end with.
COMMITS_A_TIME = 5


def make_values(path, timing, lease_s, times):
    schedule = {"lease_duration": "%ds" % lease_s}
    if timing == "strict":
        schedule["round_count"] = COMMITS_A_TIME * (times + 2)
    changes = [run_file.ELASTIC] if timing == "elastic" else []
    return run_file.merged(run_file.BASE, {"data": {"path": path}}, *changes,
                           {"schedule": schedule})


def start(directory, values, nat=None):
    cluster = cluster_module.Cluster(directory)
    cluster.start_service()
    if nat is not None:
        nat.forward_to(cluster.coordinator_address)
        cluster.dial_through("island", nat.address)
    cluster.create_run(values)
    cluster.start_islands(count=ISLAND_COUNT)
    return cluster


def finish(cluster):
    cluster.wait_state(cluster_module.COMPLETED)
    return cluster.parameters_sha256()


def forget(cluster, nat, times):
    """Returns the seconds from each time to the next commit."""
    spans = []
    for index in range(times):
        at = cluster.wait_commits(cluster.run_state().commit_seq + 2)
        nat.forget()
        begin = time.monotonic()
        # One commit may be under way.
        cluster.wait_commits(at.commit_seq + 2)
        spans.append(time.monotonic() - begin)
        print("  %2d: goes on after %.1f s" % (index + 1, spans[-1]),
              flush=True)
    return spans


def run_case(directory, path, timing, lease_s, times):
    print("%s, lease %d s" % (timing, lease_s), flush=True)
    values = make_values(path, timing, lease_s, times)
    reference = None
    if timing == "strict":
        undisturbed = start(os.path.join(directory, "undisturbed"), values)
        try:
            reference = finish(undisturbed)
        finally:
            undisturbed.close()
    nat = cutter.Nat()
    cluster = start(os.path.join(directory, "forgotten"), values, nat)
    try:
        spans = forget(cluster, nat, times)
        if reference is not None:
            assert finish(cluster) == reference, "other bits"
        cluster.check_alive()
    finally:
        cluster.close()
        nat.close()
    print("  goes on after %.1f s at most%s" % (
        max(spans), "; the bits" if reference else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--timing", choices=["elastic", "strict", "both"],
                        default="both")
    parser.add_argument("--leases", type=int, nargs="+", default=[10, 30])
    flags = parser.parse_args()
    timings = (["elastic", "strict"] if flags.timing == "both"
               else [flags.timing])
    with tempfile.TemporaryDirectory(prefix="atoll-nat-") as directory:
        path = text.write_text(os.path.join(directory, "text"), seed=5)
        for timing in timings:
            for lease_s in flags.leases:
                run_case(os.path.join(directory, "%s-%d" % (timing, lease_s)),
                         path, timing, lease_s, flags.times)


if __name__ == "__main__":
    try:
        main()
    except (AssertionError, wait.TimedOut) as error:
        sys.exit("FAILED: %s" % error)
