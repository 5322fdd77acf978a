#!/usr/bin/python3
"""atoll.attach. By hand: VENV/bin/python worker/sdk/python/torch_attach_test.py

Debian's packages that the build needs have no torch: Bazel does not run this.
"""

import multiprocessing
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402
import fake_exchange  # noqa: E402
from fake_exchange import FakeExchange  # noqa: E402

import torch  # noqa: E402

import atoll  # noqa: E402
from atoll import _forward  # noqa: E402

try:
    from torchdata import stateful_dataloader
except ImportError:
    stateful_dataloader = None

_FORK = multiprocessing.get_context("fork")
LAYOUT = {"weight": [1, 2], "bias": [1]}


def begin(peer, layout=None, value=0.25, **hello):
    peer.hello(1, **hello)
    peer.layout([layout or LAYOUT])
    peer.ask("load", save_id="")
    peer.write(value)


class AttachCase(cases.FolderCase):

    def setUp(self):
        super().setUp()
        os.environ["ATOLL_SOCKET"] = self.path("socket")
        torch.set_num_threads(1)
        torch.manual_seed(3)
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.events = []
        self.count = 0

    def attach(self, *scripts, model=None, optimizer=None, **options):
        """Attaches to an exchange of its own, which plays the scripts."""
        self.count += 1
        os.environ["ATOLL_SOCKET"] = self.path("s%d" % self.count)
        exchange = FakeExchange(os.environ["ATOLL_SOCKET"], *scripts)
        exchange.__enter__()
        self.addCleanup(lambda: exchange.__exit__(None, None, None))
        island = atoll.attach(
            model or self.model, optimizer or self.optimizer,
            run=fake_exchange.RUN, coordinator="nobody:1",
            work_dir=self.path("w%d" % self.count),
            on_event=self.events.append, **options)
        self.addCleanup(island.close)
        return island

    def step(self, model=None, optimizer=None):
        (model or self.model)(torch.ones(3, 2)).sum().backward()
        (optimizer or self.optimizer).step()
        (optimizer or self.optimizer).zero_grad()

    def happened(self, name):
        return [e for e in self.events if e["event"] == name]


class Container(torch.optim.Optimizer):
    """Steps several optimizers, as torchtitan's does."""

    def __init__(self, optimizers):
        super().__init__([parameter for of in optimizers
                          for group in of.param_groups
                          for parameter in group["params"]], {})
        self.optimizers = optimizers

    def step(self, closure=None):
        for optimizer in self.optimizers:
            optimizer.step()


