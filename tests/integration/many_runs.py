#!/usr/bin/python3
"""Many runs, one after the other, on one coordinator and two servers: each is
deleted after its end, and the programs hold no more than before. By hand:

    tests/integration/many_runs.py --runs 2000

Exit status 1: memory or disk at the end is more than 5 % and 8 MiB above that
after the first tenth of the runs.
"""

import argparse
import shutil
import sys
import tempfile

from harness import cases
from harness import churn
from harness import cluster as cluster_module


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    arguments = parser.parse_args()
    early = max(1, arguments.runs // 10)
    directory = tempfile.mkdtemp(prefix="atoll-many-runs-")
    cluster = cluster_module.Cluster(directory)
    try:
        cluster.start_service()
        before = None
        for index in range(arguments.runs):
            churn.play_and_delete(cluster, index, cases.seed())
            if index + 1 == early:
                churn.wait_gone(cluster, "run-*")
                before = churn.measure(cluster)
        churn.wait_gone(cluster, "run-*")
        after = churn.measure(cluster)
    finally:
        cluster.close()
        shutil.rmtree(directory)
    print("%-24s %14s %14s" % ("bytes", "after %d" % early,
                               "after %d" % arguments.runs))
    for what in sorted(before):
        print("%-24s %14d %14d" % (what, before[what], after[what]))
    grown = churn.growth_beyond(before, after)
    print("\n".join(grown) or "nothing has grown by more than 5 % and 8 MiB")
    sys.exit(1 if grown else 0)


if __name__ == "__main__":
    main()
