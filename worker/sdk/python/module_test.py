#!/usr/bin/python3
"""The tensors of a module that islands average, without torch."""

import os
import sys
import types
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "testing"))

import cases  # noqa: E402

import atoll  # noqa: E402
from atoll import _module  # noqa: E402
from atoll import _torch  # noqa: E402


class FakeParameter:

    def __init__(self, shape, is_trained=True):
        self.shape = shape
        self.requires_grad = is_trained

    def detach(self):
        return self

    @staticmethod
    def is_floating_point():
        return True


class SharedTensorsTest(cases.FolderCase):

    def setUp(self):
        super().setUp()
        unusual = mock.patch.object(_torch, "refuse_unusual")
        unusual.start()
        self.addCleanup(unusual.stop)
        self.parameters = {"a": FakeParameter((2, 3)), "b": FakeParameter((2,)),
                           "frozen": FakeParameter((4,), False)}
        self.tensors = _module.SharedTensors(types.SimpleNamespace(
            named_parameters=lambda: list(self.parameters.items())), "local",
            {"b": "bias"})

    def check_moved(self, name):
        with self.assertRaisesRegex(atoll.Error, "^%s " % name) as caught:
            self.tensors.now()
        self.assertEqual(caught.exception.reason, "PARAMETER_MOVED")

    def test_a_parameter_that_takes_the_place_of_another_is_found(self):
        new = self.parameters["a"] = FakeParameter((2, 3))
        self.assertIs(self.tensors.now()["a"].tensor, new)

    def test_a_parameter_that_is_frozen_later_is_found(self):
        self.parameters["b"].requires_grad = False
        self.assertEqual(list(self.tensors.now()), ["a", "bias"])

    def test_other_names_and_shapes_are_refused(self):
        self.parameters["a"].shape = (3, 2)
        self.check_moved("a")
        del self.parameters["a"]
        self.check_moved("a")
        self.parameters["a"] = FakeParameter((2, 3))
        self.parameters["frozen"].requires_grad = True
        self.check_moved("frozen")

    def test_names_that_no_run_may_have_are_written_in_ascii(self):
        self.parameters["gr\u00f6\u00dfe"] = FakeParameter((1,))
        tensors = _module.SharedTensors(types.SimpleNamespace(
            named_parameters=lambda: list(self.parameters.items())))
        self.assertEqual(list(tensors.now()), ["a", "b", "gr_uf6__udf_e"])

    def make(self, optimizer, masters=None):
        return _module.SharedTensors(types.SimpleNamespace(
            named_parameters=lambda: list(self.parameters.items())),
            masters=masters, optimizers=[optimizer])

    def optimizer(self, *stepped):
        return types.SimpleNamespace(param_groups=[{"params": list(stepped)}],
                                     state={})

    def test_an_optimizer_that_steps_masters_is_refused(self):
        master = FakeParameter((2, 3))
        with self.assertRaises(atoll.Error) as caught:
            self.make(self.optimizer(master))
        self.assertEqual(caught.exception.reason, "MASTER_PARAMETERS")
        found = self.make(self.optimizer(master), {"a": master}).now()
        self.assertIs(found["a"].master, master)
        self.assertIs(found["b"].master, self.parameters["b"])
        with self.assertRaisesRegex(atoll.Error, "parameters has b"):
            self.make(self.optimizer(master), {"b": master})

    def test_an_optimizer_with_masters_in_its_state_is_refused(self):
        optimizer = self.optimizer(self.parameters["a"])
        tensors = self.make(optimizer)
        optimizer.state[self.parameters["a"]] = {"master_param": None}
        with self.assertRaisesRegex(atoll.Error, "MASTER_PARAMETERS"):
            tensors.now()

    def test_an_optimizer_that_steps_what_was_replaced_is_refused(self):
        self.tensors = self.make(self.optimizer(*self.parameters.values()))
        self.parameters["a"] = FakeParameter((2, 3))
        self.check_moved("a")


if __name__ == "__main__":
    cases.main()