class LoopTest(AttachCase):

    def test_the_model_has_the_run_s_parameters_and_each_step_counts(self):
        seen = []

        def script(peer):
            begin(peer)
            seen.append(peer.train(3)["step_count"])
            seen.append(peer.read()[0].tolist())
            peer.write(0.5)
            seen.append(peer.train(1)["step_count"])
            peer.write(7)
            peer.end()

        island = self.attach(script)
        for parameter in self.model.parameters():
            self.assertTrue((parameter == 0.25).all())
        for _ in range(3):
            self.step()
        self.assertEqual(self.model.bias.item(), 0.5)
        self.assertFalse(island.ended)
        self.step()
        self.assertEqual(seen, ["3", [-4.25] * 3, "1"])
        self.assertTrue(island.ended)
        self.assertEqual(self.model.bias.item(), 7)

    def test_after_the_end_a_step_raises_before_it_changes_anything(self):
        def script(peer):
            begin(peer, {"weight": [2], "bias": [2], "running_mean": [2],
                         "running_var": [2]})
            peer.train(1)
            peer.write(2)
            peer.end()

        norm = torch.nn.BatchNorm1d(2)
        optimizer = torch.optim.Adam(norm.parameters())
        self.attach(script, model=norm, optimizer=optimizer, buffers="average")
        data = torch.arange(6.0).reshape(3, 2)
        norm(data).square().sum().backward()
        optimizer.step()
        before = [v.clone() for v in optimizer.state[norm.weight].values()]
        for _ in range(2):
            norm(data).square().sum().backward()
            with self.assertRaisesRegex(atoll.RunEnded, "final parameters"):
                optimizer.step()
            for value in (norm.weight, norm.bias, norm.running_mean,
                          norm.running_var):
                self.assertTrue((value == 2).all(), value)
        for one, other in zip(before, optimizer.state[norm.weight].values()):
            self.assertTrue(torch.equal(one, other))

    def test_of_a_complete_run_it_has_the_parameters_and_trains_no_step(self):
        def script(peer):
            peer.hello(1)
            peer.layout([LAYOUT])
            peer.write(0.125)
            peer.end()

        island = self.attach(script)
        self.assertTrue(island.ended)
        self.assertEqual(list(island.batches([1])), [])
        with self.assertRaises(atoll.RunEnded):
            self.step()
        for parameter in self.model.parameters():
            self.assertTrue((parameter == 0.125).all())

    def test_an_island_that_was_closed_takes_no_step(self):
        def script(peer):
            begin(peer)
            self.assertTrue(peer.train(3)["leave"])
            peer.end(complete=False)

        island = self.attach(script)
        self.step()
        island.close()
        with self.assertRaisesRegex(atoll.RunEnded, "island has left"):
            self.step()

    def test_a_loop_that_counts_its_steps_too_is_refused(self):
        def script(peer):
            begin(peer)
            self.assertEqual(peer.train(2)["step_count"], "2")
            peer.end()

        island = self.attach(script)
        self.step()
        with self.assertRaisesRegex(atoll.Error, "(?s)twice.*atoll.Island"):
            island.step(loss=1.0)
        self.step()
        self.assertTrue(island.ended)

    def test_the_rate_is_scaled_for_a_step(self):
        def script(peer):
            begin(peer, value=0)
            peer.ask("train", step="0", step_count="1", lr_scale=0.5)
            peer.ask("train", step="1", step_count="1", lr_scale=1.0)
            peer.end()

        self.attach(script)
        self.step()  # The gradient is 3.
        self.assertEqual(self.model.bias.item(), -0.75)
        self.assertEqual(self.optimizer.param_groups[0]["lr"], 0.5)
        self.step()
        self.assertEqual(self.model.bias.item(), -2.25)

    def test_several_optimizers_are_one_step_when_each_has_stepped(self):
        def script(peer):
            begin(peer)
            for step in range(2):
                self.assertEqual(peer.train(1, step=step)["step_count"], "1")
            peer.end()

        critic = torch.optim.SGD([self.model.weight], lr=0.1)
        maker = torch.optim.Adam([self.model.bias], lr=0.1)
        island = self.attach(script, optimizer=[critic, maker])
        for _ in range(2):
            self.assertFalse(island.ended)
            for optimizer in (critic, critic, maker):
                self.step(optimizer=optimizer)
        self.assertTrue(island.ended)
        with self.assertRaises(atoll.RunEnded):
            critic.step()

    def test_a_step_that_calls_its_base_class_s_is_one(self):
        class Loud(torch.optim.SGD):

            def step(self, closure=None):
                return super().step(closure)

        def script(peer):
            begin(peer, value=0)
            peer.ask("train", step="0", step_count="2", lr_scale=0.5)
            peer.end()

        optimizer = Loud(self.model.parameters(), lr=0.5)
        island = self.attach(script, optimizer=optimizer)
        self.step(optimizer=optimizer)
        self.assertFalse(island.ended)
        self.assertEqual(self.model.bias.item(), -0.75)
        self.step(optimizer=optimizer)
        self.assertTrue(island.ended)

    def test_a_step_that_failed_may_be_tried_again(self):
        class Fails(torch.optim.SGD):

            fails = True

            def step(self, closure=None):
                if self.fails:
                    raise MemoryError
                return super().step(closure)

        def script(peer):
            begin(peer, value=0)
            answer = peer.ask("train", step="0", step_count="1", lr_scale=0.5)
            self.assertEqual(answer["step_count"], "1")
            peer.end()

        optimizer = Fails(self.model.parameters(), lr=0.5)
        self.attach(script, optimizer=optimizer)
        with self.assertRaises(MemoryError):
            self.step(optimizer=optimizer)
        optimizer.fails = False
        optimizer.step()
        self.assertEqual(self.model.bias.item(), -0.75)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.5)

    def test_another_attach_takes_the_optimizer(self):
        def leave(peer):
            begin(peer)
            peer.ask("train", step="0", step_count="9", lr_scale=1.0)
            peer.end(complete=False)

        def script(peer):
            begin(peer)
            self.assertEqual(peer.train(2)["step_count"], "2")
            peer.end()

        self.attach(leave).close()
        self.attach(script)
        self.step()
        self.step()

    def test_an_optimizer_that_is_not_attached_is_refused_by_name(self):
        def script(peer):
            begin(peer)
            self.assertEqual(peer.train(1)["step_count"], "1")
            peer.write(2)
            peer.end()

        other = torch.nn.Linear(2, 1)
        uncounted = torch.optim.SGD([self.model.bias], lr=0)
        island = self.attach(script, state={"uncounted": uncounted})
        anew = torch.optim.Adam(self.model.parameters(), lr=1)
        for _ in range(2):
            with self.assertRaisesRegex(atoll.Error,
                                        "(?s)Adam .*not attached.*before "
                                        "atoll.attach"):
                self.step(optimizer=anew)
        self.assertTrue((self.model.weight == 0.25).all())
        self.step(other, torch.optim.Adam(other.parameters()))
        self.step(optimizer=uncounted)
        self.assertFalse(island.ended)
        self.step()
        self.assertTrue(island.ended)
        # After the run the program may step the model as it likes.
        self.step(optimizer=anew)
        self.assertNotEqual(self.model.bias.item(), 2)

    def test_an_optimizer_may_step_an_attached_one_and_be_stepped_by_one(self):
        class Outer(torch.optim.Optimizer):

            def __init__(self, parameters, inner):
                super().__init__(parameters, {})
                self.inner = inner

            def step(self, closure=None):
                self.inner.step()

        class Wrapper(torch.optim.Optimizer):

            def __init__(self, optimizer):
                super().__init__(optimizer.param_groups, {})
                self.optimizer = optimizer

            def step(self, closure=None):
                self.optimizer.step()

        def script(peer):
            begin(peer)
            self.assertEqual(peer.train(2)["step_count"], "2")
            peer.end()

        outer = Outer(self.model.parameters(), self.optimizer)
        island = self.attach(script, optimizer=outer)
        wrapper = Wrapper(outer)
        self.step(optimizer=outer)
        self.step(optimizer=wrapper)
        self.assertTrue(island.ended)

    def test_a_container_of_attached_optimizers_may_step_them(self):
        def script(peer):
            begin(peer)
            self.assertEqual(peer.train(2)["step_count"], "2")
            peer.end()

        parts = [torch.optim.SGD([self.model.weight], lr=0.1),
                 torch.optim.SGD([self.model.bias], lr=0.1)]
        island = self.attach(script, optimizer=parts)
        container = Container(parts)
        with self.assertRaisesRegex(atoll.Error, "NOT_ATTACHED"):
            self.step(optimizer=Container([self.optimizer]))
        for _ in range(2):
            self.assertFalse(island.ended)
            self.step(optimizer=container)
        self.assertTrue(island.ended)
        with self.assertRaises(atoll.RunEnded):
            container.step()

    def test_an_attached_container_may_step_its_own_optimizers(self):
        def script(peer):
            begin(peer)
            self.assertEqual(peer.train(2)["step_count"], "2")
            peer.end()

        container = Container([torch.optim.SGD([self.model.weight], lr=0.1),
                               torch.optim.SGD([self.model.bias], lr=0.1)])
        island = self.attach(script, optimizer=container)
        for _ in range(2):
            self.assertFalse(island.ended)
            self.step(optimizer=container)
        self.assertTrue(island.ended)

    def test_as_a_block_it_closes_and_tells_an_exception(self):
        def complete(peer):
            begin(peer)
            peer.train(1)
            peer.write(2)
            peer.end()

        def fails(peer):
            begin(peer)
            peer.tell("train", step="0", step_count="9", lr_scale=1.0)
            told.append(peer.receive())

        told = []
        with self.attach(complete) as island:
            self.step()
        self.assertTrue(island.ended)
        self.assertEqual(self.model.bias.item(), 2)
        with self.assertRaises(MemoryError), self.attach(fails):
            self.step()
            raise MemoryError("no room")
        self.assertIn("no room", told[0]["error"]["message"])

    def test_what_accelerate_wraps_is_found(self):
        class Wrapper(torch.optim.Optimizer):

            def __init__(self, optimizer, scaler):  # Without super's.
                self.optimizer, self.scaler = optimizer, scaler

        def script(peer):
            begin(peer)
            self.assertEqual(peer.train(1)["step_count"], "1")
            peer.end()

        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        island = self.attach(script, optimizer=Wrapper(self.optimizer, scaler))
        self.scaled_step(scaler)
        self.assertEqual(len(self.happened("skipped")), 1)
        self.assertFalse(island.ended)
        self.scaled_step(scaler)
        self.assertTrue(island.ended)

    def scaled_step(self, scaler, optimizer=None):
        scaler.scale(self.model(torch.ones(3, 2)).sum()).backward()
        scaler.step(optimizer or self.optimizer)
        scaler.update()
        (optimizer or self.optimizer).zero_grad()

    def test_a_step_that_mixed_precision_skips_does_not_count(self):
        for fused in (False, True):
            def script(peer):
                begin(peer, value=0)
                answers.append(peer.train(2))
                peer.ask("save", save_id="two")
                peer.end()

            answers = []
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5,
                                        fused=fused)
            # 3 * 2**128 and 3 * 2**127 are infinite; 3 * 2**126 is not.
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127,
                                          growth_interval=1000)
            island = self.attach(script, optimizer=optimizer, scaler=scaler)
            self.events.clear()
            for count in range(3):
                self.assertFalse(island.ended)
                self.scaled_step(scaler, optimizer)
                self.assertEqual(len(self.happened("skipped")), 1, fused)
                self.assertEqual(self.model.bias.item(), -1.5 * count)
            self.assertTrue(island.ended)
            self.assertEqual(answers[0]["step_count"], "2")

    def test_a_scaler_is_a_part_of_the_state(self):
        def first(peer):
            begin(peer)
            peer.train(1)
            peer.ask("save", save_id="one")
            peer.train(2, step=1)

        def second(peer):
            peer.hello(1)
            peer.layout([LAYOUT])
            peer.ask("load", save_id="one")
            peer.write(0.25)
            peer.train(1, step=1)
            peer.end()

        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        island = self.attach(first, second, scaler=scaler)
        self.scaled_step(scaler)
        scaler.load_state_dict({**scaler.state_dict(), "scale": 1024.0})
        while not island.ended:
            self.scaled_step(scaler)
        self.assertEqual(scaler.get_scale(), 4.0)


