"""From a loss to the next commit, beside the least that it could take.

usage: recovery [--size toy|33MB|1GB] [--cases island,adopt,...] [--repeat 1]
                [--islands 2] [--servers 2] [--every 5] [--dir DIR] [--json]

Plays a strict run with a mirror on this machine, and disturbs it. In the cases
`island`, `server` and `coordinator` that process is killed right after a commit,
and restarted at once in its directory. In `survivors` an island of an elastic
run is killed, and the others commit without it. The rest lose what they name,
and type its command:

  restore              run restore, back to the newest checkpoint
  replace              server replace, once the coordinator has noticed that the
                       server has ended; its directory is deleted
  coordinator-restore  atoll-coordinator restore --from MIRROR: the same of the
                       coordinator, whose log's secret was kept
  adopt                run restore URL --run-id: all is deleted but the mirror,
                       and a new cluster with another number of servers is there

Prints a markdown table. A row has the median of its repeats:

  seconds   from the kill, or from the command's start, to the next commit
  bytes     the least to move before the round can be trained: what was lost or
            what the others must load again, at the rates of plain copies and
            loopback (plain.py)
  round     the undisturbed rounds before it, median. The next commit needs one.
  ratio     seconds / (bytes + round)
  tokens    committed before, and not part of the run any longer

Islands, servers and the disk share one machine. 1GB needs 12 GB of memory and 20
GB of disk.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time

import plain
import runs
from harness import cluster as cluster_module
from harness import processes
from harness import wait

_CALM_ROUNDS = 4
_VICTIMS = {"survivors": "island-0", "island": "island-0",
            "server": "server-0", "coordinator": "coordinator"}
KEYS = ("case", "state_bytes", "seconds", "bytes_seconds", "round_seconds",
        "ratio", "lost_tokens")


class Bench:
    """One run, over clusters that come and go. `server_count` may change."""

    def __init__(self, directory, arguments, elastic=False):
        self._directory = directory
        self.size = arguments.size
        self._every = arguments.every
        self.island_count = arguments.islands
        self._first_server_count = arguments.servers
        self.server_count = arguments.servers
        self._cluster_count = 0
        self.parameter_count = runs.count_parameters(arguments.size)
        self.mirror = os.path.join(directory, "mirror")
        self.rates = plain.measure(directory, self.state_bytes)
        self.cluster = self.new_cluster()
        self.cluster.create_run(runs.values(
            self.size, os.path.dirname(directory), self.island_count,
            self.server_count, self._every, elastic))
        self.cluster.start_islands(count=self.island_count)

    @property
    def state_bytes(self):
        return runs.STATE_BYTES * self.parameter_count

    @property
    def shard_bytes(self):
        return self.state_bytes // self.server_count

    @property
    def pull_bytes(self):
        """What all islands fetch."""
        return (runs.PARAMETER_BYTES * self.parameter_count *
                self.island_count)

    def new_cluster(self):
        """A coordinator and servers without a run."""
        self._cluster_count += 1
        cluster = cluster_module.Cluster(os.path.join(
            self._directory, "cluster-%d" % self._cluster_count))
        cluster.mirror = self.mirror
        cluster.start_coordinator()
        cluster.start_servers(self.server_count)
        return cluster

    def change_server_count(self):
        """One more, or again as many as at first."""
        self.server_count = self._first_server_count + (
            self.server_count == self._first_server_count)

    def path(self, name):
        return os.path.join(self.cluster.directory, name)

    def lose(self, name):
        """A process and its directory."""
        self.cluster.kill(name)
        shutil.rmtree(self.path(name))

    def atoll(self, *words):
        """The data of a command. It waits for the islands' rounds."""
        done = self.cluster.run_cli(*words, "--yes", "-o", "json", check=0,
                                    timeout=runs.PATIENCE_S)
        return json.loads(done.stdout)["data"]

    def await_commit(self):
        """The state right after the next commit."""
        return runs.wait_commits(self.cluster, 1)

    def next_round(self, before):
        """The first round after the loss; `before` is the state at the loss."""
        def committed():
            self.cluster.check_alive()
            run = self.cluster.run_state().run
            after = before.commit_seq
            if run.run_epoch > before.run.run_epoch:
                after = run.restored.commit_seq
            return next((r for r in self.cluster.rounds()
                         if r.commit_seq > after), None)

        return wait.until("the run commits again", committed, runs.PATIENCE_S)


