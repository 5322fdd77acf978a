"""The methods that benchmarks compare, as changes of a run file.

All benchmarks share this table, so that a link's utilization and a method's
loss have the same settings. The changes apply to deploy/config/laptop.toml:
three islands, 30 rounds of 20 steps. The papers' values for hundreds of rounds
(momentum 0.9, outer rate 0.7 or 0.4) give a bad loss after 30; a comment marks
each value that is not the paper's. DIFFERENCES lists the differences from each
preset, with reasons. values_of_preset() returns the preset unchanged.
"""

import json
import os
import sys
import tomllib

sys.path[:0] = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "..",
                             "integration")]

# pylint: disable=wrong-import-position
from harness import processes
from harness import run_file

# Four fragments of one layer each, pushed one after the other.
_STAGGERED = {
    "layout": {"fragment_count": 4},
    "schedule": {"fragment_schedule": "staggered", "overlap_step_count": 5,
                 "blend": 0.5},
}

# One contribution is one version; round_count counts contributions. Slower
# islands take fewer steps per contribution.
_ASYNC = {
    "schedule": {"timing": "elastic", "min_quorum": 1, "max_staleness": 16},
    "outer": {"weighting": "uniform"},
}


def _codec(up, down="f32", feedback=False, decay=1.0):
    exchange = {"up": up, "down": down, "error_feedback": feedback}
    if feedback and decay != 1:
        exchange["error_feedback_decay"] = decay
    return {"exchange": exchange}


def _outer(optimizer, **values):
    # Momentum and rate of laptop.toml are for Nesterov only.
    return {"outer": dict({"optimizer": optimizer, "momentum": 0.0}, **values)}


METHODS = {
    # Codecs from islands to servers; the last one also back.
    "diloco": {},
    "bf16": _codec("bf16"),
    "bf16_stochastic": _codec("bf16_stochastic"),
    "int8": _codec("int8"),
    "e3m0": _codec("e3m0"),
    "e3m0_ef": _codec("e3m0", feedback=True),
    "two_bit_ef": _codec("two_bit", feedback=True),
    "top_k_ef": _codec("top_k", feedback=True, decay=0.95),
    "int8_bf16_ef": _codec("int8", "bf16", feedback=True),
    # arXiv 2508.15706, but H = 20 instead of 30.
    "sparseloco": run_file.merged(
        _outer("sgd", learning_rate=1.0),
        _codec("top_k", feedback=True, decay=0.95)),
    # arXiv 1602.05629 and 2003.00295: fresh optimizer state each round. The
    # rates of the adaptive ones are tuned for this model.
    "averaging": _outer("fedavg"),
    "fedavg": run_file.merged(
        _outer("fedavg"), {"inner": {"reset_each_round": True}}),
    "fedavgm": run_file.merged(
        _outer("fedavgm", learning_rate=0.9, momentum=0.5),
        {"inner": {"reset_each_round": True}}),
    "fedadam": run_file.merged(
        _outer("fedadam", learning_rate=0.03, beta1=0.9, beta2=0.99, tau=1e-3),
        {"inner": {"reset_each_round": True}}),
    "fedyogi": run_file.merged(
        _outer("fedyogi", learning_rate=0.03, beta1=0.9, beta2=0.99, tau=1e-3),
        {"inner": {"reset_each_round": True}}),
    "fedadagrad": run_file.merged(
        _outer("fedadagrad", learning_rate=0.05, beta1=0.0, tau=1e-3),
        {"inner": {"reset_each_round": True}}),
    # arXiv 2501.18512; its outer rate of 0.4 belongs to momentum 0.9.
    "streaming_f32": _STAGGERED,
    "streaming": run_file.merged(_STAGGERED, _codec("e3m0", "e3m0")),
    "streaming_ef": run_file.merged(
        _STAGGERED, _codec("e3m0", "e3m0", feedback=True)),
    # arXiv 2502.12996: overlap of a whole round minus one step. The others'
    # gradients arrive a round late, so the outer rate is lower. 0.4 gives 1.61
    # nats a byte, 0.9 gives 1.94, one seed each (the paper's form in PyTorch:
    # 1.63 and 1.82).
    "eager": run_file.merged(
        _STAGGERED, _codec("e3m0", "e3m0"), {"outer": {"learning_rate": 0.4}},
        {"schedule": {"overlap_step_count": 19, "blend": 0.0, "eager": True}}),
    # A quorum of two, weights by quantity times quality, RDA except for the
    # embeddings.
    "decoupled": run_file.merged(
        _STAGGERED, _codec("int8", "bf16", feedback=True),
        {"outer": {"weighting": "tokens_squared_per_step",
                   "merge": {"rule": "rda",
                             "mean_tensor_classes": ["embedding"]}},
         "schedule": {"timing": "elastic", "min_quorum": 2,
                      "grace_window": "500ms", "overlap_step_count": 2}}),
    # arXiv 2401.09135. Both take one outer step per contribution. Delayed
    # Nesterov has less momentum than rounds, because staleness acts like
    # momentum.
    "async_naive": run_file.merged(
        _ASYNC, {"outer": {"optimizer": "nesterov"}}),
    "async": run_file.merged(
        _ASYNC, _outer("delayed_nesterov", learning_rate=0.9, momentum=0.3,
                       buffer_count=3)),
}

