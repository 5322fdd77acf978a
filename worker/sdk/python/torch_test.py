#!/usr/bin/python3
"""The package with PyTorch. By hand: VENV/bin/python worker/sdk/python/torch_test.py

Debian's packages that the build needs have no torch: Bazel does not run this.
"""

import copy
import os
import random
import sys
import types
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402
from fake_exchange import FakeExchange  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

import atoll  # noqa: E402
from atoll import _frozen  # noqa: E402
from atoll import _indices  # noqa: E402
from atoll import _layout  # noqa: E402
from atoll import _module  # noqa: E402
from atoll import _schedules  # noqa: E402


class Tied(torch.nn.Module):
    """Has tied weights, a frozen one, buffers, a scalar and an embedding."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.frozen = torch.nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.head = torch.nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, tokens):
        x = self.norm(self.frozen(self.embed(tokens)))
        x = torch.nn.functional.dropout(x, 0.3, self.training)
        return self.scale * self.head(x)


TIED = {"embed.weight": [7, 4], "norm.weight": [4], "norm.bias": [4],
        "scale": [1]}


class Batches:
    """Batches that follow from a position and torch's generator."""

    def __init__(self):
        self.position = 0

    def next(self):
        self.position += 1
        return (torch.arange(6) * self.position) % 7

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class TorchCase(cases.FolderCase):

    def setUp(self):
        super().setUp()
        os.environ["ATOLL_SOCKET"] = self.path("socket")
        torch.set_num_threads(1)
        torch.manual_seed(3)

    def exchange(self, *scripts):
        return FakeExchange(self.path("socket"), *scripts)

    def island(self, **options):
        return atoll.Island("nobody:1", run=fake_exchange.RUN,
                            work_dir=self.path("work"), **options)


def begin(peer, layout, value=0.25, **hello):
    peer.hello(1, **hello)
    peer.layout([layout])
    peer.ask("load", save_id="")
    peer.write(value)


