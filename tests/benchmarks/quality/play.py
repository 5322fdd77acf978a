"""Plays one row with one seed: real processes, then the model's loss."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "..")]

# pylint: disable=wrong-import-position
import methods
import rows as rows_module
from harness import cluster as cluster_module
from harness import processes
from harness import run_file

# Time limit of a run; a row takes about two minutes.
_TIMEOUT_S = 3 * 3600
# Time slice of a slow island.
_SLICE_S = 0.1
_LOOK_S = 0.25

_HOSTILE = "tests/benchmarks/quality/hostile_island"


class NotHere(Exception):
    """This row cannot run here; the message says why."""


class _Slowed:
    """A process that runs only a share of the time, like a slow machine."""

    def __init__(self, process, factor):
        self._process = process
        self._factor = factor
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        run_s = _SLICE_S / self._factor
        while not self._ended.wait(run_s) and self._process.poll() is None:
            self._process.signal(signal.SIGSTOP)
            self._ended.wait(_SLICE_S - run_s)
            self._process.signal(signal.SIGCONT)

    def close(self):
        self._ended.set()
        self._thread.join()


def _start_islands(cluster, row, count):
    """Starts the islands; the last ones are the hostile or slow ones."""
    few_begin = count - len(row.few_steps)
    for index, steps in enumerate(row.few_steps):
        cluster.start_island("run", "island-%d" % (few_begin + index),
                             program=_HOSTILE, arguments=["--steps=%d" % steps])
    if row.few_steps:
        return cluster.start_islands(count=few_begin)
    cluster.start_islands(count=count - 1)
    last = "island-%d" % (count - 1)
    if row.hostile:
        return cluster.start_island("run", last, program=_HOSTILE,
                                    arguments=["--attack", row.hostile])
    return cluster.start_island("run", last)


def _await_end(cluster):
    """Waits for COMPLETED, or PAUSED if the run cannot continue; returns it."""
    deadline = time.monotonic() + _TIMEOUT_S
    pause = threading.Event()
    while time.monotonic() < deadline:
        cluster.check_alive()
        now = cluster.run_state()
        if now.run.state in (cluster_module.COMPLETED, cluster_module.PAUSED,
                             cluster_module.CANCELLED):
            return now
        pause.wait(_LOOK_S)
    raise RuntimeError("the run has not ended after %d s" % _TIMEOUT_S)


def evaluate(model, held_out):
    done = processes.run_cli("eval", "--model", model, "--data", held_out, "-o",
                             "json", timeout=1800, check=0)
    return json.loads(done.stdout)["data"]["loss"]


def _play_run(row, values, directory, held_out):
    cluster = cluster_module.Cluster(directory)
    slowed = None
    try:
        cluster.start_coordinator()
        try:
            methods.create(cluster, values)
        except methods.Refused as why:
            raise NotHere("refused: %s" % why)
        cluster.start_servers(values["server_count"])
        begin = time.monotonic()
        last = _start_islands(cluster, row,
                              values["schedule"]["island_count_min"])
        if row.slow > 1:
            slowed = _Slowed(last, row.slow)
        state = _await_end(cluster)
        seconds = time.monotonic() - begin
        rounds = cluster.rounds()
        merged = [c for r in rounds for c in r.contributions
                  if c.outcome == cluster_module.MERGED]
        up = sum(c.payload_bytes for c in merged)
        # An honest island's must be below 1: else it is refused if it enrolled.
        share = max((c.norm / c.norm_bound for c in merged if c.norm_bound > 0),
                    default=0)
        entry = {"loss": None, "seconds": round(seconds, 1),
                 "tokens": state.merged_token_count, "bytes_up": up,
                 "bytes_down": state.received_bytes,
                 "commits": state.commit_seq, "ended": "COMPLETED",
                 "norm_by_bound_max": round(share, 3)}
        if state.run.state != cluster_module.COMPLETED:
            entry["ended"] = "after %d rounds: %s" % (
                len(rounds), state.run.state_reason)
            return entry
        model = os.path.join(directory, "model")
        cluster.run_cli("run", "export", "run", "--output", model, check=0)
        entry["loss"] = evaluate(model, held_out)
        return entry
    except NotHere:
        raise
    except Exception:
        sys.stderr.write(cluster.describe())
        raise
    finally:
        if slowed is not None:
            slowed.close()
        cluster.close()


def _train_alone(values, directory, name):
    """Returns the model of `atoll dev baseline` for this run file."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, name + ".toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(run_file.to_toml(values))
    model = os.path.join(directory, name)
    processes.run_cli("dev", "baseline", path, "--output", model,
                      timeout=_TIMEOUT_S, check=0)
    return model


def _tokens(values):
    schedule = values["schedule"]
    return (schedule["round_count"] * schedule["inner_step_count"] *
            values["inner"]["batch_size"] * values["model"]["sequence_length"])


def _play_alone(values, directory, held_out):
    begin = time.monotonic()
    model = _train_alone(values, directory, "model")
    return {"loss": evaluate(model, held_out), "tokens": _tokens(values),
            "seconds": round(time.monotonic() - begin, 1), "bytes_up": None,
            "bytes_down": None, "ended": "COMPLETED"}


def version_0(values, directory):
    """Exports the initial parameters of a run: one training step with a rate so
    small that it changes no bit."""
    still = {"inner": {"learning_rate": 1e-30, "weight_decay": 0.0,
                       "warmup_step_count": 0, "batch_size": 1},
             "schedule": {"round_count": 1, "inner_step_count": 1}}
    return _train_alone(run_file.merged(values, still), directory, "start")


def _play_torch(row, values, directory, torch_python):
    if torch_python is None:
        raise NotHere("no PyTorch here: --torch-python names one")
    start = version_0(values, directory)
    path = os.path.join(directory, "values.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file)
    command = [torch_python, "-B",
               processes.source("tests/tools/torch_reference.py"), "--values",
               path, "--start", start, "--data", values["data"]["path"]]
    if row.play == rows_module.TORCH_ALONE:
        command.append("--alone")
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError("PyTorch: " + done.stderr[-2000:])
    said = json.loads(done.stdout.splitlines()[-1])
    return {"loss": said["loss"], "seconds": round(time.monotonic() - begin, 1),
            "tokens": None, "torch": said["torch"], "bytes_up": None, "bytes_down": None,
            "ended": "COMPLETED"}


def play(row, values, directory, held_out, torch_python=None):
    """{"loss", "ended", ...}; the loss is None for a run that did not end.

    Raises NotHere if the coordinator refuses the run, or if PyTorch is missing.
    """
    if row.play == rows_module.ALONE:
        return _play_alone(values, directory, held_out)
    if row.play in (rows_module.TORCH, rows_module.TORCH_ALONE):
        return _play_torch(row, values, directory, torch_python)
    return _play_run(row, values, directory, held_out)
