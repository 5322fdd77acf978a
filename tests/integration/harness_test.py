#!/usr/bin/python3
"""Checks the harness against published values."""

import socket
import subprocess
import sys
import types
import unittest

from harness import arithmetic
from harness import cases
from harness import cluster
from harness import ports
from harness import protocols
from harness import run_file
from harness import wait


def layout(*tensors, fragment_count=1):
    return arithmetic.LayoutView(types.SimpleNamespace(
        fragment_count=fragment_count,
        tensors=[types.SimpleNamespace(
            name=n, shape=s, dtype=1, tensor_class=1, fragment=f)
            for n, s, f in tensors]))


class ArithmeticTest(unittest.TestCase):

    def test_crc32c_equals_rfc_3720(self):
        self.assertEqual(arithmetic.crc32c(b"\0" * 32), 0x8A9136AA)
        self.assertEqual(arithmetic.crc32c(b"\xff" * 32), 0x62A8AB43)
        self.assertEqual(arithmetic.crc32c(b"123456789"), 0xE3069283)

    def test_crc32c_goes_on_where_it_stopped(self):
        self.assertEqual(
            arithmetic.crc32c(b"6789", arithmetic.crc32c(b"12345")),
            0xE3069283)

    def test_xxh3_of_nothing_is_the_published_value(self):
        self.assertEqual(arithmetic.xxh3_128(b""),
                         (0x99AA06D3014798D8, 0x6001C324468D497F))

    def test_digests_add_modulo_two_to_the_128(self):
        ones = (1 << 64) - 1
        self.assertEqual(arithmetic.sum_digests([(ones, ones), (0, 2)]),
                         (0, 1))

    def test_blocks_never_cross_tensors(self):
        view = layout(("a", [5000], 0), ("b", [3], 0), ("c", [4096], 0))
        self.assertEqual(view.fragments[0].block_offsets,
                         [0, 4096, 5000, 5003, 9099])

    def test_shards_cover_every_block_once(self):
        view = layout(("a", [100, 100], 0), ("b", [7], 1), ("c", [9000], 1),
                      fragment_count=2)
        for fragment in range(2):
            for shard_count in range(1, 9):
                end = 0
                for shard in range(shard_count):
                    begin, stop = view.shard_blocks(fragment, shard,
                                                    shard_count)
                    self.assertEqual(begin, end)
                    end = stop
                self.assertEqual(end, view.fragments[fragment].block_count)


class HarnessTest(unittest.TestCase):

    def test_details_of_an_error_are_read(self):
        status = protocols.RpcStatus(code=3, message="m")
        for detail in (protocols.ErrorInfo(reason="R", domain="d"),
                       protocols.BadRequest(
                           field_violations=[{"field": "a.b"}])):
            status.details.add(
                type_url="type.googleapis.com/" + detail.DESCRIPTOR.full_name,
                value=detail.SerializeToString())
        error = types.SimpleNamespace(
            code=lambda: 3, details=lambda: "m",
            trailing_metadata=lambda: [("grpc-status-details-bin",
                                        status.SerializeToString())])
        details = protocols.ErrorDetails(error)
        self.assertEqual((details.reason, details.domain, details.fields),
                         ("R", "d", ["a.b"]))

    def test_a_wait_is_bounded_and_says_what_for(self):
        with self.assertRaisesRegex(wait.TimedOut, "the moon"):
            wait.until("the moon rises", lambda: None, timeout=0.05)

    def test_run_files_merge_without_touching_the_base(self):
        changed = run_file.merged(run_file.BASE, {"outer": {"momentum": 0.1}})
        self.assertEqual(changed["outer"]["momentum"], 0.1)
        self.assertEqual(run_file.BASE["outer"]["momentum"], 0.9)
        self.assertIn('\n[outer]\noptimizer = "nesterov"\n',
                      run_file.to_toml(changed))


