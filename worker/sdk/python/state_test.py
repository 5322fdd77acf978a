#!/usr/bin/python3
"""States: captured, written, read and restored, bit for bit."""

import collections
import io
import os
import random
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402

import numpy as np  # noqa: E402

import atoll  # noqa: E402
from atoll import _safetensors  # noqa: E402
from atoll import _state  # noqa: E402
from atoll import _store  # noqa: E402
from atoll import _tree  # noqa: E402

RUN = ("spring", "0" * 32, "kitchen")


class Plain:
    """An object whose state is `value`."""

    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return self.value

    def load_state_dict(self, value):
        self.value = value


def through_a_file(value):
    file = io.BytesIO()
    tree, arrays = _tree.flatten(value)
    _safetensors.write(file, arrays, {"tree": "t"})
    file.seek(0)
    return _tree.unflatten(tree, _safetensors.read(file)[0])


class TreeTest(unittest.TestCase):

    def test_plain_values_keep_their_types(self):
        value = {"a": [1, True, None, "text", -0.0, 1e-320],
                 "b": (1, (2.5, [])), 7: b"\x00\xff", (1, 2): 1 << 127,
                 "list": ["list", "tuple"], "": {}}
        got = through_a_file(value)
        self.assertEqual(got, value)
        self.assertIs(type(got["b"]), tuple)
        self.assertIs(got["a"][1], True)
        self.assertEqual(str(got["a"][4]), "-0.0")
        self.assertEqual(list(got), list(value))

    def test_floats_that_are_not_finite(self):
        got = through_a_file([float("inf"), float("-inf"), float("nan")])
        self.assertEqual(str(got), "[inf, -inf, nan]")

    def test_dictionaries_of_the_library(self):
        ordered = collections.OrderedDict([("z", 1), ("a", 2)])
        counter = collections.Counter({3: 2})
        got = through_a_file([ordered, counter])
        self.assertEqual(got, [ordered, counter])
        self.assertEqual([type(x) for x in got], [type(ordered), type(counter)])

    def test_arrays_keep_bits_dtype_shape_and_are_writable(self):
        generator = np.random.default_rng(cases.random().getrandbits(32))
        for dtype in (np.bool_, np.uint8, np.int8, np.uint16, np.int16,
                      np.float16, np.uint32, np.int32, np.float32, np.uint64,
                      np.int64, np.float64):
            for shape in ((), (0,), (3, 0, 2), (5,), (2, 3, 4)):
                bits = generator.bytes(
                    np.dtype(dtype).itemsize * int(np.prod(shape)))
                array = np.frombuffer(bits, np.uint8)
                if dtype is np.bool_:
                    array = array & 1
                array = np.array(array).view(dtype).reshape(shape)
                got = through_a_file({"x": array, "y": [array.T]})
                self.assertEqual(got["x"].tobytes(), array.tobytes())
                self.assertEqual((got["x"].dtype, got["x"].shape),
                                 (array.dtype, array.shape))
                self.assertEqual(got["y"][0].tobytes(), array.T.tobytes())
                self.assertTrue(got["x"].flags.writeable)

    def test_scalars_and_big_endian_arrays(self):
        got = through_a_file([np.float32(0.1), np.array([1, 2], ">i4")])
        self.assertIs(type(got[0]), np.float32)
        self.assertEqual(got[0], np.float32(0.1))
        np.testing.assert_array_equal(got[1], [1, 2])

    def test_a_value_of_another_type_is_refused_with_its_place(self):
        for value in (object(), {1, 2}, np.array([object()]), print,
                      np.zeros(1, [("x", "f4")]), np.array(["text"])):
            with self.assertRaisesRegex(atoll.Error, r"state\['x'\]\[1\]"):
                _tree.flatten({"x": [0, value]})

    def test_a_copy_is_taken(self):
        array = np.zeros(3)
        tree, arrays = _tree.flatten(array)
        array += 1
        np.testing.assert_array_equal(_tree.unflatten(tree, arrays), [0, 0, 0])

    def test_no_copy_is_taken_without_need(self):
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        for value, shares in ((array, True), (array[1:], True),
                              (array.T, False), (array.astype(">f4"), False)):
            tree, arrays = _tree.flatten(value, copies=False)
            flat = np.frombuffer(arrays["0"].data, np.uint8)
            self.assertEqual(np.shares_memory(flat, value), shares)
            np.testing.assert_array_equal(_tree.unflatten(tree, arrays), value)


