"""Runs that are made, end, and are deleted, one after the other; and what the
programs hold afterwards."""

import os

from harness import cluster as cluster_module
from harness import damage
from harness import toy
from harness import wait

PROGRAMS = ("coordinator", "server-0", "server-1")


def play_and_delete(cluster, index, seed):
    """Every second run completes; the others are cancelled."""
    run_id = "run-%d" % index
    toy.create(cluster, {"schedule": {"round_count": 1, "min_quorum": 1,
                                      "island_count_min": 1}}, run_id=run_id)
    cluster.wait_state(cluster_module.ACTIVE, run_id)
    if index % 2:
        cluster.runs.CancelRun(run_id=run_id)
    else:
        member = cluster.join(run_id)
        member.ready()
        toy.play_round([member], 0, seed, ready=False)
        cluster.wait_state(cluster_module.COMPLETED, run_id)
    cluster.runs.DeleteRun(run_id=run_id)


def wait_gone(cluster, run_id="run", servers=None):
    """Waits until no server has a file of the run."""

    def gone():
        cluster.check_alive()
        return not any(damage.run_directories(cluster, server, run_id)
                       for server in servers or cluster.server_ids)

    wait.until("the files of %s are gone" % run_id, gone)


def rss_bytes(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        kib, = [int(line.split()[1]) for line in file
                if line.startswith("VmRSS")]
    return kib << 10


def disk_bytes(directory):
    total = 0
    for path, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                pass  # A file that a program has just deleted.
    return total


def measure(cluster):
    """{"memory" or "disk" of a program: bytes}."""
    held = {}
    for name in PROGRAMS:
        held["memory of " + name] = rss_bytes(cluster.processes[name].pid)
        held["disk of " + name] = disk_bytes(
            os.path.join(cluster.directory, name))
    return held


def growth_beyond(before, after):
    """What has grown by more than 5 % and 8 MiB, as lines for people."""
    return ["%s: from %d to %d bytes" % (what, before[what], after[what])
            for what in sorted(before)
            if after[what] > before[what] * 1.05 + (8 << 20)]
