#!/usr/bin/python3
"""What needs PyTorch: tests of the Python package, and torch islands in runs.

    torch_islands.py [--python PROGRAM | --venv DIR] [--only NAME,...]
                     [--quality] [--seeds 1,2,3]

Makes the virtual environment DIR with torch and transformers from PyPI, unless
it is there. Needs the programs of `bazel build -c opt //...`, or ATOLL_BIN.
With --quality it trains the quality benchmark's 0.86 M Llama and judges:

  torch_diloco   three torch islands against the benchmark's row torch_diloco:
                 each loss within 1 %, their mean within 0.3 %
  mixed          two islands of Atoll's engine and a torch island against three
                 of the engine: within the spread of the latter over the seeds

The last line is `N passed, N failed`.
"""

import argparse
import functools
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

_HERE = os.path.dirname(os.path.realpath(__file__))
_TREE = os.path.normpath(os.path.join(_HERE, "..", ".."))
sys.path[:0] = [_HERE] + [os.path.join(_TREE, *names) for names in (
    ("tests", "integration"), ("tests", "benchmarks", "quality"),
    ("tests", "benchmarks"))]

# pylint: disable=wrong-import-position
import atoll_data
import play as play_module
import rows as rows_module
from harness import arithmetic
from harness import cluster as cluster_module
from harness import processes
from harness import run_file
from harness import text

_TESTS = ("worker/sdk/python/torch_test.py",
          "worker/sdk/python/torch_attach_test.py",
          "worker/sdk/python/torch_mesh_test.py",
          "worker/sdk/python/hf_test.py",
          "worker/sdk/examples/examples_test.py")
_PACKAGES = ("torch", "numpy", "transformers", "accelerate", "torchdata")
_ENGINE, _TORCH = "engine", "torch"
_TIMEOUT_S = 3600
_RATIO_EACH, _RATIO_MEAN = 0.01, 0.003