class ParametersTest(TorchCase):

    def test_parameters_stay_the_same_objects(self):
        seen = []

        def script(peer):
            begin(peer, TIED)
            peer.train(1)
            seen.extend(peer.read())
            peer.end()

        model = Tied()
        parameters = list(model.parameters())
        with self.exchange(script), self.island(model=model) as island:
            for parameter in model.parameters():
                if parameter.requires_grad:
                    self.assertTrue(torch.all(parameter == 0.25))
            self.assertIs(model.head.weight, model.embed.weight)
            with torch.no_grad():
                model.head.weight += 1
                model.scale += 2
            island.step()
        self.assertTrue(all(a is b for a, b in zip(parameters,
                                                   model.parameters())))
        np.testing.assert_array_equal(seen[0][:28], [1.25] * 28)
        self.assertEqual(seen[0][-1], 2.25)

    def test_other_dtypes_and_strides_are_copied(self):
        class Mixed(torch.nn.Module):

            def __init__(self):
                super().__init__()
                self.half_ = torch.nn.Parameter(
                    torch.zeros(3, dtype=torch.bfloat16))
                self.double_ = torch.nn.Parameter(
                    torch.zeros(2, dtype=torch.float64))
                self.turned = torch.nn.Parameter(torch.zeros(3, 2).t())

        seen = []

        def script(peer):
            begin(peer, {"half_": [3], "double_": [2], "turned": [2, 3]},
                  [1, 2, 3.0078125, 4, 5, 6, 7, 8, 9, 10, 11])
            peer.train(1)
            seen.extend(peer.read())
            peer.end()

        model = Mixed()
        with self.exchange(script), self.island(model=model) as island:
            self.assertEqual(model.half_.tolist(), [1, 2, 3])  # Rounded.
            self.assertEqual(model.double_.tolist(), [4, 5])
            self.assertEqual(model.turned.tolist(), [[6, 7, 8], [9, 10, 11]])
            self.assertFalse(model.turned.is_contiguous())
            with torch.no_grad():
                model.turned += 1
            island.step()
        np.testing.assert_array_equal(
            seen[0], [1, 2, 3.0078125, 4, 5, 7, 8, 9, 10, 11, 12])

    def test_a_lossy_parameter_that_does_not_move_reads_as_it_was_written(self):
        generator = np.random.default_rng(cases.random().getrandbits(32))
        written = (generator.standard_normal(1000) * np.exp2(
            generator.integers(-12, 12, 1000))).astype(np.float32)
        step = np.exp2(generator.integers(-3, 4, 1000)).astype(np.float32)

        def script(peer):
            begin(peer, {"w": [1000]}, written)
            peer.train(1)
            for _ in range(2):
                np.testing.assert_array_equal(peer.read()[0], written)
            peer.train(1)
            got.append(peer.read()[0])
            peer.end()

        for dtype in (torch.bfloat16, torch.float16, torch.float64,
                      torch.float8_e5m2):
            got = []
            model = torch.nn.Module()
            model.w = torch.nn.Parameter(torch.ones(1000).to(dtype))
            os.environ["ATOLL_SOCKET"] = self.path(str(dtype))
            with FakeExchange(self.path(str(dtype)), script), atoll.Island(
                    "nobody:1", run=fake_exchange.RUN, model=model,
                    work_dir=self.path("of-" + str(dtype))) as island:
                island.step()
                before = model.w.detach().double().clone()
                model.w.data.copy_(model.w.float() + torch.from_numpy(step))
                moved = (model.w.detach().double() - before).numpy()
                island.step()
            np.testing.assert_allclose(got[0], written.astype("f8") + moved,
                                       rtol=2**-24)

    def test_what_was_read_trains_on_with_the_same_bits_after_a_write(self):
        got = []

        def script(peer):
            begin(peer, {"w": [1000]}, 1.0 + 2.0**-9)
            for _ in range(2):
                peer.train(1)
                got.append(peer.read()[0])
                peer.write(got[0])

            peer.end()

        model = torch.nn.Module()
        model.w = torch.nn.Parameter(torch.zeros(1000, dtype=torch.bfloat16))
        with self.exchange(script), self.island(model=model) as island:
            model.w.data.copy_(torch.linspace(-2, 2, 1000))
            island.step()
            island.step()
        np.testing.assert_array_equal(got[0], got[1])

    def test_a_later_cast_is_refused_if_it_rounds(self):
        def script(peer):
            begin(peer, {"weight": [1, 1], "bias": [1]}, 1.0 + 2.0**-20)
            peer.train(1)
            peer.tell("read", fragments=[0])
            error = peer.wait_for_close()[0]["error"]
            self.assertEqual(error["reason"], "PARAMETER_MOVED")

        model = torch.nn.Linear(1, 1)
        with self.exchange(script), \
                self.assertRaisesRegex(atoll.Error, "weight was torch.float32"), \
                self.island(model=model) as island:
            model.to(torch.bfloat16)
            island.step()

    def test_a_later_device_without_values_is_refused_by_name(self):
        def script(peer):
            begin(peer, {"weight": [1, 1], "bias": [1]})
            peer.train(1)
            peer.tell("read", fragments=[0])
            error = peer.wait_for_close()[0]["error"]
            self.assertEqual(error["reason"], "UNSUPPORTED_TENSOR")

        model = torch.nn.Linear(1, 1)
        with self.exchange(script), \
                self.assertRaisesRegex(atoll.Error, "weight"), \
                self.island(model=model) as island:
            model.to("meta")  # A device that has no values.
            island.step()

    def test_a_later_cast_that_widens_keeps_the_values(self):
        def script(peer):
            begin(peer, {"weight": [1, 1], "bias": [1]}, 1.0 + 2.0**-20)
            peer.train(1)
            np.testing.assert_array_equal(peer.read()[0], [1 + 2.0**-20] * 2)
            peer.end()

        model = torch.nn.Linear(1, 1).to(torch.bfloat16)
        with self.exchange(script), self.island(model=model) as island:
            model.float()
            island.step()

    def test_masters_are_what_islands_average(self):
        def script(peer):
            begin(peer, {"weight": [1, 1], "bias": [1]}, 1.0 + 2.0**-20)
            peer.train(1)
            np.testing.assert_array_equal(peer.read()[0], [1.5 + 2.0**-20] * 2)
            peer.write(3.0)
            peer.train(1)
            peer.end()

        model = torch.nn.Linear(1, 1).to(torch.bfloat16)
        masters = {name: parameter.detach().float() for name, parameter in
                   model.named_parameters()}
        optimizer = torch.optim.SGD(list(masters.values()), lr=1)
        with self.assertRaisesRegex(atoll.Error, "MASTER_PARAMETERS"):
            self.island(model=model, state={"optimizer": optimizer})
        with self.exchange(script), self.island(
                model=model, state={"optimizer": optimizer},
                parameters=lambda: masters) as island:
            for master in masters.values():
                master.grad = torch.full_like(master, -0.5)
            optimizer.step()
            island.step()
            for value in (*masters.values(), *model.parameters()):
                self.assertEqual(value.item(), 3)
            island.step()

    def test_masters_of_some_parameters_only_must_be_given(self):
        layout = {name: [1] for name in ("half_", "whole", "idle")}
        critic = torch.nn.Parameter(torch.ones(1))  # Not in the run.

        class Mixed(torch.nn.Module):

            def __init__(self):
                super().__init__()
                for name in layout:
                    setattr(self, name, torch.nn.Parameter(torch.ones(
                        1, dtype=torch.bfloat16 if name == "half_" else None)))

        def play(steps_master, given=None, moves_idle=False, refused=False):
            def script(peer):
                begin(peer, layout, 1.0)
                if refused:
                    peer.train(1)
                    with self.assertRaisesRegex(AssertionError, "MASTER_PARA"):
                        peer.read()
                    return
                for _ in range(2):
                    peer.train(1)
                    seen.append(peer.read()[0].tolist())
                    peer.write(2.0)
                peer.end()

            seen, model = [], Mixed()
            master = model.half_.detach().float()
            first = [master] if steps_master else [model.half_, critic]
            optimizer = torch.optim.SGD([*first, model.whole], lr=1)
            address = os.environ["ATOLL_SOCKET"] = self.path(
                "s%s%s" % (steps_master, given))
            parameters = given and {name: {"half_": master, "idle": model.idle}[
                name] for name in given}
            with FakeExchange(address, script), atoll.Island(
                    "nobody:1", run=fake_exchange.RUN, model=model,
                    work_dir=address + ".work",
                    state={"optimizer": optimizer},
                    parameters=parameters) as island:
                for _ in range(2):
                    for value in (*first, model.whole):
                        value.grad = torch.ones_like(value)
                    optimizer.step()
                    with torch.no_grad():
                        if steps_master:
                            model.half_.copy_(master)
                        if moves_idle:
                            model.idle += 1
                    island.step()
            return seen

        right = [[0, 0, 1], [1, 1, 2]]
        self.assertEqual(play(True, ["half_"]), right)
        self.assertEqual(play(False), right)
        for given in (None, ["idle"]):
            with self.assertRaisesRegex(atoll.Error, "(?s)half_ has changed.*"
                                        "MASTER_PARAMETERS.*`parameters`"):
                play(True, given, refused=True)
        # A program may move what no optimizer steps, such as an average.
        self.assertEqual(play(True, ["half_", "idle"], True)[0], [0, 0, 2])

    def test_what_a_program_does_to_parameters_does_not_cut_them_off(self):
        def vector(net):
            utils = torch.nn.utils
            utils.vector_to_parameters(
                utils.parameters_to_vector(net.parameters()), net.parameters())

        def data(net):
            for parameter in net.parameters():
                parameter.data = parameter.data.clone()

        def assign(net):
            net.load_state_dict({n: v.clone() for n, v in
                                 net.state_dict().items()}, assign=True)

        def queue(net):
            queue = torch.multiprocessing.get_context("fork").Queue()
            queue.put(net.state_dict())
            queue.get(timeout=fake_exchange.PATIENCE_S)

        def replace(net):
            for module in net:
                for name in ("weight", "bias"):
                    old = getattr(module, name)
                    setattr(module, name, torch.nn.Parameter(
                        old.detach().clone()))

        changes = [
            vector, data, assign, queue, replace,
            torch.nn.Module.share_memory, torch.nn.Module.double,
            lambda net: net.to(memory_format=torch.channels_last)]
        layout = {"0.weight": [4, 3, 2, 2], "0.bias": [4],
                  "1.weight": [2, 4, 1, 1], "1.bias": [2]}
        for number, change in enumerate(changes * 2):
            is_early = number < len(changes)
            seen = []

            def script(peer):
                begin(peer, layout)
                peer.train(1)
                seen.extend(peer.read())
                peer.write(3)
                peer.train(1)
                peer.end()

            net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 2),
                                      torch.nn.Conv2d(4, 2, 1))
            os.environ["ATOLL_SOCKET"] = self.path("s%d" % number)
            with FakeExchange(os.environ["ATOLL_SOCKET"], script):
                island = atoll.Island(
                    "nobody:1", run=fake_exchange.RUN, model=net,
                    work_dir=self.path("w%d" % number))
                if is_early:
                    change(net)
                with island:
                    if not is_early:
                        change(net)
                    with torch.no_grad():
                        for parameter in net.parameters():
                            parameter += 1
                    island.step()
                    for parameter in net.parameters():
                        self.assertTrue((parameter == 3).all(), number)
                    island.step()
            self.assertTrue((seen[0] == 1.25).all(), number)

    def test_a_child_that_trains_does_not_change_the_run(self):
        def script(peer):
            begin(peer, {"weight": [1, 1], "bias": [1]})
            peer.train(1)
            np.testing.assert_array_equal(peer.read()[0], [0.25] * 2)
            peer.end()

        model = torch.nn.Linear(1, 1)
        with self.exchange(script), self.island(model=model) as island:
            child = os.fork()
            if not child:
                with torch.no_grad():
                    model.weight += 1
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            island.step()

    def test_other_parameters_than_at_the_start_are_refused_by_name(self):
        def untie(model):
            model.head.weight = torch.nn.Parameter(
                model.embed.weight.detach().clone())

        def unfreeze(model):
            model.frozen.requires_grad_(True)

        def remove(model):
            del model.scale

        def grow(model):
            model.embed.weight.data = torch.zeros(8, 4)

        for change, name in ((untie, "head.weight"), (remove, "scale"),
                             (unfreeze, "frozen.weight"),
                             (grow, "embed.weight")):
            def script(peer):
                begin(peer, TIED)
                peer.train(1)
                peer.tell("read", fragments=[0])
                error = peer.wait_for_close()[0]["error"]
                self.assertEqual(error["reason"], "PARAMETER_MOVED")

            model = Tied()
            os.environ["ATOLL_SOCKET"] = self.path(change.__name__)
            with FakeExchange(self.path(change.__name__), script), \
                    self.assertRaisesRegex(atoll.Error, name), \
                    self.island(model=model) as island:
                change(model)
                island.step()

    def test_a_parameter_may_be_frozen_for_a_while(self):
        def script(peer):
            begin(peer, TIED)
            peer.train(1)
            peer.read()
            peer.end()

        model = Tied()
        with self.exchange(script), self.island(model=model) as island:
            model.norm.requires_grad_(False)
            island.step()

    def test_buffers_are_local_or_averaged(self):
        average = {**TIED, "norm.running_mean": [4], "norm.running_var": [4]}

        def script(peer):
            begin(peer, average, 0.5)
            peer.train(1)
            peer.end()

        model = Tied()
        self.assertEqual(
            [name for name, tensor in _layout.of_module(
                model, "average", None).items()
             if tensor.tensor_class == "buffer"],
            ["norm.running_mean", "norm.running_var"])
        with self.exchange(script), self.island(model=model,
                                                buffers="average") as island:
            self.assertEqual(model.norm.running_mean.tolist(), [0.5] * 4)
            self.assertEqual(int(model.norm.num_batches_tracked), 0)
            island.step()

    def test_buffers_that_a_forward_pass_makes_or_enlarges_are_restored(self):
        def make():
            model = torch.nn.Sequential(torch.nn.Linear(1, 1))
            model[0].register_buffer("seen", None)
            model[0].register_buffer("log", torch.zeros(0))
            return model, _module.LocalBuffers(model, "local")

        model, buffers = make()
        model[0].seen = torch.ones(2)
        model[0].log = torch.arange(3.0)
        model[0].register_buffer("late", torch.ones(1))
        saved = {name: buffer.clone()
                 for name, buffer in buffers.state_dict().items()}
        model, buffers = make()
        buffers.load_state_dict(saved)
        self.assertEqual(model[0].seen.tolist(), [1, 1])
        self.assertEqual(model[0].log.tolist(), [0, 1, 2])
        self.assertEqual(model[0].late.tolist(), [1])

    def test_only_an_older_run_averages_buffers_that_are_not_persistent(self):
        class Rotary(torch.nn.Linear):

            def __init__(self):
                super().__init__(1, 1)
                self.register_buffer("mean", torch.zeros(2))
                self.register_buffer("steps", torch.zeros(3), persistent=False)
                self.register_buffer("unset", None, persistent=False)

        layout = {"weight": [1, 1], "bias": [1], "mean": [2]}
        self.assertEqual(list(_layout.of_module(Rotary(), "average", None)),
                         list(layout))
        for number, more in enumerate(({}, {"steps": [3]})):
            def script(peer):
                begin(peer, {**layout, **more}, 0.5)
                peer.train(1)
                self.assertEqual(peer.read()[0][4:].tolist(),
                                 [3.5] * (3 if more else 0))
                peer.ask("save", save_id="one")
                peer.ask("load", save_id="one")
                peer.write(0.5)
                peer.train(1)
                peer.end()

            model = Rotary()
            os.environ["ATOLL_SOCKET"] = self.path("s%d" % number)
            with FakeExchange(self.path("s%d" % number), script), atoll.Island(
                    "nobody:1", run=fake_exchange.RUN, model=model,
                    work_dir=self.path("w%d" % number),
                    buffers="average") as island:
                self.assertEqual(model.mean.tolist(), [0.5] * 2)
                model.steps += 3
                island.step()
                # A restart has it from the state, or from the run.
                self.assertEqual(model.steps[0], 0.5 if more else 3)
                island.step()

    def test_another_model_is_refused_with_names(self):
        def script(peer):
            peer.hello(1)
            peer.tell("layout", [peer.region(28)], element_count=28, last=True,
                      tensors=[{"name": "embed.weight", "shape": [7, 4]}])
            self.assertEqual(peer.wait_for_close()[0]["error"]["reason"],
                             "OTHER_LAYOUT")

        with self.exchange(script):
            with self.assertRaisesRegex(atoll.Error, "norm.bias"):
                with self.island(model=Tied()):
                    pass

    def test_names_without_wrappers_and_with_a_map(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 1))
        wrapped = torch.compile(model)
        self.assertEqual(list(_module.shared_tensors(wrapped, "local")),
                         ["0.weight", "0.bias"])
        self.assertEqual(list(_module.shared_tensors(
            model, "local", {"0.weight": "layers.4.weight"})),
            ["layers.4.weight", "0.bias"])
        self.assertEqual(list(_module.shared_tensors(
            model, "local", lambda name: "stage1." + name)),
            ["stage1.0.weight", "stage1.0.bias"])

    def test_the_layout_of_a_model_does_not_depend_on_its_seed(self):
        def layout():
            return _layout.tensors_json(
                _layout.of_module(Tied(), "average", None), 2, None)["tensors"]

        first = layout()
        self.assertEqual(first, layout())
        self.assertEqual([row["name"] for row in first],
                         ["scale", "embed.weight", "norm.weight", "norm.bias",
                          "norm.running_mean", "norm.running_var"])
        self.assertEqual(first[0]["init"], {"kind": "constant", "value": 1.0})
        self.assertEqual(first[1]["class"], "embedding")
        self.assertEqual(first[1]["init"], {"kind": "normal", "value": 0.5})

    def test_a_run_of_a_model_on_a_meta_device_can_be_created(self):
        with torch.device("meta"):
            model = torch.nn.Sequential(torch.nn.Embedding(1 << 20, 1 << 16),
                                        torch.nn.LayerNorm(1 << 16))
        rows = _layout.tensors_json(
            _layout.of_module(model, "local", None), 1, None)["tensors"]
        self.assertEqual([(row["class"], row["init"]["value"])
                          for row in rows],
                         [("embedding", 1 / 256), ("vector", 1), ("vector", 0)])

    def test_unusual_tensors_are_refused(self):
        with self.assertRaisesRegex(atoll.Error, "weight is on the meta device "
                                    ".*UNSUPPORTED_TENSOR"):
            self.island(model=torch.nn.Linear(2, 2, device="meta"))


