"""What `checkpoint.mirror` costs a run, and another run on the same servers.

usage: mirror_cost [--size 33MB] [--every 10] [--rounds 40] [--turns 3]
                   [--beside] [--islands 1] [--servers 2]
                   [--bandwidth 20MB/s] [--dir DIR] [--json]

Plays the same strict run, with checkpoints every `--every` rounds, with and
without the mirror in turns (ABBA). Prints a markdown table of means over turns:
seconds a round from the first commit to the last, and processor seconds a round
of the servers and of all programs. Begins and ends are commits after which
the run makes a checkpoint, so each turn has as many uploads as intervals. An
upload that is late falls into the next interval; one that is later is skipped,
so the uploads are counted.

--beside plays another run on the same servers, without a mirror: its rounds
are measured, while the first run has a mirror or not.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import sys

import runs
from harness import cluster as cluster_module
from harness import run_file

_OTHER = "other"
# CheckpointSpec.keep_count at most: what was uploaded is counted at the end.
_KEEP = 32
KEYS = ("mirror", "round_seconds", "server_cpu_seconds", "cpu_seconds",
        "uploads")


def cpu_seconds(cluster, is_counted):
    """Processor time of processes that live, by name."""
    total = 0
    for name, process in cluster.processes.items():
        if is_counted(name):
            with open("/proc/%d/stat" % process.pid, encoding="ascii") as file:
                fields = file.read().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def play(directory, arguments, mirrors):
    """One turn; returns its row."""
    values = runs.values(arguments.size, os.path.dirname(directory),
                         arguments.islands, arguments.servers, arguments.every)
    values["checkpoint"]["keep_count"] = _KEEP
    plain = run_file.merged(values, {"checkpoint": {"mirror": False}})
    cluster = cluster_module.Cluster(directory)
    cluster.mirror = os.path.join(directory, "mirror")
    measured = _OTHER if arguments.beside else "run"
    try:
        cluster.start_coordinator()
        for index in range(arguments.servers):
            cluster.start_server("server-%d" % index, arguments=(
                ["--checkpoint-bandwidth=" + arguments.bandwidth]
                if arguments.bandwidth else []))
        for run_id in dict.fromkeys(("run", measured)):
            cluster.create_run(values if mirrors and run_id == "run" else plain,
                               run_id)
            cluster.start_islands(run_id, arguments.islands)

        def look(commit_count):
            cluster.wait_commits(commit_count, measured,
                                 timeout=runs.PATIENCE_S)
            return [cpu_seconds(cluster, is_counted) for is_counted in (
                lambda name: name.startswith("server-"), lambda name: True)]

        # The first interval is not measured.
        begin, end = arguments.every, arguments.every + arguments.rounds
        cpu_begin, cpu_end = look(begin), look(end)
        cluster.check_alive()
        if mirrors:
            runs.wait_mirrored(cluster)
        uploads = sum("manifest.json" in files
                      for _, _, files in os.walk(cluster.mirror))
        if bool(uploads) != mirrors:
            raise AssertionError("%d uploads" % uploads)
        times = {r.commit_seq: runs.seconds(r.commit_time)
                 for r in cluster.rounds(measured)}
        a_round = [(times[end] - times[begin])] + [
            after - before for before, after in zip(cpu_begin, cpu_end)]
        return dict(zip(KEYS, [mirrors] + [
            value / arguments.rounds for value in a_round] + [uploads]))
    except BaseException:
        print(cluster.describe(), file=sys.stderr)
        raise
    finally:
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)


def to_table(rows):
    keys = KEYS[1:-1]
    means = {mirrors: [statistics.mean(row[key] for row in rows
                                       if row["mirror"] == mirrors)
                       for key in keys] for mirrors in (False, True)}
    lines = [("", "seconds a round", "servers' CPU seconds a round",
              "all CPU seconds a round")]
    for mirrors, name in ((False, "without"), (True, "with the mirror")):
        lines.append((name, *["%.4f" % mean for mean in means[mirrors]]))
    lines.append(("more", *["%.1f %%" % (100 * (b / a - 1)) for a, b in
                            zip(means[False], means[True])]))
    for mirrors, name in ((False, "range without"), (True, "range with")):
        lines.append((name, *["%.4f to %.4f" % (
            min(row[key] for row in rows if row["mirror"] == mirrors),
            max(row[key] for row in rows if row["mirror"] == mirrors))
                              for key in keys]))
    added = 100 * (means[True][1] - means[False][1]) / means[False][2]
    return runs.table(lines) + (
        "\n\nThe servers' added CPU is %.1f %% of all CPU. Checkpoints that were "
        "uploaded in a turn: %s." % (added, ", ".join(
            str(row["uploads"]) for row in rows if row["mirror"])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--size", default="33MB")
    for name, value in (("every", 10), ("rounds", 40), ("turns", 3),
                        ("islands", 1), ("servers", 2)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--bandwidth", default="")
    parser.add_argument("--dir", help="for data, instead of the system's")
    parser.add_argument("--json", action="store_true",
                        help="each turn as a line, no table")
    arguments = parser.parse_args()
    if arguments.size not in runs.SHAPES:
        parser.error("%r is not one of %s" % (arguments.size,
                                              ", ".join(runs.SHAPES)))
    for name in ("every", "rounds", "turns", "islands", "servers"):
        if getattr(arguments, name) < 1:
            parser.error("--%s must be at least 1" % name)
    if arguments.rounds % arguments.every:
        parser.error("--rounds must be a multiple of --every")
    if arguments.rounds // arguments.every > _KEEP - 2:
        parser.error("--rounds must be at most %d times --every" % (_KEEP - 2))
    if arguments.bandwidth and not re.fullmatch(r"[0-9.]+[kMG]?[bB]/s",
                                                arguments.bandwidth):
        parser.error("--bandwidth must be a rate such as 20MB/s")
    rows = []
    with runs.workspace(arguments.dir) as directory:
        for turn in range(arguments.turns):
            for mirrors in ((False, True), (True, False))[turn % 2]:
                rows.append(play(os.path.join(directory, "turn"), arguments,
                                 mirrors))
                print(json.dumps(rows[-1]), flush=True,
                      file=sys.stdout if arguments.json else sys.stderr)
    if not arguments.json:
        print(to_table(rows))


if __name__ == "__main__":
    main()
