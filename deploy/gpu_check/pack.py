"""Packs the bundle of build.sh: programs, libraries, scripts, data.

CUDA's libraries and the C library come from the machine that it goes to.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "artifacts"))

import debian  # noqa: E402
import programs  # noqa: E402

BYTES_MAX = 46 << 20
PROGRAMS = {"atoll": "cli/atoll",
            "atoll-coordinator": "coordinator/atoll-coordinator",
            "atoll-server": "server/atoll-server",
            "cuda_check": "worker/engine/cuda_check/cuda_check"}
SCRIPTS = ("deploy/gpu_check/run.py", "deploy/gpu_check/runner.py",
           "deploy/gpu_check/compare.py", "tests/tools/gpu_speed.py",
           "worker/sdk/examples/torch_device.py",
           "worker/sdk/examples/torch_llama.py")
PACKAGE = "worker/sdk/python/atoll"  # It stands beside the scripts.
GOLDEN = "worker/engine/testdata"
TEXT = "worker"  # What the runs train on: the tree's own sources.
_FROM_THERE = re.compile(r"lib(cublas|nccl|cudnn|nvrtc|cuda)\w*\.so")
_C_LIBRARY = re.compile(
    r"(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|anl|nss_\w+)\.so)")


def is_carried(library):
    return not _FROM_THERE.match(library) and not _C_LIBRARY.match(library)


def make(tree, binaries, commit, folder):
    for name in ("atoll", "bin", "lib", "text", GOLDEN):
        os.makedirs(os.path.join(folder, name))
    sources = [os.path.join(binaries, path) for path in PROGRAMS.values()]
    for name, source in zip(PROGRAMS, sources):
        target = os.path.join(folder, "bin", name)
        programs.strip(os.path.realpath(source), target)
        programs.use_own_libraries(target)
        os.chmod(target, 0o755)
    for name, path in debian.libraries_of(sources).items():
        if not is_carried(name):
            continue
        target = os.path.join(folder, "lib", name)
        debian.run("strip", "--strip-unneeded", "-o", target, path)
    for script in SCRIPTS:
        shutil.copy(os.path.join(tree, script), folder)
    for name in debian.run("git", "-C", tree, "ls-files", PACKAGE).split():
        shutil.copy(os.path.join(tree, name), os.path.join(folder, "atoll"))
    for name in os.listdir(os.path.join(tree, GOLDEN)):
        if name.startswith("golden_"):
            shutil.copy(os.path.join(tree, GOLDEN, name),
                        os.path.join(folder, GOLDEN))
    listed = debian.run("git", "-C", tree, "ls-files", TEXT).splitlines()
    for name in listed:
        if name.endswith((".cc", ".h")):
            shutil.copy(os.path.join(tree, name), os.path.join(
                folder, "text", name.replace("/", "_")))
    with open(os.path.join(folder, "commit"), "w", encoding="ascii") as file:
        file.write(commit + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("tree", "bin", "commit", "folder", "out"):
        parser.add_argument("--" + name, required=True)
    arguments = parser.parse_args()
    make(arguments.tree, arguments.bin, arguments.commit, arguments.folder)
    subprocess.run(["tar", "-C", arguments.folder, "-cf", arguments.out,
                    "-I", "xz -3 -T0", "--sort=name", "--owner=0",
                    "--group=0", "."], check=True)
    size = os.path.getsize(arguments.out)
    print("%s: %.1f MiB" % (arguments.out, size / (1 << 20)))
    if size > BYTES_MAX:
        sys.exit("it must not exceed %d MiB" % (BYTES_MAX >> 20))


if __name__ == "__main__":
    main()
