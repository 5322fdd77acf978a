"""What the steps of the open `train` add up to."""

from __future__ import annotations

import math
from typing import Any, Mapping

import numpy as np

from . import _torch

_WAITING_COUNT_MAX = 4096


class OpenTrain:
    """A request to train, and the sums of the steps that are done.

    Attributes:
      seq: Number of the request.
      request: The body of the request (proto/atoll/v1/trainer.proto).
      done: Steps that are done.
    """

    def __init__(self, seq: int, request: Mapping[str, Any]):
        self.seq = seq
        self.request = request
        self.done = 0
        self._step_count: int = request["step_count"]
        self._tokens: Any = 0        # May be a tensor.
        self._waiting: list[Any] = []  # Losses that nothing has read yet.
        self._loss_sum = 0.0
        self._loss_count = 0
        self._newest_loss: float | None = None
        self._metrics: dict[str, list[float]] = {}  # Weighted sum, weight.

    def add(self, loss: Any, tokens: Any,
            metrics: Mapping[str, Any] | None) -> bool:
        """Counts a step. Returns whether there are more to do.

        A tensor, or what another library has instead, stays where it is:
        reading it would wait for its device.
        """
        if loss is not None:
            if _torch.is_tensor(loss):
                loss = loss.detach()
            elif isinstance(loss, (np.ndarray, np.generic)):
                loss = float(loss)  # An array may change later.
            self._waiting.append(loss)
            if len(self._waiting) >= _WAITING_COUNT_MAX:
                self._read_losses()
        self._tokens += tokens
        if metrics:
            self._add_metrics(metrics, tokens)
        self.done += 1
        return self.done < self._step_count

    def _add_metrics(self, metrics: Mapping[str, Any], tokens: Any) -> None:
        weight = float(tokens) or 1.0
        for name, value in metrics.items():
            sums = self._metrics.setdefault(name, [0.0, 0.0])
            sums[0] += weight * float(value)
            sums[1] += weight

    def metrics(self) -> dict[str, float]:
        """The mean of each metric, weighted by tokens."""
        return {name: total / weight
                for name, (total, weight) in self._metrics.items()}

    def _read_losses(self) -> None:
        on_devices = [x for x in self._waiting
                      if _torch.is_tensor(x) and x.device.type != "cpu"]
        if on_devices:  # One wait for the device, not one a step.
            stack = _torch.loaded().stack
            values = iter(stack([x.float().reshape(()) for x in
                                 on_devices]).tolist())
            self._waiting = [
                next(values) if _torch.is_tensor(x) and
                x.device.type != "cpu" else x for x in self._waiting]
        for loss in self._waiting:
            value = float(loss)
            self._loss_sum += value
            self._loss_count += 1
            self._newest_loss = value
        self._waiting.clear()

    def answer(self) -> dict[str, Any]:
        """The answer: steps, tokens, and the mean loss if there is one."""
        self._read_losses()
        body: dict[str, Any] = {"step_count": self.done,
                                "token_count": int(self._tokens)}
        if self._loss_count:
            body["loss"] = self._loss_sum / self._loss_count
        return body

    def progress(self) -> dict[str, Any]:
        """The steps so far. Does not wait for a device: it then has no loss."""
        body: dict[str, Any] = {"step_count": self.done}
        if not any(_torch.is_tensor(x) and x.device.type != "cpu"
                   for x in (*self._waiting, self._tokens)):
            self._read_losses()
            body["token_count"] = int(self._tokens)
            if self._newest_loss is not None and math.isfinite(
                    self._newest_loss):
                body["loss"] = self._newest_loss
        return body