class StateTest(TorchCase):

    count = 0

    def make(self, kind):
        torch.manual_seed(11)
        random.seed(12)
        model = Tied()
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = kind(trained)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
        return model, optimizer, schedule, Batches()

    def train(self, kind, interrupted):
        """The region after three rounds, of which the second is repeated."""
        final = []

        def play(peer, version, save_id, weights):
            peer.hello(1)
            peer.layout([TIED])
            peer.ask("load", save_id=save_id)
            for version in range(version, 3):
                peer.write(weights)
                peer.train(3, step=3 * version)
                weights = peer.read()[0]
                if interrupted and version == 1 and not final:
                    final.append("interrupted")
                    return
                peer.ask("save", save_id="v%d" % version)
                saved[:] = [version + 1, "v%d" % version, weights]
            final.append(weights.tobytes())
            peer.end()

        saved = [0, "", 0.1]
        scripts = [lambda peer: play(peer, *saved)] * (1 + interrupted)
        model, optimizer, schedule, batches = self.make(kind)
        generator = torch.Generator().manual_seed(5)
        self.count += 1
        socket = self.path("socket%d" % self.count)
        os.environ["ATOLL_SOCKET"] = socket
        with FakeExchange(socket, *scripts), atoll.Island(
                "nobody:1", run=fake_exchange.RUN, model=model,
                work_dir=socket + ".work",
                state={"optimizer": optimizer, "schedule": schedule,
                       "batches": batches, "generator": generator}) as island:
            while True:
                tokens = batches.next()
                loss = torch.nn.functional.cross_entropy(
                    model(tokens) + torch.rand(6, 7, generator=generator),
                    tokens)
                loss.backward()
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                if not island.step(loss=loss, tokens=tokens.numel()):
                    break
        buffers = [b.numpy().tobytes() for b in model.buffers()]
        return final[-1], buffers, optimizer.param_groups[0]["lr"]

    def test_a_round_that_is_repeated_has_the_same_bits(self):
        for kind in (
                torch.optim.AdamW, torch.optim.Adagrad,
                lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
                lambda p: torch.optim.Adam(p, amsgrad=True)):
            self.assertEqual(self.train(kind, True), self.train(kind, False))

    def test_a_process_that_starts_again_has_the_state(self):
        def first(peer):
            begin(peer, TIED)
            peer.train(2)
            peer.ask("save", save_id="two")
            peer.tell("end", complete=False)

        def second(peer):
            peer.hello(1)
            peer.layout([TIED])
            peer.ask("load", save_id="two")
            peer.write(0.25)
            peer.train(1)
            peer.end()

        def loop(model, optimizer, batches):
            with self.island(model=model, state={
                    "optimizer": optimizer, "batches": batches}) as island:
                going = True
                while going:
                    seen.append(island._train.request["step_count"])
                    if len(seen) == 3:
                        restored.append(
                            (copy.deepcopy(optimizer.state_dict()),
                             batches.position,
                             torch.rand(1).item(), random.random()))
                    loss = model(batches.next()).sum()
                    loss.backward()
                    optimizer.step()
                    if len(seen) == 2:
                        state = optimizer.state_dict()["state"]
                        restored.append(({0: {k: v.clone() for k, v in
                                              state[0].items()}},
                                         batches.position))
                    going = island.step(loss=loss, tokens=1)

        seen, restored = [], []
        with self.exchange(first, second):
            model, optimizer, _, batches = self.make(torch.optim.AdamW)
            with self.assertRaisesRegex(atoll.Error, "ISLAND_ENDED"):
                loop(model, optimizer, batches)
            expected = torch.rand(1).item(), random.random()
            model, optimizer, _, batches = self.make(torch.optim.AdamW)
            loop(model, optimizer, batches)
        before, after = restored[0], restored[1]
        self.assertEqual(before[1], after[1])
        self.assertEqual(expected, after[2:])
        for name, value in before[0][0].items():
            got = after[0]["state"][0][name]
            self.assertTrue(torch.equal(got, value), name)
            self.assertEqual(got.dtype, value.dtype)

    def test_tensors_of_every_dtype_pass_a_file(self):
        from state_test import through_a_file
        for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16,
                      torch.int32, torch.int64, torch.float16, torch.bfloat16,
                      torch.float32, torch.float64, torch.float8_e4m3fn):
            for shape in ((), (0,), (3,), (2, 3)):
                tensor = (torch.rand(shape) * 8).to(dtype)
                got = through_a_file([tensor])[0]
                self.assertEqual((got.dtype, got.shape),
                                 (tensor.dtype, tensor.shape))
                self.assertTrue(torch.equal(got.double(), tensor.double()))
        turned = torch.rand(3, 4).t()[1:]
        self.assertTrue(torch.equal(through_a_file([turned])[0], turned))
        rotary = torch.polar(torch.ones(3, 2), torch.rand(3, 2))
        self.assertTrue(torch.equal(through_a_file([rotary])[0], rotary))


