"""The runs that this folder's scripts play: real programs on loopback,
islands of Atoll's engine."""

import contextlib
import os
import shutil
import sys
import tempfile

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(_HERE, "..", "..", "integration"))

# pylint: disable=wrong-import-position
from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import run_file
from harness import text
from harness import wait

PATIENCE_S = 1800
# Layers, hidden and intermediate size of a Llama with bytes as tokens; and inner
# steps a round, so that a round takes long enough to be disturbed.
SHAPES = {"toy": (4, 64, 64, 400), "33MB": (5, 256, 704, 5),
          "1GB": (15, 768, 2816, 1)}
# An element of the state: a parameter and its outer momentum, in f32. An island
# has two moments of AdamW beside each parameter.
PARAMETER_BYTES, STATE_BYTES, ISLAND_BYTES = 4, 8, 12
_SEQUENCE, _BATCH = 16, 1
_ELASTIC = {"timing": "elastic", "min_quorum": 1, "grace_window": "200ms"}


def count_parameters(size):
    layers, hidden, intermediate, _ = SHAPES[size]
    layer = 4 * hidden ** 2 + 3 * hidden * intermediate + 2 * hidden
    return 2 * 256 * hidden + hidden + layers * layer


def values(size, directory, island_count, server_count, every, elastic=False):
    """A run file's values; a checkpoint comes every `every` rounds."""
    layers, hidden, intermediate, steps = SHAPES[size]
    return run_file.merged(run_file.BASE, {
        "server_count": server_count,
        "checkpoint_every_round_count": every,
        "checkpoint": {"keep_count": 2, "mirror": True},
        "model": {"hidden_size": hidden, "intermediate_size": intermediate,
                  "layer_count": layers, "head_count": hidden // 64,
                  "kv_head_count": hidden // 64, "sequence_length": _SEQUENCE},
        "data": {"path": os.path.join(directory, "text"),
                 "data_shard_count": island_count},
        "inner": {"batch_size": _BATCH, "learning_rate": 1e-5},
        "schedule": {"inner_step_count": steps, "round_count": 1_000_000,
                     "island_count_min": island_count,
                     "min_quorum": island_count, "lease_duration": "60s"},
        "evaluation": {"every_round_count": 0},
    }, {"schedule": _ELASTIC} if elastic else {})


@contextlib.contextmanager
def workspace(parent=None):
    """A directory with a text that this machine allows runs to read."""
    directory = tempfile.mkdtemp(prefix="atoll-recovery-", dir=parent)
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = os.path.join(directory, "config")
    try:
        text.write_text(os.path.join(directory, "text"), cases.seed())
        processes.run_cli("data", "allow", directory, check=0)
        yield directory
    finally:
        if before is None:
            del os.environ["XDG_CONFIG_HOME"]
        else:
            os.environ["XDG_CONFIG_HOME"] = before
        shutil.rmtree(directory, ignore_errors=True)


def seconds(timestamp):
    return timestamp.seconds + 1e-9 * timestamp.nanos


def round_seconds(cluster, after_commit_seq, run_id="run"):
    """Seconds from each commit to the next, of those after one commit."""
    times = [seconds(r.commit_time) for r in cluster.rounds(run_id)
             if r.commit_seq > after_commit_seq]
    return [b - a for a, b in zip(times, times[1:])]


def wait_commits(cluster, count, run_id="run"):
    """Waits until `count` more rounds have committed; returns the state."""
    now = cluster.run_state(run_id).commit_seq
    return cluster.wait_commits(now + count, run_id, timeout=PATIENCE_S)


def wait_mirrored(cluster, run_id="run"):
    """Waits until the mirror has a checkpoint of this run_epoch."""
    def whole():
        cluster.check_alive()
        epoch = cluster.run_state(run_id).run.run_epoch
        return any(c.pin.checkpoint and c.pin.HasField("mirror") and
                   c.pin.mirror.run_epoch == epoch
                   for c in cluster.checkpoints(run_id).values())

    wait.until("a checkpoint is in the mirror", whole, PATIENCE_S)


def table(rows):
    """Rows of a markdown table; the first is its head."""
    lines = ["| %s |" % " | ".join(row) for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines)
