#!/usr/bin/python3
"""A small exchange benchmark: --json prints the expected objects, and a wrong
argument is refused. No time is judged."""

import json
import os
import subprocess
import sys
import unittest

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(_HERE, "..", "..", "integration"))
# pylint: disable=wrong-import-position
from harness import cases

_PROGRAM = os.path.join(_HERE, "exchange.py")


def run(*words):
    return subprocess.run(["/usr/bin/python3", "-B", _PROGRAM, *words],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", check=False)


class ExchangeTest(unittest.TestCase):

    def test_a_row_for_each_case(self):
        done = run("--json", "--parameters=150k", "--rounds=3")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([row["case"] for row in rows],
                         ["rounds", "streaming"])
        for row in rows:
            self.assertEqual(list(row), [
                "case", "parameters", "loop_us", "step_us", "sync_ms",
                "cpp_sync_ms", "peak_bytes_a_parameter",
                "written_bytes_a_parameter"])
            self.assertGreater(row["parameters"], 140_000)
            self.assertLess(row["parameters"], 160_000)
            self.assertGreater(row["loop_us"], 0)
            self.assertGreater(row["step_us"], 0)
            self.assertGreater(row["sync_ms"], 0)
            self.assertGreater(row["cpp_sync_ms"], 0)
            # The regions and the trainer's two moments, at least.
            self.assertGreater(row["peak_bytes_a_parameter"], 12)
        # Moments 8, contribution 4; streaming also local values and answers.
        self.assertAlmostEqual(rows[0]["written_bytes_a_parameter"], 12,
                               delta=2)
        self.assertGreater(rows[1]["written_bytes_a_parameter"], 16)

    def test_wrong_arguments_are_refused(self):
        for word in ("--parameters=5M", "--cases=other", "--rounds=1"):
            done = run("--json", word)
            self.assertNotEqual(done.returncode, 0, word)
            self.assertEqual(done.stdout, "", word)


if __name__ == "__main__":
    cases.main()
