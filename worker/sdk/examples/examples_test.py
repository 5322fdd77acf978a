#!/usr/bin/python3
"""Each example learns, against an exchange that plays a run of one island.

Those of PyTorch run only where Python has torch.
"""

import importlib.util
import json
import os
import subprocess
import sys
import types
import unittest.mock

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
# torchtitan's trainer, as far as its example knows it, with a loop of its own.
_TITAN = '''
import torch
import torchtitan_branch

class Part(torch.nn.Module):
    def __init__(self, **layers):
        super().__init__()
        self.layers = torch.nn.ModuleDict(layers)
        self.register_buffer("turns", torch.ones(2, dtype=torch.complex64))

    def init_weights(self, buffer_device):
        assert torch.initial_seed() == 5
        for parameter in self.parameters():
            parameter.fill_(3)

class Optimizers(torch.optim.Optimizer):
    def __init__(self, optimizers):
        self.optimizers = optimizers
        super().__init__([p for of in optimizers for group in of.param_groups
                          for p in group["params"]], {})

    def __iter__(self):
        return iter(self.optimizers)

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()

class Stateful:
    step = 0

    def state_dict(self):
        return vars(self)

    def load_state_dict(self, state):
        vars(self).update(state)

class Trainer(Stateful):
    def state_dict(self):
        return {"step": self.step}

torch.distributed.init_process_group(
    "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
with torch.device("meta"):
    whole = Part(**{"0": torch.nn.Linear(2, 2, bias=False),
                    "1": torch.nn.Linear(2, 1, bias=False)})
generator = torch.get_rng_state()
torchtitan_branch.create(whole, "nobody:1", "spring", seed=5)
assert whole.layers["0"].weight.is_meta
assert torch.equal(torch.get_rng_state(), generator)
trainer = Trainer()
parts = trainer.model_parts = [
    Part(**{"0": torch.nn.Linear(2, 2, bias=False)}),
    Part(**{"1": torch.nn.Linear(2, 1, bias=False)})]
trainer.optimizers = Optimizers([
    torch.optim.SGD(part.parameters(), lr=0.1) for part in parts])
trainer.lr_schedulers = [
    torch.optim.lr_scheduler.ConstantLR(of, 1) for of in trainer.optimizers]
trainer.dataloader = Stateful()
assert torchtitan_branch.shard(trainer, "nobody:1", "spring", 2, 1) == (6, 3)
with torchtitan_branch.join(trainer) as island:
    while True:
        trainer.step += 1
        x = parts[0].layers["0"](torch.ones(1, 2))
        parts[1].layers["1"](x).sum().backward()
        trainer.optimizers.step()
        for scheduler in trainer.lr_schedulers:
            scheduler.step()
assert trainer.step == 4 and island.ended, trainer.step
torch.distributed.destroy_process_group()
'''


_LIGHTNING = '''
import lightning
import torch
import lightning_callback

class Module(lightning.LightningModule):

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, _):
        return self.layer(*batch).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters())
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

module = Module()
trainer = lightning.Trainer(
    max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, callbacks=[lightning_callback.Join(
        run="spring", coordinator="nobody:1")])
trainer.fit(module, torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.rand(4, 2)), batch_size=2))
assert trainer.global_step == 3, trainer.global_step
assert (module.layer.weight == 0.25).all(), module.layer.weight
'''


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

    def stand_in(self):
        """A program `atoll`, which keeps the tensors of a run's creation."""
        program = self.path("atoll")
        with open(program, "w", encoding="utf-8") as file:
            file.write(_PROGRAM % self.path("tensors.json"))
        os.chmod(program, 0o755)
        os.environ["ATOLL_BINARY"] = program

    def created(self):
        with open(self.path("tensors.json"), encoding="utf-8") as file:
            return json.load(file)["tensors"]

    def losses(self, name, run, launcher=()):
        """The example's loss on held-out data, before and after a run."""
        self.stand_in()
        self.call(name, "create", "nobody:1")
        tensors = self.created()
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

    def test_accelerate_mlp(self):
        if importlib.util.find_spec("accelerate") is None:
            self.skipTest("%s has no accelerate" % sys.executable)
        before, after = self.losses("accelerate_mlp.py", "accelerate-mlp")
        self.assertLess(after, before / 2)

    def test_lightning_callback(self):
        if importlib.util.find_spec("lightning") is None:
            self.skipTest("%s has no lightning" % sys.executable)
        self.check_steps(_LIGHTNING, {"layer.weight": [1, 2],
                                      "layer.bias": [1]})

    def test_torchtitan_branch(self):
        """With a stand-in for torchtitan's trainer, of two stages."""
        if importlib.util.find_spec("torch") is None:
            self.skipTest("%s has no torch" % sys.executable)

        def hello(peer):
            peer.place(data_shard=1, data_shard_count=3)
            peer.hello(1, seq="2")

        self.stand_in()
        self.check_steps(_TITAN, {"layers.0.weight": [2, 2],
                                  "layers.1.weight": [1, 2]}, hello)
        self.assertEqual([(t["name"], t["init"]) for t in self.created()], [
            ("layers.%d.weight" % layer, {"kind": "constant", "value": 3.0})
            for layer in range(2)])

    def check_steps(self, program, layout, hello=lambda peer: peer.hello(1)):
        """The program trains the three steps of a run, and then ends."""
        answers = []

        def script(peer):
            hello(peer)
            peer.layout([layout])
            peer.ask("load", save_id="")
            peer.write(0.5)
            answers.append(peer.train(3)["step_count"])
            peer.write(0.25)
            peer.end()

        os.environ["ATOLL_SOCKET"] = self.path("socket")
        with FakeExchange(self.path("socket"), script):
            subprocess.run([sys.executable, "-B", "-c", program], check=True,
                           cwd=self.folder, env={
                               **os.environ, "PYTHONPATH": os.pathsep.join(
                                   [cases.PACKAGE, _HERE])})
        self.assertEqual(answers, ["3"])

    def test_wandb_rounds(self):
        logged = []
        stand_in = types.SimpleNamespace(
            log=logged.append, alert=lambda **what: logged.append(what))
        with unittest.mock.patch.dict(sys.modules, {"wandb": stand_in}):
            spec = importlib.util.spec_from_file_location(
                "wandb_rounds", os.path.join(_HERE, "wandb_rounds.py"))
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        module.log({"event": "waiting", "message": "waits"})
        module.log({"event": "committed", "message": "", "round": 3,
                    "loss": None, "training_share": 0.5, "waited_seconds": 2})
        module.log({"event": "lost", "message": "connects again"})
        self.assertEqual(logged, [
            {"atoll/round": 3, "atoll/training_share": 0.5,
             "atoll/waited_seconds": 2},
            {"title": "atoll: lost", "text": "connects again"}])

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
