"""The rows of the quality benchmark and their claims."""

import collections
import functools
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "..")]

# pylint: disable=wrong-import-position
import methods
from harness import run_file

# Kinds of rows: a run of islands and servers, one trainer alone, or either in
# PyTorch.
RUN, ALONE, TORCH, TORCH_ALONE = "run", "alone", "torch", "torch alone"

# Relations of a claim: at most `bound` above the reference's loss, at least
# `bound` above it, or only compared.
WITHIN, WORSE, BESIDE = "within", "worse by", "beside"

# `bound` is a share of the reference's loss. `few_steps`: of each of the last
# islands, the steps that it takes at most for a contribution.
Claim = collections.namedtuple("Claim", "reference relation bound")

Row = collections.namedtuple(
    "Row", "name what play method changes hostile slow claims long preset "
    "few_steps")


def _row(name, what, *claims, play=RUN, method=None, changes=None, hostile=None,
         slow=1, long=False, preset=None, few_steps=()):
    return Row(name, what, play, method or name, changes or {}, hostile, slow,
               claims, long, preset, few_steps)


def _within(reference, bound):
    return Claim(reference, WITHIN, bound)


def _worse(reference, bound):
    return Claim(reference, WORSE, bound)


def _beside(reference):
    return Claim(reference, BESIDE, None)


def _alone(name, what, *claims, play=ALONE, **inner):
    return _row(name, what, *claims, play=play, method="diloco",
                changes={"inner": inner} if inner else {})


_FOUR = {"schedule": {"island_count_min": 4, "min_quorum": 4},
         "data": {"data_shard_count": 4}}

# Altered gradients: the first reverses each step, the second outweighs all
# others, the third shifts every merge in one direction.
_ATTACKS = (("sign_flip", "sign_flip"), ("x100", "scale:100"),
            ("drift", "drift:3"))
# The rules tested against each attack. A clip bounds the length of a merge, not
# its direction.
_AGAINST = {
    "sign_flip": ("mda", "trimmed_mean", "median"),
    "x100": ("mda", "norm_clip", "trimmed_mean", "median", "centred_clip"),
    "drift": ("mda", "trimmed_mean", "median"),
}


def _hostile_rows():
    for name, attack in _ATTACKS:
        yield _row("mean_" + name, "undefended: four islands, one hostile",
                   _worse("diloco", 0.05), method="diloco", changes=_FOUR,
                   hostile=attack)
        for rule in _AGAINST[name]:
            yield _row("%s_%s" % (rule, name),
                       "four islands, one hostile, against the run of three",
                       _within("diloco", 0.05), method="diloco",
                       changes=run_file.merged(_FOUR, methods.DEFENCES[rule]),
                       hostile=attack)


# Tokens merged by the rows above: 30 rounds of three islands, 20 steps of
# 8 x 128 tokens.
TOKENS = 30 * 3 * 20 * 8 * 128

# The islands' speeds decide the number of contributions: the first one that
# reaches the budget is the last. So a row has at most one extra contribution of
# a fast island, 20 x 8 x 128 tokens or 1.1 %. The learning rate's clock counts
# all islands' steps; the warm-up is 10 % of them.
_BY_TOKENS = {"schedule": {"token_count": TOKENS, "round_count": None},
              "inner": {"warmup_step_count": 180}}


def _async_rows():
    yield _row("async_naive_slow",
               "one Nesterov step a contribution; one island at a quarter of "
               "the speed", _worse("diloco", 0.02), method="async_naive",
               changes=_BY_TOKENS, slow=4)
    yield _row("async_slow",
               "Delayed Nesterov and DyLU; one island at a quarter of the "
               "speed", _within("diloco", 0.01), method="async",
               changes=_BY_TOKENS, slow=4)
    yield _row("async", "Delayed Nesterov, three equal islands",
               _beside("diloco"), changes=_BY_TOKENS)


# For the norm bound (results/quality/norms.md): islands that take few steps of
# many. Most take all, so that these are the median.
def _few_steps_row(name, method, full_count, few_steps, schedule):
    count = full_count + len(few_steps)
    return _row(
        name, "%d islands with all steps of a round, others with %s" % (
            full_count, ", ".join(map(str, few_steps))),
        method=method, long=True, few_steps=few_steps,
        changes={"data": {"data_shard_count": count},
                 "inner": {"batch_size": 2, "warmup_step_count": 60},
                 "schedule": dict({"timing": "elastic", "min_quorum": count,
                                   "island_count_min": count}, **schedule)})


_LONG = {"schedule": {"round_count": 120},
         "inner": {"warmup_step_count": 240}}


