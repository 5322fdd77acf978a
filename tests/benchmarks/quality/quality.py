"""Measures how much validation loss less communication costs.

usage: quality [--rows A,B] [--seeds 1,2,3] [--out DIR] [--list] [--report]

Trains each row on the quickstart's model with each seed, as real processes. A
row that is in DIR with the same config and commit does not run again, so the
program may be stopped and restarted. Then it judges the claims and writes
DIR/quality.md. A row that the coordinator refuses is listed with the reason.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile

_HERE = os.path.dirname(os.path.realpath(__file__))
_TREE = os.path.join(_HERE, "..", "..", "..")
sys.path[:0] = [_HERE, os.path.join(_TREE, "tests", "tools")]

# pylint: disable=wrong-import-position
import atoll_data
import ledger as ledger_module
import play
import report
import rows as rows_module
from harness import text

_DATA_SEED = 1  # The text's order, as in laptop.toml.


def workspace():
    return os.environ.get("BUILD_WORKSPACE_DIRECTORY", os.path.realpath(_TREE))


def commit_of(tree):
    """The commit; with a + if tracked files differ from it."""
    def git(*arguments):
        return subprocess.run(["git", "-C", tree] + list(arguments),
                              stdout=subprocess.PIPE, check=True,
                              stderr=subprocess.DEVNULL, text=True).stdout
    try:
        name = git("rev-parse", "--short=10", "HEAD").strip()
        changed = git("status", "--porcelain", "--untracked-files=no", "--",
                      ".", ":!tests/benchmarks/results")
        return name + ("+" if changed.strip() else "")
    except (subprocess.CalledProcessError, FileNotFoundError):
        return "unknown"


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return "%s, %d cores" % (line.split(":", 1)[1].strip(),
                                         os.cpu_count())
    return "unknown"


def newest_headers():
    root = "/usr/include/c++"
    names = [n for n in os.listdir(root)
             if os.path.isdir(os.path.join(root, n))]
    return os.path.join(root, max(names, key=lambda n: (len(n), n)))


def find_torch(given):
    for program in [given] if given else ["python3"]:
        done = subprocess.run([program, "-c", "import torch"], check=False,
                              stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            return program
    if given:
        raise SystemExit("%s cannot import torch" % given)
    return None


class Bench:
    def __init__(self, arguments, scratch):
        self._arguments = arguments
        self._scratch = scratch
        self._data = arguments.data
        if arguments.smoke:
            self._data = text.write_text(os.path.join(scratch, "text"), 1)
        self._ledger = ledger_module.Ledger(
            os.path.join(arguments.out, "quality.jsonl"))
        self._commit = commit_of(workspace())
        self._cpu = cpu_model()
        tokens = atoll_data.read_tokens(self._data, _DATA_SEED)
        held_out = atoll_data.split(tokens, 0.05)[1]
        self._held_out = os.path.join(scratch, "validation.bin")
        with open(self._held_out, "wb") as file:
            file.write(held_out)
        self._text = {"bytes": len(tokens), "held_out": len(held_out)}
        self._torch = find_torch(arguments.torch_python)
        self.played = {}   # By row's name and seed: entries.
        self.missing = {}  # By row's name: why.

    def run(self, row, seed):
        if row.name in self.missing and not self._arguments.report:
            return  # Refused with another seed.
        values = rows_module.values_of(row, seed, self._data,
                                       self._arguments.smoke)
        digest = ledger_module.digest_of(row, values, self._text)
        entry = self._ledger.find(digest, self._commit,
                                  self._arguments.any_commit)
        if entry is None and not self._arguments.report:
            entry = self._play(row, seed, values, digest)
        if entry is None:
            if row.name not in self.played:
                self.missing.setdefault(row.name, "not yet")
            return
        self.played.setdefault(row.name, {})[seed] = entry

    def _play(self, row, seed, values, digest):
        directory = os.path.join(self._scratch, "%s-%d" % (row.name, seed))
        try:
            result = play.play(row, values, directory, self._held_out,
                               self._torch)
        except play.NotHere as why:
            self.missing[row.name] = str(why)
            print("%-24s %s" % (row.name, why), flush=True)
            return None
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        entry = {"row": row.name, "seed": seed, "digest": digest,
                 "commit": self._commit,
                 "date": datetime.date.today().isoformat(), "cpu": self._cpu}
        entry.update(result)
        self._ledger.add(entry)
        print("%-24s seed %d  loss %s  %.0f s  %s" % (
            row.name, seed, entry["loss"], entry["seconds"], entry["ended"]),
              flush=True)
        return entry

    def header(self):
        values = rows_module.values_of(rows_module.by_name()["diloco"], 1,
                                       self._data, self._arguments.smoke)
        model, schedule = values["model"], values["schedule"]
        entries = [e for seeds in self.played.values() for e in seeds.values()]
        dates = sorted({e["date"] for e in entries}) or ["-"]
        cpus = sorted({e["cpu"] for e in entries}) or [self._cpu]
        return [
            "# quality, " + (dates[0] if len(dates) == 1 else "%s to %s" %
                             (dates[0], dates[-1])),
            "",
            "    bazel run -c opt //tests/benchmarks:quality",
            "",
            "deploy/config/laptop.toml: %d layers of %d channels, %d islands, "
            "%d rounds of %d steps of %d x %d tokens; %s, %d bytes, the last "
            "%d held out." % (
                model["layer_count"], model["hidden_size"],
                schedule["island_count_min"], schedule["round_count"],
                schedule["inner_step_count"], values["inner"]["batch_size"],
                model["sequence_length"],
                "made-up text" if self._arguments.smoke else self._data,
                self._text["bytes"], self._text["held_out"]),
            "Seeds set the initial values and the order of the data. CPU: %s." %
            "; ".join(cpus),
        ]

    def write_report(self, rows):
        path = os.path.join(self._arguments.out, "quality.md")
        os.makedirs(self._arguments.out, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(report.markdown(rows, self.played, self.missing,
                                       self.header()))
        return path


def parse(argv):
    known = rows_module.by_name()
    parser = argparse.ArgumentParser(prog="quality",
                                     description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", help="names of the rows to run; default: all")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", help="directory for results "
                        "(tests/benchmarks/results/quality)")
    parser.add_argument("--data", default=newest_headers(),
                        help="text to train on (%(default)s)")
    parser.add_argument("--any-commit", action="store_true",
                        help="also use rows of other commits; the table names "
                        "them")
    parser.add_argument("--report", action="store_true",
                        help="run nothing; only judge and write the table")
    parser.add_argument("--list", action="store_true",
                        help="print the rows and their claims")
    parser.add_argument("--smoke", action="store_true",
                        help="smoke test with a tiny model and text")
    parser.add_argument("--torch-python",
                        help="Python interpreter with torch, for the reference")
    parser.add_argument("--nice", type=int, default=5)
    arguments = parser.parse_args(argv)
    chosen = arguments.rows.split(",") if arguments.rows else [
        row.name for row in rows_module.ROWS if not row.long]
    for name in chosen:
        if name not in known:
            parser.error("no row %r; --list prints them" % name)
    arguments.rows = [row for row in rows_module.ROWS if row.name in chosen]
    try:
        arguments.seeds = [int(s) for s in arguments.seeds.split(",")]
    except ValueError:
        parser.error("--seeds is a list of numbers, as 1,2,3")
    if arguments.out is None:
        arguments.out = os.path.join(workspace(), "tests", "benchmarks",
                                     "results", "quality")
    return arguments


def print_list(rows):
    for row in rows:
        claims = "; ".join(report.describe(claim) for claim in row.claims)
        print("%-24s %s%s" % (row.name, row.what, claims and " | " + claims))


def main():
    arguments = parse(sys.argv[1:])
    if arguments.list:
        print_list(arguments.rows)
        return
    os.nice(arguments.nice)
    scratch = tempfile.mkdtemp(prefix="atoll-quality-")
    try:
        bench = Bench(arguments, scratch)
        # Seed by seed, so that every row has an early result.
        for seed in arguments.seeds:
            for row in arguments.rows:
                bench.run(row, seed)
        path = bench.write_report(arguments.rows)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    failed = [(row.name, claim) for row, claim, _, verdict in
              report.claims_of(arguments.rows, bench.played)
              if verdict == report.judge.FAILS]
    for name, claim in failed:
        print("%s: not %s" % (name, report.describe(claim)), flush=True)
    print(json.dumps({"table": path, "failed": len(failed)}), flush=True)
    sys.exit(1 if failed and not arguments.smoke else 0)


if __name__ == "__main__":
    main()
