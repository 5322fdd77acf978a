#!/usr/bin/python3
"""The data and the schedule of a run: what worker/data's tests see in C++."""

import hashlib
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402

import numpy as np  # noqa: E402

import atoll  # noqa: E402
from atoll import data as data_module  # noqa: E402
from atoll import schedule  # noqa: E402


def merged(values, changes):
    return {key: {**values[key], **changes.get(key, {})} for key in values}


# As `atoll run show -o json` prints it: 64-bit numbers are strings.
SPEC = {
    "model": {"vocab_size": 256, "sequence_length": 8},
    "inner": {"batch_size": 4, "seed": "3", "learning_rate": 2.0,
              "warmup_step_count": "4", "final_learning_rate_fraction": 0.1},
    "data": {"format": "DATA_FORMAT_BYTES", "path": "", "seed": "5",
             "validation_fraction": 0, "data_shard_count": 1},
    "evaluation": {"batch_count": 2},
    "schedule": {"timing": "TIMING_STRICT", "inner_step_count": "20",
                 "round_count": "30", "token_count": "0",
                 "island_count_min": 3, "min_quorum": 2,
                 "sample_fraction": 1, "max_staleness": "0"},
}


class WindowsTest(cases.unittest.TestCase):

    def test_the_order_is_that_of_windows_test(self):
        order = data_module.WindowOrder(42, 1, 5000, 128)
        self.assertEqual(order.windows_per_epoch, 38)
        self.assertEqual([order.offset(p) for p in (0, 1, 2, 37, 38, 1000)],
                         [1649, 2801, 2673, 3697, 1497, 98])

    def test_an_epoch_reads_no_target_twice(self):
        random = cases.random()
        for _ in range(30):
            length = random.randint(1, 40)
            count = length + 1 + random.randrange(3000)
            order = data_module.WindowOrder(random.getrandbits(64), 3, count,
                                            length)
            read = np.zeros(count, bool)
            for position in range(order.windows_per_epoch):
                offset = order.offset(order.windows_per_epoch + position)
                self.assertLessEqual(offset + length + 1, count)
                self.assertFalse(read[offset:offset + length].any())
                read[offset:offset + length] = True

    def test_a_shard_too_short_for_one_window_is_refused(self):
        data_module.WindowOrder(1, 0, 129, 128)
        with self.assertRaisesRegex(atoll.Error, "128 tokens is too short"):
            data_module.WindowOrder(1, 0, 128, 128)

    def test_held_out_windows_are_spread_evenly(self):
        offsets = data_module.held_out_offsets(1001, 10, 20)
        self.assertEqual((len(offsets), offsets[:2]), (20, [0, 50]))
        self.assertLessEqual(offsets[-1] + 11, 1001)
        self.assertEqual(len(data_module.held_out_offsets(35, 10, 20)), 3)
        self.assertEqual(data_module.held_out_offsets(10, 10, 20), [])


