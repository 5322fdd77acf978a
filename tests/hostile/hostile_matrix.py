#!/usr/bin/python3
"""Attacks of enrolled islands on an elastic run: the loss beside the honest
run's. By hand: a row takes minutes.

  bazel build //tests/hostile:programs
  tests/hostile/hostile_matrix.py [--attacks nan,spike,...] [--only 4|16]
      [--text PATH]

A row holds if the loss is within 2 % of the mean of two runs without hostile
islands, or if the hostile ones are named and out. The control has no bound and
must fail. Noise at the median's norm is below every norm bound: its row only
states the loss.
"""

import argparse
import os
import sys
import tempfile

sys.path[:0] = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "..",
                             "integration")]

# pylint: disable=wrong-import-position
import hostile_runs
from harness import cases
from harness import cluster as cluster_module
from harness import gated
from harness import text

SIZES = {4: (3, 1), 16: (12, 4)}
TRAINING = {
    "model": {"hidden_size": 64, "intermediate_size": 172, "sequence_length": 64},
    "inner": {"batch_size": 4, "warmup_step_count": 12},
    # The best rate: at a greater one, noise shortens the step and helps.
    "outer": {"learning_rate": 0.5, "momentum": 0.5},
    "schedule": {"inner_step_count": 10, "round_count": 24},
    "evaluation": {"every_round_count": 24, "batch_count": 20},
}
HONEST_RUN_COUNT = 2
SHOWN = ("noise",)
# The names of hostile islands begin with this.
HOSTILE = hostile_runs.ENROLLED + "volunteer-h"
TIMEOUT_S = 3600


def _play(directory, security, gate_dir, data, honest, hostile, attack, bounded):
    values = hostile_runs.values(honest, hostile, {"data": {"path": data}},
                                 TRAINING)
    cluster = cluster_module.Cluster(directory, security)
    try:
        return hostile_runs.play(cluster, security, gate_dir, values, honest,
                                 hostile, attack, bounded, TIMEOUT_S)
    except Exception:
        sys.stderr.write(cluster.describe())
        raise
    finally:
        cluster.close()


def _judge(name, result, change, hostile_count, bounded):
    if not bounded:
        return "control fails, as it must" if change > 0.02 else "CONTROL HOLDS"
    if name in SHOWN:
        return "shown"
    out = (len(result.named) == hostile_count and
           not any(n.startswith(HOSTILE) for n in result.merged))
    seen = (["holds"] if change <= 0.02 else []) + (
        ["named and out"] if out else [])
    return ", ".join(seen) or "FAILS"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", default=",".join(hostile_runs.ATTACKS))
    parser.add_argument("--only", type=int, choices=SIZES)
    parser.add_argument("--text", type=os.path.abspath,
                        help="a file or directory to train on (the text of the "
                        "integration tests, which is easy)")
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="atoll-")
    security = gated.Security(os.path.join(root, "pki"))
    gate_dir = security.issue("gate", "g0")
    data = options.text or text.write_text(os.path.join(root, "text"),
                                           cases.seed())
    print("| islands | hostile | attack | loss | difference | hostile merged | "
          "named | verdict |\n|---|---|---|---|---|---|---|---|", flush=True)
    failed = False
    for size, (honest_count, hostile_count) in SIZES.items():
        if options.only not in (None, size):
            continue
        losses = []
        for index in range(HONEST_RUN_COUNT):
            losses.append(_play(
                os.path.join(root, "%d-honest-%d" % (size, index)), security,
                gate_dir, data, honest_count, 0, None, True).loss)
            print("| %d | 0 | none | %.4f | | | | |" % (honest_count,
                                                        losses[-1]), flush=True)
        honest_loss = sum(losses) / len(losses)
        rows = [(name, True) for name in options.attacks.split(",")]
        for name, bounded in rows + [("spike", False)]:
            result = _play(
                os.path.join(root, "%d-%s-%s" % (size, name, bounded)),
                security, gate_dir, data, honest_count, hostile_count,
                hostile_runs.ATTACKS[name], bounded)
            merged = sum(n for island, n in result.merged.items()
                         if island.startswith(HOSTILE))
            change = result.loss / honest_loss - 1
            verdict = _judge(name, result, change, hostile_count, bounded)
            failed = failed or verdict in ("FAILS", "CONTROL HOLDS")
            print("| %d | %d | %s%s | %.4f | %+.2f %% | %d | %d | %s |" % (
                size, hostile_count, name, "" if bounded else ", no bound",
                result.loss, 100 * change, merged, len(result.named), verdict),
                flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
