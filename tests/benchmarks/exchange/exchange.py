"""What an exchange costs an island whose trainer is another process.

usage: exchange [--json] [--parameters 4M,124M] [--cases rounds,streaming]
                [--rounds 6]

Plays the same run twice with real programs on this machine, one island each:
with Atoll's own engine, and with a NumPy trainer of as many parameters whose
steps take as long. A row for each case and size:

  loop_us        a call of `step` in a loop that does nothing else: the median
                 of a run of its own, with the loop's time
  step_us        a call of `step` when nothing is due, median; after computing
                 it is mostly one look at the socket
  sync_ms        time in which the trainer waits for the exchange, a
                 synchronization: its state saved, the outer gradient encoded,
                 saved and pushed, the answer pulled and applied
  cpp_sync_ms    the same of Atoll's engine: its time without inner steps
  peak_bytes_a_parameter     largest memory of exchange and trainer together;
                             shared memory counts once
  written_bytes_a_parameter  local checkpoint and trainer's state, a round

`rounds` is a strict run of one fragment; `streaming` has four staggered ones
whose answers come two steps later. Both islands share the machine with their
server, so compare the two, not two machines.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(_HERE, "..", "..", "integration"))

# pylint: disable=wrong-import-position
from harness import cases
from harness import cluster as cluster_module
from harness import run_file
from harness import text
from harness import wait

_PATIENCE_S = 1800
_TRAINER = "tests/benchmarks/exchange/exchange_trainer.py"
_STEPS = 8
_LOOP_STEPS = 200_000
# Layers, hidden and intermediate size of a Llama with bytes as tokens.
_SHAPES = {"150k": (4, 64, 64), "4M": (5, 256, 704), "124M": (14, 768, 2816)}
CASES = {
    "rounds": {},
    "streaming": {
        "layout": {"fragment_count": 4},
        "schedule": {"fragment_schedule": "staggered", "overlap_step_count": 2,
                     "blend": 0.5},
    },
}
KEYS = ("case", "parameters", "loop_us", "step_us", "sync_ms", "cpp_sync_ms",
        "peak_bytes_a_parameter", "written_bytes_a_parameter")


def tensors_of(layers, hidden, intermediate):
    """Names and shapes of the engine's model."""
    shapes = [("embedding", [256, hidden]), ("head", [256, hidden]),
              ("norm", [hidden])]
    for layer in range(layers):
        shapes += [("%d.%s" % (layer, name), shape) for name, shape in (
            ("q", [hidden, hidden]), ("k", [hidden, hidden]),
            ("v", [hidden, hidden]), ("o", [hidden, hidden]),
            ("gate", [intermediate, hidden]), ("up", [intermediate, hidden]),
            ("down", [hidden, intermediate]), ("norm", [hidden]),
            ("norm_2", [hidden]))]
    return {"version": 1, "tensors": [
        {"name": name, "shape": shape} for name, shape in shapes]}


def count_parameters(tensors):
    total = 0
    for tensor in tensors["tensors"]:
        size = 1
        for dimension in tensor["shape"]:
            size *= dimension
        total += size
    return total


def base_values(case, rounds):
    return run_file.merged(run_file.BASE, CASES[case], {
        "schedule": {"round_count": rounds, "inner_step_count": _STEPS,
                     "island_count_min": 1, "min_quorum": 1,
                     "lease_duration": "60s"},
        "evaluation": {"every_round_count": 0},
        "data": {"data_shard_count": 1},
    })


class PeakMemory:
    """The largest memory of some processes, sampled; shared memory of the
    first one counts once."""

    def __init__(self, pids):
        self._pids = pids
        self._stop = threading.Event()
        self.peak = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _read(self, pid, name):
        try:
            with open("/proc/%d/status" % pid, encoding="utf-8") as file:
                found = re.search(name + r":\s+(\d+)", file.read())
            return 1024 * int(found.group(1)) if found else 0
        except OSError:
            return 0

    def _watch(self):
        while not self._stop.wait(0.02):
            now = sum(self._read(pid, "RssAnon") for pid in self._pids)
            now += self._read(self._pids[0], "RssShmem")
            self.peak = max(self.peak, now)

    def end(self):
        self._stop.set()
        self._thread.join()
        return self.peak


def last_json(path):
    """The JSON object with which a program's output ends."""
    with open(path, encoding="utf-8") as file:
        output = file.read()
    return json.loads(output[output.rindex("\n{\n"):])["data"]