class DataTest(cases.FolderCase):

    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path("data", name)), exist_ok=True)
        with open(self.path("data", name), "wb") as file:
            file.write(content)

    def open(self, **changes):
        path = changes.pop("path", self.path("data"))
        return atoll.Data(merged(SPEC, changes), path)

    def tokens(self, data):
        """All tokens, in order."""
        read = np.empty(data.token_count, np.int64)
        data._read_tokens(0, read)
        return read.tolist()

    def test_files_are_joined_in_a_shuffled_order(self):
        for i in range(20):
            self.write("d%d/f%d" % (i % 3, i), bytes([ord("a") + i] * 3))
        self.write("empty", b"")
        os.symlink(self.path("data", "empty"), self.path("data", "link"))
        first = self.tokens(self.open())
        self.assertEqual(len(first), 60)
        other = self.tokens(self.open(data={"seed": "6"}))
        self.assertNotEqual(first, other)
        self.assertEqual(sorted(first), sorted(other))

    def test_a_step_reads_the_windows_at_the_island_s_position(self):
        class Island:
            data_shard, data_position, done_step_count = 1, 12, 2

        self.write("a", bytes(i % 251 for i in range(1000)))
        self.write("b", bytes(i % 251 for i in range(1000, 2000)))
        data = self.open(data={"validation_fraction": 0.1, "seed": "1",
                               "data_shard_count": 2})
        windows = data.batch(Island())
        self.assertEqual((windows.shape, windows.dtype), ((4, 9), np.int64))
        everything = self.tokens(data)
        order = data_module.WindowOrder(3, 1, 900, 8)
        for i, window in enumerate(windows.tolist()):
            offset = 900 + order.offset(12 + 2 * 4 + i)
            self.assertEqual(window, everything[offset:offset + 9])

    def test_an_evaluation_reads_held_out_tokens_only(self):
        self.write("a", bytes(i % 251 for i in range(240)))
        # As in batch_reader_test: 24 tokens, two windows that share one.
        windows = self.open(data={"validation_fraction": 0.1}).held_out()
        self.assertEqual(windows.tolist(), [list(range(216, 225)),
                                            list(range(224, 233))])

    def test_files_of_llm_c_have_tokens_of_two_or_four_bytes(self):
        for magic, version, code, last in ((20240520, 1, "H", 50256),
                                           (20240801, 7, "I", 128000)):
            self.write("a.bin", struct.pack("<256i", magic, version, 3,
                                            *[0] * 253) +
                       struct.pack("<3" + code, 1, 2, last))
            self.write("README", b"not tokens")
            data = self.open(data={"format": "DATA_FORMAT_LLMC"})
            self.assertEqual(self.tokens(data), [1, 2, last])

    def test_files_that_are_none_are_refused(self):
        good = struct.pack("<256i", 20240520, 1, 3, *[0] * 253) + bytes(6)
        for bad in (good[:100], good[:-1], good + b"x", b"x" + good[1:]):
            self.write("a.bin", bad)
            with self.assertRaisesRegex(atoll.Error, "a.bin"):
                self.open(data={"format": "DATA_FORMAT_LLMC"})

    def test_raw_tokens(self):
        self.write("a.bin", b"\x01\x00\xff\xff")
        data = self.open(data={"format": "DATA_FORMAT_UINT16"})
        self.assertEqual(self.tokens(data), [1, 65535])
        self.write("a.bin", b"abc")
        with self.assertRaisesRegex(atoll.Error, "3 bytes"):
            self.open(data={"format": "DATA_FORMAT_UINT16"})

    def test_the_fingerprint_is_of_content_and_names(self):
        self.write("one/a", b"hello")
        self.write("one/b", b"world")
        lines = "".join("5 %s %s\n" % (hashlib.sha256(content).hexdigest(),
                                       name)
                        for name, content in (("a", b"hello"), ("b", b"world")))
        expected = hashlib.sha256(
            ("atoll data 1 1\n" + lines).encode()).hexdigest()
        one = self.path("data", "one")
        self.assertEqual(self.open(path=one).fingerprint(), expected)
        self.assertEqual(self.open(path=one, data={"seed": "9"}).fingerprint(),
                         expected)
        os.rename(self.path("data", "one", "b"), self.path("data", "one", "c"))
        self.assertNotEqual(self.open(path=one).fingerprint(), expected)

    def test_tokens_past_the_vocabulary_are_refused(self):
        self.write("a", bytes(range(200)))
        data = self.open(model={"vocab_size": 100})
        with self.assertRaisesRegex(atoll.Error, "vocabulary ends at 99"):
            data.windows(0, 0, 20)

    def test_what_is_missing_is_named(self):
        with self.assertRaises(atoll.Error) as caught:
            self.open(path=self.path("nowhere"))
        self.assertEqual(caught.exception.code, "NOT_FOUND")
        os.mkdir(self.path("data"))
        with self.assertRaisesRegex(atoll.Error, "no tokens"):
            self.open()
        with self.assertRaisesRegex(atoll.Error, "only the trainer"):
            self.open(data={"format": "DATA_FORMAT_EXTERNAL"})
        self.write("a", bytes(100))
        data = self.open()
        with self.assertRaisesRegex(atoll.Error, "no data shard 1"):
            data.windows(1, 0, 1)
        os.truncate(self.path("data", "a"), 8)
        with self.assertRaises(atoll.Error) as caught:
            data.windows(0, 0, 20)
        self.assertEqual(caught.exception.code, "DATA_LOSS")


class ScheduleTest(cases.unittest.TestCase):

    def planned(self, **changes):
        spec = merged(SPEC, {"schedule": changes, "inner": {"batch_size": 8},
                             "model": {"sequence_length": 128}})
        return schedule.planned_step_count(spec)

    def test_the_planned_steps_are_those_of_run_length_test(self):
        self.assertEqual(self.planned(), 600)
        budget = 30 * 3 * 20 * 8 * 128
        self.assertEqual(self.planned(round_count="0", token_count=budget), 600)
        self.assertEqual(self.planned(round_count="0", token_count=budget + 1),
                         601)
        self.assertEqual(self.planned(token_count=budget // 3), 200)
        self.assertEqual(self.planned(timing="TIMING_ELASTIC",
                                      max_staleness="16", round_count="0",
                                      token_count=budget), 1800)
        self.assertEqual(self.planned(
            round_count="0", token_count=1000 * 8 * 128, island_count_min=100,
            sample_fraction=0.1), 100)
        self.assertIsNone(self.planned(round_count="0"))

    def test_the_rate_is_that_of_learning_rate_schedule_test(self):
        spec = merged(SPEC, {"schedule": {"round_count": "1",
                                          "inner_step_count": "24"}})
        for clock, rate in ((0, 0.5), (3, 2.0), (4, 2.0),
                            (14, 2.0 * (0.1 + 0.9 * 0.5)), (24, 0.2),
                            (1000, 0.2)):
            self.assertAlmostEqual(schedule.learning_rate(spec, clock), rate,
                                   places=12)
        spec = merged(spec, {"schedule": {"round_count": "0"},
                             "inner": {"warmup_step_count": "0"}})
        self.assertEqual(schedule.learning_rate(spec, 10 ** 6), 2.0)

    def test_a_model_of_ones_own_has_its_rate_from_the_caller(self):
        spec = merged(SPEC, {
            "schedule": {"round_count": "1", "inner_step_count": "24"},
            "model": {"sequence_length": 1}})
        # As the coordinator tells it.
        spec["inner"] = {"batch_size": "1", "warmup_step_count": "4",
                         "learning_rate": 0, "final_learning_rate_fraction": 0}
        for clock, rate in ((0, 0.5), (4, 2.0), (14, 1.0), (24, 0.0)):
            self.assertAlmostEqual(schedule.learning_rate(
                spec, clock, peak=2.0), rate, places=12)
        self.assertAlmostEqual(schedule.learning_rate(
            spec, 24, peak=2.0, final_fraction=0.1), 0.2, places=12)
        with self.assertRaisesRegex(atoll.Error, "Give peak"):
            schedule.learning_rate(spec, 4)


if __name__ == "__main__":
    cases.main()
