"""Real processes of the programs under test."""

import compileall
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile

from harness import wait

# The binaries: in a Bazel test from the runfiles, by hand from bazel-bin.
_TREE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..",
                     "..")
_ROOTS = [
    os.environ.get("ATOLL_BIN", ""),
    os.path.join(os.environ.get("TEST_SRCDIR", ""),
                 os.environ.get("TEST_WORKSPACE", "atoll")),
    os.path.join(_TREE, "bazel-bin"),
]

COORDINATOR = "coordinator/atoll-coordinator"
SERVER = "server/atoll-server"
GATE = "coordinator/gate/atoll-gate"
CLI = "cli/atoll"


def binary(relative, root=None):
    """The path of a program: below `root`, or of the programs under test."""
    for root in [root] if root else _ROOTS:
        path = os.path.join(root, relative)
        if root and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise FileNotFoundError("%s in none of %s; build it, or set ATOLL_BIN" %
                            (relative, _ROOTS))


def source(relative):
    for root in _ROOTS[1:] + [_TREE]:
        path = os.path.join(root, relative)
        if os.access(path, os.R_OK):
            return path
    raise FileNotFoundError(relative)


@functools.cache
def sdk():
    """A copy of the SDK in Python, compiled: otherwise a quarter of a
    trainer's start is the compilation of its modules."""
    made = tempfile.TemporaryDirectory(prefix="atoll-",
                                       dir=os.environ.get("TEST_TMPDIR"))
    package = os.path.join(made.name, "atoll")
    shutil.copytree(os.path.dirname(source(
        "worker/sdk/python/atoll/__init__.py")), package,
                    ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(package, quiet=2)
    return made  # Its end removes it.


_FAILPOINT = re.compile(
    rb"\x00((?:coordinator|server|island)\.[a-z0-9_]+\.[a-z0-9_]+)(?=\x00)")


def failpoints(relative, program):
    """Names of the failpoints that are compiled into a program, sorted.

    Read from the binary's string constants, so a new failpoint is tested
    without an entry in a list.
    """
    with open(binary(relative), "rb") as file:
        data = file.read()
    names = {m.group(1).decode() for m in _FAILPOINT.finditer(data)}
    return sorted(n for n in names if n.startswith(program + "."))


class Process:
    """One child process with its log. Always reaped by `stop`."""

    def __init__(self, name, command, log_path, env=None):
        self.name = name
        self.command = command
        self.log_path = log_path
        self._log = open(log_path, "ab")
        self._log.write(("\n--- %s\n" % " ".join(command)).encode())
        self._log.flush()
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith("ATOLL_")}
        environment.update(env or {})
        self._popen = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=subprocess.STDOUT, env=environment)

    @property
    def pid(self):
        return self._popen.pid

    def poll(self):
        """Exit status (negative: the signal), or None while it runs."""
        return self._popen.poll()

    def wait(self, timeout=wait.PATIENCE_S):
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise wait.TimedOut("%s did not end within %.0f s; its log ends:"
                                "\n%s" % (self.name, timeout, self.tail()))

    def kill(self):
        if self.poll() is None:
            self._popen.send_signal(signal.SIGKILL)
        return self._popen.wait()

    def signal(self, number):
        self._popen.send_signal(number)

    def stop(self, timeout=10):
        if self.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
            try:
                self._popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        self._log.close()
        return self._popen.returncode

    def tail(self, line_count=25):
        with open(self.log_path, "r", errors="replace") as file:
            return "".join(file.readlines()[-line_count:])


def read_port(process, port_file, timeout=wait.PATIENCE_S):
    def look():
        # A process can write the file and end. So its end is looked at first.
        status = process.poll()
        try:
            with open(port_file, "r", encoding="ascii") as file:
                text = file.read().strip().rsplit(":", 1)[-1]
        except FileNotFoundError:
            text = ""
        if text.isdigit():
            return int(text)
        if status is not None:
            raise AssertionError(
                "%s ended with %d before it served; its log ends:\n%s" %
                (process.name, status, process.tail()))
        return None

    return wait.until("%s serves" % process.name, look, timeout)


def init_coordinator(data_dir, *arguments, root=None, prefix=(), seen=None):
    """Makes a coordinator's log in `data_dir` if there is none. `root` as of
    `binary`: programs from before `init` make it at their start. `seen` gets
    the process."""
    process = Process(
        "coordinator", list(prefix) + [
            binary(COORDINATOR, root), "init", "--data-dir=" + data_dir,
            "--if-empty"] + list(arguments), data_dir + ".init.log")
    if seen:
        seen(process)
    status = process.wait()
    process.stop()
    assert status == 0 or (root and status == 2), (status, process.tail())


def run_cli(*arguments, timeout=wait.PATIENCE_S, env=None, check=None, cwd=None,
            text_in=None, stdout=subprocess.PIPE):
    """Runs the `atoll` command to its end; returns CompletedProcess (text).

    `check`: the expected exit status; None: any. `text_in`: its input.
    `stdout`: a file for its output.
    """
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith("ATOLL_")}
    environment["NO_COLOR"] = "1"
    environment.update(env or {})
    done = subprocess.run(
        [binary(CLI)] + [str(a) for a in arguments], input=text_in or "",
        stdout=stdout, stderr=subprocess.PIPE, text=True,
        # Generated text may be any bytes.
        errors="surrogateescape", timeout=timeout, env=environment, cwd=cwd)
    if check is not None and done.returncode != check:
        raise AssertionError("atoll %s: exit %d, not %d\nstdout: %s\nstderr: %s"
                             % (" ".join(map(str, arguments)), done.returncode,
                                check, (done.stdout or "")[-2000:], done.stderr[-2000:]))
    return done