class FrozenTest(TorchCase):

    def digest(self, seed, change=lambda model: model, **options):
        """The digest that an island with such a model tells."""
        told = []

        def script(peer):
            peer.hello(1)
            told.append(peer.frozen_digest)
            peer.tell("end", complete=False, message="no more")

        torch.manual_seed(seed)
        model = change(Tied())
        with self.exchange(script):
            island = self.island(model=model, **options)
            with self.assertRaises(atoll.Error):
                island.start()
        os.unlink(self.path("socket"))
        return told[0]

    def test_equal_bases_have_equal_digests_and_others_have_not(self):
        base = self.digest(1)
        self.assertRegex(base, "^[0-9a-f]{64}$")
        self.assertEqual(self.digest(1), base)
        self.assertNotEqual(self.digest(2), base)
        self.assertEqual(self.digest(2, check_frozen=False), "")

        def other_dtype(model):
            model.frozen.to(torch.bfloat16)
            return model

        self.assertNotEqual(self.digest(1, other_dtype), base)

        def one_bit(model):
            model.frozen.bias.data[3] = torch.nextafter(
                model.frozen.bias[3], torch.tensor(9.0))
            return model

        self.assertNotEqual(self.digest(1, one_bit), base)

    def test_what_is_trained_or_a_buffer_or_a_wrapper_does_not_count(self):
        base = self.digest(1)

        def trained(model):
            with torch.no_grad():
                model.embed.weight += 1
                model.norm.running_var += 1
            return model

        def wrapped(model):
            outer = torch.nn.Module()
            outer.module = model  # As DistributedDataParallel.
            return outer

        def transposed(model):  # Other strides, the same values.
            model.frozen.weight.data = (
                model.frozen.weight.data.t().contiguous().t())
            return model

        for change in (trained, wrapped, transposed):
            self.assertEqual(self.digest(1, change), base, change)

        def whole(model):
            model.frozen.requires_grad_(True)
            return model

        self.assertEqual(self.digest(1, whole), "")

    def test_chunks_are_the_whole(self):
        model = torch.nn.Module()
        model.big = torch.nn.Parameter(torch.arange(1000.0), False)
        tensors = _module.SharedTensors(model)
        whole = tensors.frozen()
        with mock.patch.object(_frozen, "_CHUNK_BYTES", 13):
            self.assertEqual(tensors.frozen(), whole)

    def test_a_base_without_values_is_named(self):
        model = Tied()
        model.frozen.to("meta")
        with self.assertRaises(atoll.Error) as raised:
            self.island(model=model).start()
        self.assertIn("frozen.weight", raised.exception.message)
        self.assertIn("check_frozen=False", raised.exception.hint)


