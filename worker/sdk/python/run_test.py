#!/usr/bin/python3
"""atoll.create_run: what it writes and calls, and what it makes of answers."""

import json
import logging
import os
import sys
import unittest
from unittest import mock

try:
    import tomllib
except ImportError:  # Python 3.10.
    from pip._vendor import tomli as tomllib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402

import numpy as np  # noqa: E402

import atoll  # noqa: E402
from atoll import _layout  # noqa: E402
from atoll import _toml  # noqa: E402
from atoll import run as run_module  # noqa: E402

# Stands in for the program `atoll`: keeps its arguments and the files that
# they name, and prints the file `answer`.
_PROGRAM = '''#!/usr/bin/python3 -B
import json, os, sys
folder = %(folder)r
files = {}
for word in sys.argv[1:]:
    for path in [word, os.path.join(word, "model.safetensors")]:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                files[os.path.basename(path)] = file.read().hex()
with open(os.path.join(folder, "calls"), "a") as file:
    file.write(json.dumps([sys.argv[1:], files]) + "\\n")
with open(os.path.join(folder, "answer")) as file:
    print(file.read())
print("a line for people", file=sys.stderr, flush=True)
if "GATE" in os.environ:
    open(os.environ["GATE"]).read()  # Until its other end is closed.
if "--output" in sys.argv:
    import shutil
    shutil.copy(os.path.join(folder, "weights"), os.path.join(
        sys.argv[sys.argv.index("--output") + 1], "model.safetensors"))
sys.exit(int(os.environ.get("EXIT", "0")))
'''
_OK = {"schema_version": 1, "status": "ok", "exit_code": 0,
       "data": {"run": {"run_id": "spring", "state": "RUN_STATE_STARTING"}}}


