#!/usr/bin/python3
"""Each example learns, against an exchange that plays a run of one island.

Those of PyTorch run only where Python has torch.
"""

import importlib.util
import json
import os
import subprocess
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(_HERE, "..", "python", "testing"))

import cases  # noqa: E402
from fake_exchange import FakeExchange  # noqa: E402

import numpy as np  # noqa: E402

# Stands in for the program `atoll`: keeps the layout.
_PROGRAM = '''#!/bin/sh
[ "$2" = import ] || cp "$(dirname "$3")/tensors.json" %s
echo '{"status": "ok", "data": {"run": {}}}'
'''
_ROUNDS, _STEPS = 10, 10


class ExamplesTest(cases.FolderCase):

    def start(self, name, *arguments, launcher=(), **options):
        return subprocess.run(
            [sys.executable, "-B", *launcher, os.path.join(_HERE, name),
             *arguments],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": cases.PACKAGE,
                                   "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, text=True, **options)

    def call(self, name, *arguments, launcher=()):
        return self.start(name, *arguments, launcher=launcher,
                          check=True).stdout

    def layout(self, name):
        """The tensors that the example's run is created with."""
        program = self.path("atoll")
        with open(program, "w", encoding="utf-8") as file:
            file.write(_PROGRAM % self.path("tensors.json"))
        os.chmod(program, 0o755)
        os.environ["ATOLL_BINARY"] = program
        self.call(name, "create", "nobody:1")
        with open(self.path("tensors.json"), encoding="utf-8") as file:
            return json.load(file)["tensors"]

    def losses(self, name, run, launcher=()):
        """The example's loss on held-out data, before and after a run."""
        tensors = self.layout(name)
        generator = np.random.default_rng(cases.random().getrandbits(32))
        found = []

        def script(peer):
            peer.hello(1, run_id=run, island_id="attic")
            peer.layout([{t["name"]: t["shape"] for t in tensors}])
            peer.ask("load", save_id="")
            begin = 0
            for tensor in tensors:
                end = begin + int(np.prod(tensor["shape"]))
                init = tensor["init"]
                peer.regions[0][begin:end] = (
                    init["value"] if init["kind"] == "constant" else
                    generator.normal(0, init["value"], end - begin))
                begin = end
            peer.ask("write", fragments=[0])
            found.append(peer.ask("evaluate")["loss"])
            for version in range(_ROUNDS):
                peer.train(_STEPS, step=_STEPS * version, version=version)
                peer.ask("read", fragments=[0])
                peer.ask("save", save_id="round-%d" % version)
                peer.ask("write", fragments=[0])
            found.append(peer.ask("evaluate")["loss"])
            peer.end()

        os.environ["ATOLL_SOCKET"] = self.path("socket")
        with FakeExchange(self.path("socket"), script):
            print(self.call(name, "join", "nobody:1", "attic",
                            launcher=launcher), end="")
        return found

    def test_numpy_linear(self):
        before, after = self.losses("numpy_linear.py", "numpy-linear")
        self.assertGreater(before, 1)
        self.assertLess(after, 0.01)

    def test_torch_cnn(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("%s has no torch" % sys.executable)
        before, after = self.losses("torch_cnn.py", "torch-cnn")
        self.assertLess(after, before / 2)

    def test_hf_llama(self):
        if importlib.util.find_spec("transformers") is None:
            self.skipTest("%s has no transformers" % sys.executable)
        before, after = self.losses("hf_llama.py", "hf-llama")
        self.assertLess(after, before / 2)

    def test_torch_fsdp2(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("%s has no torch" % sys.executable)
        before, after = self.losses(
            "torch_fsdp2.py", "torch-fsdp2",
            ["-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", "2"])
        self.assertLess(after, before / 2)

    def test_a_device_that_is_not_here_is_refused_in_a_line(self):
        if importlib.util.find_spec("transformers") is None:
            self.skipTest("%s has no transformers" % sys.executable)
        for name, device in (
                ("hf_llama.py", "cuda:99"), ("torch_llama.py", "cuda:99"),
                ("torch_fsdp2.py", "cuda:99"), ("torch_cnn.py", "cuda:99"),
                ("torch_cnn.py", "meta"), ("torch_cnn.py", "warp")):
            with self.subTest(name, device=device):
                done = self.start(name, "join", "nobody:1", "attic",
                                  "--device", device, check=False,
                                  stderr=subprocess.PIPE)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(done.stdout, "")
                self.assertRegex(done.stderr, (
                    r"\A%s: cannot use --device %s: .*Give --device cpu.*\n\Z" %
                    (name, device)))

    def test_they_are_short(self):
        for name in os.listdir(_HERE):
            if name.endswith(".py") and not name.endswith("_test.py"):
                with open(os.path.join(_HERE, name), encoding="utf-8") as file:
                    self.assertLessEqual(file.read().count("\n"), 80, name)


if __name__ == "__main__":
    cases.main()
