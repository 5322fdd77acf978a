"""Run files for tests: a model that trains a round in a fraction of a second.
"""

import copy

# 29 thousand parameters in 20 tensors: some of several blocks, most smaller
# than one.
BASE = {
    "durability": "process",
    "server_count": 2,
    "checkpoint_every_round_count": 0,
    "model": {
        "architecture": "llama",
        "vocab_size": 256,
        "hidden_size": 32,
        "intermediate_size": 64,
        "layer_count": 2,
        "head_count": 2,
        "kv_head_count": 1,
        "sequence_length": 32,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "tie_embeddings": False,
    },
    "init": {"seed": 7},
    "data": {
        "format": "bytes",
        "path": "",
        "seed": 3,
        "validation_fraction": 0.1,
        "data_shard_count": 3,
    },
    "inner": {
        "optimizer": "adamw",
        "learning_rate": 3e-3,
        "beta1": 0.9,
        "beta2": 0.95,
        "epsilon": 1e-8,
        "weight_decay": 0.1,
        "clip_norm": 1.0,
        "warmup_step_count": 3,
        "final_learning_rate_fraction": 0.1,
        "batch_size": 2,
        "seed": 5,
    },
    "outer": {
        "optimizer": "nesterov",
        "learning_rate": 0.7,
        "momentum": 0.9,
        "weighting": "tokens",
    },
    "schedule": {
        "timing": "strict",
        "inner_step_count": 3,
        "round_count": 4,
        "island_count_min": 3,
        "min_quorum": 3,
        "lease_duration": "30s",
    },
    "evaluation": {"every_round_count": 2, "batch_count": 1},
}

# Changes that make a run elastic. Leases are as short as a loaded machine
# permits.
ELASTIC = {
    "schedule": {
        "timing": "elastic",
        "min_quorum": 1,
        "grace_window": "200ms",
        "lease_duration": "3s",
        "round_count": 100000,
    },
    "evaluation": {"every_round_count": 0},
}

# The preset `volunteers` with a small model and short rounds; lacks data.path.
VOLUNTEERS = {
    "preset": "volunteers",
    "model": BASE["model"],
    "inner": {"batch_size": 2, "warmup_step_count": 3},
    "schedule": {
        "inner_step_count": 3,
        "max_ahead_steps": 3,
        "grace_window": "200ms",
        "lease_duration": "3s",
        "round_count": 100000,
    },
    "evaluation": {"every_round_count": 0},
}


def merged(base, *changes):
    """A copy of `base` with nested changes; None removes a key."""
    result = copy.deepcopy(base)
    for change in changes:
        for key, value in change.items():
            if value is None:
                result.pop(key, None)
            elif isinstance(value, dict):
                result[key] = merged(result.get(key, {}), value)
            else:
                result[key] = value
    return result


def _value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"%s"' % value.replace("\\", "\\\\").replace('"', '\\"')
    return repr(value)


def _tables(values, path):
    lines = ["%s = %s" % (key, _value(value))
             for key, value in values.items() if not isinstance(value, dict)]
    for key, value in values.items():
        if isinstance(value, dict):
            inner = path + [key]
            lines += ["", "[%s]" % ".".join(inner)] + _tables(value, inner)
    return lines


def to_toml(values):
    return "\n".join(_tables(values, [])) + "\n"