class SamplerTest(TorchCase):

    def test_a_loader_of_torch_reads_the_data_shard(self):
        at = types.SimpleNamespace(shard=1, shard_count=3, index_digest="")
        data = torch.arange(100)
        sampler = atoll.ShardSampler(data, at, seed=2)
        loader = torch.utils.data.DataLoader(data, batch_size=8,
                                             sampler=sampler, num_workers=2)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            read = torch.cat(list(loader)).tolist()
            self.assertEqual(sorted(read), list(range(1, 100, 3)))
            self.assertEqual(read, list(sampler))

    def test_the_numbers_of_a_loader_of_torch_are_seen(self):
        data = torch.utils.data.TensorDataset(torch.arange(600))

        def read(watch, dataset=data, **options):
            torch.manual_seed(3)
            loader = torch.utils.data.DataLoader(dataset, 8, **options)
            watch.watch(loader)
            return [torch.cat([x for x, in loader]).tolist() for _ in range(2)]

        off = _indices.IndexWatch(False)
        for options in ({"shuffle": True}, {"shuffle": False},
                        {"shuffle": True, "num_workers": 2}):
            watch = _indices.IndexWatch()
            passes = read(watch, **options)
            self.assertEqual(passes, read(off, **options))
            self.assertEqual(watch.digest, _indices.digest_of(passes[0][:256]))
        watch = _indices.IndexWatch()
        half, _ = torch.utils.data.random_split(data, [300, 300])
        passes = read(watch, half, shuffle=True)
        self.assertEqual(watch.digest, _indices.digest_of(passes[0][:256]))


