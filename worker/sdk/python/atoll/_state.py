"""The trainer's state: what decides the next step and is not a parameter."""

from __future__ import annotations

import random
from typing import Any, Callable, Mapping

import numpy as np

from . import _torch
from .errors import Error


def _accessors(name: str, thing: Any) -> tuple[Callable[[], Any],
                                               Callable[[Any], None]]:
    """How to read and to replace the state of `thing`."""
    if callable(getattr(thing, "state_dict", None)) and callable(
            getattr(thing, "load_state_dict", None)):
        return thing.state_dict, thing.load_state_dict
    if isinstance(thing, np.random.Generator):
        bits = thing.bit_generator

        def replace(value: Any) -> None:
            bits.state = value

        return lambda: bits.state, replace
    if isinstance(thing, dict):

        def refill(value: Any) -> None:
            thing.clear()
            thing.update(value)

        return lambda: thing, refill
    torch = _torch.loaded()
    if torch is not None and isinstance(thing, torch.Generator):
        return thing.get_state, thing.set_state
    raise Error("state[%r] is a %s without state_dict and load_state_dict, "
                "which a restore cannot change" % (name, type(thing).__name__),
                reason="UNSUPPORTED_STATE", code="INVALID_ARGUMENT",
                hint="Give an object with both methods (torchdata's "
                "StatefulDataLoader has them, torch's DataLoader has no "
                "position to save), a dictionary, a numpy.random.Generator or "
                "a torch.Generator. Keep numbers in a dictionary.")


def _is_generator(thing: Any) -> bool:
    torch = _torch.loaded()
    return isinstance(thing, np.random.Generator) or (
        torch is not None and isinstance(thing, torch.Generator))


def _is_stateful_loader(thing: Any) -> bool:
    return any(of.__name__ == "StatefulDataLoader"
               for of in type(thing).mro())


def _get_random() -> dict[str, Any]:
    states = {"python": random.getstate(),
              "numpy": np.random.get_state(legacy=True)}
    of_torch = _torch.get_random_state()
    if of_torch is not None:
        states["torch"] = of_torch
    return states


def _set_random(states: Mapping[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    if "torch" in states and _torch.loaded() is not None:
        _torch.set_random_state(states["torch"])


class State:
    """Captures and restores the named objects and all global generators.

    The generators are those of `random`, of `numpy.random` and, if the program
    uses torch, of torch on the CPU and on CUDA devices.

    Attributes:
      epoch: Passes over the data that are done, as a part of the state.
      restore_count: Restores so far.
    """

    def __init__(self, objects: Mapping[str, Any]):
        """Error UNSUPPORTED_STATE: an object has no state to read."""
        self._accessors = {name: _accessors(name, thing)
                           for name, thing in objects.items()}
        for name, thing in objects.items():
            drawn = getattr(thing, "generator", None)
            if _is_stateful_loader(thing) and drawn is not None and not any(
                    other is drawn for other in objects.values()):
                raise Error("state[%r] draws from a generator, which it does "
                            "not save" % name, reason="UNSUPPORTED_STATE",
                            code="INVALID_ARGUMENT", hint="Give the generator "
                            "in `state` too, or make the loader without it: "
                            "torch's global one is always saved.")
        self.epoch = self.restore_count = 0
        self._optimizers = {name for name, thing in objects.items()
                            if hasattr(thing, "param_groups")}
        self._generators = [name for name, thing in objects.items()
                            if _is_generator(thing)]
        self._fixed = next((name for name, thing in objects.items()
                            if _is_stateful_loader(thing)), None)

    def fixed_position(self) -> str | None:
        """The name of an object that a restore does not move at once.

        An iterator of torchdata's StatefulDataLoader stays where it is.
        """
        return self._fixed

    def capture(self) -> dict[str, Any]:
        """The state now. It may share memory with the objects."""
        return {"objects": {name: read()
                            for name, (read, _) in self._accessors.items()},
                "random": _get_random(), "epoch": self.epoch}

    def restore(self, captured: Mapping[str, Any],
                only_optimizers: bool = False) -> None:
        """Replaces the state. The objects may keep the memory of `captured`.

        `only_optimizers`: all but optimizers stays as it is.

        Error OTHER_STATE: it was captured from other names.
        """
        saved = captured["objects"]
        if set(saved) != set(self._accessors):
            raise Error("the saved state has %s; this trainer has %s" %
                        (sorted(saved), sorted(self._accessors)),
                        reason="OTHER_STATE", code="FAILED_PRECONDITION",
                        hint="Give the same `state` as before, or use a new "
                        "work_dir.")
        for name, (_, replace) in self._accessors.items():
            if not only_optimizers or name in self._optimizers:
                replace(saved[name])
        if only_optimizers:
            return
        for read, _ in self._accessors.values():
            read()  # torchdata's loader makes its iterator, and draws a seed.
        for name in self._generators:  # From one of these, maybe.
            self._accessors[name][1](saved[name])
        _set_random(captured["random"])
        self.epoch = captured.get("epoch", 0)
        self.restore_count += 1


class KeptRandom:
    """A `with` block that leaves the global generators as they were."""

    def __enter__(self) -> None:
        self._states = _get_random()

    def __exit__(self, *_: Any) -> None:
        _set_random(self._states)
