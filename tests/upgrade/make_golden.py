#!/usr/bin/python3
"""Makes an archive of golden/ with given programs. By hand, once a format:

    make_golden.py PROGRAMS NAME

PROGRAMS has cli/atoll, coordinator/atoll-coordinator and server/atoll-server.
Writes golden/NAME.tar.xz.
"""

import os
import shutil
import signal
import sys
import tempfile

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    os.environ["ATOLL_BIN"] = os.path.abspath(sys.argv[1])

from harness import cluster as cluster_module  # noqa: E402
from harness import run_file  # noqa: E402
from harness import text  # noqa: E402
from harness import wait  # noqa: E402
import golden_data  # noqa: E402

_CUT = 4  # Commits before the kill.


def _start(directory):
    cluster = cluster_module.Cluster(directory)
    path = os.path.join(directory, "text")
    if not os.path.exists(path):
        text.write_text(path, seed=1, file_count=1, bytes_each=16 * 1024)
    golden_data.start_service(cluster)
    cluster.create_run(run_file.merged(
        run_file.BASE, golden_data.CHANGES, {"data": {"path": path}}))
    for index, name in enumerate(golden_data.ISLANDS):
        cluster.start_island("run", name)
        wait.until("%s has joined" % name,
                   lambda: len(cluster.islands()) > index)
    return cluster


def _kill_all(cluster):
    names = ["coordinator"] + golden_data.SERVERS + golden_data.ISLANDS
    for name in names:
        cluster.may_end(name)
        cluster.processes[name].signal(signal.SIGKILL)
    for name in names:
        cluster.kill(name)


def main(name):
    archive = os.path.join(_HERE, "golden", name + ".tar.xz")
    root = tempfile.mkdtemp(prefix="golden-")
    try:
        whole = _start(os.path.join(root, "whole"))
        whole.wait_state(cluster_module.COMPLETED)
        sha256 = whole.parameters_sha256()
        whole.close()

        cluster = _start(os.path.join(root, "cut"))
        cluster.wait_commits(_CUT)
        rounds = golden_data.describe_rounds(cluster.rounds())
        _kill_all(cluster)
        cluster.close()
        golden_data.pack(cluster.directory, archive, {
            "parameters_sha256": sha256,
            "rounds": rounds,
            "processor": golden_data.describe_processor(),
        })
        print("%s: %d bytes, %d rounds, ends with %s" % (
            archive, os.path.getsize(archive), len(rounds), sha256))
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[2])