class ScheduleTest(AttachCase):

    def test_schedulers_follow_the_run_s_clock(self):
        def script(peer):
            begin(peer)
            peer.train(2, step=4)
            rates.append(schedule.get_last_lr())
            peer.train(1, step=20)  # The island has missed some.
            peer.end()

        rates = []
        schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer,
                                                     lambda step: 1 + step)
        island = self.attach(script, scheduler=schedule)
        while not island.ended:
            rates.append(schedule.get_last_lr()[0])
            self.step()
            schedule.step()  # As it was in the loop.
        self.assertEqual(rates, [2.5, 3, [3.5], 10.5])
        self.assertEqual(type(schedule.state_dict()["last_epoch"]), int)
        self.assertNotIn("step", schedule.state_dict())

    def test_they_stay_at_the_end_of_a_run_that_ended_without_the_island(self):
        def script(peer):
            begin(peer, planned_step_count="20")
            peer.end()

        schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1, 0, 20)
        island = self.attach(script, scheduler=schedule)
        for _ in range(2):
            self.assertEqual((schedule.last_epoch, schedule.get_last_lr()),
                             (20, [0]))
            island.close()

    def test_one_that_ends_before_the_run_fails_no_complete_run(self):
        def script(peer):
            begin(peer, planned_step_count="20")
            peer.train(3)
            peer.end()

        schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 1,
                                                       total_steps=18)
        island = self.attach(script, scheduler=schedule)
        with self.assertLogs("atoll", "WARNING") as logs:
            for _ in range(3):
                self.step()
        self.assertTrue(island.ended)
        self.assertIn("cannot be moved to its last step, 20", logs.output[0])

    def test_a_loop_need_not_step_them(self):
        def script(peer):
            begin(peer)
            peer.train(3)
            peer.end()

        schedules = [torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.5),
                     torch.optim.lr_scheduler.ConstantLR(self.optimizer, 0.5)]
        self.attach(script, scheduler=schedules)
        for _ in range(3):
            self.step()
        self.assertEqual([s.last_epoch for s in schedules], [3, 3])


    def test_a_loop_that_steps_them_more_rarely_is_refused(self):
        def script(peer):
            begin(peer)
            peer.ask("train", step="0", step_count="9", lr_scale=1.0)
            peer.wait_for_close()

        for steps in (1, 2):  # In an epoch.
            schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
            self.attach(script, scheduler=schedule)
            for _ in range(2):
                for _ in range(steps):
                    self.step()
                if steps == 1:
                    schedule.step()
                    continue
                with self.assertRaisesRegex(
                        atoll.Error, "StepLR after 2 steps.*(?s:.*)len"):
                    schedule.step()
                break

    def test_one_that_it_was_not_given_is_told(self):
        def script(peer):
            begin(peer)
            peer.end()

        schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.attach(script)
        self.attach(script, scheduler=schedule)
        told, = self.happened("warned")
        self.assertIn("scheduler", told["message"])