def _preset_row(name, step_count, reference, suffix="", long=False):
    """A shipped preset with as many inner steps per island as `reference`,
    rounded to whole rounds."""
    shipped = methods.preset(name)
    schedule, inner = shipped["schedule"], shipped["inner"]
    rounds = max(1, step_count // schedule["inner_step_count"])
    changes = {"inner": {}}
    if inner["warmup_step_count"] > 0:
        changes["inner"]["warmup_step_count"] = (
            rounds * schedule["inner_step_count"] // 10)
    what = "%s.toml: %d rounds of %d steps, %d islands" % (
        name, rounds, schedule["inner_step_count"],
        schedule["island_count_min"])
    if "sample_fraction" in schedule:
        what += ", a share of %g a round" % schedule["sample_fraction"]
    if inner["batch_size"] > 8:
        changes["inner"]["batch_size"] = 8
        what += ", 8 sequences for %d" % inner["batch_size"]
    if schedule.get("max_staleness", 0) > 0:
        # round_count and the learning rate's clock count contributions.
        rounds *= schedule["island_count_min"]
        changes["inner"]["warmup_step_count"] = (
            rounds * schedule["inner_step_count"] // 10)
    changes["schedule"] = {"round_count": rounds}
    return _row("preset_" + name + suffix, what, _beside(reference),
                changes=changes, long=long, preset=name)


# A preset is meant for more rounds than fit into 600 steps. The long rows have
# four times as many.
def _preset_rows(step_count, reference, suffix="", long=False):
    for name in sorted(methods.PRESETS.values()):
        yield _preset_row(name, step_count, reference, suffix, long)


ROWS = [
    _alone("single", "one island, as many steps"),
    # Equal to data parallelism over three islands: one optimizer, gradients
    # averaged over 3 x 8 sequences per step, then clipped.
    _alone("data_parallel", "one optimizer on three islands' batches",
           batch_size=24),
    _row("diloco", "f32 both ways", _within("single", 0.0),
         _within("torch_diloco", 0.01), _beside("data_parallel")),
    _row("bf16", "bf16 up", _within("diloco", 0.005)),
    _row("bf16_stochastic", "bf16 up, stochastic", _within("diloco", 0.005)),
    _row("int8", "int8 up", _within("diloco", 0.005)),
    _row("e3m0", "4 bits up", _within("diloco", 0.005)),
    _row("e3m0_ef", "4 bits up with error feedback", _within("diloco", 0.005)),
    _row("int8_bf16_ef", "int8 up with error feedback, bf16 down",
         _within("diloco", 0.005)),
    _row("two_bit_ef", "2 bits up with error feedback", _beside("diloco")),
    _row("top_k_ef", "64 of 4096 in 2 bits with error feedback",
         _beside("diloco")),
    _row("sparseloco", "the same, plain SGD outside",
         _within("torch_sparseloco", 0.01), _beside("diloco")),
    _row("averaging", "the mean of the islands' parameters", _beside("diloco")),
    _row("fedavg", "the same, fresh optimizer state each round",
         _beside("diloco")),
    _row("fedavg_sampled", "the same, three clients of six a round",
         _beside("diloco"), method="fedavg",
         changes={"schedule": {"island_count_min": 6, "min_quorum": 3,
                               "sample_fraction": 0.5, "sample_seed": 1},
                  "data": {"data_shard_count": 6}}),
    _row("fedavgm", "FedAvgM", _beside("diloco")),
    _row("fedadam", "FedAdam", _beside("diloco")),
    _row("fedyogi", "FedYogi", _beside("diloco")),
    _row("fedadagrad", "FedAdagrad", _beside("diloco")),
    _row("streaming_f32", "4 fragments, behind 5 steps, blended",
         _beside("diloco")),
    _row("streaming", "the same, 4 bits both ways", _beside("diloco"),
         _within("streaming_f32", 0.005)),
    _row("streaming_ef", "the same, with error feedback", _beside("diloco"),
         _within("streaming_f32", 0.005)),
    _row("eager", "behind 19 steps of 20, own share first, 4 bits",
         _beside("diloco")),
    _row("decoupled", "a quorum of two, RDA, int8 up, bf16 down",
         _beside("diloco")),
    *_async_rows(),
    *_preset_rows(600, "diloco"),
    *_hostile_rows(),
    _alone("torch_single", "PyTorch: one island", _beside("single"),
           play=TORCH_ALONE),
    _row("torch_diloco", "PyTorch: DiLoCo, same start and batches",
         _beside("single"), play=TORCH, method="diloco"),
    _row("torch_sparseloco", "PyTorch: SparseLoCo, same codec",
         _beside("diloco"), play=TORCH, method="sparseloco"),
    _row("diloco_120", "f32 both ways, 120 rounds", method="diloco",
         changes=_LONG, long=True),
    _row("sparseloco_120", "SparseLoCo, 120 rounds", _beside("diloco_120"),
         method="sparseloco", changes=_LONG, long=True),
    *_preset_rows(2400, "diloco_120", "_long", long=True),
    _few_steps_row("few_steps", "diloco", 5, (25, 10, 2, 1),
                   {"inner_step_count": 100, "round_count": 10}),
    _few_steps_row("few_steps_streaming", "streaming_f32", 4, (5, 2, 1),
                   {"round_count": 15, "min_quorum": 4,
                    "grace_window": "500ms", "max_ahead_steps": 5}),
]

# A model that trains a round in a fraction of a second. H stays, because it
# must exceed the overlaps.
SMOKE = {
    "model": {"hidden_size": 32, "intermediate_size": 64, "head_count": 2,
              "kv_head_count": 1, "sequence_length": 32},
    "inner": {"batch_size": 2, "warmup_step_count": 4},
    "schedule": {"round_count": 2},
}


def by_name():
    return {row.name: row for row in ROWS}


def values_of(row, seed, data_path, smoke=False):
    """The run file of one row and seed. All seeds share the text and its split,
    but not the initial values and the data order."""
    changes = [row.changes]
    if smoke:
        changes.append(SMOKE)
        if row.changes.get("inner", {}).get("batch_size"):
            changes.append({"inner": {"batch_size": 6}})
    base = (functools.partial(methods.values_of_preset, row.preset)
            if row.preset else
            functools.partial(methods.values_of, row.method))
    return base(
        *changes,
        {"init": {"seed": seed}, "inner": {"seed": seed},
         "data": {"path": data_path},
         # Evaluated only after the end, on all held-out text.
         "evaluation": {"every_round_count": 0}})
