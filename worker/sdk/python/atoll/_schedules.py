"""Learning-rate schedules of torch that follow the run's clock."""

from __future__ import annotations

import copy
import logging
import warnings
from typing import Any, Iterable, Sequence

from . import _torch
from .errors import Error

_log = logging.getLogger("atoll")
# Schedulers change these values of an optimizer's groups.
_CHANGED = ("lr", "initial_lr", "max_lr", "min_lr", "momentum", "betas",
            "base_momentum", "max_momentum")
_STEPS_TOLD = 100_000  # More at once take seconds.


def _position(scheduler: Any) -> Any:
    """The steps of a scheduler; None: it does not tell."""
    position = getattr(scheduler, "last_epoch", None)
    inner = getattr(scheduler, "_schedulers", None)
    if position is None and inner:
        return _position(inner[0])  # ChainedScheduler steps all of them.
    return position


def _check(scheduler: Any) -> None:
    kind = type(scheduler).__name__
    if any(of.__name__ == "ReduceLROnPlateau" for of in type(scheduler).mro()):
        raise Error("scheduler is a ReduceLROnPlateau, whose rate follows from "
                    "measurements and not from the run's clock",
                    reason="UNSUPPORTED_SCHEDULER", code="INVALID_ARGUMENT",
                    hint="Make an atoll.Island, call its step before the "
                    "island's, and give it in `state`. Or plan the rates by "
                    "the step, as LambdaLR does.")
    if not all(hasattr(scheduler, name) for name in (
            "optimizer", "step", "state_dict", "load_state_dict")) or not (
                isinstance(_position(scheduler), int)):
        raise Error("scheduler is a %s, and no LRScheduler of torch" % kind,
                    reason="UNSUPPORTED_SCHEDULER", code="INVALID_ARGUMENT",
                    hint="Give the scheduler that a library has wrapped.")
    if _position(scheduler) != 0:
        raise Error("scheduler has done %d steps" % _position(scheduler),
                    reason="UNSUPPORTED_SCHEDULER", code="INVALID_ARGUMENT",
                    hint="Make it anew, without last_epoch: the island moves "
                    "it to the run's clock.")


def _copy_of(group: dict[str, Any]) -> dict[str, Any]:
    return {name: group[name].clone() if _torch.is_tensor(group[name])
            else copy.deepcopy(group[name])
            for name in _CHANGED if name in group}


class Schedules:
    """Schedulers at their first step, moved to any step by their own `step`.

    `last_epoch` of each is the run's clock: the inner steps before the next.
    """

    def __init__(self, schedulers: Any, state: Iterable[Any]):
        """`schedulers`: None, an LRScheduler or several; `state`: objects.

        Error UNSUPPORTED_SCHEDULER: one cannot follow the clock.
        """
        if schedulers is None:
            schedulers = ()
        elif not isinstance(schedulers, (list, tuple)):
            schedulers = (schedulers,)
        self._schedulers: Sequence[Any] = tuple(schedulers)
        saved = {id(thing) for thing in state}
        for scheduler in self._schedulers:
            _check(scheduler)
            if id(scheduler) in saved:
                raise Error("a scheduler is in `scheduler` and in `state`",
                            code="INVALID_ARGUMENT",
                            hint="Leave it out of `state`: a save would take "
                            "it back to an earlier step than the run's.")
        self._first = [copy.deepcopy(scheduler.state_dict())
                       for scheduler in self._schedulers]
        self._first_groups = [
            (scheduler.optimizer, [_copy_of(group) for group in
                                   scheduler.optimizer.param_groups])
            for scheduler in self._schedulers]

    def move_to(self, clock: int, again: bool) -> None:
        """Moves the schedulers and their optimizers' rates to `clock`.

        Nothing changes if they are there. `again`: the optimizers were
        restored, so their rates are of another step.
        """
        if not self._schedulers:
            return
        positions = {_position(scheduler) for scheduler in self._schedulers}
        if positions == {clock} and not again:
            return
        if again or len(positions) > 1 or max(positions) > clock:
            self._rewind()
        begin = _position(self._schedulers[0])
        if clock - begin > _STEPS_TOLD:
            _log.warning("moves the schedulers by %d steps, which may take a "
                         "while", clock - begin)
        with warnings.catch_warnings():
            # A warning tells of steps before the optimizer's first.
            warnings.simplefilter("ignore")
            for _ in range(clock - begin):
                for scheduler in self._schedulers:
                    scheduler.step()

    def _rewind(self) -> None:
        for optimizer, groups in self._first_groups:
            for group, first in zip(optimizer.param_groups, groups):
                for name, value in first.items():
                    if _torch.is_tensor(group.get(name)):
                        group[name].copy_(value)
                    else:
                        group[name] = copy.deepcopy(value)
        for scheduler, first in zip(self._schedulers, self._first):
            scheduler.load_state_dict(copy.deepcopy(first))