def make_environment(folder, packages=_PACKAGES):
    """The interpreter of a virtual environment with `packages`."""
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        subprocess.run(["python3", "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages],
                       check=True)
    return os.path.abspath(python)


class Checks:
    """Counts checks, and prints each with its time."""

    def __init__(self, only):
        self._only = only
        self.passed = self.failed = 0

    def run(self, name, check):
        """`check` returns what to print, or (passed, failed, text)."""
        if self._only and not any(part in name for part in self._only):
            return
        begin = time.monotonic()
        try:
            said = check()
            passed, failed, said = (said if isinstance(said, tuple) else
                                    (1, 0, said))
        except Exception as error:  # pylint: disable=broad-except
            traceback.print_exc()
            passed, failed, said = 0, 1, "%s: %s" % (type(error).__name__,
                                                     str(error)[:300])
        self.passed += passed
        self.failed += failed
        print("%-5s %-34s %5.0f s  %s" % ("FAIL" if failed else "ok", name,
                                          time.monotonic() - begin, said),
              flush=True)


def run_test(python, path):
    """Runs a script of cases; counts them."""
    done = subprocess.run([python, "-B", os.path.join(_TREE, path)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "OMP_NUM_THREADS": "1"},
                          text=True, check=False)
    count = {outcome: done.stdout.count("\n[ %-5s]" % outcome)
             for outcome in ("OK", "FAIL", "SKIP")}
    if done.returncode and not count["FAIL"]:
        count["FAIL"] = 1
    if count["FAIL"]:
        print(done.stdout[-4000:])
    return (count["OK"], count["FAIL"], "%d of %d cases, %d skipped" % (
        count["OK"], sum(count.values()), count["SKIP"]))


def check_variances(cluster, run_id):
    """Running variances are positive, and every evaluation has a loss."""
    pinned = cluster.pin(run_id)
    parameters = cluster.parameters(run_id, pinned)
    begins = dict.fromkeys(parameters, 0)
    for tensor in pinned.run.spec.layout.tensors:
        begin = begins[tensor.fragment]
        end = begins[tensor.fragment] = begin + 4 * math.prod(tensor.shape)
        values = arithmetic.from_bytes(parameters[tensor.fragment][begin:end])
        if tensor.name.endswith("running_var") and min(values) <= 0:
            raise AssertionError("%s is %s" % (tensor.name, list(values)))
    for made in cluster.rounds(run_id):
        if made.evaluation.failure:
            raise AssertionError(str(made.evaluation))


class Bench:
    """Runs with torch islands, each in a folder of its own."""

    def __init__(self, python, folder):
        self._python = python
        self._folder = folder

    def folder(self, name):
        path = os.path.join(self._folder, name)
        os.makedirs(path)
        os.chdir(path)  # Trainers keep their states below it.
        return path

    def start_torch_island(self, cluster, run_id, island_id, example,
                           *arguments):
        """An exchange, and an example as its trainer: trainer-of-ID."""
        # A socket's path is short; a folder's may not be.
        path = os.path.join(tempfile.mkdtemp(dir=self._folder), "s")
        cluster.start_island(run_id, island_id, name=island_id,
                             arguments=["--trainer=unix:" + path])
        self.start(cluster, "trainer-of-" + island_id, example, *arguments,
                   ATOLL_SOCKET=path)

    def start(self, cluster, name, example, *arguments, **environment):
        process = processes.Process(
            name, [self._python, "-B", processes.source(
                "worker/sdk/examples/%s.py" % example), *arguments],
            os.path.join(cluster.directory, name + ".log"), {
                "PYTHONPATH": os.path.join(_TREE, "worker", "sdk", "python"),
                "ATOLL_BINARY": processes.binary(processes.CLI),
                "OMP_NUM_THREADS": "1", **environment})
        cluster.processes[name] = process
        return process

    def train(self, name, values, kinds):
        """Trains to the run's end; returns the folder of its export."""
        cluster = cluster_module.Cluster(self.folder(name))
        try:
            cluster.start_coordinator()
            cluster.create_run(values)
            cluster.start_servers(values["server_count"])
            for index, kind in enumerate(kinds):
                island_id = "island-%d" % index
                if kind == _TORCH:
                    self.start_torch_island(
                        cluster, "run", island_id, "torch_llama",
                        cluster.coordinator_address, "run", island_id)
                else:
                    cluster.start_island("run", island_id)
            cluster.wait_state(cluster_module.COMPLETED, timeout=_TIMEOUT_S)
            model = os.path.join(cluster.directory, "model")
            cluster.run_cli("run", "export", "run", "--output", model, check=0)
            return model
        except Exception:
            print(cluster.describe())
            raise
        finally:
            cluster.close()

    def check_export(self, model, held_out):
        """The loss, which transformers must find too."""
        done = subprocess.run(
            [self._python, "-B", os.path.join(_HERE, "check_export.py"),
             "--model", model, "--data", held_out, "--atoll",
             processes.binary(processes.CLI)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            check=False)
        if done.returncode:
            raise AssertionError("%s: %s" % (model, done.stderr[-1000:]))
        return play_module.evaluate(model, held_out)

    def write_held_out(self, name, path, values):
        data = values["data"]
        tokens = atoll_data.split(atoll_data.read_tokens(path, data["seed"]),
                                  data["validation_fraction"])[1]
        with open(os.path.join(self._folder, name), "wb") as file:
            file.write(tokens)
        return file.name

    # --- Checks ---------------------------------------------------------------

    def small(self, *changes):
        """A tiny run with a torch island ends as one of the engine alone."""
        data = text.write_text(tempfile.mkdtemp(dir=self._folder), 1)
        values = run_file.merged(run_file.BASE, {"data": {"path": data}},
                                 *changes)
        held_out = self.write_held_out("small.bin", data, values)
        name = "small-%d" % len(os.listdir(self._folder))
        ours, theirs = (self.check_export(
            self.train(name + "-" + last, values, (_ENGINE, _ENGINE, last)),
            held_out) for last in (_ENGINE, _TORCH))
        if abs(ours - theirs) > 1e-4 * ours:
            raise AssertionError("%.6f with the engine, %.6f with torch" %
                                 (ours, theirs))
        return "%.6f with the engine, %.6f with torch" % (ours, theirs)

    def example(self, name):
        """`create` and two `join`s of an example, in a real run."""
        cluster = cluster_module.Cluster(self.folder(name))
        try:
            cluster.start_coordinator()
            cluster.start_servers(2)  # They take the model's values.
            address = cluster.coordinator_address
            create = self.start(cluster, "create", name, "create", address)
            if create.wait(_TIMEOUT_S):
                raise AssertionError(create.tail())
            for island_id in ("attic", "cellar"):
                self.start_torch_island(cluster, name.replace("_", "-"),
                                        island_id, name, "join", address,
                                        island_id)
            cluster.wait_state(cluster_module.COMPLETED,
                               name.replace("_", "-"), timeout=_TIMEOUT_S)
            trainer = cluster.processes["trainer-of-attic"]
            if trainer.wait():
                raise AssertionError(trainer.tail())
            check_variances(cluster, name.replace("_", "-"))
            return trainer.tail(1).strip()
        except Exception:
            print(cluster.describe())
            raise
        finally:
            cluster.close()


class Quality:
    """The quality benchmark's row diloco, trained by several trainers."""

    def __init__(self, bench, python, data, scratch):
        self._bench = bench
        self._python = python
        self._data = data
        self._scratch = scratch
        self._held_out = bench.write_held_out("held_out.bin", data,
                                              self._values("diloco", 1))
        self.losses = {}  # By what trained it: {seed: loss}.

    def _values(self, row, seed):
        return rows_module.values_of(rows_module.by_name()[row], seed,
                                     self._data)

    def train(self, name, seed, kinds):
        model = self._bench.train("%s-%d" % (name, seed),
                                  self._values("diloco", seed), kinds)
        loss = self._bench.check_export(model, self._held_out)
        self.losses.setdefault(name, {})[seed] = loss
        return "%.5f" % loss

    def reference(self, seed):
        """The benchmark's row, in one process of PyTorch."""
        row = rows_module.by_name()["torch_diloco"]
        entry = play_module.play(
            row, self._values(row.name, seed),
            os.path.join(self._scratch, "reference-%d" % seed),
            self._held_out, self._python)
        self.losses.setdefault(row.name, {})[seed] = entry["loss"]
        return "%.5f" % entry["loss"]

    def judge_torch(self):
        mine, reference = self.losses["torch"], self.losses["torch_diloco"]
        shares = [mine[s] / reference[s] - 1 for s in sorted(mine)]
        said = "%s, mean %+.3f %%" % (", ".join(
            "%+.3f %%" % (100 * s) for s in shares),
                                      100 * statistics.fmean(shares))
        if (max(map(abs, shares)) > _RATIO_EACH or
                abs(statistics.fmean(shares)) > _RATIO_MEAN):
            raise AssertionError(said)
        return said

    def judge_mixed(self):
        mine, reference = self.losses["mixed"], self.losses["engine"]
        spread = max(reference.values()) - min(reference.values())
        most = max(abs(mine[s] - reference[s]) for s in mine)
        said = "%.5f at most, the spread is %.5f" % (most, spread)
        if most > spread:
            raise AssertionError(said)
        return said


def check_quality(checks, bench, python, arguments, scratch):
    quality = Quality(bench, python, arguments.data, scratch)
    for seed in arguments.seeds:
        for name, kinds in (("engine", 3 * [_ENGINE]), ("torch", 3 * [_TORCH]),
                            ("mixed", [_ENGINE, _ENGINE, _TORCH])):
            checks.run("quality %s seed %d" % (name, seed),
                       functools.partial(quality.train, name, seed, kinds))
        checks.run("quality reference seed %d" % seed,
                   functools.partial(quality.reference, seed))
    checks.run("quality: torch and torch_diloco", quality.judge_torch)
    checks.run("quality: mixed and engine", quality.judge_mixed)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", help="an interpreter with the packages")
    parser.add_argument("--venv", default="/tmp/atoll-torch")
    parser.add_argument("--only", type=lambda s: s.split(","), default=[],
                        help="parts of the names of the checks to run")
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--seeds", default=[1, 2, 3],
                        type=lambda s: [int(n) for n in s.split(",")])
    parser.add_argument("--data", default="/usr/include/c++/12",
                        help="text of the quality benchmark")
    arguments = parser.parse_args()
    python = arguments.python or make_environment(arguments.venv)
    checks = Checks(arguments.only)
    scratch = tempfile.mkdtemp(prefix="atoll-torch-")
    try:
        for path in _TESTS:
            checks.run(os.path.basename(path),
                       functools.partial(run_test, python, path))
        bench = Bench(python, scratch)
        for name in ("numpy_linear", "torch_cnn", "hf_llama",
                     "accelerate_mlp"):
            checks.run("real run of " + name,
                       functools.partial(bench.example, name))
        checks.run("mixed islands", bench.small)
        checks.run("mixed islands streaming tied", functools.partial(
            bench.small, {"layout": {"fragment_count": 2},
                          "model": {"tie_embeddings": True}}))
        if arguments.quality:
            check_quality(checks, bench, python, arguments, scratch)
    finally:
        os.chdir("/")
        shutil.rmtree(scratch, ignore_errors=True)
    print("%d passed, %d failed" % (checks.passed, checks.failed))
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
