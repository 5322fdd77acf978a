#!/usr/bin/python3
"""Ordinary PyTorch scripts, alone, as islands of a run, and under torchft.

    torch_check.py [--python PROGRAM | --venv DIR] [--only NAME,...]
                   [--seeds 1,2,3] [--results FILE]

Makes the virtual environment DIR with its packages from PyPI, unless it is
there. Needs the programs of `bazel build -c opt //...`, or ATOLL_BIN. Checks:

  lines    a script joins a run with at most 5 changed lines
  scripts  gpt, lora and fsdp2 train alone, and as two islands that end with one
           loss, at most 10 % above
  losses   gpt through torchft's DiLoCo and Atoll's, the same data and settings:
           the mean losses differ by less than the seeds do
  faults   what a fault does to the trainer and to the other, with either
  kills    a cosine ends at 0 over 20 kills; a strict run with dropout and
           torchdata's StatefulDataLoader ends as without kills; the loss of an
           exchange rewinds no trainer

Prints tables in Markdown, also to FILE. The last line is `N passed, N failed`.
"""

import argparse
import datetime
import difflib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import traceback

_HERE = os.path.dirname(os.path.realpath(__file__))
_TESTS = os.path.normpath(os.path.join(_HERE, "..", ".."))
sys.path[:0] = [_HERE, os.path.join(_TESTS, "tools"),
                os.path.join(_TESTS, "integration")]

# pylint: disable=wrong-import-position
import systems
import torch_islands

_PACKAGES = ("torch", "numpy", "transformers", "peft", "torchft", "torchdata")
_CHECKS = ("lines", "scripts", "losses", "faults", "kills")
# The file: ranks and steps.
_SCRIPTS = {"gpt": (1, 400), "lora": (1, 200), "fsdp2": (2, 200)}
_LINES_MAX = 5
_TIMEOUT_S = 1800
_PACE_S = 0.02
_ENDLESS = 1_000_000
_KILLS = 20
# Two islands have twice the data, but an outer momentum of 0.9 needs more than
# these 10 or 20 rounds.
_RATIO_MAX = 1.1


def changed_lines(plain, changed):
    """Lines that differ but for their indentation: replaced ones count once."""
    before, after = ([line.strip() for line in open(
        os.path.join(_HERE, name + ".py"), encoding="utf-8")]
                     for name in (plain, changed))
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in
               difflib.SequenceMatcher(None, before, after,
                                       autojunk=False).get_opcodes()
               if tag != "equal")


class Report:
    """Tables in Markdown, and the count of checks."""

    def __init__(self):
        self.lines = []
        self.passed = self.failed = 0

    def say(self, *lines):
        for line in lines:
            print(line, flush=True)
        self.lines += lines

    def table(self, title, *columns):
        self.say("", "## " + title, "",
                 "| %s |" % " | ".join(columns),
                 "| %s |" % " | ".join(len(columns) * ["---"]))

    def row(self, *cells):
        self.say("| %s |" % " | ".join(
            str(cell).replace("|", "/") for cell in cells))

    def check(self, holds, what):
        self.passed += bool(holds)
        self.failed += not holds
        if not holds:
            self.say("", "FAILED: " + what, "")


