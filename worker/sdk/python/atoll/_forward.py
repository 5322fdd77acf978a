"""A step's weight, counted in the forward passes of a torch module."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from . import _torch
from .errors import Error

Weight = Callable[[tuple[Any, ...], Mapping[str, Any]], int]
_HINT = ("Give weight=lambda args, kwargs: ..., what a forward pass counts "
         "for, or make an atoll.Island and call its step.")


def _first_tensor(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """`input_ids`, or the first tensor; None: there is no tensor."""
    named = dict(kwargs)
    for value in args:
        if isinstance(value, Mapping):  # The batch of a tokenizer.
            named.update(value)
    if _torch.is_tensor(named.get("input_ids")):
        return named["input_ids"]
    return next((value for value in (*args, *named.values())
                 if _torch.is_tensor(value)), None)


def tokens(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """The elements of `input_ids`, or of a first tensor of integers."""
    tensor = _first_tensor(args, kwargs)
    if tensor is None or tensor.is_floating_point() or tensor.is_complex():
        raise _no_weight("tokens, and the model's first tensor is %s" % (
            "missing" if tensor is None else "of %s" % tensor.dtype))
    return tensor.numel()


def samples(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """The first dimension of that tensor."""
    tensor = _first_tensor(args, kwargs)
    if tensor is None or not tensor.ndim:
        raise _no_weight("samples, and the model's first tensor is missing or "
                         "has no dimension")
    return tensor.shape[0]


UNITS: dict[str, Weight] = {"tokens": tokens, "samples": samples}


def _no_weight(what: str) -> Error:
    return Error("the run counts " + what, reason="NO_WEIGHT",
                 code="INVALID_ARGUMENT", hint=_HINT)


class Passes:
    """Counts the forward passes that train, by a hook of the module."""

    def __init__(self, model: Any, unit: str, weight: Weight | None):
        """
        Args:
          unit: The unit that this rank counts; without a hook if it is neither
            tokens nor samples.
          weight: Counts a pass, instead of this module.
        """
        self._unit = unit
        self._count = (weight or UNITS[unit]) if unit in UNITS else None
        self._weight: int | None = None  # None: there was no pass.
        self._handle = None
        if self._count is not None:
            self._handle = model.register_forward_pre_hook(
                _torch.loaded().compiler.disable(self._on_forward),
                with_kwargs=True)

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()

    def _on_forward(self, model: Any, args: tuple[Any, ...],
                    kwargs: Mapping[str, Any]) -> None:
        assert self._count is not None
        if model.training and _torch.loaded().is_grad_enabled():
            self._weight = (self._weight or 0) + self._count(args, kwargs)

    def drop(self) -> None:
        """Forgets the passes of a step that was skipped."""
        self._weight = None

    def take(self) -> dict[str, int]:
        """The passes since the last call, as an argument of Island.step.

        Error NO_WEIGHT: no pass was seen.
        """
        if self._count is None:
            return {}
        weight, self._weight = self._weight, None
        if weight is None:
            raise _no_weight(self._unit + ", and the step had no forward pass "
                             "of the attached model in training mode")
        return {self._unit: weight}