class StateTest(unittest.TestCase):

    def draws(self, generator):
        return (random.random(), random.gauss(0, 1), np.random.random(),
                np.random.standard_normal(3).tolist(),
                generator.standard_normal(3).tolist())

    def test_every_generator_goes_back(self):
        for kind in (np.random.PCG64, np.random.MT19937, np.random.Philox,
                     np.random.SFC64):
            generator = np.random.Generator(kind(5))
            state = _state.State({"generator": generator})
            random.gauss(0, 1)  # One more is kept.
            np.random.standard_normal()
            captured = through_a_file(state.capture())
            first = self.draws(generator)
            self.assertNotEqual(self.draws(generator), first)
            state.restore(captured)
            self.assertEqual(self.draws(generator), first)

    def test_a_loader_that_draws_at_its_restore_changes_no_generator(self):
        class StatefulDataLoader(Plain):

            def state_dict(self):
                self.generator.random()
                return super().state_dict()

        loader, generator = StatefulDataLoader(1), np.random.default_rng(5)
        loader.generator = generator
        with self.assertRaisesRegex(atoll.Error, "'loader'.*draws"):
            _state.State({"loader": loader})
        for names in (("loader", "generator"), ("generator", "loader")):
            state = _state.State({name: {"loader": loader, "generator":
                                         generator}[name] for name in names})
            captured = through_a_file(state.capture())
            saved = captured["objects"]["generator"]["state"]["state"]
            generator.random(7)
            state.restore(captured)
            self.assertEqual(generator.bit_generator.state["state"]["state"],
                             saved)

    def test_other_names_are_refused(self):
        captured = _state.State({"a": Plain(1)}).capture()
        with self.assertRaisesRegex(atoll.Error, "OTHER_STATE"):
            _state.State({"b": Plain(1)}).restore(captured)

    def test_an_object_without_state_is_refused_by_name(self):
        with self.assertRaisesRegex(atoll.Error, "'loader'.*list"):
            _state.State({"loader": []})