class Checks:
    """The checks, each a method with its name."""

    def __init__(self, python, folder, seeds, report):
        self._python, self._folder, self._seeds = python, folder, seeds
        self._report = report
        self._count = 0

    def _new_folder(self):
        self._count += 1
        return os.path.join(self._folder, str(self._count))

    def _train(self, system, *arguments, **more):
        """The losses of two trainers."""
        pair = system(self._python, self._new_folder(), *arguments, **more)
        try:
            pair.start()
            return pair.losses(_TIMEOUT_S)
        finally:
            pair.close()

    def _train_alone(self, script, seed):
        ranks, steps = _SCRIPTS[script]
        folder = self._new_folder()
        os.makedirs(folder)
        return systems.Trainer(self._python, folder, "alone", script, (seed, 0),
                               ranks, STEPS=str(steps)).loss(_TIMEOUT_S)

    def lines(self):
        self._report.table("Changed lines", "script", "Atoll", "torchft")
        for script in _SCRIPTS:
            count = changed_lines(script, script + "_atoll")
            of_torchft = "-"
            if os.path.exists(os.path.join(_HERE, script + "_torchft.py")):
                of_torchft = changed_lines(script, script + "_torchft")
            self._report.row(script, count, of_torchft)
            self._report.check(count <= _LINES_MAX, "%s: %d lines" %
                               (script, count))

    def scripts(self):
        self._report.table("Validation losses", "script", "alone",
                           "two islands")
        for script, (ranks, steps) in _SCRIPTS.items():
            alone = self._train_alone(script, self._seeds[0])
            losses = self._train(systems.Atoll, script, self._seeds[0], steps,
                                 systems.STRICT, ranks=ranks)
            self._report.row(script, "%.4f" % alone,
                             ", ".join("%.4f" % loss for loss in losses))
            self._report.check(losses[0] == losses[1] <= _RATIO_MAX * alone,
                               "%s: alone %s, islands %s" % (script, alone,
                                                             losses))

    def losses(self):
        steps = _SCRIPTS["gpt"][1]
        self._report.table(
            "gpt: the same seeds, data and settings", "trained by",
            *("seed %d" % seed for seed in self._seeds), "mean", "spread")
        means, spreads = [], []
        for system in (systems.Torchft, systems.Atoll):
            each = []
            for seed in self._seeds:
                losses = self._train(system, "gpt", seed, steps,
                                     systems.STRICT)
                self._report.check(losses[0] == losses[1], "%s: its trainers "
                                   "have %s" % (system.name, losses))
                each.append(losses[0])
            means.append(statistics.fmean(each))
            spreads.append(max(each) - min(each))
            self._report.row(system.name, *("%.5f" % loss for loss in each),
                             "%.5f" % means[-1], "%.5f" % spreads[-1])
        self._report.check(abs(means[0] - means[1]) <= min(spreads),
                           "the means differ by more than the spread")

    def faults(self):
        self._report.table("Faults", "fault", "of", "when", "trainer",
                           "the other", "says", "the other says")
        for name, (begins, ends, victim, of) in systems.FAULTS.items():
            for system in of:
                pair = system(self._python, self._new_folder(), "gpt", 1,
                              _ENDLESS, systems.ELASTIC, PACE_S=str(_PACE_S))
                try:
                    times = systems.play_fault(pair, begins, ends, victim)
                finally:
                    pair.close()
                for when, seen in zip(("during", "after"), times):
                    self._report.row(name, system.name, when, seen[1][0],
                                     seen[0][0], seen[1][1][:200],
                                     seen[0][1][:200])
                if system is systems.Atoll:
                    self._report.check(
                        all(state.endswith("trains")
                            for state, _ in times[1].values()),
                        "%s: %s" % (name, times[1]))


    def kills(self):
        self._report.table("Kills", "run", "kill -9 of", "kills", "starts",
                           "rewinds", "last rates", "parameters")
        whole = None
        for timing, schedule, steps, victim in (
                ("strict", systems.STRICT, 600, None),
                ("strict", systems.STRICT, 600, systems.kill_trainer),
                ("strict", systems.STRICT, 600, systems.kill_exchange),
                ("elastic", systems.ELASTIC, 3000, systems.kill_trainer),
                ("elastic", systems.ELASTIC, 3000, systems.kill_exchange)):
            pair = systems.Atoll(
                self._python, self._new_folder(), "kills", 1, steps, schedule,
                PACE_S="0.05" if timing == "elastic" else "0")
            try:
                count, starts = systems.play_kills(pair, victim, _KILLS)
                rates, ends, rewinds = (
                    [t.said(what) for t in pair.trainers.values()]
                    for what in ("last rate", "parameters", "rewinds"))
            finally:
                pair.close()
            name = victim.__name__[5:] if victim else "-"
            self._report.row(timing, name, count, starts, ", ".join(rewinds),
                             ", ".join(rates), ", ".join(ends))
            whole = whole or ends
            self._report.check(set(map(float, rates)) == {0.0} and
                               ends[0] == ends[1] and
                               (victim is None or count == _KILLS),
                               "%s, %s: rates %s" % (timing, name, rates))
            self._report.check(
                rewinds == ["0", "0"] and (starts == 2 or timing == "strict" or
                                           victim is systems.kill_trainer),
                "%s, %s: %d starts, rewinds %s" % (timing, name, starts,
                                                   rewinds))
            self._report.check(timing == "elastic" or ends == whole,
                               "strict, %s: other parameters" % name)


def versions(python):
    done = subprocess.run([python, "-c", (
        "import importlib.metadata as m\n"
        "for name in %r: print(name, m.version(name))" % (_PACKAGES,))],
                          stdout=subprocess.PIPE, text=True, check=True)
    return ", ".join(done.stdout.splitlines())


def cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file
                 if line.startswith("model name")]
    return "%d x %s" % (len(names), names[0])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", help="an interpreter with the packages")
    parser.add_argument("--venv", default="/tmp/atoll-torchft")
    parser.add_argument("--only", default=_CHECKS,
                        type=lambda s: [n for n in _CHECKS
                                        if n in s.split(",")])
    parser.add_argument("--seeds", default=[1, 2, 3],
                        type=lambda s: [int(n) for n in s.split(",")])
    parser.add_argument("--results", help="a file for the tables")
    arguments = parser.parse_args()
    python = os.path.abspath(arguments.python or torch_islands.make_environment(
        arguments.venv, _PACKAGES))
    results = arguments.results and os.path.abspath(arguments.results)
    report = Report()
    report.say("# torch, %s" % datetime.date.today(), "",
               "    tests/tools/torch_check/torch_check.py", "",
               "%s; %s." % (cpu(), versions(python)))
    scratch = tempfile.mkdtemp(prefix="atoll-")
    checks = Checks(python, scratch, arguments.seeds, report)
    try:
        for name in arguments.only:
            try:
                getattr(checks, name)()
            except Exception as error:  # pylint: disable=broad-except
                traceback.print_exc()
                report.check(False, "%s: %s" % (name, error))
    finally:
        os.chdir("/")
        shutil.rmtree(scratch, ignore_errors=True)
    if results:
        with open(results, "w", encoding="utf-8") as file:
            file.write("\n".join(report.lines) + "\n")
    print("%d passed, %d failed" % (report.passed, report.failed))
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
