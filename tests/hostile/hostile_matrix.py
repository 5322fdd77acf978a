#!/usr/bin/python3
"""Attacks of enrolled islands on an elastic run: the loss beside the honest
run's. By hand: a row takes minutes.

  bazel build //tests/hostile:programs
  tests/hostile/hostile_matrix.py [--attacks nan,spike,...] [--only 4|16]

A row holds if the loss is within 2 % of the run without hostile islands. The
control has no bound and must fail. Noise at the median's norm is below every
norm bound: its row only states the loss.
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
    "outer": {"learning_rate": 0.9, "momentum": 0.5},
    "schedule": {"inner_step_count": 10, "round_count": 24},
    "evaluation": {"every_round_count": 24, "batch_count": 20},
}
SHOWN = ("noise",)
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


def _judge(name, result, honest, hostile_count, bounded):
    change = result.loss / honest.loss - 1
    if not bounded:
        return "control fails, as it must" if change > 0.02 else "CONTROL HOLDS"
    if name in SHOWN:
        return "shown"
    out = (len(result.named) == hostile_count and
           not any(n.startswith("volunteer-h") for n in result.merged))
    if change <= 0.02:
        return "holds" + (", named and out" if out else "")
    return "FAILS"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", default=",".join(hostile_runs.ATTACKS))
    parser.add_argument("--only", type=int, choices=SIZES)
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="atoll-")
    security = gated.Security(os.path.join(root, "pki"))
    gate_dir = security.issue("gate", "g0")
    data = text.write_text(os.path.join(root, "text"), cases.seed())
    print("| islands | hostile | attack | loss | difference | hostile merged | "
          "named | verdict |\n|---|---|---|---|---|---|---|---|", flush=True)
    failed = False
    for size, (honest_count, hostile_count) in SIZES.items():
        if options.only not in (None, size):
            continue
        honest = _play(os.path.join(root, "%d-honest" % size), security,
                       gate_dir, data, honest_count, 0, None, True)
        print("| %d | 0 | none | %.4f | | | | |" % (honest_count, honest.loss),
              flush=True)
        rows = [(name, True) for name in options.attacks.split(",")]
        for name, bounded in rows + [("spike", False)]:
            result = _play(
                os.path.join(root, "%d-%s-%s" % (size, name, bounded)),
                security, gate_dir, data, honest_count, hostile_count,
                hostile_runs.ATTACKS[name], bounded)
            merged = sum(n for island, n in result.merged.items()
                         if island.startswith("volunteer-h"))
            verdict = _judge(name, result, honest, hostile_count, bounded)
            failed = failed or verdict in ("FAILS", "CONTROL HOLDS")
            print("| %d | %d | %s%s | %.4f | %+.2f %% | %d | %d | %s |" % (
                size, hostile_count, name, "" if bounded else ", no bound",
                result.loss, 100 * (result.loss / honest.loss - 1), merged,
                len(result.named), verdict), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