def play(directory, values, tensors=None, words=()):
    """Runs one island to the run's end. Returns (its result, peak bytes)."""
    cluster = cluster_module.Cluster(directory)
    try:
        if tensors is not None:
            with open(os.path.join(directory, "tensors.json"), "w",
                      encoding="utf-8") as file:
                json.dump(tensors, file)
        cluster.start_service()
        cluster.create_run(values)
        names = ["island"]
        if tensors is None:
            cluster.start_island("run", "island", arguments=["-o", "json"],
                                 threads=os.cpu_count())
        else:
            cluster.start_trainer_island(
                "island", arguments=["-o", "json"],
                trainer=(_TRAINER, *words, "run", "{socket}", "{directory}"))
            names.append("trainer-of-island")
        memory = PeakMemory([cluster.processes[name].pid for name in names])
        cluster.wait_state(cluster_module.COMPLETED, timeout=_PATIENCE_S)
        for name in names:
            wait.until("%s ends" % name,
                       lambda n=name: cluster.processes[n].poll() is not None,
                       _PATIENCE_S)
        return last_json(cluster.processes["island"].log_path), memory.end()
    finally:
        cluster.close()


def seconds_between(result):
    begin, end = (
        datetime.datetime.fromisoformat(
            result["training_%s_time" % word].replace("Z", "+00:00"))
        for word in ("begin", "end"))
    return (end - begin).total_seconds()


def measure(case, size, rounds, directory):
    tensors = tensors_of(*_SHAPES[size])
    count = count_parameters(tensors)
    layers, hidden, intermediate = _SHAPES[size]
    values = base_values(case, rounds)
    syncs = rounds * values.get("layout", {}).get("fragment_count", 1)

    lines = text.write_text(os.path.join(directory, "text"), cases.seed())
    engine = run_file.merged(values, {
        "model": {"hidden_size": hidden, "intermediate_size": intermediate,
                  "layer_count": layers, "head_count": hidden // 64,
                  "kv_head_count": hidden // 64, "vocab_size": 256,
                  "sequence_length": 16, "tie_embeddings": False},
        "inner": {"batch_size": 1},
        "data": {"path": lines},
    })
    own, _ = play(os.path.join(directory, "engine"), engine)
    step_seconds = own["computing_seconds"] / (rounds * _STEPS)

    out = os.path.join(directory, "trainer.json")
    external = run_file.merged(values, {"model": None, "data": None,
                                        "inner": None}, {
        "model": {"architecture": "external", "sequence_length": 1,
                  "tensors": "tensors.json"},
        "data": {"format": "external", "data_shard_count": 1},
        "inner": {"batch_size": 1},
    })

    def train(name, changes, seconds):
        played = play(os.path.join(directory, name),
                      run_file.merged(external, changes), tensors,
                      [out, str(seconds)])
        with open(out, encoding="utf-8") as file:
            return (json.load(file), *played)

    trainer, island, peak = train("external", {}, step_seconds)
    loop, _, _ = train("loop", {"schedule": {
        "round_count": 1, "inner_step_count": _LOOP_STEPS}}, 0)

    # From the first step's begin to the last one's end: no step follows the
    # last synchronization.
    waits = seconds_between(own) - own["computing_seconds"]
    return dict(zip(KEYS, (
        case, count, round(statistics.median(loop["loop_us"]), 2),
        round(statistics.median(trainer["idle_us"]), 2),
        round(sum(trainer["sync_ms"]) / (syncs - 1), 2),
        round(1e3 * waits / (syncs - 1), 2), round(peak / count, 2),
        round((island["saved_bytes"] + trainer["saved_bytes"]) /
              rounds / count, 2))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--parameters", default="4M,124M")
    parser.add_argument("--cases", default="rounds,streaming")
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    sizes, names = arguments.parameters.split(","), arguments.cases.split(",")
    for word, known in [(s, _SHAPES) for s in sizes] + [
            (n, CASES) for n in names]:
        if word not in known:
            parser.error("%r is not one of %s" % (word, ", ".join(known)))
    if arguments.rounds < 3:
        parser.error("--rounds must be at least 3")
    if not arguments.json:
        print("  ".join("%-11s" % key.split("_a_")[0] for key in KEYS))
    for size in sizes:
        for name in names:
            directory = tempfile.mkdtemp(prefix="atoll-exchange-")
            try:
                row = measure(name, size, arguments.rounds, directory)
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            print(json.dumps(row) if arguments.json else
                  "  ".join("%-11s" % row[key] for key in KEYS), flush=True)


if __name__ == "__main__":
    main()