class PortsTest(unittest.TestCase):

    def claim(self):
        port = ports.claim()
        self.addCleanup(ports.release, port)
        return port

    def claim_elsewhere(self, port):
        """What another process says to `port` as its only choice."""
        done = subprocess.run(
            [sys.executable, "-B", "-c",
             "from harness import ports\n"
             "ports.candidates = lambda taken: [%d]\n"
             "print(ports.claim())" % port],
            cwd=sys.path[0], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        return done.stdout.strip() or done.stderr.strip().split("\n")[-1]

    def test_a_port_lies_outside_the_kernels_choice_and_is_given_once(self):
        claimed = [self.claim() for _ in range(100)]
        self.assertEqual(len(set(claimed)), len(claimed))
        for port in claimed:
            self.assertIn(port, ports.candidates(ports.kernel_range()))
        self.assertNotIn(40000, ports.candidates(range(32768, 61000)))
        # Where the kernel takes all, some port is better than none.
        self.assertIn(40000, ports.candidates(range(1024, 65536)))

    def test_no_other_process_gets_it_until_it_is_released(self):
        port = ports.claim()
        self.assertIn("no port is free", self.claim_elsewhere(port))
        ports.release(port)
        self.assertEqual(self.claim_elsewhere(port), str(port))

    def test_a_port_that_something_else_listens_at_is_not_given(self):
        port = ports.claim()
        with socket.create_server(("127.0.0.1", port)):
            ports.release(port)
            self.assertIn("no port is free", self.claim_elsewhere(port))


class CheckerTest(unittest.TestCase):
    """Controls: faults made by hand that the checkers must detect."""

    VALUES = {
        "schedule": {"island_count_min": 2, "round_count": 2,
                     "inner_step_count": 3},
        "inner": {"batch_size": 2}, "model": {"sequence_length": 10},
    }

    def setUp(self):
        self.rounds = [self.round(1), self.round(2)]

    @staticmethod
    def contribution(version, slot):
        key = types.SimpleNamespace(run_epoch=1, fragment=0, slot=slot,
                                    seq=version)
        return types.SimpleNamespace(
            outcome=cluster.MERGED, weight=0.5, token_count=60,
            info=types.SimpleNamespace(
                key=key, data_shard=slot, anchor_version=version - 1,
                data_begin=6 * (version - 1), data_end=6 * version))

    def round(self, version):
        return types.SimpleNamespace(
            commit_seq=version, fragment=0, version=version,
            contributions=[self.contribution(version, s) for s in range(2)])

    def check(self):
        checker = cluster.IntegrationTest()
        listed = types.SimpleNamespace(rounds=lambda run_id: self.rounds)
        checker.assert_strict_run_whole(listed, self.VALUES)

    def assert_caught(self):
        with self.assertRaises(AssertionError):
            self.check()

    def test_a_whole_run_passes(self):
        self.check()

    def test_a_contribution_merged_twice_is_caught(self):
        first, second = self.rounds[0].contributions
        second.info.key = first.info.key
        self.assert_caught()

    def test_a_contribution_merged_again_in_the_next_round_is_caught(self):
        self.rounds[1].contributions[0] = self.rounds[0].contributions[0]
        self.assert_caught()

    def test_a_round_committed_twice_is_caught(self):
        self.rounds[1].commit_seq = 1
        self.assert_caught()

    def test_a_version_that_is_missing_is_caught(self):
        self.rounds[1].version = 3
        self.assert_caught()

    def test_a_contribution_that_was_lost_is_caught(self):
        self.rounds[1].contributions.pop()
        self.rounds[1].contributions[0].weight = 1.0
        self.assert_caught()

    def test_a_contribution_without_an_outcome_is_caught(self):
        self.rounds[1].contributions[0].outcome = 0
        self.assert_caught()

    def test_weights_that_are_no_mean_are_caught(self):
        self.rounds[0].contributions[1].weight = 0.25
        self.assert_caught()

    def test_text_that_was_skipped_or_read_twice_is_caught(self):
        info = self.rounds[1].contributions[1].info
        for begin in (5, 7):
            info.data_begin = begin
            self.assert_caught()

    def test_a_push_from_another_anchor_is_caught(self):
        self.rounds[1].contributions[1].info.anchor_version = 0
        self.assert_caught()


if __name__ == "__main__":
    cases.main()