class SchedulerTest(TorchCase):

    schedules = torch.optim.lr_scheduler

    def optimizer(self, rate=0.1):
        return torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), rate,
                               momentum=0.5)

    def kinds(self):
        all_of = self.schedules
        linear = lambda o: all_of.LinearLR(o, 0.25, total_iters=7)
        cosine = lambda o: all_of.CosineAnnealingLR(o, 40, 0.001)
        return {
            "cosine": cosine,
            "lambda": lambda o: all_of.LambdaLR(o, lambda n: 1 / (n + 1)),
            "times": lambda o: all_of.MultiplicativeLR(o, lambda n: 0.9),
            "steps": lambda o: all_of.MultiStepLR(o, [3, 9, 30]),
            "one cycle": lambda o: all_of.OneCycleLR(o, 0.5, total_steps=42),
            "cyclic": lambda o: all_of.CyclicLR(o, 0.1, 0.5, step_size_up=5),
            "restarts": lambda o: all_of.CosineAnnealingWarmRestarts(o, 6, 2),
            "one after the other": lambda o: all_of.SequentialLR(
                o, [linear(o), cosine(o)], [7]),
            "chained": lambda o: all_of.ChainedScheduler(
                [linear(o), all_of.ExponentialLR(o, 0.95)]),
            "two": lambda o: [linear(o), all_of.ExponentialLR(o, 0.95)]}

    @staticmethod
    def values(optimizer):
        group = optimizer.param_groups[0]
        return float(group["lr"]), group.get("momentum")

    def test_a_schedule_moves_to_any_step_with_the_same_bits(self):
        random_steps = cases.random()
        for name, make in self.kinds().items():
            for rate in (lambda: 0.1, lambda: torch.tensor(0.1)):
                if name == "cyclic" and torch.is_tensor(rate()):
                    continue  # It sets the optimizer's rate itself.
                with self.subTest(name=name, rate=rate()):
                    optimizer = self.optimizer(rate())
                    made = make(optimizer)
                    expected = [self.values(optimizer)]
                    for _ in range(40):
                        optimizer.step()
                        for one in made if isinstance(made, list) else [made]:
                            one.step()
                        expected.append(self.values(optimizer))
                    optimizer = self.optimizer(rate())
                    moved = _schedules.Schedules(make(optimizer), ())
                    for _ in range(20):
                        clock = random_steps.randrange(41)
                        again = random_steps.random() < 0.5
                        if again:  # A restore of the optimizer.
                            optimizer.param_groups[0]["lr"] = rate() * 3
                        moved.move_to(clock, again)
                        self.assertEqual(self.values(optimizer),
                                         expected[clock])

    def test_an_ordinary_round_moves_nothing(self):
        optimizer = self.optimizer()
        made = self.kinds()["cosine"](optimizer)
        moved = _schedules.Schedules(made, ())
        for clock in range(5):
            moved.move_to(clock, False)
            optimizer.param_groups[0]["lr"] = 7.0 + clock  # Stays.
            moved.move_to(clock, False)
            self.assertEqual(self.values(optimizer)[0], 7.0 + clock)
            optimizer.step()
            made.step()

    def test_schedulers_that_cannot_follow_are_refused(self):
        optimizer = self.optimizer()
        cosine = self.kinds()["cosine"](optimizer)
        for made, state, text in (
                (self.schedules.ReduceLROnPlateau(optimizer), {},
                 "ReduceLROnPlateau.*LambdaLR"),
                (object(), {}, "object.*wrapped"),
                (cosine, {"scheduler": cosine}, "`state`")):
            with self.assertRaisesRegex(atoll.Error, "(?s)" + text):
                self.island(model=Tied(), scheduler=made, state=state)
        optimizer.step()
        cosine.step()
        with self.assertRaisesRegex(atoll.Error, "done 1 steps"):
            self.island(model=Tied(), scheduler=[cosine])

    def kills(self, strict):
        """A run of 60 rounds; 20 of them lose the trainer or the exchange.

        The rounds of an elastic run go on meanwhile. Returns what each step of
        the run's clock has trained with, and the last rate.
        """
        victims = ["trainer", "exchange"] * 10
        cases.random().shuffle(victims)
        kills = {3 * number: victim for number, victim in enumerate(victims)}
        run = {"version": 0, "record": ""}

        def script(peer):
            peer.hello(1, strict=strict, planned_step_count="600")
            peer.layout([{"weight": [1, 1], "bias": [1]}])
            standings = {of["save_id"]: int(of["step_count"])
                         for of in peer.kept.get("standings", ())}
            keep = bool(peer.kept) and (not strict or
                                        run["record"] in standings)
            peer.ask("load", save_id=run["record"], keep=keep)
            kept = standings.get(run["record"], 0) if strict and keep else 0
            while run["version"] < 60:
                version = run["version"]
                if not kept:
                    peer.write(0.5)
                body = {"step": str(10 * version), "step_count": "10",
                        "version": str(version), "kept_step_count": str(kept)}
                kept = 0
                seq = peer.tell("train", lr_scale=1.0, **body)
                kill = kills.pop(version, None)
                if kill:
                    run["version"] += 0 if strict else 2
                    if kill == "trainer":
                        peer.end(complete=False)
                    return
                peer.answer_to("train", seq)
                run["record"] = peer.ask("save", save_id="v%d" % version)[
                    "save_id"]
                run["version"] += 1
            peer.end()

        rates = {}
        socket = os.environ["ATOLL_SOCKET"] = self.path("socket%d" % strict)
        with FakeExchange(socket, *[script] * 21):
            while run["version"] < 60:
                torch.manual_seed(3)
                model = torch.nn.Linear(1, 1)
                optimizer = torch.optim.SGD(model.parameters(), 0.1,
                                            momentum=0.5)
                scheduler = self.schedules.CosineAnnealingLR(optimizer, 600)
                try:
                    with atoll.Island(
                            "nobody:1", run=fake_exchange.RUN, model=model,
                            scheduler=scheduler, work_dir=socket + ".work",
                            state={"optimizer": optimizer}) as island:
                        while not island.ended:
                            rate = optimizer.param_groups[0]["lr"]
                            self.assertEqual(
                                rates.setdefault(island.clock, rate), rate)
                            model(torch.ones(1)).sum().backward()
                            optimizer.step()
                            scheduler.step()
                            optimizer.zero_grad()
                            if not island.step():
                                break
                except atoll.Error as error:
                    self.assertEqual(error.reason, "ISLAND_ENDED")
        self.assertEqual(kills, {})
        return rates, optimizer.param_groups[0]["lr"]

    def test_a_cosine_ends_at_zero_over_kills_of_trainer_and_exchange(self):
        optimizer = self.optimizer()
        scheduler = self.schedules.CosineAnnealingLR(optimizer, 600)
        expected = []
        for _ in range(600):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        for strict in (True, False):
            with self.subTest(strict=strict):
                rates, last = self.kills(strict)
                self.assertLess(abs(last), 1e-12)
                for clock, rate in rates.items():
                    self.assertEqual(rate, expected[clock], clock)
                if strict:
                    self.assertEqual(sorted(rates), list(range(600)))


