"""Packs the bundle of build.sh: programs, libraries, scripts, data.

CUDA's libraries, which the programs open at run time, and the C library come
from the machine that it goes to. The programs are then started in a root that
has only the C library and the bundle.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "artifacts"))

import debian  # noqa: E402
import programs  # noqa: E402

BYTES_MAX = 46 << 20
PROGRAMS = {"atoll": "cli/atoll",
            "atoll-coordinator": "coordinator/atoll-coordinator",
            "atoll-server": "server/atoll-server",
            "cuda_check": "tests/cuda_check/cuda_check"}
SCRIPTS = ("deploy/gpu_check/run.py", "deploy/gpu_check/runner.py",
           "deploy/gpu_check/compare.py", "tests/tools/gpu_speed.py",
           "worker/sdk/examples/torch_device.py",
           "worker/sdk/examples/torch_llama.py")
PACKAGE = "worker/sdk/python/atoll"  # It is packed next to the scripts.
GOLDEN = "worker/engine/testdata"
TEXT = "worker"  # The runs train on the tree's own sources.
# How each program ends that needs no device: (command, exit code).
STARTS = [(name + " --version", 0) for name in PROGRAMS
          if name != "cuda_check"]
STARTS += [("cuda_check --only=nothing", 2), ("cuda_check --only=codec", 3)]
_C_LIBRARY = re.compile(
    r"(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|anl|nss_\w+)\.so)")


def make(tree, sources, commit, folder):
    for name in ("atoll", "bin", "lib", "text", GOLDEN):
        os.makedirs(os.path.join(folder, name))
    for name, source in zip(PROGRAMS, sources):
        target = os.path.join(folder, "bin", name)
        programs.strip(os.path.realpath(source), target)
        programs.use_own_libraries(target)
        os.chmod(target, 0o755)
    for name, path in debian.libraries_of(sources).items():
        if _C_LIBRARY.match(name):
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


def enter_root(root):
    """The beginning of a command that runs in `root`; None if this user may
    not change the root."""
    for rights in ([], ["--map-root-user"]):
        probe = subprocess.run(["unshare", *rights, "--root", "/", "true"],
                               stderr=subprocess.DEVNULL)
        if probe.returncode == 0:
            return ["unshare", *rights, "--root", root]
    return None


def check_starts(archive, sources):
    """Starts the packed programs, built from `sources`, where there is only the
    C library. Ends this program if one ends otherwise than STARTS says."""
    with tempfile.TemporaryDirectory() as root:
        enter = enter_root(root)
        if enter is None:
            print("The programs were NOT started in a root with the C library "
                  "alone: this user cannot change the root directory.")
            return
        loader = debian.interpreter_of(sources[0])
        files = {name: path for name, path in
                 debian.libraries_of(sources).items() if _C_LIBRARY.match(name)}
        places = [(path, os.path.join(os.path.dirname(path), name))
                  for name, path in files.items()] + [(loader, loader)]
        for path, place in places:
            os.makedirs(root + os.path.dirname(place), exist_ok=True)
            shutil.copy(path, root + place)
        subprocess.run(["tar", "-C", root, "-xf", archive], check=True)
        for command, code in STARTS:
            done = subprocess.run(enter + ["/bin/" + command.split()[0]] +
                                  command.split()[1:], env={}, text=True,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=60)
            if done.returncode != code:
                sys.exit("where there is only the C library, `%s` ends with %d "
                         "instead of %d: %s" % (command, done.returncode, code,
                                                done.stdout))
    print("The programs start where there is only the C library (%d commands)."
          % len(STARTS))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("tree", "bin", "commit", "folder", "out"):
        parser.add_argument("--" + name, required=True)
    arguments = parser.parse_args()
    sources = [os.path.join(arguments.bin, path) for path in PROGRAMS.values()]
    make(arguments.tree, sources, arguments.commit, arguments.folder)
    subprocess.run(["tar", "-C", arguments.folder, "-cf", arguments.out,
                    "-I", "xz -3 -T0", "--sort=name", "--owner=0",
                    "--group=0", "."], check=True)
    size = os.path.getsize(arguments.out)
    print("%s: %.1f MiB" % (arguments.out, size / (1 << 20)))
    if size > BYTES_MAX:
        sys.exit("it must not exceed %d MiB" % (BYTES_MAX >> 20))
    check_starts(arguments.out, sources)


if __name__ == "__main__":
    main()
