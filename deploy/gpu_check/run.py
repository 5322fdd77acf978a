#!/usr/bin/env python3
"""Checks everything of ours that needs a GPU, on a machine that is lent for
minutes and has nothing of ours installed.

    run.py --part one --seconds 390 [--out DIR]
    run.py --part two --seconds 270 [--out DIR]

It stands in the bundle that build.sh packs. Exit code: 0 nothing failed, 1 a
step failed, 10 there is no device.
"""

import argparse
import glob
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)

import runner  # noqa: E402

NO_DEVICE_EXIT = 10
NVIDIA = ("cublas", "cudnn", "nccl", "cuda_nvrtc", "cu13")
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
KERNELS = "regex:KeysKernel|QueriesKernel|ForEach|CrossEntropy|RmsNorm"


def library_folders():
    """The folders of NVIDIA's libraries in Python's environment. Only these: a
    libstdc++ of ours before the system's would break Python."""
    return [folder for place in sys.path for name in NVIDIA
            for folder in glob.glob(os.path.join(place, "nvidia", name, "lib"))]


def environment(out):
    libraries = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":")
                 if p]
    return {"LD_LIBRARY_PATH": ":".join(libraries + library_folders()),
            "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket",
            "NCCL_DEBUG": "WARN",
            "NCCL_DEBUG_FILE": os.path.join(out, "nccl.%p.txt"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(out, "inductor"),
            "PYTHONUNBUFFERED": "1"}


def python(name, *arguments):
    return [sys.executable, "-B", os.path.join(HERE, name)] + list(arguments)


def check(*arguments):
    return [os.path.join(HERE, "bin", "cuda_check")] + list(arguments)


def on_device(command):
    """A command that would say in its own way that there is no device."""
    return ["sh", "-c", "ls /dev/nvidia[0-9]* >/dev/null 2>&1 || exit %d; "
            "exec \"$@\"" % runner.NO_DEVICE, "sh"] + command


def part_one(out, step):
    """Groups of steps: those of one group run at once."""
    run = os.path.join(out, "runs")
    sanitized = [
        step(tool, on_device(
            ["compute-sanitizer", "--tool", tool, "--kernel-name", "kns=3atl",
             "--error-exitcode", "9"] +
            check("--only=ops,model", "--small", "--seed=1")), 60, 150)
        for tool in SANITIZERS]
    return [
        [step("facts", [sys.executable, "-B", __file__, "--facts"], 5, 40,
              True)],
        [step("codec", check("--only=codec", "--seed=1"), 5, 40)],
        [step("ops", check("--only=ops", "--seed=1"), 40, 150),
         step("models", check("--only=model", "--seed=1"), 20, 90),
         step("golden", check("--only=golden"), 15, 60),
         step("torch_warm", on_device(python(
             "gpu_speed.py", "--steps=1", "--repeats=1")), 60, 150),
         step("cpu_run", on_device(python(
             "compare.py", "run", os.path.join(run, "cpu"))), 50, 150)] + sanitized,
        [step("speed_bf16", check("--only=speed", "--dtypes=bf16",
                                  "--steps=10"), 30, 90)],
        [step("speed_f32", check("--only=speed", "--shapes=124m",
                                 "--dtypes=f32", "--steps=5"), 10, 60)],
        [step("speed_torch", on_device(python(
            "gpu_speed.py", "--steps=10", "--repeats=1",
            "--ours=" + os.path.join(out, "results.jsonl"))), 40, 80)],
        [step("ncu", on_device(
            ["ncu", "--clock-control", "none", "--section", "SpeedOfLight",
             "--section", "Occupancy", "-k", KERNELS, "-c", "12"] +
            check("--only=speed", "--shapes=124m", "--dtypes=bf16",
                  "--graphs=off", "--steps=1")), 25, 40)],
        [step("islands", on_device(python(
            "compare.py", "islands", run, "--device=cuda")), 25, 80),
         step("islands_bf16", on_device(python(
             "compare.py", "bf16", run, "--device=cuda")), 20, 80),
         step("islands_torch", on_device(python(
             "compare.py", "torch", run, "--device=cuda")), 40, 80)],
    ]


def part_two(_, step):
    """Alone, one after the other. cuda_check runs a control before each."""
    return [[step("abort", check("--only=abort"), 40, 70)]] + [
        [step("nccl_%d" % n, check("--only=nccl", "--ranks=%d" % n,
                                   "--seed=1"), 20 * n // 2, 90)]
        for n in (2, 4)] + [
        [step("meshes_%d" % n, check("--only=mesh", "--ranks=%d" % n,
                                     "--mesh-steps=3", "--seed=1"),
              25 * n, 150)] for n in (2, 4)]


PARTS = {"one": part_one, "two": part_two}


def say_facts():
    """Prints facts of the machine. Fails if a library is not found."""
    if not glob.glob("/dev/nvidia[0-9]*"):
        return runner.NO_DEVICE
    queried = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,compute_mode",
         "--format=csv,noheader"], stdout=subprocess.PIPE, text=True,
        check=False)
    facts = [queried.stdout.strip()]
    try:
        import torch
        facts.append("torch %s, cuDNN %s, NCCL %s" % (
            torch.__version__, torch.backends.cudnn.version(),
            ".".join(map(str, torch.cuda.nccl.version()))))
    except ImportError as error:
        facts.append(str(error))
    facts.append("glibc " + os.confstr("CS_GNU_LIBC_VERSION").split()[-1])
    with open(os.path.join(HERE, "commit"), encoding="ascii") as file:
        facts.append("commit " + file.read().strip()[:12])
    print(json.dumps({"say": ", ".join(facts)}))
    missing = [line.strip() for name in glob.glob(os.path.join(HERE, "bin/*"))
               for line in subprocess.run(
                   ["ldd", name], stdout=subprocess.PIPE, text=True,
                   check=False).stdout.splitlines() if "not found" in line]
    print(json.dumps({"check": "libraries", "passed": not missing,
                      "error": "; ".join(missing)}))
    return 1 if missing or queried.returncode != 0 else 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--part", choices=sorted(PARTS), default="one")
    parser.add_argument("--seconds", type=float, default=390)
    parser.add_argument("--out", default=os.path.join(HERE, "out"),
                        help="logs and results.jsonl")
    parser.add_argument("--facts", action="store_true",
                        help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.facts:
        return say_facts()
    out = os.path.realpath(arguments.out)
    os.makedirs(out, exist_ok=True)
    os.chdir(HERE)  # Golden values are read from here.

    def step(name, command, estimate_s, limit_s, gates=False):
        return runner.Step(name, command, estimate_s, limit_s, gates,
                           environment(out))

    steps = runner.Runner(out, arguments.seconds)
    for group in PARTS[arguments.part](out, step):
        steps.run(group)
    print(steps.table(), end="")
    states = {result.state for result in steps.results}
    if "FAILED" in states:
        return 1
    return NO_DEVICE_EXIT if "no device" in states else 0


if __name__ == "__main__":
    sys.exit(main())