# --- Cases --------------------------------------------------------------------
# Each returns when it began, and {way of plain.measure: bytes}.

def kill(bench, victim):
    name = _VICTIMS[victim]
    moved = {
        "island": lambda: runs.ISLAND_BYTES * bench.parameter_count,
        "server": lambda: bench.shard_bytes,
        "coordinator": lambda: sum(
            os.path.getsize(os.path.join(path, file)) for path, _, files in
            os.walk(bench.path("coordinator")) for file in files),
    }[victim]()
    begin = time.time()
    bench.cluster.kill(name)
    bench.cluster.restart(name)
    return begin, {"read": moved}


def survive(bench):
    begin = time.time()
    bench.cluster.kill(_VICTIMS["survivors"])
    return begin, {}


def restore(bench):
    begin = time.time()
    bench.atoll("run", "restore", "run")
    return begin, {"send": bench.pull_bytes}


def replace(bench):
    victim = _VICTIMS["server"]
    bench.lose(victim)
    wait.until("the coordinator notices it", lambda: any(
        s.placement.server_id == victim and not s.alive
        for s in bench.cluster.run_state().servers))
    failures = []

    def command():
        try:
            bench.atoll("server", "replace", victim)
        except AssertionError as error:
            failures.append(error)

    begin = time.time()
    thread = threading.Thread(target=command)
    thread.start()
    # It is refused until the coordinator has heard the command. A supervisor
    # starts it again.
    while thread.is_alive():
        if bench.cluster.processes[victim].poll() is not None:
            try:
                bench.cluster.restart(victim)
            except AssertionError:
                pass  # It ended before it served.
            bench.cluster.may_end(victim)
        thread.join(0.1)
    if failures:
        raise failures[0]
    return begin, {"copy": bench.shard_bytes, "send": bench.pull_bytes}


def coordinator_restore(bench):
    directory = bench.path("coordinator")
    secret = bench.path("log-secret")

    def call(*words):
        subprocess.run([processes.binary(processes.COORDINATOR), *words],
                       check=True, stdout=subprocess.DEVNULL,
                       timeout=runs.PATIENCE_S)

    if os.path.exists(secret):
        os.unlink(secret)
    call("secret", "--data-dir=" + directory, "--output=" + secret)
    bench.lose("coordinator")
    begin = time.time()
    call("restore", "--data-dir=" + directory,
         "--from=file://" + bench.mirror, "--secret-file=" + secret)
    bench.cluster.restart("coordinator")
    return begin, {"send": bench.pull_bytes}


def adopt(bench):
    old = bench.cluster
    old.close()
    shutil.rmtree(old.directory)
    bench.change_server_count()
    bench.cluster = bench.new_cluster()
    begin = time.time()
    bench.atoll("run", "restore", "file://" + bench.mirror, "--run-id", "run",
                "--server-count", str(bench.server_count))
    bench.cluster.start_islands(count=bench.island_count)
    return begin, {"copy": bench.state_bytes, "send": bench.pull_bytes}


CASES = {
    "survivors": survive,
    "island": lambda bench: kill(bench, "island"),
    "server": lambda bench: kill(bench, "server"),
    "coordinator": lambda bench: kill(bench, "coordinator"),
    "restore": restore,
    "replace": replace,
    "coordinator-restore": coordinator_restore,
    "adopt": adopt,
}