class CompiledTest(AttachCase):

    def test_a_compiled_step_counts(self):
        def script(peer):
            begin(peer)
            self.assertEqual(peer.train(2)["step_count"], "2")
            peer.end()

        def step():
            self.optimizer.step()

        island = self.attach(script)
        compiled = torch.compile(step, backend="eager")
        for _ in range(2):
            self.model(torch.ones(3, 2)).sum().backward()
            compiled()
        self.assertTrue(island.ended)


class ClosureTest(AttachCase):

    def test_a_closure_is_evaluated_once_a_step(self):
        def script(peer):
            begin(peer, value=0)
            self.assertEqual(peer.train(2)["step_count"], "2")
            peer.end()

        def closure():
            calls.append(1)
            self.optimizer.zero_grad()
            loss = self.model(torch.ones(3, 2)).sum()
            loss.backward()
            return loss

        calls = []
        self.attach(script)
        self.assertEqual(self.optimizer.step(closure).item(), 0)
        self.optimizer.step(closure=closure)
        with self.assertRaises(atoll.RunEnded):
            self.optimizer.step(closure)
        self.assertEqual(len(calls), 2)

    def test_a_second_evaluation_is_refused_by_name(self):
        class Twice(torch.optim.SGD):

            def step(self, closure):
                closure()
                return super().step(closure)

        def script(peer):
            begin(peer)
            peer.ask("train", step="0", step_count="9", lr_scale=1.0)
            peer.end(complete=False)

        optimizer = Twice(self.model.parameters(), lr=0.5)
        self.attach(script, optimizer=optimizer)
        with self.assertRaisesRegex(atoll.Error, "Twice.*(?s:.*)atoll.Island"):
            optimizer.step(lambda: self.model(torch.ones(3, 2)).sum())


