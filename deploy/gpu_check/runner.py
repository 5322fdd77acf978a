"""Runs the steps of a check on a machine that is lent for minutes.

A step is a command with a limit. It is a process group of its own, and is killed
whole at its limit. So are the processes that it started in other groups: they
have the step's mark in their environment. A step is not run if too few seconds
are left. Standard library only: nothing can be installed there.
"""

import collections
import json
import os
import selectors
import signal
import subprocess
import time

NO_DEVICE = 3  # The exit code of a step that finds no device.
# The state of what NCCL alone cannot do on the device either: no fault of ours.
NOT_POSSIBLE = "not possible on one GPU"
_MARK = "ATOLL_GPU_CHECK_STEP"
_LOOK_S = 0.5  # A process can end while what it left holds its output open.

# name: of one word, for its log. estimate_s: what it takes; with less left it is
# not run. gates: if it fails, what follows is not run.
Step = collections.namedtuple(
    "Step", "name command estimate_s limit_s gates environment",
    defaults=(False, {}))


class Result:
    """The end of a step: "passed", "FAILED", NOT_POSSIBLE, "no device" or
    "not run"."""

    def __init__(self, name, state="not run", seconds=0.0, what=""):
        self.name = name
        self.state = state
        self.seconds = seconds
        self.what = what

    def row(self):
        return {"step": self.name, "state": self.state,
                "seconds": round(self.seconds, 1), "what": self.what}


class _Running:
    """A step whose process runs."""

    def __init__(self, step, directory, limit_s):
        self.step = step
        self.began = time.monotonic()
        self.end = self.began + limit_s
        self.log = open(os.path.join(directory, step.name + ".log"), "wb")
        self.rest = b""
        self.records = []    # The JSON lines that it printed.
        self.is_open = True  # Its output.
        self.was_cut = False
        self.mark = "%s-%d" % (step.name, os.getpid())
        self.process = subprocess.Popen(
            step.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
            env=dict(os.environ, **step.environment, **{_MARK: self.mark}))

    def read(self):
        """Takes what has come; closes at the end of the output."""
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        self.log.write(data)
        self.is_open = bool(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                self.records.append(record)

    def kill(self):
        """Ends all that the step has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for pid in _marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def finish(self):
        """The result. Requires: its output is closed, or it was killed."""
        code = self.process.wait()
        self.kill()
        self.process.stdout.close()
        self.log.close()
        state, what = judge(code, self.records, self.was_cut)
        return Result(self.step.name, state, time.monotonic() - self.began,
                      what)


def judge(code, records, was_cut):
    """(state, what) of a step that ended with `code` and printed `records`.

    The records are those of cuda_check: begin, check with passed or with state
    NOT_POSSIBLE, measure. Any step may print them.
    """
    passed = [r for r in records if r.get("passed") is True]
    failed = [r for r in records if r.get("passed") is False]
    impossible = [r for r in records if r.get("state") == NOT_POSSIBLE]
    begun = [r["begin"] for r in records if "begin" in r]
    done = {r.get("check") for r in passed + failed + impossible}
    if was_cut:
        hung = [name for name in begun if name not in done]
        return "FAILED", "limit reached" + (
            ": stands in " + ", ".join(hung[-3:]) if hung else "")
    if code == NO_DEVICE:
        return "no device", ""
    counted = "%d of %d" % (len(passed), len(passed) + len(failed))
    if failed:
        return "FAILED", "%s; %s: %s" % (
            counted, failed[0].get("check"), failed[0].get("error", ""))
    if impossible:
        return NOT_POSSIBLE, "%s: %s" % (
            impossible[0].get("check"), impossible[0].get("error", ""))
    if code != 0:
        return "FAILED", "exit code %d" % code
    said = [str(r["say"]) for r in records if "say" in r]
    said += [_speed(r) for r in records if r.get("measure") == "training"]
    return "passed", "; ".join(([counted] if passed else []) + said)


def _marked(mark):
    """The processes with this mark in their environment."""
    wanted = ("%s=%s" % (_MARK, mark)).encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as file:
                if wanted in file.read().split(b"\0"):
                    yield int(name)
        except OSError:
            continue  # It has ended, or is another user's.


def _speed(record):
    """The training speed that cuda_check has measured."""
    return "%s %s%s: %s tok/s MFU %.1f %%" % (
        record["case"], record["dtype"], ", graphs" if record["graphs"] else "",
        format(round(record["tokens_per_second"]), ","), 100 * record["mfu"])


class Runner:
    """Runs groups of steps within `seconds`. `directory` gets NAME.log of each
    step, and results.jsonl: every record, and a row for each step."""

    def __init__(self, directory, seconds):
        self._directory = directory
        self._end = time.monotonic() + seconds
        self._stopped = ""  # Why nothing more is run.
        self.results = []
        os.makedirs(directory, exist_ok=True)
        self._file = open(os.path.join(directory, "results.jsonl"), "a",
                          encoding="utf-8")

    def run(self, steps):
        """Runs these steps at once and waits for all of them."""
        running = []
        for step in steps:
            left = self._end - time.monotonic()
            why = self._stopped or (
                "" if left >= step.estimate_s else
                "%.0f s left, %d needed" % (max(0, left), step.estimate_s))
            if why:
                self._add(Result(step.name, what=why))
                continue
            try:
                running.append(_Running(step, self._directory,
                                        min(step.limit_s, left)))
            except OSError as error:
                self._add(Result(step.name, "FAILED", what=str(error)))
        self._wait(running)

    def _wait(self, running):
        with selectors.DefaultSelector() as selector:
            for one in running:
                selector.register(one.process.stdout, selectors.EVENT_READ,
                                  one)
            while selector.get_map():
                now = time.monotonic()
                ends = [key.data.end for key in selector.get_map().values()]
                for key, _ in selector.select(
                        max(0, min(_LOOK_S, min(ends) - now))):
                    key.data.read()
                now = time.monotonic()
                for key in list(selector.get_map().values()):
                    one = key.data
                    # Processes that a step left may hold its output open.
                    is_over = one.process.poll() is not None
                    if one.is_open and now < one.end and not is_over:
                        continue
                    if one.is_open:
                        self._cut(one, not is_over)
                    selector.unregister(key.fileobj)
                    self._take(one)

    @staticmethod
    def _cut(one, is_late):
        """Ends a step at its limit, or what one that has ended left."""
        one.was_cut = is_late
        one.kill()
        os.set_blocking(one.process.stdout.fileno(), False)
        try:
            while one.is_open:
                one.read()
        except BlockingIOError:
            pass

    def _take(self, one):
        result = one.finish()
        for record in one.records:
            self._write(dict(record, step=one.step.name))
        self._add(result)
        if one.step.gates and result.state == "FAILED":
            self._stopped = one.step.name + " failed"

    def _add(self, result):
        self.results.append(result)
        self._write(result.row())

    def _write(self, row):
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def table(self):
        """The results as text."""
        rows = [("step", "state", "s", "what")]
        rows += [(r.name, r.state, "%.0f" % r.seconds, r.what)
                 for r in self.results]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ["%-*s  %-*s  %*s  %s" % (
            widths[0], row[0], widths[1], row[1], widths[2], row[2], row[3])
                 for row in rows]
        return "".join(line.rstrip() + "\n" for line in lines)