class StoreTest(cases.FolderCase):

    def store(self, initial=0, run=RUN):
        store = _store.Store(self.folder, initial)
        self.addCleanup(store.close)
        store.begin(*run)
        return store

    def states(self):
        return sorted(os.listdir(self.path("states")))

    def put(self, name, data):
        with open(self.path("states", name), "wb") as file:
            file.write(data)

    def save(self, store, save_id, state):
        store.save(save_id, _tree.flatten(state))

    def test_the_disk_begins_before_the_last_byte_is_copied(self):
        store = self.store()
        fsync, calls = os.fsync, []

        def begins(_, offset, count, advice):
            self.assertEqual(advice, os.POSIX_FADV_DONTNEED)
            calls.append((offset, offset + count))

        def sync(descriptor):
            calls.append(os.fstat(descriptor).st_size)
            fsync(descriptor)

        state = {"x": np.arange(1000), "y": [np.arange(30), b"z"]}
        with mock.patch.object(_store, "_PIECE_BYTES", 512), \
                mock.patch.object(_store, "_BUFFER_BYTES", 64), \
                mock.patch.object(os, "posix_fadvise", begins), \
                mock.patch.object(os, "fsync", sync):
            self.save(store, "a", state)
        pieces = calls[:-2]  # The last ones sync the file and the folder.
        self.assertGreater(len(pieces), 16)
        self.assertEqual([begin for begin, _ in pieces[1:]] + [calls[-2]],
                         [end for _, end in pieces])
        got = store.load("a")
        np.testing.assert_array_equal(got["x"], state["x"])
        np.testing.assert_array_equal(got["y"][0], state["y"][0])

    def test_older_states_than_the_recorded_one_are_deleted(self):
        store = self.store("first")
        self.assertEqual(store.saved(), [])
        for number in range(5):
            if number:
                store.forget_before("s-%d" % (number - 1))
            self.save(store, "s-%d" % number, number)
        self.assertEqual(store.saved(), ["s-3", "s-4"])
        self.assertEqual(self.states(), ["_initial", "run.json", "s-3", "s-4"])
        store.forget_before("")  # The record names the initial state.
        store.forget_before("unknown")
        self.assertEqual(store.saved(), ["s-3", "s-4"])
        self.assertEqual(store.load("s-3"), 3)
        self.assertEqual(store.load(""), "first")

    def test_a_load_deletes_every_other_state(self):
        store = self.store()
        self.save(store, "known", 1)
        self.save(store, "unknown", 2)  # The exchange died before it knew.
        self.assertEqual(store.load("known"), 1)
        self.assertEqual(store.saved(), ["known"])
        self.save(store, "next", 3)
        self.assertEqual(store.load("known"), 1)

    def test_the_same_id_may_be_saved_again(self):
        store = self.store()
        self.save(store, "a", 1)
        self.save(store, "b", 2)
        self.save(store, "a", 3)
        self.assertEqual((store.saved(), store.load("a")), (["b", "a"], 3))

    def test_the_initial_state_is_that_of_the_first_start(self):
        self.store("first").close()
        self.assertEqual(self.store("second").load(""), "first")

    def test_a_first_start_that_died_leaves_none(self):
        self.store("first").close()
        os.unlink(self.path("states", "run.json"))
        self.assertEqual(self.store("second").load(""), "second")

    def test_states_are_found_after_a_restart(self):
        store = self.store()
        self.save(store, "a", [1])
        store.close()
        half = "b.%s.tmp" % ("0123456789abcdef" * 2)
        self.put(half, b"half")
        store = self.store()
        self.assertEqual((store.saved(), store.load("a")), (["a"], [1]))
        self.assertNotIn(half, self.states())

    def test_files_of_a_person_stay(self):
        store = self.store()
        self.save(store, "a", 1)
        store.close()
        arrays = io.BytesIO()
        _safetensors.write(arrays, {}, {"format": "pt"})
        mine = {"notes": b"years of work", "notes.tmp": b"a draft",
                "b.tmp": b"a draft", "model": arrays.getvalue(),
                "b.0123.tmp": b"a draft", "a.tmp": b"a draft"}
        for name, data in mine.items():
            self.put(name, data)
        os.mkdir(self.path("states", "folder"))
        os.symlink("a", self.path("states", "link"))
        store = self.store()
        self.assertEqual(store.saved(), ["a"])
        self.save(store, "b", 2)
        store.load("b")  # Deletes every other state.
        store.load("")
        self.assertEqual(self.states(), sorted(
            ["_initial", "run.json", "folder", "link", *mine]))
        for name, data in mine.items():
            with open(self.path("states", name), "rb") as file:
                self.assertEqual(file.read(), data)

    def test_another_run_or_island_is_refused_and_named(self):
        self.store().close()
        for run in (("spring", "1" * 32, "kitchen"),
                    ("spring", "0" * 32, "attic")):
            store = _store.Store(self.folder, 0)
            with self.assertRaises(atoll.Error) as caught:
                store.begin(*run)
            store.close()
            self.assertEqual(caught.exception.reason, "OTHER_RUN")
            self.assertIn(self.folder, str(caught.exception))

    def test_another_number_of_ranks_is_told_and_begins_anew(self):
        run = "spring", "0" * 32, "kitchen"
        for rank, told in (("1 of 2", ""), ("1 of 2", ""), ("1 of 4", "1 of 2"),
                           ("1 of 4", "")):
            store = _store.Store(self.folder, rank, rank)
            self.assertEqual(store.begin(*run), told)
            if told:
                self.assertEqual(store.saved(), ["a"])
                store.renew()
                self.assertEqual((store.saved(), store.load("")), ([], rank))
            self.save(store, "a", 1)
            store.close()

    def test_a_second_process_is_refused(self):
        self.store()
        with self.assertRaisesRegex(atoll.Error, "WORK_DIR_IN_USE"):
            _store.Store(self.folder, 0)

    def test_a_damaged_file_is_an_error(self):
        store = self.store()
        self.save(store, "a", {"x": np.arange(100)})
        path = self.path("states", "a")
        with open(path, "rb") as file:
            data = file.read()
        generator = cases.random()
        header = 8 + int.from_bytes(data[:8], "little")
        for _ in range(300):
            broken = bytearray(data)
            if generator.randrange(2):
                broken = broken[:generator.randrange(len(broken))]
            else:  # The length beyond 32 MiB needs its memory first.
                broken[generator.randrange(3, header)] ^= 1 << (
                    generator.randrange(8))
                broken[3:8] = data[3:8]
            with open(path, "wb") as file:
                file.write(broken)
            try:
                store.load("a")
            except atoll.Error:
                pass


if __name__ == "__main__":
    cases.main()