class RefusalTest(AttachCase):
    """Each names what was wrong, and what to do. No exchange is started."""

    def refuse(self, pattern, optimizer, **options):
        with self.assertRaisesRegex(atoll.Error, pattern) as caught:
            atoll.attach(self.model, optimizer, run="spring",
                         work_dir=self.path("work"), **options)
        self.assertTrue(caught.exception.hint)

    def test_lbfgs(self):
        self.refuse("LBFGS .*CLOSURE",
                    torch.optim.LBFGS(self.model.parameters()))

    def test_a_wrapper_with_a_state_of_its_own(self):
        class Lookahead(torch.optim.Optimizer):

            def __init__(self, optimizer):
                self.optimizer = optimizer

            def state_dict(self):
                return {**self.optimizer.state_dict(), "slow": {}}

        self.refuse("Lookahead saves a state", Lookahead(self.optimizer))

    def test_what_is_no_optimizer(self):
        self.refuse("dict is not", {})
        self.refuse("str is not", [self.optimizer, "adam"])
        with self.assertRaisesRegex(atoll.Error, "needs an optimizer"):
            atoll.attach(self.model, [], run="spring")

    def test_an_optimizer_that_torch_puts_into_backward(self):
        self.model.bias._in_backward_optimizers = [self.optimizer]
        self.refuse("SGD steps inside backward", self.optimizer)

    def test_an_optimizer_of_other_parameters(self):
        self.refuse("MASTER_PARAMETERS", torch.optim.SGD(
            [torch.nn.Parameter(torch.ones(1))], lr=1))

    def test_a_scheduler_that_follows_the_loss(self):
        self.refuse("ReduceLROnPlateau", self.optimizer, scheduler=(
            torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer)))

    def test_a_scheduler_in_the_state(self):
        self.refuse("is a scheduler", self.optimizer, state={
            "rate": torch.optim.lr_scheduler.ConstantLR(self.optimizer)})

    def test_an_optimizer_that_steps_inside_backward(self):
        def script(peer):
            begin(peer)
            peer.ask("train", step="0", step_count="9", lr_scale=1.0)
            peer.end(complete=False)

        optimizers = {p: torch.optim.Adam([p], lr=1)
                      for p in self.model.parameters()}
        self.attach(script, optimizer=list(optimizers.values()))
        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(
                lambda p: optimizers[p].step())
        with self.assertRaisesRegex(atoll.Error, "Adam steps inside backward"):
            self.model(torch.ones(3, 2)).sum().backward()
        for parameter in optimizers:
            self.assertTrue((parameter == 0.25).all())


