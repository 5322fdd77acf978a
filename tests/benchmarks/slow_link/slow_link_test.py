"""Tests the relay, the arithmetic, and a small run behind shaped links."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE]

# pylint: disable=wrong-import-position
import slow_link
import traffic
from harness import cases
from harness import ports
from harness import processes
from harness import wait


class RelayTest(unittest.TestCase):

    def start(self, *arguments):
        process = subprocess.Popen(
            [processes.binary("tests/benchmarks/slow_link/delay_relay")] +
            list(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_hands_on_every_byte_both_ways_and_the_end_of_each(self):
        bytes_up = os.urandom(3 << 20)
        bytes_down = os.urandom(1 << 20)
        with socket.create_server(("127.0.0.1", 0)) as target:
            port = ports.claim()
            relay = self.start("--delay-ms", "1", "127.0.0.1:%d=127.0.0.1:%d" %
                               (port, target.getsockname()[1]))
            self.assertEqual(relay.stdout.readline(), "ready\n")
            caller = socket.create_connection(("127.0.0.1", port), wait.PATIENCE_S)
            answerer, _ = target.accept()
            with caller, answerer:
                answerer.settimeout(wait.PATIENCE_S)
                caller.sendall(bytes_up)
                caller.shutdown(socket.SHUT_WR)
                with answerer.makefile("rb") as file:
                    self.assertEqual(file.read(), bytes_up)
                # The other direction is still open.
                answerer.sendall(bytes_down)
                answerer.shutdown(socket.SHUT_WR)
                with caller.makefile("rb") as file:
                    self.assertEqual(file.read(), bytes_down)

    def test_closes_a_connection_whose_target_is_not_there(self):
        port, nobody = ports.claim(), ports.claim()
        relay = self.start("127.0.0.1:%d=127.0.0.1:%d" % (port, nobody))
        self.assertEqual(relay.stdout.readline(), "ready\n")
        with socket.create_connection(("127.0.0.1", port), wait.PATIENCE_S) as caller:
            try:
                self.assertEqual(caller.recv(1), b"")
            except ConnectionResetError:
                pass

    def test_says_what_it_did_not_understand(self):
        relay = self.start("127.0.0.1:0=127.0.0.1:1")
        self.assertEqual(relay.wait(wait.PATIENCE_S), 2)
        self.assertIn("127.0.0.1:0=127.0.0.1:1", relay.stderr.read())


class TrafficTest(unittest.TestCase):

    def points(self, rates):
        """Ten points a second; one rate for each second."""
        points, count = [(0.0, 0)], 0
        for second, rate in enumerate(rates):
            for tenth in range(1, 11):
                count += rate / 10
                points.append((second + tenth / 10, count))
        return points

    def test_a_steady_rate_has_its_share_in_every_window(self):
        shares = traffic.shares_of(self.points([100] * 10), 100, 3)
        self.assertGreater(len(shares), 60)
        for share in shares:
            self.assertAlmostEqual(share, 1, places=6)

    def test_too_much_in_one_second_shows_in_the_windows_that_hold_it(self):
        shares = traffic.shares_of(
            self.points([100] * 5 + [130] + [100] * 5), 100, 3)
        self.assertAlmostEqual(shares[-1], 1.1, places=6)
        self.assertAlmostEqual(shares[0], 1, places=6)

    def test_pauses_belong_to_no_window(self):
        shares = traffic.shares_of(
            self.points([100] * 6 + [0] * 4 + [100] * 6), 100, 3)
        self.assertTrue(shares)
        self.assertGreater(shares[0], 0.8)
        self.assertEqual(traffic.shares_of(self.points([0] * 9), 100, 3), [])


class SlowLinkTest(unittest.TestCase):

    def test_a_run_behind_slow_links_loses_nothing(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        rows = os.path.join(directory.name, "rows.jsonl")
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(_HERE, "slow_link.py"),
             "--json", "--links", "50Mb/s", "--cases", "diloco", "--rounds",
             "2", "--rows", rows], capture_output=True, text=True, timeout=800,
            check=False)
        if "cannot be made here" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        row, = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual((row["case"], row["link"], row["islands"]),
                         ("diloco", "50Mb/s", 2))
        for share in (row["computing"], row["predicted"]):
            self.assertGreater(share, 0)
            self.assertLess(share, 1)
        # Two rounds of 0.86 million parameters; the last version is not pulled.
        self.assertEqual(row["bytes_up"], 2 * 4 * 857216)
        self.assertEqual(row["bytes_down"], 2 * 4 * 857216)
        self.assertGreater(row["heartbeats"], 0)
        self.assertGreaterEqual(row["heartbeat_max_s"], row["heartbeat_p99_s"])
        self.assertEqual(row["rejoins"], 0)
        self.assertGreater(row["cpu_seconds"], 0)
        self.assertEqual(slow_link.rows_of(rows), [row])
        arguments = slow_link.parse(["--rounds", "2"])
        done = slow_link.rows_of(rows)
        self.assertTrue(slow_link.is_done(
            done, slow_link.key_of("diloco", 50 * 10**6, arguments)))
        for case, link in (("eager", 50), ("diloco", 10)):
            self.assertFalse(slow_link.is_done(
                done, slow_link.key_of(case, link * 10**6, arguments)))

    def test_a_payload_that_is_lost_or_costs_a_lease_is_a_fault(self):
        row = {"bytes_up": 204833280, "bytes_down": 204833280, "rejoins": 0}
        self.assertEqual(slow_link.faults_of(row), [])
        self.assertEqual(slow_link.faults_of(dict(row, rejoins=1)),
                         ["a lease ended"])
        fault, = slow_link.faults_of(dict(row, bytes_down=3))
        self.assertIn("bytes_down is 3", fault)

    def test_an_island_that_nobody_asks_stands(self):
        def one(begin, end, seconds):
            return {"training_begin_time": "2026-11-22T08:00:%sZ" % begin,
                    "training_end_time": "2026-11-22T08:00:%sZ" % end,
                    "computing_seconds": seconds}
        # Ten seconds of the run; each island is asked for half of it.
        self.assertAlmostEqual(slow_link.computing_share(
            [one("00.000000", "05.500000", 4),
             one("05.000000", "10.000000", 3)]), 0.35)
        # The prediction agrees: R rounds, of which R - 1 exchanges count.
        self.assertAlmostEqual(
            slow_link.share_of_so_many_rounds(0.4, 0.5, 10**9), 0.4)
        self.assertAlmostEqual(
            slow_link.share_of_so_many_rounds(0.4, 0.5, 1), 0.5)
        # 4 rounds of 8 s, 3 exchanges of 2 s: 32 of 38 s.
        self.assertAlmostEqual(
            slow_link.share_of_so_many_rounds(0.8, 1, 4), 32 / 38)

    def test_a_case_is_a_run_file_of_as_many_islands_as_it_is_given(self):
        arguments = slow_link.parse(["--islands", "2", "--rounds", "5"])
        for case in slow_link.CASES:
            values = slow_link.values_of(case, arguments, {})
            schedule = values["schedule"]
            self.assertEqual(schedule["island_count_min"], 2)
            self.assertEqual(values["data"]["data_shard_count"], 2)
            self.assertLessEqual(schedule["min_quorum"], 2)
            self.assertEqual(schedule["round_count"],
                             10 if case.endswith("async") else 5)
            self.assertEqual(values["evaluation"]["every_round_count"], 0)

    def test_a_presets_case_exchanges_as_it_is_shipped(self):
        arguments = slow_link.parse([])
        for case in slow_link.CASES:
            if not case.startswith("preset_"):
                continue
            shipped = slow_link.methods.preset(case[len("preset_"):])
            values = slow_link.values_of(case, arguments, {})
            self.assertEqual(values.get("exchange"), shipped.get("exchange"))
            self.assertEqual(values.get("layout"), shipped.get("layout"))
            self.assertEqual(values["outer"], shipped["outer"])
            for key in ("inner_step_count", "overlap_step_count", "timing"):
                self.assertEqual(values["schedule"].get(key),
                                 shipped["schedule"].get(key))

    def test_names_what_is_wrong_with_an_argument(self):
        for arguments, word in ((["--links", "10"], "10Mb/s"),
                                (["--up", "fast"], "fast"),
                                (["--cases", "nothing"], "nothing")):
            done = subprocess.run(
                [sys.executable, "-B", os.path.join(_HERE, "slow_link.py")] +
                arguments, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    cases.main()