class LossTest(TorchCase):

    def test_losses_stay_tensors_and_hold_no_graph(self):
        def script(peer):
            begin(peer, TIED)
            self.assertEqual(peer.train(2)["loss"], 2.0)
            self.assertEqual(peer.train(1)["loss"], "NaN")
            peer.end()

        with self.exchange(script), self.island(model=Tied()) as island:
            loss = torch.tensor(1.0, requires_grad=True) * 1
            island.step(loss=loss, tokens=torch.tensor(3))
            waiting, = island._train._waiting.values()
            self.assertIsInstance(waiting, torch.Tensor)
            self.assertIsNone(waiting.grad_fn)
            island.step(loss=torch.tensor([3.0], dtype=torch.bfloat16))
            island.step(loss=torch.tensor(float("nan")))

    def test_a_tensor_that_is_no_count_of_tokens_is_an_error(self):
        def script(peer):
            begin(peer, {"weight": [1, 1], "bias": [1]}, weight_unit="tokens")
            peer.tell("train", step_count=1)
            self.assertEqual(peer.wait_for_close()[0]["error"]["reason"],
                             "WRONG_WEIGHT")

        for number, weight in enumerate((float("nan"), -1.0, [1.0, 2.0])):
            address = os.environ["ATOLL_SOCKET"] = self.path("s%d" % number)
            with FakeExchange(address, script), self.assertRaisesRegex(
                    atoll.Error, "^tokens is "), self.island(
                        model=torch.nn.Linear(1, 1)) as island:
                island.step(tokens=torch.tensor(weight))

    def test_a_loss_may_be_in_memory_that_the_next_step_writes(self):
        def script(peer):
            begin(peer, TIED)
            self.assertEqual(peer.train(2)["loss"], 2.0)
            peer.end()

        with self.exchange(script), self.island(model=Tied()) as island:
            loss = torch.empty(())  # As the output of a CUDA graph.
            for value in (1.0, 3.0):
                island.step(loss=loss.fill_(value))


if __name__ == "__main__":
    cases.main()
