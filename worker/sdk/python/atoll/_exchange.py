"""Finds the island's exchange, or starts it: `atoll join --trainer`."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

from ._connection import Connection, check_path
from ._news import News
from .errors import ConnectionLost, Error

_START_S_MAX = 600.0  # From its start until it takes a connection.
_POLL_S = 0.02
_END_S_MAX = 10.0     # From the island's end until the process has ended.
_LOG_BYTES_MAX = 10 << 20
_LOG_LINES_SHOWN = 15
_LOG_MARK = b"--- "  # Before the command that follows.
# Exit codes of `atoll join` after which another start may help: a failure
# without a code, no connection, a lost process, SIGTERM. A signal may, too.
_WORTH_A_RESTART = (1, 6, 11, 12)


class RunIsComplete(Exception):
    """The exchange has found the run complete, and ended without a trainer."""


def find_binary() -> str:
    """Path of the program `atoll`. Error NO_BINARY: it is not found."""
    named = os.environ.get("ATOLL_BINARY")
    path = shutil.which(named or "atoll")
    if path is None:
        raise Error("%s is no program" % named if named else
                    "the program atoll is not on PATH", reason="NO_BINARY",
                    code="NOT_FOUND",
                    hint="Install atoll, or set ATOLL_BINARY to its path.")
    return path


def log_path(work_dir: str) -> str:
    return os.path.join(work_dir, "exchange.log")


class Exchange:
    """The exchange of one island: another's, or a child of this process.

    A child has a session of its own, so that Ctrl-C reaches only the trainer,
    and outlives it: a trainer that starts again finds it.
    """

    def __init__(self, address: str, run: str, island_id: str | None,
                 work_dir: str):
        """Starts nothing yet. `work_dir` is absolute, and may not exist.

        `address` may be empty: the command then finds the coordinator.
        """
        self._is_given = "ATOLL_SOCKET" in os.environ
        if self._is_given:
            self.path = os.environ["ATOLL_SOCKET"].removeprefix("unix:")
        else:
            self.path = os.path.join(work_dir, "trainer.sock")
        check_path(self.path)
        self._log_path = log_path(work_dir)
        self._arguments = [
            "join", *([address] if address else []), "--run", run,
            *(["--island-id", island_id] if island_id else []),
            "--dir", os.path.join(work_dir, "exchange"),
            "--trainer", "unix:" + self.path]
        self._child: subprocess.Popen[bytes] | None = None

    def connect(self, is_retry: bool, news: News) -> Connection:
        """Connects, after a start of the exchange if nothing listens.

        RunIsComplete: it ended at once, for the run has ended.
        ConnectionLost: it is away, and another call may find it.
        Error EXCHANGE_FAILED: it ended, with its last lines. With `is_retry`
        only if another start cannot help.
        """
        try:
            return Connection.to(self.path)
        except OSError as error:
            if self._is_given:
                raise ConnectionLost("nothing listens at ATOLL_SOCKET, %s: %s" %
                                     (self.path, error)) from error
        if self._child is None or self._child.poll() is not None:
            self._start()
        return self._await_socket(is_retry, news)

    def _start(self) -> None:
        command = [find_binary(), *self._arguments]
        before = self._log_path + ".1"
        # Another file of one of these names is a person's.
        if (os.path.exists(self._log_path) and
                os.path.getsize(self._log_path) > _LOG_BYTES_MAX and
                _is_log(self._log_path) and
                (not os.path.lexists(before) or _is_log(before))):
            os.replace(self._log_path, before)
        with open(self._log_path, "ab") as log:
            log.write(b"%s%s\n" % (_LOG_MARK, " ".join(command).encode("utf-8")))
            log.flush()
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True)

    def check(self) -> None:
        """After the first connection broke. Error EXCHANGE_FAILED: it ended."""
        if self._child is None:
            return
        try:
            code = self._child.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            return
        if code != 0:
            raise self._failed(code)

    def _failed(self, code: int) -> Error:
        return Error("the exchange ended with exit code %d:\n%s" %
                     (code, self._last_lines()), reason="EXCHANGE_FAILED",
                     code="UNAVAILABLE",
                     hint="%s has all of its output." % self._log_path)

    def _await_socket(self, is_retry: bool, news: News) -> Connection:
        deadline = time.monotonic() + _START_S_MAX
        while True:
            try:
                return Connection.to(self.path)
            except OSError:
                pass
            assert self._child is not None
            code = self._child.poll()
            if code == 0:
                raise RunIsComplete()
            if code is not None:
                if is_retry and (code < 0 or code in _WORTH_A_RESTART):
                    raise ConnectionLost("the exchange ended with %d" % code)
                raise self._failed(code)
            if time.monotonic() > deadline:
                raise Error("the exchange takes no connection after %.0f s:\n%s"
                            % (_START_S_MAX, self._last_lines()),
                            reason="EXCHANGE_FAILED", code="DEADLINE_EXCEEDED",
                            hint="%s has all of its output." % self._log_path)
            news.look()
            time.sleep(_POLL_S)

    def _last_lines(self) -> str:
        with open(self._log_path, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log_path) - 8192))
            lines = log.read().decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-_LOG_LINES_SHOWN:])

    def end(self, at_once: bool = False) -> None:
        """Waits for the child's end; asks for it, if it takes long."""
        if self._child is None:
            return
        for stop in (None, self._child.terminate, self._child.kill):
            if stop:
                stop()
            elif at_once:
                continue
            try:
                self._child.wait(_END_S_MAX)
                break
            except subprocess.TimeoutExpired:
                continue
        self._child = None


def _is_log(path: str) -> bool:
    """True for a log that this module began."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as log:
            line = log.readline(4096)
    except OSError:
        return False
    return line.startswith(_LOG_MARK) and b" join " in line


class Patience:
    """Waits between tries: longer each time, and not for ever."""

    def __init__(self, give_up_s: float = 600.0, clock=time.monotonic,
                 sleep=time.sleep):
        self._give_up_s = give_up_s
        self._clock = clock
        self._sleep = sleep
        self.succeeded()

    @property
    def is_waiting(self) -> bool:
        """The last try failed."""
        return self._since is not None

    def succeeded(self) -> None:
        self._since: float | None = None
        self._pause_s = 0.05

    def failed(self, error: Error) -> None:
        """Waits after a failure. Raises Error once it has gone on too long."""
        now = self._clock()
        if self._since is None:
            self._since = now
        if now - self._since >= self._give_up_s:
            raise Error("no connection with the exchange for %.0f s: %s" %
                        (self._give_up_s, error.message),
                        reason="EXCHANGE_AWAY", code="UNAVAILABLE",
                        hint="Look at exchange.log in the work_dir.")
        self._sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, 5.0)
