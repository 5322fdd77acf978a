#!/usr/bin/python3
"""The runner of deploy/gpu_check: limits, leftovers, the table, comparisons."""

import json
import os
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(_HERE, "..", "integration"),
                os.path.join(_HERE, "..", "tools"),
                os.path.join(_HERE, "..", "..", "deploy", "gpu_check")]

from harness import cases  # noqa: E402
from harness import wait  # noqa: E402
import compare  # noqa: E402
import gpu_speed  # noqa: E402
import runner  # noqa: E402

LONG = 3600
LIMIT = 5  # Of steps that print for milliseconds, and then hang.


def shell(text):
    return ["sh", "-c", text]


def step(name, command, estimate_s=1, limit_s=LONG, gates=False):
    return runner.Step(name, command, estimate_s, limit_s, gates)


class RunnerTest(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def run_steps(self, *groups, seconds=LONG):
        made = runner.Runner(self.directory, seconds)
        for group in groups:
            made.run(group)
        return {r.name: r for r in made.results}, made.table()

    def rows(self):
        with open(os.path.join(self.directory, "results.jsonl"),
                  encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_a_step_that_sleeps_is_cut_off_and_what_it_stands_in_is_named(self):
        results, table = self.run_steps([
            step("hangs", shell(
                """echo '{"begin": "one"}'; echo '{"begin": "two"}'
                echo '{"check": "one", "passed": true}'
                exec sleep %d""" % LONG), limit_s=LIMIT),
            step("ends", ["true"])])
        self.assertEqual(results["hangs"].state, "FAILED")
        self.assertEqual(results["hangs"].what,
                         "limit reached: stands in two")
        self.assertEqual(results["ends"].state, "passed")
        self.assertIn("hangs  FAILED", table)

    def test_what_a_step_leaves_is_ended_also_in_a_session_of_its_own(self):
        pids = os.path.join(self.directory, "pids")
        leave = """sleep {0} & echo $! >>{1}
            setsid sleep {0} & echo $! >>{1}
            """.format(LONG, pids)
        results, _ = self.run_steps([
            step("ends", shell(leave)),
            step("hangs", shell(leave + "exec sleep %d" % LONG),
                 limit_s=LIMIT)])
        self.assertEqual(results["ends"].state, "passed")
        self.assertEqual(results["hangs"].state, "FAILED")
        with open(pids, encoding="ascii") as file:
            left = [int(line) for line in file]
        self.assertEqual(len(left), 4)
        for pid in left:
            wait.until("process %d is gone" % pid,
                       lambda pid=pid: not is_running(pid))

    def test_states(self):
        results, table = self.run_steps([
            step("nothing", shell("exit %d" % runner.NO_DEVICE)),
            step("counts", shell(
                """echo '{"check": "a", "passed": true}'
                echo '{"check": "b", "passed": false, "error": "why"}'
                exit 1""")),
            step("crashes", shell("kill -SEGV $$")),
            step("is_missing", ["/nonexistent/program"]),
            step("control", shell(
                """echo '{"check": "a", "passed": true}'
                echo '{"check": "c", "state": "%s", "error": "why"}'
                exit 4""" % runner.NOT_POSSIBLE)),
            step("speaks", ["echo", '{"say": "an H100"}'])])
        self.assertEqual(results["nothing"].state, "no device")
        self.assertEqual(results["counts"].state, "FAILED")
        self.assertEqual(results["counts"].what, "1 of 2; b: why")
        self.assertEqual(results["crashes"].what, "exit code -11")
        self.assertEqual(results["is_missing"].state, "FAILED")
        self.assertEqual(results["control"].state, "not possible on one GPU")
        self.assertEqual(results["control"].what, "c: why")
        self.assertIn("control     not possible on one GPU", table)
        self.assertEqual(results["speaks"].what, "an H100")
        self.assertEqual(len(table.splitlines()), 1 + 6)
        rows = self.rows()
        self.assertIn({"step": "counts", "check": "a", "passed": True}, rows)
        self.assertEqual({r["step"] for r in rows if "state" in r},
                         set(results))

    def test_what_does_not_fit_is_not_run(self):
        results, _ = self.run_steps([
            step("long", ["false"], estimate_s=LONG),
            step("short", ["true"], estimate_s=0)], seconds=60)
        self.assertEqual(results["long"].state, "not run")
        self.assertIn("needed", results["long"].what)
        self.assertEqual(results["short"].state, "passed")

    def test_after_a_gate_that_failed_nothing_is_run(self):
        results, _ = self.run_steps([step("gate", ["false"], gates=True)],
                                    [step("after", ["true"])])
        self.assertEqual(results["after"].state, "not run")
        self.assertEqual(results["after"].what, "gate failed")

    def test_curves(self):
        bounds = {0: 1e-4, -1: 0.005}
        curve = [4.0, 3.0, 2.0]
        self.assertEqual(compare.difference(curve, curve, bounds), "")
        for other in ([4.001, 3.0, 2.0], [4.0, 3.0, 2.02], [4.0, 3.0],
                      [4.0, 3.0, float("nan")]):
            self.assertNotEqual(compare.difference(other, curve, bounds), "")
        self.assertEqual(compare.difference([4.0, 9.0, 2.005], curve, bounds),
                         "")

    def test_speeds_of_both_sides_are_one_line(self):
        # As in speed_test.cc.
        for shape, parameters, operations in (
                ("124m", 123587328, 854770176),
                ("1b", 1100048384, 7314370560)):
            self.assertEqual(gpu_speed.count_operations(shape, parameters),
                             operations)
        lines = ['{"begin": "speed"}', "2 passed, 0 failed"] + [json.dumps({
            "measure": "training", "case": "1b", "dtype": dtype,
            "graphs": graphs, "parameters": 9, "tokens_per_second": speed,
            "mfu": 0.161}) for dtype, graphs, speed in (
                ("bf16", False, 1.0), ("bf16", False, 22100.4),
                ("bf16", True, 22300.0), ("f32", True, 5000.0))]
        ours = gpu_speed.read_ours(lines, ["1b"])
        torch = {"case": "1b", "by": "torch.compile",
                 "tokens_per_second": 71000.0, "mfu": 0.5199}
        self.assertEqual(
            gpu_speed.describe("1b", [torch] + ours),
            "1b bf16: ours 22,100 tok/s MFU 16.1 %, graphs 22,300 tok/s MFU "
            "16.1 % | torch.compile 71,000 tok/s MFU 52.0 % | 0.31x")
        self.assertEqual(
            runner.judge(0, [json.loads(lines[-1])], False),
            ("passed", "1b f32, graphs: 5,000 tok/s MFU 16.1 %"))


def is_running(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii") as file:
            return file.read().rsplit(") ", 1)[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    cases.main()
