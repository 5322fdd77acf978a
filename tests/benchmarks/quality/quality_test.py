"""Tests the quality benchmark: its judge, its ledger, and a tiny run."""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "..", "tools")]

# pylint: disable=wrong-import-position
import atoll_data
import judge
import ledger
import methods
import report
import rows
from harness import cases
from harness import processes
from harness import text


class JudgeTest(unittest.TestCase):

    def test_compares_seed_by_seed(self):
        # The seeds differ widely, but the rows always by one percent.
        reference = {1: 1.0, 2: 2.0, 3: 4.0}
        seen = judge.difference({s: 1.01 * v for s, v in reference.items()},
                                reference)
        self.assertEqual(seen.count, 3)
        self.assertAlmostEqual(seen.mean, 0.01)
        self.assertAlmostEqual(seen.half, 0)
        self.assertEqual(judge.verdict(rows.WITHIN, 0.011, seen), judge.HOLDS)
        self.assertEqual(judge.verdict(rows.WITHIN, 0.009, seen), judge.FAILS)
        self.assertEqual(judge.verdict(rows.WORSE, 0.009, seen), judge.HOLDS)
        self.assertEqual(judge.verdict(rows.WORSE, 0.011, seen), judge.FAILS)

    def test_takes_the_seeds_that_both_have(self):
        seen = judge.difference({1: 1.1, 2: 5.0}, {1: 1.0, 3: 2.0})
        self.assertEqual(seen.count, 1)
        self.assertAlmostEqual(seen.mean, 0.1)
        self.assertIsNone(judge.difference({1: 1.0}, {2: 1.0}))

    def test_leaves_open_what_the_spread_does_not_tell(self):
        # Differences -1 %, 0, 1 %: t = 2.92, half = 2.92 * 0.01 / sqrt(3).
        seen = judge.difference({1: 0.99, 2: 1.0, 3: 1.01},
                                {1: 1.0, 2: 1.0, 3: 1.0})
        self.assertAlmostEqual(seen.half, 2.92 * 0.01 / math.sqrt(3))
        self.assertEqual(judge.verdict(rows.WITHIN, 0.005, seen), judge.OPEN)
        self.assertEqual(judge.verdict(rows.WITHIN, 0.018, seen), judge.HOLDS)
        one = judge.difference({1: 1.0}, {1: 1.0})
        self.assertEqual(judge.verdict(rows.WITHIN, 0.5, one), judge.OPEN)

    def test_a_run_that_did_not_end_is_infinitely_worse(self):
        seen = judge.difference({1: math.inf, 2: 1.0}, {1: 1.0, 2: 1.0})
        self.assertEqual(judge.verdict(rows.WITHIN, 0.05, seen), judge.FAILS)
        self.assertEqual(judge.verdict(rows.WORSE, 0.05, seen), judge.HOLDS)