def measure(bench, case):
    wait.until("all islands are there", lambda: bench.cluster.run_state(
        ).live_island_count == bench.island_count, runs.PATIENCE_S)
    after = bench.cluster.run_state().commit_seq
    if case not in _VICTIMS:
        runs.wait_mirrored(bench.cluster)
    runs.wait_commits(bench.cluster, _CALM_ROUNDS)
    undisturbed = statistics.median(runs.round_seconds(bench.cluster, after))
    before = bench.await_commit()
    begin, moved = CASES[case](bench)
    first = bench.next_round(before)
    seconds = runs.seconds(first.commit_time) - begin
    least = sum(size / bench.rates[way] for way, size in moved.items())
    kept = first.merged_token_count - sum(
        c.token_count for c in first.contributions
        if c.outcome == cluster_module.MERGED)
    if bench.cluster.processes[_VICTIMS["island"]].poll() is not None:
        bench.cluster.restart(_VICTIMS["island"])
    return dict(zip(KEYS, (
        case, bench.state_bytes, round(seconds, 3), round(least, 3),
        round(undisturbed, 3), round(seconds / (least + undisturbed), 2),
        before.merged_token_count - kept)))


def play(directory, arguments, names, elastic):
    """The rows of one run."""
    os.mkdir(directory)
    bench = Bench(directory, arguments, elastic)
    rows = []
    try:
        for _ in range(arguments.repeat):
            for name in names:
                rows.append(measure(bench, name))
                print(json.dumps(rows[-1]), flush=True,
                      file=sys.stdout if arguments.json else sys.stderr)
        print("plain: " + ", ".join("%s %.2f GB/s" % (way, rate / 1e9)
                                    for way, rate in bench.rates.items()),
              file=sys.stderr)
    except BaseException:
        print(bench.cluster.describe(), file=sys.stderr)
        raise
    finally:
        bench.cluster.close()
        shutil.rmtree(directory, ignore_errors=True)
    return rows


def to_table(rows):
    """The markdown table of rows by case: medians, and the range of seconds."""
    lines = [("case", "state", "seconds", "bytes, s", "round, s", "ratio",
              "tokens lost")]
    for case in dict.fromkeys(row["case"] for row in rows):
        of_case = [row for row in rows if row["case"] == case]
        middle = {key: statistics.median(row[key] for row in of_case)
                  for key in KEYS[1:]}
        seconds = "%.2f" % middle["seconds"]
        if len(of_case) > 1:
            all_seconds = [row["seconds"] for row in of_case]
            seconds += " (%.2f to %.2f)" % (min(all_seconds), max(all_seconds))
        lines.append((case, "%.1f MB" % (middle["state_bytes"] / 1e6), seconds,
                      "%.2f" % middle["bytes_seconds"],
                      "%.2f" % middle["round_seconds"],
                      "%.1f" % middle["ratio"],
                      "%d" % middle["lost_tokens"]))
    return runs.table(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--size", default="toy")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--islands", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--dir", help="for data, instead of the system's")
    parser.add_argument("--json", action="store_true",
                        help="each measurement as a line, no table")
    arguments = parser.parse_args()
    names = arguments.cases.split(",")
    for word, known in [(arguments.size, runs.SHAPES)] + [
            (name, CASES) for name in names]:
        if word not in known:
            parser.error("%r is not one of %s" % (word, ", ".join(known)))
    for name in ("repeat", "islands", "servers", "every"):
        if getattr(arguments, name) < 1:
            parser.error("--%s must be at least 1" % name)
    if "survivors" in names and arguments.islands < 2:
        parser.error("survivors needs --islands 2 or more")
    rows = []
    with runs.workspace(arguments.dir) as directory:
        for elastic in (True, False):
            chosen = [n for n in names if (n == "survivors") == elastic]
            if chosen:
                rows += play(os.path.join(directory, "run"), arguments, chosen,
                             elastic)
        if not arguments.json:
            print(to_table(rows))


if __name__ == "__main__":
    main()
