#!/usr/bin/python3
"""The batch script of deploy/slurm, with a Slurm that records its commands.

The fake srun starts each task as Slurm does, with its SLURM_PROCID, and a fake
atoll records its arguments. The tasks end with the status in `status`; if it is
empty, once the fake scancel writes into the pipe `signals`.
"""

import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
_SCRIPT = os.path.join(_HERE, "..", "..", "deploy", "slurm", "island.sbatch")
sys.path[:0] = [os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import processes  # noqa: E402
from harness import wait  # noqa: E402

# Each records its name and arguments as one line of `calls`.
_RECORD = """#!/bin/bash
{ printf '%s' "${0##*/}"; printf '\\t%s' "$@"; echo; } >>"$FAKE/calls"
"""
_FAKES = {
    "atoll": "",
    "srun": """
while [[ $1 == --* ]]; do shift; done
for ((SLURM_PROCID = 0; SLURM_PROCID < SLURM_JOB_NUM_NODES; ++SLURM_PROCID)); do
  export SLURM_PROCID
  "$@"
done
status=$(<"$FAKE/status")
[[ -n $status ]] || read -r status <"$FAKE/signals"
exit "$status"
""",
    "scontrol": """
[[ $1 != show ]] || printf '%s\\n' gpu-7 gpu-8
""",
    "scancel": """
echo 0 >"$FAKE/signals"
""",
}


class IslandTest(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.fake = directory.name
        for name, text in _FAKES.items():
            path = os.path.join(self.fake, name)
            with open(path, "w", encoding="ascii") as file:
                file.write(_RECORD + text)
            os.chmod(path, 0o755)
        os.mkfifo(os.path.join(self.fake, "signals"))

    def start(self, *arguments, status="0", **changes):
        with open(os.path.join(self.fake, "status"), "w",
                  encoding="ascii") as file:
            file.write(status)
        environment = {
            "PATH": self.fake + ":/usr/bin:/bin",
            "FAKE": self.fake,
            "SLURM_JOB_ID": "123456",
            "SLURM_JOB_NAME": "rack",
            "SLURM_JOB_NODELIST": "gpu-[7-8]",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_GPUS_PER_NODE": "h100:4",
            "SLURM_CPUS_PER_TASK": "16",
            "SLURM_SUBMIT_DIR": self.fake,
        }
        environment.update(changes)
        process = subprocess.Popen(
            ["/bin/bash", _SCRIPT, *arguments], env=environment,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_job(self, *arguments, **changes):
        process = self.start("head:7400", "run-1", *arguments, **changes)
        _, error = process.communicate(timeout=wait.PATIENCE_S)
        return process.returncode, error

    def calls(self, name):
        try:
            with open(os.path.join(self.fake, "calls"),
                      encoding="utf-8") as file:
                lines = [line.rstrip("\n").split("\t") for line in file]
        except FileNotFoundError:
            return []
        return [line[1:] for line in lines if line[0] == name]

    def test_each_node_has_a_process_with_its_index(self):
        status, error = self.run_job("--up", "1GB/s")
        self.assertEqual(status, 0, error)
        tasks = self.calls("atoll")
        self.assertEqual(len(tasks), 2)
        secret = os.path.join(self.fake, "rack", "secret")
        for index, task in enumerate(tasks):
            self.assertEqual(task, [
                "join", "head:7400", "--run", "run-1", "--island-id", "rack",
                "--device", "cuda", "--mesh", "dp_shard=8",
                "--processes", "2", "--rendezvous", "gpu-7:23456",
                "--rendezvous-secret", secret, "--up", "1GB/s",
                "--process-index", str(index),
                "--dir", os.path.join(self.fake, "rack/process-%d" % index)])
        self.assertEqual(self.calls("scontrol"),
                         [["show", "hostnames", "gpu-[7-8]"]])

    def test_every_flag_is_one_that_the_command_has(self):
        help_text = processes.run_cli("join", "--help", check=0).stdout
        known = set(re.findall(r"--[a-z][a-z-]+", help_text.split(
            "The first Ctrl-C")[0]))
        for changes in ({}, {"SLURM_GPUS_PER_NODE": ""}):
            self.assertEqual(self.run_job(**changes)[0], 0)
        used = {word for task in self.calls("atoll") for word in task
                if word.startswith("--")}
        self.assertIn("--threads", used)
        self.assertIn("--device", used)
        self.assertLessEqual(used, known)

    def test_the_secret_is_private_and_kept(self):
        self.run_job()
        path = os.path.join(self.fake, "rack", "secret")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path, encoding="ascii") as file:
            before = file.read()
        self.assertRegex(before, r"^[0-9a-f]{64}\n$")
        self.run_job()
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read(), before)

    def test_before_the_time_limit_the_island_leaves_and_waits_again(self):
        process = self.start("head:7400", "run-1", status="")
        wait.until("both processes run",
                   lambda: len(self.calls("atoll")) == 2)
        process.send_signal(signal.SIGUSR1)
        _, error = process.communicate(timeout=wait.PATIENCE_S)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual(self.calls("scancel"), [["--signal=TERM", "123456"]])
        self.assertEqual(self.calls("scontrol")[-1], ["requeue", "123456"])

    def test_a_failed_island_starts_again_a_bounded_number_of_times(self):
        def requeues(status, **changes):
            before = len(self.calls("scontrol"))
            self.assertEqual(self.run_job(status=status, **changes)[0],
                             int(status))
            return len(self.calls("scontrol")) - before - 1

        self.assertEqual(requeues("11"), 1)
        self.assertEqual(requeues("11", SLURM_RESTART_COUNT="8"), 1)
        self.assertEqual(requeues("11", SLURM_RESTART_COUNT="9"), 0)
        self.assertEqual(requeues("137"), 1)
        # A wrong command line, a wrong run file.
        self.assertEqual(requeues("2"), 0)
        self.assertEqual(requeues("4"), 0)

    def test_without_a_run_it_says_how_to_call_it(self):
        process = self.start("head:7400")
        _, error = process.communicate(timeout=wait.PATIENCE_S)
        self.assertEqual(process.returncode, 2)
        self.assertIn("usage: sbatch", error)

    def test_options_for_slurm_come_before_the_first_command(self):
        # sbatch reads no option after it.
        with open(_SCRIPT, encoding="utf-8") as file:
            lines = file.read().splitlines()
        first = next(i for i, line in enumerate(lines)
                     if line and not line.startswith("#"))
        options = [i for i, line in enumerate(lines)
                   if line.startswith("#SBATCH")]
        self.assertLess(max(options), first)
        self.assertIn("#SBATCH --requeue", lines)
        subprocess.run(["bash", "-n", _SCRIPT], check=True)


if __name__ == "__main__":
    cases.main()
