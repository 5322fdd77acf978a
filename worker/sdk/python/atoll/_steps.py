"""Adds up the steps of the open `train`."""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

import numpy as np

from . import _torch
from .errors import Error

# Units of a contribution's weight; "": all contributions weigh the same.
WEIGHT_UNITS = ("", "tokens", "samples", "steps")
_WAITING_COUNT_MAX = 4096
_METRIC = re.compile(r"[A-Za-z0-9_./-]{1,64}\Z")
_METRIC_COUNT_MAX = 32


class Sums(NamedTuple):
    """One rank's steps of a `train`, or its evaluation.

    Attributes:
      metrics: {name: (weighted sum, weight)}.
    """

    step_count: int
    token_count: int
    loss: float | None
    metrics: Mapping[str, tuple[float, float]]


class Total(NamedTuple):
    """The steps of all ranks; metrics are means."""

    step_count: int
    token_count: int
    loss: float | None
    metrics: dict[str, float]

    def answer(self) -> dict[str, Any]:
        """The body of the answer to `train`."""
        body: dict[str, Any] = {"step_count": self.step_count,
                                "token_count": self.token_count}
        if self.loss is not None:
            body["loss"] = self.loss
        metrics = {name: value for name, value in self.metrics.items()
                   if math.isfinite(value)}
        if metrics:
            body["metrics"] = metrics
        return body


def total_of(ranks: Sequence[Sums], replicas: Iterable[int]) -> Total:
    """Adds up what all ranks have done.

    Tokens are those of `replicas`, the leader's data-parallel group: other
    ranks work on the same ones. Losses and metrics are means over all ranks
    that have them, weighted by tokens.

    Error UNEQUAL_STEPS: a rank has trained more steps than another.
    """
    for rank, sums in enumerate(ranks):
        if sums.step_count != ranks[0].step_count:
            raise Error("rank %d has trained %d steps and rank 0 %d" %
                        (rank, sums.step_count, ranks[0].step_count),
                        reason="UNEQUAL_STEPS", code="FAILED_PRECONDITION",
                        hint="Call step once a step on every rank, and leave "
                        "the loop on all ranks after the same step.")
    losses = [(sums.loss, sums.token_count) for sums in ranks
              if sums.loss is not None]
    metrics: dict[str, tuple[float, float]] = {}
    for sums in ranks:
        for name, (value, weight) in sums.metrics.items():
            before = metrics.get(name, (0.0, 0.0))
            metrics[name] = (before[0] + value, before[1] + weight)
    return Total(ranks[0].step_count,
                 sum(ranks[rank].token_count for rank in replicas),
                 _mean(losses), {name: value / weight for name,
                                 (value, weight) in metrics.items()})


def _mean(weighted: Sequence[tuple[float, int]]) -> float | None:
    if len(weighted) < 2:
        return weighted[0][0] if weighted else None
    total = sum(weight for _, weight in weighted)
    if not total:
        return sum(value for value, _ in weighted) / len(weighted)
    return sum(value * weight for value, weight in weighted) / total


def _is_on_device(value: Any) -> bool:
    return _torch.is_tensor(value) and value.device.type != "cpu"


def _checked(weight: Any, name: str) -> Any:
    """`weight`, if it may be a step's. Does not wait for a device.

    Error WRONG_WEIGHT.
    """
    if _torch.is_tensor(weight):
        is_right = weight.numel() == 1
    elif isinstance(weight, (int, float, np.number, np.ndarray)):
        is_right = np.size(weight) == 1 and 0 <= weight < math.inf
    else:  # Maybe a tensor of another library.
        is_right = hasattr(weight, "__int__")
    if not is_right:
        raise Error("%s is %.80r" % (name, weight), reason="WRONG_WEIGHT",
                    code="INVALID_ARGUMENT", hint="Give island.step a finite "
                    "number that is not negative.")
    return weight