# The preset of which each method is a short form.
PRESETS = {"diloco": "diloco", "streaming": "streaming", "eager": "eager",
           "decoupled": "decoupled", "sparseloco": "sparseloco",
           "async": "async", "fedavg": "fedavg", "fedadam": "fedopt"}

# Differences of every method from its preset: a key, or all keys below it, and
# the reason.
_SHORT = {
    "model": "the quickstart's, for all methods",
    "data": "the quickstart's, for all methods",
    "init": "the quickstart's, for all methods",
    "durability": "the quickstart's, for all methods",
    "server_count": "the quickstart's, for all methods",
    "evaluation": "benchmarks evaluate what they end with",
    "history": "no method has as many rounds",
    "schedule.inner_step_count": "rounds of twenty steps",
    "schedule.round_count": "thirty of them",
    "inner.warmup_step_count": "10 % of these 600 steps",
}
_FEW_ROUNDS = "thirty rounds are too few for a momentum of 0.9"
_LAYERS = "a small model: four pushes in twenty steps"
_STRICT = "three equal islands that nobody leaves, in strict rounds"
_ADAMW = "laptop.toml's, so that the outer step is what differs"
_FEDERATED = {
    "inner": _ADAMW, "outer.weighting": "equal islands: it changes nothing",
    "schedule.timing": _STRICT, "schedule.min_quorum": _STRICT,
    "schedule.island_count_min": _STRICT, "schedule.grace_window": _STRICT,
    "schedule.round_deadline": _STRICT,
    "schedule.sample_fraction": "quality's row fedavg_sampled has it",
    "schedule.sample_seed": "quality's row fedavg_sampled has it",
}

