"""How a run plans its inner steps, and their learning rate. Pure.

base/layout/run_length.h and worker/engine/optimizer/learning_rate_schedule.h
define what this module repeats. A `spec` is the run's RunSpec
(proto/atoll/v1/run.proto), as in JSON.
"""

from __future__ import annotations

import math
from typing import Any, Mapping

from .errors import Error


def planned_step_count(spec: Mapping[str, Any]) -> int | None:
    """Inner steps of the run's clock; None: the run has no planned end."""
    schedule = spec["schedule"]
    counts = []
    if int(schedule["round_count"]):
        counts.append(int(schedule["round_count"]) *
                      int(schedule["inner_step_count"]))
    if int(schedule["token_count"]):
        counts.append((int(schedule["token_count"]) - 1) //
                      _tokens_a_clock_step(spec) + 1)
    return min(counts, default=None)


def _tokens_a_clock_step(spec: Mapping[str, Any]) -> int:
    schedule = spec["schedule"]
    tokens = (int(spec["inner"]["batch_size"]) *
              int(spec["model"]["sequence_length"]))
    if (schedule["timing"] == "TIMING_ELASTIC" and
            int(schedule["max_staleness"])):
        return tokens  # Async: one contribution is a version.
    ready = max(int(schedule["island_count_min"]), 1)
    fraction = float(schedule["sample_fraction"]) or 1.0
    asked = math.floor(fraction * ready + 0.5)
    return tokens * min(ready, max(asked, int(schedule["min_quorum"]), 1))


def learning_rate(spec: Mapping[str, Any], clock: int,
                  peak: float | None = None,
                  final_fraction: float | None = None) -> float:
    """The rate of Atoll's own engine at an inner step: multiply by `lr_scale`.

    Linear warm-up, then a cosine down to a fraction of the peak.

    Args:
      clock: `Island.clock` before the step.
      peak: The highest rate. Default: inner.learning_rate, which a run of a
        model of your own does not have.
      final_fraction: The last rate divided by `peak`. Default:
        inner.final_learning_rate_fraction, or 0.

    Error NO_LEARNING_RATE: neither the run nor the caller gives a rate.
    """
    inner = spec["inner"]
    rate = float(inner.get("learning_rate", 0) if peak is None else peak)
    if rate <= 0:
        raise Error("the run has no learning rate, and peak is %r" % (peak,),
                    reason="NO_LEARNING_RATE", code="INVALID_ARGUMENT",
                    hint="Give peak: the trainer of a model of your own "
                    "chooses it.")
    warmup = int(inner["warmup_step_count"])
    if warmup:
        rate *= min(1.0, (clock + 1) / warmup)
    planned = planned_step_count(spec)
    if planned is None:
        return rate
    span = max(1, planned - warmup)
    done = min(max(clock - warmup, 0), span)
    floor = float(inner.get("final_learning_rate_fraction", 0)
                  if final_fraction is None else final_fraction)
    return rate * (floor + (1.0 - floor) * 0.5 *
                   (1.0 + math.cos(math.pi * done / span)))