class WeightTest(AttachCase):

    def test_passes_that_train_are_counted(self):
        ids = torch.ones(2, 5, dtype=torch.int64)
        for unit, inputs, count in (
                ("tokens", ((ids,), {}), 10), ("samples", ((ids,), {}), 2),
                ("tokens", ((), {"mask": ids[:1], "input_ids": ids}), 10),
                ("tokens", (({"input_ids": ids},), {}), 10),
                ("samples", ((None, torch.ones(3, 2)), {}), 3)):
            model = _Anything()
            passes = _forward.Passes(model, unit, None)
            model(*inputs[0], **inputs[1])
            model(*inputs[0], **inputs[1])
            self.assertEqual(passes.take(), {unit: 2 * count})
            model.eval()
            model(*inputs[0], **inputs[1])
            model.train()
            with torch.no_grad():
                model(*inputs[0], **inputs[1])
            with self.assertRaisesRegex(atoll.Error, "no forward pass"):
                passes.take()
            passes.remove()

    def test_what_cannot_be_counted_is_refused(self):
        for unit, inputs, what in (
                ("tokens", (torch.ones(2),), "torch.float32"),
                ("tokens", (), "missing"), ("samples", (3,), "missing"),
                ("samples", (torch.tensor(1),), "no dimension")):
            model = _Anything()
            passes = _forward.Passes(model, unit, None)
            with self.assertRaisesRegex(atoll.Error, what):
                model(*inputs)
            passes.remove()
            passes = _forward.Passes(model, unit, lambda args, kwargs: 4)
            model(*inputs)
            self.assertEqual(passes.take(), {unit: 4})

    def test_other_runs_have_no_hook(self):
        model = _Anything()
        for unit in ("", "steps"):
            passes = _forward.Passes(model, unit, lambda args, kwargs: 4)
            self.assertEqual(passes.take(), {})
        self.assertFalse(model._forward_pre_hooks)

    def test_a_run_gets_its_unit(self):
        def script(peer):
            begin(peer, weight_unit=unit)
            answers.append(peer.train(2)["token_count"])
            peer.end()

        answers = []
        for unit, weight in (("samples", None), ("tokens", lambda *_: 7),
                             ("steps", None)):
            self.attach(script, weight=weight)
            self.step()
            self.model(torch.ones(3, 2))  # Another micro-batch.
            self.step()
        self.assertEqual(answers, ["9", "21", "2"])


class _Anything(torch.nn.Module):

    def forward(self, *args, **kwargs):
        return None


class Sampler(list):
    """A sampler that keeps the numbers of its epochs."""

    def set_epoch(self, epoch):
        self.append(epoch)


