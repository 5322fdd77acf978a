#!/usr/bin/env python3
"""Compares runs of the preset "laptop" on one machine.

    compare.py run DIR [--device D]
    compare.py islands RUNS [--device cuda]
    compare.py bf16 RUNS [--device cuda]
    compare.py torch RUNS [--device cuda]

`run` trains and leaves DIR/curve.json: the training loss of each round and the
parameters' SHA-256. `islands` makes two runs at once on the device: their SHA-256
are equal, and their losses near those of RUNS/cpu. `bf16` makes one in bf16.
`torch` makes one in which one of three islands is torch_llama.py.
Prints a line of JSON for each check.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
FIRST_ROUNDS, FIRST_BOUND, END_BOUND, BF16_BOUND = 3, 1e-4, 0.005, 0.01
TORCH_ROUNDS = 10


def atoll(*arguments):
    return [os.path.join(HERE, "bin", "atoll")] + list(arguments)


def start(directory, device, compute="f32", more="", flags=()):
    """A running `dev up`, which still serves after the run's end. `more`:
    further lines of the run file."""
    os.makedirs(directory)
    run_file = os.path.join(directory, "run.toml")
    with open(run_file, "w", encoding="ascii") as file:
        file.write('preset = "laptop"\n[inner]\ncompute = "%s"\n%s' %
                   (compute, more))
    with open(os.path.join(directory, "log"), "wb") as log:
        return subprocess.Popen(
            atoll("dev", "up", run_file, "--run-id=check", "--keep",
                  "--device=" + device, "--threads=1",
                  "--data=" + os.path.join(HERE, "text"),
                  "--dir=" + os.path.join(directory, "dev"), *flags),
            stdout=log, stderr=subprocess.STDOUT)


def await_file(directory, name, process, trainer=None):
    """Reads JSON once it is there. SystemExit: a process has failed before."""
    path = os.path.join(directory, "dev", name)
    while not os.path.exists(path):
        for log, code in (("log", process.poll()),
                          ("trainer.log", trainer and trainer.poll())):
            if code or (code == 0 and log == "log"):
                with open(os.path.join(directory, log), "rb") as file:
                    sys.exit("ended with %d: %s" % (
                        code, file.read()[-2000:].decode()))
        time.sleep(0.2)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def finish(process, directory, trainer=None):
    """Waits for the run's end; returns its curve. SystemExit: as await_file."""
    made = await_file(directory, "result.json", process, trainer)
    coordinator = await_file(directory, "endpoints.json",
                             process)["coordinator"]
    rounds = json.loads(subprocess.run(
        atoll("round", "list", "check", "--coordinator", coordinator,
              "-o", "json"), stdout=subprocess.PIPE, check=True).stdout)
    process.send_signal(signal.SIGINT)
    process.wait()
    curve = {"losses": [r["training_loss"] for r in rounds["data"]["rounds"]],
             "state": made["state"], "sha256": made["parameters_sha256"],
             "tokens_per_second": made["tokens_per_second"]}
    with open(os.path.join(directory, "curve.json"), "w",
              encoding="ascii") as file:
        json.dump(curve, file)
    return curve


def say(text):
    print(json.dumps({"say": text}), flush=True)


def check(name, error):
    """A check that passed if `error` is empty."""
    record = {"check": name, "passed": not error}
    if error:
        record["error"] = error
    print(json.dumps(record), flush=True)


def difference(one, other, bounds):
    """Describes the first fault between two lists of losses; "" without one.
    `bounds`: {index: the largest difference, relative to `other`}."""
    if len(one) != len(other):
        return "%d rounds and %d" % (len(one), len(other))
    for index, bound in bounds.items():
        # A NaN is not near.
        if not abs(one[index] - other[index]) <= bound * abs(other[index]):
            return "round %d: %r and %r, bound %g" % (
                index % len(one) + 1, one[index], other[index], bound)
    return ""


def against_cpu(runs, curve, name, bounds):
    path = os.path.join(runs, "cpu", "curve.json")
    if not os.path.exists(path):
        return check(name, "there is no run of the CPU")
    with open(path, encoding="ascii") as file:
        return check(name, difference(curve["losses"],
                                      json.load(file)["losses"], bounds))


def compare_islands(runs, device):
    places = [os.path.join(runs, "%s-%d" % (device, i)) for i in range(2)]
    started = [start(place, device) for place in places]
    curves = [finish(*pair) for pair in zip(started, places)]
    sums = [curve["sha256"] for curve in curves]
    check("two runs have one SHA-256",
          "" if sums[0] == sums[1] else " and ".join(sums))
    bounds = {index: FIRST_BOUND for index in range(FIRST_ROUNDS)}
    bounds[-1] = END_BOUND
    against_cpu(runs, curves[0], "losses are the CPU's", bounds)
    say("%.0f tokens/s, sha256 %s" % (curves[0]["tokens_per_second"],
                                      sums[0][:12]))


def compare_bf16(runs, device):
    place = os.path.join(runs, device + "-bf16")
    curve = finish(start(place, device, "bf16"), place)
    against_cpu(runs, curve, "in bf16 it ends as in f32", {-1: BF16_BOUND})


def compare_torch(runs, device):
    place = os.path.join(runs, device + "-torch")
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="atoll-") as folder:
        socket = os.path.join(folder, "socket")
        process = start(
            place, device, more="[schedule]\nround_count = %d\nmin_quorum = 3\n"
            % TORCH_ROUNDS, flags=("--no-restart",
                                   "--child-flag=island-2=--trainer=unix:" +
                                   socket))
        coordinator = await_file(place, "endpoints.json",
                                 process)["coordinator"]
        with open(os.path.join(place, "trainer.log"), "wb") as log:
            trainer = subprocess.Popen(
                [sys.executable, "-B", os.path.join(HERE, "torch_llama.py"),
                 "--device=" + device, coordinator, "check", "torch"],
                cwd=place, stdout=log, stderr=subprocess.STDOUT,
                env=dict(os.environ, ATOLL_SOCKET=socket, OMP_NUM_THREADS="1",
                         ATOLL_BINARY=atoll()[0]))
        curve = finish(process, place, trainer)
        code = trainer.wait()
    ended = (curve["state"], len(curve["losses"]), code)
    check("two islands and PyTorch's complete a run",
          "" if ended == ("COMPLETED", TORCH_ROUNDS, 0) else
          "%s after %d rounds; PyTorch's island ended with %d" % ended)
    say("%d rounds with PyTorch, loss %.4f" % (len(curve["losses"]),
                                               curve["losses"][-1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("what", choices=("run", "islands", "bf16", "torch"))
    parser.add_argument("directory")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if arguments.what == "islands":
        compare_islands(arguments.directory, arguments.device)
    elif arguments.what == "bf16":
        compare_bf16(arguments.directory, arguments.device)
    elif arguments.what == "torch":
        compare_torch(arguments.directory, arguments.device)
    else:
        curve = finish(start(arguments.directory, arguments.device),
                       arguments.directory)
        say("%d rounds, loss %.4f" % (len(curve["losses"]),
                                      curve["losses"][-1]))


if __name__ == "__main__":
    main()