class TableTest(unittest.TestCase):

    def test_every_reference_is_a_row(self):
        known = rows.by_name()
        self.assertEqual(len(known), len(rows.ROWS))
        for row in rows.ROWS:
            for claim in row.claims:
                self.assertIn(claim.reference, known, row.name)

    def test_no_two_rows_share_a_result(self):
        digests = {}
        for row in rows.ROWS:
            for seed in (1, 2):
                digest = ledger.digest_of(
                    row, rows.values_of(row, seed, "text"), {})
                self.assertNotIn(digest, digests, "%s is %s" % (
                    row.name, digests.get(digest)))
                digests[digest] = row.name

    def test_every_preset_has_a_row_as_it_is_shipped(self):
        known = rows.by_name()
        for name in methods.PRESETS.values():
            shipped = methods.preset(name)
            for suffix, steps in (("", 600), ("_long", 2400)):
                row = known["preset_" + name + suffix]
                values = rows.values_of(row, 1, "text")
                self.assertEqual(values["model"],
                                 methods.preset("laptop")["model"])
                schedule = values["schedule"]
                for key in ("exchange", "layout", "outer"):
                    self.assertEqual(values.get(key), shipped.get(key))
                self.assertEqual(
                    dict(schedule, round_count=0),
                    dict(shipped["schedule"], round_count=0))
                rounds = schedule["round_count"]
                if schedule.get("max_staleness"):
                    rounds /= schedule["island_count_min"]
                length = schedule["inner_step_count"]
                self.assertEqual(rounds, max(1, steps // length))

    def test_every_row_is_a_run_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "run.toml")
            for row in rows.ROWS:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(rows.run_file.to_toml(
                        rows.values_of(row, 1, "text")))
                processes.run_cli("plan", "--model", path, "--link", "1Gb/s",
                                  "--tokens-per-second", "1", check=0)

    def test_the_place_of_the_text_does_not_matter_but_the_text_does(self):
        row = rows.by_name()["diloco"]
        here, there = (ledger.digest_of(row, rows.values_of(row, 1, p), {"n": 1})
                       for p in ("here", "there"))
        self.assertEqual(here, there)
        self.assertNotEqual(here, ledger.digest_of(
            row, rows.values_of(row, 1, "here"), {"n": 2}))

    def test_shows_what_ended_early_and_what_was_not_run(self):
        chosen = [rows.by_name()[n] for n in ("diloco", "mean_x100", "int8")]
        entry = {"loss": 1.5, "ended": "COMPLETED", "commit": "c"}
        lost = dict(entry, loss=None, ended="after 3 rounds: not finite")
        table = report.markdown(
            chosen, {"diloco": {1: entry, 2: entry},
                     "mean_x100": {1: lost, 2: lost}},
            {"int8": "refused: not built"}, ["# title"])
        for line in ("| mean_x100 | undefended: four islands, one hostile | 2 | "
                     "no end | no end | worse by 5 % of diloco | holds | - | - "
                     "| - | c |", "- mean_x100: after 3 rounds: not finite",
                     "- int8: refused: not built"):
            self.assertIn("\n" + line + "\n", table)


class MethodsTest(unittest.TestCase):

    def test_what_differs_from_a_preset_is_listed_with_its_reason(self):
        self.assertEqual(set(methods.PRESETS), set(methods.DIFFERENCES))
        for method in methods.PRESETS:
            for key in methods.differing_keys(method):
                self.assertTrue(methods.reason_of(method, key),
                                "%s: %s" % (method, key))

    def test_what_is_listed_differs(self):
        for method, reasons in methods.DIFFERENCES.items():
            keys = methods.differing_keys(method)
            for listed in reasons:
                self.assertTrue(
                    any(k == listed or k.startswith(listed + ".")
                        for k in keys), "%s: %s" % (method, listed))


class LedgerTest(unittest.TestCase):

    def test_remembers_by_config_and_commit_over_a_torn_line(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "new", "rows.jsonl")
            ledger.Ledger(path).add({"digest": "a", "commit": "1", "loss": 1})
            with open(path, "a", encoding="utf-8") as file:
                file.write('{"digest": "b", "comm')
            ledger.Ledger(path).add({"digest": "a", "commit": "2", "loss": 2})
            known = ledger.Ledger(path)
            self.assertEqual(known.find("a", "1")["loss"], 1)
            self.assertEqual(known.find("a", "2")["loss"], 2)
            self.assertIsNone(known.find("a", "3"))
            self.assertEqual(known.find("a", "3", any_commit=True)["loss"], 2)
            self.assertIsNone(known.find("b", "1", any_commit=True))


class DataTest(unittest.TestCase):

    def test_reads_the_windows_that_islands_read(self):
        # The values of worker/data/windows_test.cc.
        windows = atoll_data.Windows(42, 1, 5000, 128)
        self.assertEqual(windows.per_epoch, 38)
        self.assertEqual(
            [windows.offset(p) for p in (0, 1, 2, 37, 38, 1000)],
            [1649, 2801, 2673, 3697, 1497, 98])

    def test_an_epoch_reads_every_window_once(self):
        seed = cases.seed()
        windows = atoll_data.Windows(seed, 0, 3000, 16)
        offsets = [windows.offset(p) for p in range(windows.per_epoch)]
        self.assertEqual(len(set(offsets)), windows.per_epoch)
        self.assertLessEqual(max(offsets) + 17, 3000)

    def test_holds_out_what_dev_up_holds_out(self):
        with tempfile.TemporaryDirectory() as directory:
            data = text.write_text(os.path.join(directory, "text"),
                                   random.Random(cases.seed()).random())
            row = rows.by_name()["diloco"]
            values = rows.values_of(row, 1, data, smoke=True)
            values["schedule"].update(round_count=1, inner_step_count=1)
            path = os.path.join(directory, "run.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(rows.run_file.to_toml(values))
            processes.run_cli("dev", "up", path, "--dir",
                              os.path.join(directory, "run"), check=0)
            held_out = atoll_data.split(atoll_data.read_tokens(data, 1),
                                        0.05)[1]
            with open(os.path.join(directory, "run", "validation.bin"),
                      "rb") as file:
                self.assertEqual(file.read(), held_out)


class SmokeTest(unittest.TestCase):

    def quality(self, *arguments):
        return subprocess.run(
            [sys.executable, "-B", os.path.join(_HERE, "quality.py")] +
            list(arguments), capture_output=True, text=True, timeout=240,
            check=False)

    def test_plays_rows_once_and_judges_them(self):
        with tempfile.TemporaryDirectory() as directory:
            names = "single,data_parallel,diloco,mean_x100,median_x100"
            arguments = ["--smoke", "--rows", names, "--seeds", "1,2", "--out",
                         directory]
            done = self.quality(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            ledger_path = os.path.join(directory, "quality.jsonl")
            with open(ledger_path, encoding="utf-8") as file:
                entries = [json.loads(line) for line in file]
            self.assertEqual(
                sorted((e["row"], e["seed"]) for e in entries),
                sorted((n, s) for n in names.split(",") for s in (1, 2)))
            losses = {(e["row"], e["seed"]): e["loss"] for e in entries}
            for seed in (1, 2):
                # Two rounds are enough to see the order.
                self.assertLess(losses["diloco", seed],
                                losses["single", seed])
                self.assertGreater(losses["mean_x100", seed],
                                   1.5 * losses["median_x100", seed])
            with open(os.path.join(directory, "quality.md"),
                      encoding="utf-8") as file:
                table = file.read()
            self.assertEqual(table.count("\n| median_x100 |"), 1)

            again = self.quality(*arguments)
            self.assertEqual(again.returncode, 0, again.stderr)
            with open(ledger_path, encoding="utf-8") as file:
                self.assertEqual(len(file.readlines()), len(entries))
            with open(os.path.join(directory, "quality.md"),
                      encoding="utf-8") as file:
                self.assertEqual(file.read(), table)

    def test_plays_presets(self):
        with tempfile.TemporaryDirectory() as directory:
            names = "preset_decoupled,preset_fedopt,preset_sparseloco"
            done = self.quality("--smoke", "--rows", names, "--seeds", "1",
                                "--out", directory)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(directory, "quality.jsonl"),
                      encoding="utf-8") as file:
                entries = [json.loads(line) for line in file]
            self.assertEqual(sorted(e["row"] for e in entries),
                             sorted(names.split(",")))
            self.assertEqual({e["ended"] for e in entries}, {"COMPLETED"})

    def test_names_what_is_wrong_with_an_argument(self):
        for arguments, word in ((["--rows", "nothing"], "nothing"),
                                (["--seeds", "x"], "1,2,3")):
            done = self.quality(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    cases.main()