class CreateRunTest(cases.FolderCase):

    def setUp(self):
        super().setUp()
        program = self.path("atoll")
        with open(program, "w", encoding="utf-8") as file:
            file.write(_PROGRAM % {"folder": self.folder})
        os.chmod(program, 0o755)
        os.environ["ATOLL_BINARY"] = program
        self.answer(json.dumps(_OK))

    def answer(self, text):
        with open(self.path("answer"), "w", encoding="utf-8") as file:
            file.write(text)

    def calls(self):
        with open(self.path("calls"), encoding="utf-8") as file:
            return [(arguments, {name: bytes.fromhex(text)
                                 for name, text in files.items()})
                    for arguments, files in map(json.loads, file)]

    def create(self, arrays=None, **options):
        options.setdefault("run_id", "spring")
        return atoll.create_run(
            arrays={"w": np.zeros((3, 2))} if arrays is None else arrays,
            **options)

    def layout(self, **options):
        """The layout of a run that begins with formulas' values."""
        self.create(import_values=False, **options)
        return json.loads(self.calls()[-1][1]["tensors.json"])["tensors"]

    def test_the_command_and_its_files(self):
        run = self.create(coordinator="c:7400", server_count=2,
                          import_values=False,
                          schedule={"round_count": 100, "timing": "strict"},
                          durability="process", inner={"learning_rate": 1e-3},
                          sequence_length=64)
        self.assertEqual(run, _OK["data"]["run"])
        (arguments, files), = self.calls()
        self.assertEqual(
            arguments[:2] + arguments[3:6] + arguments[7:],
            ["run", "create", "--run-id", "spring", "--tensors", "--servers",
             "2", "--coordinator", "c:7400", "-o", "json"])
        self.assertEqual(tomllib.loads(files["run.toml"].decode()), {
            "preset": "diloco", "durability": "process",
            "weight_unit": "tokens",
            "schedule": {"round_count": 100, "timing": "strict"},
            "inner": {"learning_rate": 1e-3},
            "model": {"architecture": "external", "sequence_length": 64},
            "data": {"format": "external"}})
        self.assertEqual(json.loads(files["tensors.json"]), {
            "version": 1, "tensors": [
                {"name": "w", "shape": [3, 2], "fragment": 0,
                 "class": "matrix", "init": {"kind": "constant", "value": 0}}]})

    def test_steps_weigh_the_same_unless_tokens_are_counted(self):
        def unit(**options):
            with self.assertLogs("atoll", "INFO") as logs:
                logging.getLogger("atoll").info("begin")
                self.create(import_values=False, **options)
            file = tomllib.loads(self.calls()[-1][1]["run.toml"].decode())
            return file["weight_unit"], " ".join(logs.output[1:])

        for options, want in (({}, "steps"), ({"sequence_length": 8}, "tokens"),
                              ({"schedule": {"token_count": 9}}, "tokens")):
            chosen, told = unit(**options)
            self.assertEqual(chosen, want)
            self.assertIn('weight_unit is "%s"' % want, told)
        self.assertEqual(unit(weight_unit="samples"), ("samples", ""))

    def test_what_a_preset_has_decided_is_told(self):
        def told(islands, shards):
            spec = {"schedule": {"island_count_min": islands,
                                 "round_count": "176",
                                 "inner_step_count": "500"},
                    "data": {"data_shard_count": shards}}
            self.answer(json.dumps({**_OK, "data": {"run": {"spec": spec}}}))
            with self.assertLogs("atoll", "INFO") as logs:
                self.create(weight_unit="steps")
            return "\n".join(logs.output)

        self.assertIn("begins with 2 islands (schedule's island_count_min) and "
                      "has 176 rounds of 500 steps", told(2, 2))
        self.assertNotIn("data shards", told(2, 2))
        self.assertIn("has 8 data shards (data's data_shard_count), and begins "
                      "with 2 islands", told(2, 8))

    def test_an_error_names_no_file_that_is_gone(self):
        with open(self.path("atoll"), encoding="utf-8") as file:
            program = file.read()
        with open(self.path("atoll"), "w", encoding="utf-8") as file:
            file.write(program.replace("print(file.read())", "print("
                       "file.read().replace('RUN_FILE', sys.argv[3]))"))
        self.answer(json.dumps({"status": "error", "error": {
            "code": "INVALID_ARGUMENT", "reason": "RUN_FILE_INVALID",
            "message": "RUN_FILE:4: unknown key 'merge'"}}))
        with self.assertRaisesRegex(atoll.Error, "^the run's file:4: unknown"):
            self.create()

    def test_a_run_is_shown(self):
        self.assertEqual(atoll.get_run("spring", "c:7400"), _OK["data"]["run"])
        (arguments, _), = self.calls()
        self.assertEqual(arguments, ["run", "show", "spring", "--coordinator",
                                     "c:7400", "-o", "json"])

    def test_its_parameters_are_fetched(self):
        want = np.arange(6, dtype=np.float32).reshape(3, 2)
        with open(self.path("weights"), "wb") as file:
            atoll.run._safetensors.write(file, {
                "w": atoll.run._safetensors.Array("F32", want.shape,
                                                  want.tobytes())})
        mine = {"w": np.zeros((3, 2), np.float32)}
        atoll.fetch("spring", arrays=mine, coordinator="c:7400")
        np.testing.assert_array_equal(mine["w"], want)
        (arguments, _), = self.calls()
        self.assertEqual(arguments[:3] + arguments[5:], [
            "run", "export", "spring", "--coordinator", "c:7400", "-o", "json"])
        with self.assertRaisesRegex(atoll.Error, "OTHER_LAYOUT"):
            atoll.fetch("spring", arrays={"x": mine["w"]})

    def test_random_values_do_not_reach_the_layout(self):
        def layout(seed):
            g = np.random.default_rng(seed)
            return self.layout(arrays={
                "matrix": g.normal(size=(8, 4, 4)), "bias": g.normal(size=8),
                "gain": np.ones(8), "scalar": np.float32(2.5)})

        first = layout(1)
        self.assertEqual(first, layout(2))
        self.assertEqual([row["init"] for row in first], [
            {"kind": "normal", "value": 0.25}, {"kind": "constant", "value": 0},
            {"kind": "constant", "value": 1},
            {"kind": "constant", "value": 2.5}])
        self.assertEqual(first[3]["shape"], [1])

    def test_first_values_may_be_given(self):
        self.create(first_values={"w": ("normal", 0.02)})
        (_, files), = self.calls()  # And no import.
        row, = json.loads(files["tensors.json"])["tensors"]
        self.assertEqual(row["init"], {"kind": "normal", "value": 0.02})
        for bad in ({"x": ("normal", 1)}, {"w": ("uniform", 1)}):
            with self.assertRaises(atoll.Error):
                self.create(first_values=bad)
        with self.assertRaisesRegex(atoll.Error, "has no effect"):
            self.create(first_values={"w": ("normal", 1)}, import_values=True)

    def test_buffers_are_a_class_of_their_own(self):
        arrays = {"w": np.zeros((3, 2)), "mean": np.zeros(2),
                  "variance": np.ones(2)}
        self.assertEqual(
            [row["class"] for row in self.layout(
                arrays=arrays, buffers=["variance", "mean"])],
            ["matrix", "buffer", "buffer"])
        self.assertEqual([row["class"] for row in self.layout(arrays=arrays)],
                         ["matrix", "vector", "vector"])
        with self.assertRaisesRegex(atoll.Error, "names var, which is no"):
            self.create(arrays=arrays, buffers=["var"])
        with self.assertRaisesRegex(atoll.Error, "a list of their names"):
            self.create(arrays=arrays, buffers="average")

    def test_a_meta_device_has_names_and_shapes_only(self):
        def tensors(*names):
            return {name: _layout.Tensor(shape, None, "matrix")
                    for name, shape in names}

        rows = _layout.tensors_json(tensors(
            ("up.weight", (4, 16)), ("norm.weight", (4,)), ("up.bias", (4,))),
            1, None)["tensors"]
        self.assertEqual([row["init"] for row in rows], [
            {"kind": "normal", "value": 0.25},
            {"kind": "constant", "value": 1}, {"kind": "constant", "value": 0}])
        with self.assertRaisesRegex(atoll.Error, "first_values={'token'"):
            _layout.tensors_json(tensors(("token", (4,))), 1, None)

    def test_fragments_are_in_order_and_none_is_empty(self):
        generator = cases.random()
        for _ in range(200):
            count = generator.randrange(1, 12)
            fragments = generator.randrange(1, count + 1)
            arrays = {"t%d" % i: np.zeros(generator.choice([1, 5, 1000]))
                      for i in range(count)}
            rows = _layout.tensors_json(
                _layout.of_arrays(arrays, "local"), fragments, None)
            got = [row["fragment"] for row in rows["tensors"]]
            self.assertEqual(got, sorted(got))
            self.assertEqual(set(got), set(range(fragments)))
        with self.assertRaises(atoll.Error):
            self.create(fragments=2)

    def test_the_values_of_the_trainer_are_imported(self):
        values = np.arange(6, dtype=np.float32).reshape(3, 2)
        self.create(arrays={"w": values.T}, init={"seed": 4})
        (create, files), (imported, data) = self.calls()
        self.assertEqual(imported[:4], ["run", "import", "spring", "--model"])
        init = tomllib.loads(files["run.toml"].decode())["init"]
        self.assertEqual(init, {"seed": 4, "model": imported[4]})
        data = data["model.safetensors"]
        length = int.from_bytes(data[:8], "little")
        self.assertEqual(json.loads(data[8:8 + length]), {
            "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})
        self.assertEqual(data[8 + length:], values.T.tobytes())

    def test_an_error_of_the_command_keeps_its_parts(self):
        self.answer(json.dumps({
            "schema_version": 1, "status": "error", "exit_code": 9, "error": {
                "code": "ALREADY_EXISTS", "reason": "OTHER_SPEC",
                "message": "spring has another spec", "hint": "Another id."}}))
        os.environ["EXIT"] = "9"
        with self.assertRaises(atoll.Error) as caught:
            self.create()
        error = caught.exception
        self.assertEqual((error.code, error.reason, error.message, error.hint),
                         ("ALREADY_EXISTS", "OTHER_SPEC",
                          "spring has another spec", "Another id."))

    def test_output_that_is_no_envelope_is_an_error(self):
        for text in ("", "no json", "[]", "{}", '{"status": "ok"}',
                     '{"status": "error", "error": 5}'):
            self.answer(text)
            with self.assertRaisesRegex(atoll.Error, "a line for people"):
                self.create()

    def test_a_wait_of_the_command_tells_why(self):
        os.environ["GATE"] = self.path("gate")
        self.addCleanup(os.environ.pop, "GATE")
        os.mkfifo(self.path("gate"))
        told = []

        class Handler(logging.Handler):

            def emit(handler, record):
                told.append(record.getMessage())
                if "a line for people" in told[-1]:
                    with open(self.path("gate"), "w", encoding="ascii"):
                        pass

        logger, handler = logging.getLogger("atoll"), Handler()
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        with mock.patch.object(run_module, "_TELL_S", 0.05), \
                mock.patch.object(run_module, "_COMMAND_S_MAX",
                                  fake_exchange.PATIENCE_S):
            self.create(import_values=False)
        self.assertRegex(told[-1], "^`atoll run create` waits, 0 s so far: a "
                         "line for people$")

    def test_a_model_or_arrays(self):
        with self.assertRaises(atoll.Error):
            atoll.create_run("spring")
        with self.assertRaises(atoll.Error):
            self.create(model=object())


class TomlTest(unittest.TestCase):

    def test_what_is_written_is_read(self):
        value = {"a": 1, "b": -2.5e-7, "c": True, "d": 'qu"o\\te\n\x7f\u2028',
                 "e": [1, 2], "f": float("inf"), "g": "\U0001f600",
                 "dotted.key": {"x": 0.1, "deep": {"y": ["a", "b"]}}, "z": 5,
                 "empty": {}}
        self.assertEqual(tomllib.loads(_toml.dumps(value)), value)

    def test_values_of_other_types_are_refused_by_name(self):
        with self.assertRaisesRegex(atoll.Error, "schedule.x is a object"):
            _toml.dumps({"schedule": {"x": object()}})


if __name__ == "__main__":
    cases.main()
