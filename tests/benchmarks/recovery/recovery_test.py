#!/usr/bin/python3
"""Small recovery benchmarks: the rows, their values, the tables, and wrong
arguments. No time is judged."""

import json
import os
import subprocess
import sys
import unittest

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(_HERE, "..", "..", "integration"))
sys.path.insert(0, _HERE)
# pylint: disable=wrong-import-position
from harness import cases

import mirror_cost
import recovery


def run(program, *words):
    return subprocess.run(
        ["/usr/bin/python3", "-B", os.path.join(_HERE, program), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        check=False)


def rows_of(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class RecoveryTest(unittest.TestCase):

    def test_every_loss_ends_with_a_commit(self):
        rows = rows_of(run("recovery.py", "--json"))
        self.assertEqual([row["case"] for row in rows], list(recovery.CASES))
        for row in rows:
            self.assertEqual(tuple(row), recovery.KEYS)
            self.assertGreater(row["state_bytes"], 1_000_000)
            self.assertGreater(row["seconds"], 0)
            self.assertGreater(row["round_seconds"], 0)
            if row["case"] != "survivors":
                # Whole rounds of two islands: 400 steps of 16 tokens each.
                self.assertEqual(row["lost_tokens"] % 12800, 0, row)
            self.assertGreaterEqual(row["lost_tokens"], 0)
            if row["case"] in ("survivors", "island", "server", "coordinator"):
                self.assertEqual(row["lost_tokens"], 0, row)

    def test_a_table_has_medians(self):
        rows = [dict(zip(recovery.KEYS, ("adopt", 2_000_000, seconds, .5, 1.,
                                         seconds / 1.5, 32)))
                for seconds in (1., 3., 8.)]
        self.assertEqual(recovery.to_table(rows).splitlines()[2:], [
            "| adopt | 2.0 MB | 3.00 (1.00 to 8.00) | 0.50 | 1.00 | 2.0 | 32 |"
        ])

    def test_wrong_arguments_are_refused(self):
        for word in ("--size=5M", "--cases=other", "--repeat=0", "--every=x"):
            done = run("recovery.py", word)
            self.assertEqual(done.returncode, 2, word)
            self.assertEqual(done.stdout, "", word)


class MirrorCostTest(unittest.TestCase):

    def test_a_row_for_each_turn(self):
        for more in ((), ("--beside",)):
            rows = rows_of(run("mirror_cost.py", "--json", "--size=toy",
                               "--turns=1", "--every=2", "--rounds=2", *more))
            self.assertEqual([row["mirror"] for row in rows], [False, True])
            for row in rows:
                self.assertEqual(tuple(row), mirror_cost.KEYS)
                self.assertGreater(row["round_seconds"], 0)
                self.assertGreater(row["cpu_seconds"],
                                   row["server_cpu_seconds"])

    def test_a_table_has_the_difference_of_means(self):
        rows = [dict(zip(mirror_cost.KEYS, (mirrors, a_round, 1. + mirrors / 20,
                                            2., 3 * mirrors)))
                for mirrors, a_round in ((False, 1.), (True, 1.5), (True, 1.6),
                                         (False, 1.1))]
        table = mirror_cost.to_table(rows)
        self.assertIn("| more | 47.6 % | 5.0 % | 0.0 % |", table)
        self.assertIn("added CPU is 2.5 % of all", table)

    def test_wrong_arguments_are_refused(self):
        for word in ("--size=5M", "--rounds=15", "--rounds=400", "--turns=0",
                     "--bandwidth=fast"):
            done = run("mirror_cost.py", word)
            self.assertEqual(done.returncode, 2, word)
            self.assertEqual(done.stdout, "", word)


if __name__ == "__main__":
    cases.main()