class OpenTrain:
    """A request to train, and the sums of the steps that are done.

    Attributes:
      seq: Number of the request.
      request: The body of the request (proto/atoll/v1/trainer.proto).
      unit: One of WEIGHT_UNITS: what the tokens of this class's code are.
      done: Steps that are done.
      paused_s: Seconds of pauses, on this rank.
      lost_at: The run's step from which on no loss was finite; None: the
        newest loss is.
    """

    def __init__(self, seq: int, request: Mapping[str, Any], unit: str = ""):
        self.seq = seq
        self.request = request
        self.unit = unit
        self._counts_tokens = unit in ("", "tokens")
        self.done = 0
        self.paused_s = 0.0
        self.lost_at: int | None = None
        self._step_count: int = request["step_count"]
        self._tokens: Any = 0        # May be a tensor.
        self._waiting: dict[int, Any] = {}  # Losses not read yet, by step.
        self._loss_sum = 0.0
        self._loss_count = 0
        self._newest_loss: float | None = None
        self._metrics: dict[str, tuple[float, float]] = {}  # As in Sums.

    def _weight(self, samples: Any) -> Any:
        """The step's count in the run's unit, which is not given tokens."""
        if self.unit == "steps":
            return 1
        if samples is not None and self.unit != "tokens":
            return samples
        if not self.unit:
            return 0
        raise Error("the run weighs by %s, and the step has none" % self.unit,
                    reason="NO_WEIGHT", code="INVALID_ARGUMENT",
                    hint="Call island.step(%s=...) with those of the step "
                    "(AtollCallback counts the labels), or create the run with "
                    "weight_unit=\"steps\"." % self.unit)

    def add(self, loss: Any, tokens: Any,
            metrics: Mapping[str, Any] | None, samples: Any = None) -> bool:
        """Counts a step. Returns whether there are more to do.

        A tensor, or what another library has instead, stays where it is:
        reading it would wait for its device.

        Error NO_WEIGHT, WRONG_WEIGHT: the run's unit is not given, or is no
        count; nothing is counted.
        """
        name = "tokens"
        if tokens is None or not self._counts_tokens:
            name, tokens = "samples", self._weight(samples)
        if type(tokens) is not int or tokens < 0:
            tokens = _checked(tokens, name)
        done = self.done
        if loss is not None:
            if type(loss) is not float:
                if _torch.is_tensor(loss):
                    loss = loss.detach().clone()  # CUDA graphs overwrite it.
                elif isinstance(loss, (np.ndarray, np.generic)):
                    loss = float(loss)  # An array may change later.
            waiting = self._waiting
            waiting[done] = loss
            if len(waiting) >= _WAITING_COUNT_MAX:
                self._read_losses()
        self._tokens += tokens
        if metrics:
            self._add_metrics(metrics, tokens)
        self.done = done = done + 1
        return done < self._step_count

    def absorb(self, before: OpenTrain) -> None:
        """Takes the steps of a train whose answer the exchange has lost."""
        self._waiting.update((self.done + step, loss)
                             for step, loss in before._waiting.items())
        if before.lost_at is None:
            if before._loss_count:
                self.lost_at = None
        elif self.lost_at is None:
            self.lost_at = before.lost_at
        self.done += before.done
        self._tokens += before._tokens
        self._loss_sum += before._loss_sum
        self._loss_count += before._loss_count
        if before._newest_loss is not None:
            self._newest_loss = before._newest_loss
        for name, (value, weight) in before._metrics.items():
            mine = self._metrics.get(name, (0.0, 0.0))
            self._metrics[name] = (mine[0] + value, mine[1] + weight)

    def _add_metrics(self, metrics: Mapping[str, Any], tokens: Any) -> None:
        weight = float(tokens) or 1.0
        for name, value in metrics.items():
            before = self._metrics.get(name)
            if before is None:
                self._check_metric(name)
                before = (0.0, 0.0)
            value = float(value)
            if math.isinf(value):
                raise Error("the metric %s is %s" % (name, value),
                            reason="WRONG_METRIC", code="INVALID_ARGUMENT",
                            hint="Leave it out of this step, or give NaN.")
            self._metrics[name] = (before[0] + weight * value,
                                   before[1] + weight)

    def _check_metric(self, name: str) -> None:
        if not isinstance(name, str) or not _METRIC.match(name):
            raise Error("%.80r is not a metric's name" % (name,),
                        reason="WRONG_METRIC", code="INVALID_ARGUMENT",
                        hint="Use 1 to 64 of the characters A-Z a-z 0-9 _ . / "
                        "and -.")
        if len(self._metrics) >= _METRIC_COUNT_MAX:
            raise Error("%s is one metric too many: %d are the most" %
                        (name, _METRIC_COUNT_MAX), reason="WRONG_METRIC",
                        code="INVALID_ARGUMENT", hint="Give fewer metrics.")

    def _read_losses(self) -> None:
        on_devices = {step: x for step, x in self._waiting.items()
                      if type(x) is not float and _is_on_device(x)}
        if on_devices:  # One wait for the device, not one a step.
            stack = _torch.loaded().stack
            self._waiting.update(zip(on_devices, stack([
                x.float().reshape(()) for x in on_devices.values()]).tolist()))
        total, count, lost_at = self._loss_sum, self._loss_count, self.lost_at
        value = self._newest_loss
        for step, loss in self._waiting.items():
            value = float(loss)
            if math.isfinite(value):
                total += value
                count += 1
                lost_at = None
            elif lost_at is None:
                lost_at = self.request.get("step", 0) + step
        self._loss_sum, self._loss_count, self.lost_at = total, count, lost_at
        self._newest_loss = value
        self._waiting.clear()

    def sums(self, is_sound: Callable[[], bool]) -> Sums:
        """This rank's steps so far. Waits for the losses' device.

        A step may be skipped because its loss is not finite (mixed precision):
        it has no part in the mean. The newest loss tells of parameters that
        are lost.

        Args:
          is_sound: All parameters are finite.
        """
        self._read_losses()
        loss = self._newest_loss
        if self._loss_count and loss is not None and (
                math.isfinite(loss) or is_sound()):
            loss = self._loss_sum / self._loss_count
        return Sums(self.done, self._token_count(), loss, self._metrics)

    def _token_count(self) -> int:
        """Waits for the device. Error WRONG_WEIGHT: tensors had no counts."""
        if not 0 <= self._tokens < math.inf:
            _checked(float(self._tokens), self.unit or "tokens")
        return int(self._tokens)

    def _waits_for_a_device(self) -> bool:
        return any(map(_is_on_device, (*self._waiting.values(),
                                       self._tokens)))

    def is_lost(self, is_sound: Callable[[], bool]) -> bool:
        """More steps are in vain. False while a device has the losses."""
        if self._waits_for_a_device():
            return False
        self._read_losses()
        return (self._newest_loss is not None and
                not math.isfinite(self._newest_loss) and not is_sound())

    def progress(self) -> dict[str, Any]:
        """The steps so far. Does not wait for a device: it then has no loss."""
        body: dict[str, Any] = {"step_count": self.done}
        if not self._waits_for_a_device():
            self._read_losses()
            body["token_count"] = self._token_count()
            if self._newest_loss is not None and math.isfinite(
                    self._newest_loss):
                body["loss"] = self._newest_loss
        return body
