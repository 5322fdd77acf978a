"""Judges claims from losses, seed by seed. Pure."""

import collections
import math
import statistics

from rows import BESIDE
from rows import WITHIN

HOLDS, FAILS, OPEN, SHOWN = "holds", "fails", "open", ""

# One-sided 95 % quantiles of Student's t by degrees of freedom.
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)

# Relative differences over the common seeds: count, mean, standard deviation,
# and half the width of the one-sided 95 % interval.
Difference = collections.namedtuple("Difference", "count mean spread half")


def mean_and_spread(values):
    """Mean and standard deviation (nan for one value)."""
    if any(math.isinf(v) for v in values):
        return math.inf, math.nan
    spread = statistics.stdev(values) if len(values) > 1 else math.nan
    return statistics.fmean(values), spread


def difference(losses, reference):
    """The Difference of two {seed: loss}; None without a common seed. The loss
    of a run that did not end is infinite."""
    seeds = sorted(set(losses) & set(reference))
    if not seeds:
        return None
    shares = [losses[s] / reference[s] - 1 for s in seeds]
    mean, spread = mean_and_spread(shares)
    if math.isinf(mean):
        return Difference(len(seeds), mean, spread, 0.0)
    if len(seeds) == 1:
        return Difference(1, mean, spread, math.inf)
    t = _T95[min(len(seeds) - 1, len(_T95)) - 1]
    return Difference(len(seeds), mean, spread,
                      t * spread / math.sqrt(len(seeds)))


def verdict(relation, bound, seen):
    """HOLDS or FAILS at 95 % confidence, else OPEN."""
    if relation == BESIDE:
        return SHOWN
    if seen is None:
        return OPEN
    low, high = seen.mean - seen.half, seen.mean + seen.half
    if relation == WITHIN:
        return HOLDS if high <= bound else FAILS if low > bound else OPEN
    return HOLDS if low >= bound else FAILS if high < bound else OPEN
