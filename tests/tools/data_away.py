#!/usr/bin/python3
"""A source of data that is away for an hour in the middle of a strict run.

    data_away.py [--seconds 3660]

Needs the programs of `bazel build -c opt //...`, or ATOLL_BIN. Ends with 1 if
the run does not end with the bits of the run that reads files.
"""

import argparse
import itertools
import os
import sys
import time

_TESTS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..")
sys.path[:0] = [os.path.join(_TESTS, "data_url"),
                os.path.join(_TESTS, "integration")]

# pylint: disable=wrong-import-position
from harness import cluster as cluster_module
from harness import ports
from harness import wait
import file_host
import published_data

# Files that come before the source goes away.
ANSWERS = 7
ISLANDS = ("island-0", "island-1", "island-2")


class DataAway(cluster_module.IntegrationTest):

    def start(self, name, url):
        cluster = self.new_cluster(name)
        cluster.start_service()
        cluster.create_run(self.run_values(published_data.by_url(url), {
            "inner": {"batch_size": 16}, "schedule": {"round_count": 60}}))
        cluster.start_islands()
        return cluster

    def away(self, seconds):
        published = os.path.join(self.cluster.directory, "published")
        published_data.publish(self.text, published, "4096B")
        files = self.start("files", "file://" + published)
        files.wait_state(cluster_module.COMPLETED)
        reference = files.parameters_sha256()
        files.close()

        port = ports.claim()
        self.addCleanup(ports.release, port)
        # The last answer is cut: then the host is away.
        answers = itertools.count()
        host = file_host.FileHost(
            published, port,
            lambda path, start, body: body if path.endswith("manifest.json") or
            next(answers) < ANSWERS else b"")
        cluster = self.start("away", host.url)
        cluster.wait_commits(1)
        host.close()
        gone = time.monotonic()
        wait.until("an island waits for the source", lambda: any(
            "waits for" in cluster.processes[name].tail(200)
            for name in ISLANDS))
        # The islands still train on the files that have come.
        time.sleep(min(10, seconds / 2))
        seq = cluster.run_state().commit_seq
        print("away from round %d on, for %d s" % (seq, seconds), flush=True)
        time.sleep(max(0, gone + seconds - time.monotonic()))
        cluster.check_alive()
        self.assertEqual(cluster.run_state().commit_seq, seq)
        begin = time.monotonic()
        host = file_host.FileHost(published, port)
        self.addCleanup(host.close)
        cluster.wait_commits(seq + 1)
        print("back: a commit after %.0f s" % (time.monotonic() - begin),
              flush=True)
        cluster.wait_state(cluster_module.COMPLETED)
        digest = cluster.parameters_sha256()
        print("files %s\naway  %s" % (reference, digest), flush=True)
        self.assertEqual(digest, reference)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3660)
    options = parser.parse_args()
    DataAway.setUpClass()
    test = DataAway("away")
    try:
        test.setUp()
        test.away(options.seconds)
    finally:
        test.doCleanups()
        DataAway.tearDownClass()


if __name__ == "__main__":
    main()