# Further differences by method. A test checks that exactly these keys differ.
DIFFERENCES = {
    "diloco": {
        "inner.batch_size": "512 sequences are for accelerators",
        "inner.learning_rate": "the quickstart's model is small",
        "outer.learning_rate": _FEW_ROUNDS, "outer.momentum": _FEW_ROUNDS,
        "schedule.timing": _STRICT, "schedule.min_quorum": _STRICT,
        "schedule.island_count_min": _STRICT, "schedule.grace_window": _STRICT,
        "schedule.round_deadline": _STRICT,
        "schedule.max_ahead_steps": _STRICT,
        "schedule.lease_duration": _STRICT,
    },
    "streaming": {
        "layout.fragment_count": _LAYERS, "layout.layers_a_fragment": _LAYERS,
        "outer.learning_rate": _FEW_ROUNDS, "outer.momentum": _FEW_ROUNDS,
    },
    "eager": {
        "layout.fragment_count": _LAYERS, "layout.layers_a_fragment": _LAYERS,
        "schedule.overlap_step_count": "the most that a round has room for",
    },
    "decoupled": {
        "layout.fragment_count": _LAYERS, "layout.layers_a_fragment": _LAYERS,
        "layout.fragment_pattern": "as streaming, to be compared with it",
        "schedule.blend": "as streaming, to be compared with it",
        "exchange.error_feedback": "as int8_bf16_ef, to be compared with it",
        "schedule.grace_window": "shorter, as rounds are",
        "schedule.round_deadline": "nobody is away",
        "schedule.max_ahead_steps": "nobody is away",
    },
    "sparseloco": {
        "exchange.down": "f32, as in PyTorch's form that it is held to",
    },
    "async": {
        "schedule.island_count_min": "three islands, as all methods",
        "outer.buffer_count": "as many as there are islands",
    },
    "fedavg": dict(_FEDERATED, **{
        "outer.learning_rate": "laptop.toml's, and not read by a mean"}),
    "fedadam": _FEDERATED,
}

# The defaults of these keys in a run file (an empty value counts as missing).
_DEFAULTS = {"inner.epsilon": 1e-8, "layout.fragment_pattern": "strided"}

# Merge rules for one hostile island of four; Krum needs five.
DEFENCES = {
    "mean": {},
    "norm_clip": {"outer": {"merge": {"rule": "norm_clip"}}},
    "trimmed_mean": {"outer": {"merge": {"rule": "trimmed_mean",
                                         "byzantine_count": 1}}},
    "median": {"outer": {"merge": {"rule": "median"}}},
    "centred_clip": {"outer": {"merge": {"rule": "centred_clip"}}},
    "mda": {"outer": {"merge": {"rule": "mda", "byzantine_count": 1}}},
}


def preset(name):
    """The values of deploy/config/NAME.toml."""
    with open(processes.source("deploy/config/%s.toml" % name), "rb") as file:
        return tomllib.load(file)


def values_of(method, *changes):
    """A whole run file: the quickstart's with `method` and changes."""
    return run_file.merged(preset("laptop"), METHODS[method], *changes)


def values_of_preset(name, *changes):
    """A shipped preset with the quickstart's model, its text split over the
    preset's islands, and changes."""
    values, laptop = preset(name), preset("laptop")
    shards = values["data"]["data_shard_count"]
    values["model"] = laptop["model"]
    values["data"] = dict(laptop["data"], data_shard_count=shards)
    return run_file.merged(values, *changes)


def _leaves(values, path=""):
    found = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found.update(_leaves(value, path + key + "."))
        elif value and value != _DEFAULTS.get(path + key):
            found[path + key] = value
    return found


def differing_keys(method):
    """Keys in which `method` differs from its preset: "outer.momentum"."""
    ours, theirs = _leaves(values_of(method)), _leaves(preset(PRESETS[method]))
    return {key for key in set(ours) | set(theirs)
            if ours.get(key) != theirs.get(key)}


def reason_of(method, key):
    """Why `method` differs from its preset in `key`; None: no reason listed."""
    for reasons in (DIFFERENCES[method], _SHORT):
        for listed, why in reasons.items():
            if key == listed or key.startswith(listed + "."):
                return why
    return None


class Refused(Exception):
    """The coordinator refuses the run; the message is its sentence."""


def create(cluster, values):
    """Creates the run, or raises Refused. A run file that is wrong in itself is
    a mistake of the table."""
    path = cluster.write_run_file(values)
    done = cluster.run_cli("run", "create", path, "--run-id", "run", "-o",
                           "json")
    if done.returncode == 0:
        return
    try:
        error = json.loads(done.stdout)["error"]
    except (json.JSONDecodeError, KeyError):
        raise RuntimeError("atoll: exit %d: %s" % (done.returncode,
                                                   done.stderr))
    if error["reason"] != "INVALID_FIELDS":
        raise RuntimeError(error["message"])
    raise Refused(error["message"])
