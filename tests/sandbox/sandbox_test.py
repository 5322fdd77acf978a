#!/usr/bin/python3
"""Islands inside their sandbox: what they can still do, and what not."""

import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration"),
                os.path.join(_HERE, "..", "data_url")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import gated  # noqa: E402
from harness import processes  # noqa: E402
from harness import wait  # noqa: E402
import published_data  # noqa: E402

PREFLIGHT = 10
_LANDLOCK_CREATE_RULESET = 444
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2
_ENOSYS = 38


def without_landlock():
    """Takes Landlock from this process and those that it executes."""
    def instruction(code, yes, no, value):
        return struct.pack("HBBI", code, yes, no, value)

    program = b"".join([
        instruction(0x20, 0, 0, 0),  # Loads the number of the system call.
        instruction(0x15, 0, 1, _LANDLOCK_CREATE_RULESET),
        instruction(0x06, 0, 0, 0x00050000 | _ENOSYS),
        instruction(0x06, 0, 0, 0x7fff0000)])  # Permits all others.
    text = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("HxxxxxxP", len(program) // 8,
                          ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(
            _PR_SET_SECCOMP, _SECCOMP_FILTER, filter_, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


class SandboxTest(gated.GatedTest):

    def setUp(self):
        super().setUp()
        libc = ctypes.CDLL(None)
        if libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1) < 1:
            self.skipTest("this kernel has no Landlock")

    def status(self, pid):
        with open("/proc/%d/status" % pid, encoding="ascii") as file:
            return dict(line.split(":\t", 1) for line in file.read().split(
                "\n") if ":\t" in line)

    def join_alone(self, *arguments, text="", prefix=(), state="state"):
        """`atoll join`, to its end."""
        environment = dict(os.environ, XDG_STATE_HOME=os.path.join(
            self.cluster.directory, state))
        return subprocess.run(
            list(prefix) + [processes.binary(processes.CLI), "join",
                            "--threads=1", *arguments],
            input=text, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environment, timeout=wait.PATIENCE_S)

    def test_an_enrolled_island_trains_inside_and_reads_its_string_once(self):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        string = self.token()
        done = self.join_alone("-", "--data", self.text, "--require-sandbox",
                               text=string + "\n")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("enrolled in run"), 1)
        self.assertNotIn("no sandbox", done.stderr)
        self.assertEqual(cluster.run_state().run.state,
                         cluster_module.COMPLETED)
        self.assertEqual(self.actions().count("island.enrol"), 1)

    def test_a_running_island_is_limited_and_serves_its_person(self):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run({"server_count": 1,
                         "schedule": {"round_count": 1000000}})
        string = self.token()
        process = cluster.start_volunteer("volunteer-0", string,
                                          arguments=["--data", self.text])
        cluster.wait_commits(2)
        self.assertEqual(self.status(process.pid)["NoNewPrivs"], "1")
        with open("/proc/%d/cmdline" % process.pid, "rb") as file:
            self.assertNotIn(b"atoll://", file.read())
        # All threads are inside: they came after the limit.
        for thread in os.listdir("/proc/%d/task" % process.pid):
            self.assertEqual(self.status(int(thread))["NoNewPrivs"], "1")
        # Its socket, its certificate's renewal and its end work inside.
        state = {"XDG_STATE_HOME": os.path.join(cluster.directory,
                                                "volunteer-0.state")}
        self.assertIn("run", processes.run_cli(
            "local", "status", env=state, check=0).stdout)
        processes.run_cli("local", "finish", env=state, check=0)
        self.assertEqual(process.wait(), 0)
        # A second start needs no string, and is inside too.
        process = cluster.start_volunteer(
            "volunteer-0", "--run=run", arguments=["--data", self.text])
        commits = cluster.run_state().commit_seq
        cluster.wait_commits(commits + 2)
        self.assertEqual(self.status(process.pid)["NoNewPrivs"], "1")

    def test_data_outside_is_refused_with_what_to_do(self):
        self.start(server_count=1)
        # The person gives a copy of published data; its files are links.
        given = os.path.join(self.cluster.directory, "given")
        published_data.publish(self.text, given)
        self.create_run({"server_count": 1},
                        published_data.by_url("file://" + given))
        # Outside of what the harness allows.
        outside = tempfile.mkdtemp(prefix="atoll-", dir="/tmp")
        self.addCleanup(shutil.rmtree, outside)
        for name in os.listdir(given):
            if name != "manifest.json":
                path = os.path.join(given, name)
                os.symlink(shutil.move(path, outside), path)
        done = self.join_alone("-", "--data", given, "-o", "json",
                               text=self.token() + "\n")
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
        error = json.loads(done.stdout)["error"]
        self.assertIn("cannot be opened: Permission denied", error["message"])
        self.assertIn("--data PATH", error["hint"])

    def test_a_renewed_certificate_is_written_inside(self):
        cluster = self.cluster
        self.start(server_count=1, gate=["--certificate-s=6"])
        self.create_run({"server_count": 1,
                         "schedule": {"round_count": 1000000}})
        cluster.start_volunteer("volunteer-0", self.token(),
                                arguments=["--data", self.text])
        cluster.wait_commits(1)
        wait.until("the certificate is renewed",
                   lambda: "island.renew" in self.actions())
        commits = cluster.run_state().commit_seq
        cluster.wait_commits(commits + 2)

    def test_without_landlock_it_warns_or_refuses(self):
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        string = self.token()
        bare = [sys.executable, os.path.abspath(__file__), "--without-landlock"]
        done = self.join_alone("-", "--data", self.text, "--require-sandbox",
                               "-o", "json", text=string + "\n", prefix=bare)
        self.assertEqual(done.returncode, PREFLIGHT, done.stderr)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["reason"], "SANDBOX_UNAVAILABLE")
        self.assertIn("Landlock", error["message"])
        # The refusal came before the string was used.
        self.assertNotIn("island.enrol", self.actions())
        doctor = subprocess.run(
            bare + [processes.binary(processes.CLI), "doctor", "-o", "json"],
            stdout=subprocess.PIPE, text=True)
        checks = {c["id"]: c for c in
                  json.loads(doctor.stdout)["data"]["checks"]}
        self.assertEqual(checks["sandbox"]["result"], "WARN")
        done = self.join_alone("-", "--data", self.text, text=string + "\n",
                               prefix=bare)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("no sandbox, because this kernel "
                                           "has no Landlock"), 1, done.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--without-landlock"]:
        without_landlock()
        os.execv(sys.argv[2], sys.argv[2:])
    cases.main()