class Loader:
    """A loader of three batches whose position is its state."""

    def __init__(self):
        self.sampler, self.position = Sampler(), 0

    def __iter__(self):
        while self.position < 3:
            self.position += 1
            yield self.position
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class BatchesTest(AttachCase):

    def test_the_loader_is_repeated_until_the_run_ends(self):
        def script(peer):
            begin(peer)
            peer.train(8)
            peer.end()

        loader, seen = Loader(), []
        for batch in self.attach(script).batches(loader):
            seen.append(batch)
            self.step()
        self.assertEqual(seen, [1, 2, 3, 1, 2, 3, 1, 2])
        self.assertEqual(loader.sampler, [0, 1, 2])

    def test_a_restore_changes_the_epoch_and_the_position(self):
        def first(peer):
            begin(peer)
            peer.train(2)
            peer.ask("save", save_id="two")
            peer.train(2, step=2)

        def second(peer):
            peer.hello(1)
            peer.layout([LAYOUT])
            peer.ask("load", save_id="two")
            peer.write(0.25)
            peer.train(3, step=2)
            peer.end()

        loader, seen = Loader(), []
        island = self.attach(first, second, state={"loader": loader})
        for batch in island.batches(loader):
            seen.append(batch)
            self.step()
        # Steps 3 and 4 are repeated.
        self.assertEqual(seen, [1, 2, 3, 1, 3, 1, 2])
        self.assertEqual(loader.sampler, [0, 1, 0, 1])

    def test_a_generator_is_refused(self):
        def script(peer):
            begin(peer)
            peer.ask("train", step="0", step_count="9", lr_scale=1.0)
            peer.end(complete=False)

        island = self.attach(script)
        with self.assertRaisesRegex(atoll.Error, "NO_BATCHES"):
            for _ in island.batches(iter([1, 2])):
                self.step()


@unittest.skipIf(stateful_dataloader is None, "torchdata is not installed")
class StatefulLoaderTest(AttachCase):
    """A strict run of five rounds of two steps; three steps are an epoch."""

    def loop(self, attaches, workers, shuffle):
        """One life of a trainer."""
        torch.manual_seed(3)
        model = torch.nn.Linear(2, 1)
        dropout = torch.nn.Dropout(0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = stateful_dataloader.StatefulDataLoader(
            torch.linspace(-1, 1, 18).reshape(9, 2), 3, shuffle=shuffle,
            num_workers=workers)
        options = {"run": fake_exchange.RUN, "model": model,
                   "work_dir": self.path("w%d" % self.count)}
        if attaches:
            island = atoll.attach(optimizer=optimizer, coordinator="nobody:1",
                                  state={"loader": loader}, **options)
        else:
            island = atoll.Island("nobody:1", state={
                "loader": loader, "optimizer": optimizer}, **options)
        with island:
            while not island.ended:
                # Both ways to read a loader.
                for x in island.batches(loader) if attaches else loader:
                    model(dropout(x)).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    if not attaches and not island.step():
                        break

    def train(self, deaths, *how):
        """The final parameters. Each round of `deaths` kills a trainer once."""
        record, left = [0, "", 0.25], list(deaths)
        trainer, codes = [], []

        def script(peer):
            version, save_id, values = record
            peer.hello(1)
            peer.layout([LAYOUT])
            peer.ask("load", save_id=save_id)
            for version in range(version, 5):
                peer.write(values)
                peer.train(2, step=2 * version)
                values = peer.read()[0]
                if version in left:
                    left.remove(version)
                    trainer[0].kill()
                    return
                save_id = "v%d" % version
                peer.ask("save", save_id=save_id)
                record[:] = version + 1, save_id, values
            peer.end()

        self.count += 1
        socket = os.environ["ATOLL_SOCKET"] = self.path("s%d" % self.count)
        with FakeExchange(socket, *[script] * (1 + len(deaths))):
            for _ in [*deaths, None]:
                trainer[:] = [_FORK.Process(target=self.loop, args=how)]
                trainer[0].start()
                trainer[0].join()  # A bound would wait for its workers.
                codes.append(trainer[0].exitcode)
        self.assertEqual(codes, [-signal.SIGKILL] * len(deaths) + [0])
        return record[2].tolist()

    def test_a_trainer_that_starts_again_repeats_its_dropout(self):
        for attaches in (True, False):
            for workers in (0, 2):
                for shuffle in (True, False):
                    how = attaches, workers, shuffle
                    undisturbed = self.train([], *how)
                    # Round 0 has no save before it; round 3 begins at the end
                    # of an epoch, and the others within one.
                    for deaths in ([0], [1], [3], [0, 2, 4]):
                        self.assertEqual(self.train(deaths, *how), undisturbed,
                                         (how, deaths))


if __name__ == "__main__":
    cases.main()
