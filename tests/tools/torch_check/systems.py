"""Two trainers of a script that train one model: by Atoll, or by torchft."""

import json
import os
import random
import re
import signal
import time

from harness import cluster as cluster_module
from harness import ports
from harness import processes
from harness import wait

HERE = os.path.dirname(os.path.realpath(__file__))
_TREE = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
INTERVAL = 20  # Inner steps of a round; gpt_torchft.py has it, too.
STRICT = {"timing": "strict", "min_quorum": 2}
# The lease is as long as torchft's lighthouse waits for a heartbeat.
ELASTIC = {"timing": "elastic", "min_quorum": 1, "grace_window": "1s",
           "lease_duration": "5s"}
# gpt_torchft.py has the outer optimizer's values, too.
_TABLES = {"durability": "process", "evaluation": {"every_round_count": 0},
           "outer": {"optimizer": "nesterov", "learning_rate": 0.7,
                     "momentum": 0.9}}
_CREATE = """
import importlib, json, sys, atoll
script, seed, tables = sys.argv[1:]
model = importlib.import_module(script + "_atoll").make_model(int(seed))
atoll.create_run(script, model, **json.loads(tables))
"""
_NEWS = re.compile(r"waits, |connects again|[Ee]rror|[Ee]xception|ended with")


def program(python, name, folder, arguments, environment):
    """Starts the interpreter with `arguments`."""
    return processes.Process(
        name, [python, "-B", *arguments], os.path.join(folder, name + ".log"),
        {"PYTHONPATH": os.pathsep.join((
            HERE, os.path.join(_TREE, "worker", "sdk", "python"))),
         "ATOLL_BINARY": processes.binary(processes.CLI),
         "OMP_NUM_THREADS": "1", **environment})


class Trainer:
    """A script as a process, with the times of its steps."""

    def __init__(self, python, folder, name, script, arguments, ranks=1,
                 **environment):
        self._trace = os.path.join(folder, name + ".trace")
        path = os.path.join(HERE, script + ".py")
        words = ([os.path.join(HERE, "launch.py"), self._trace, path]
                 if ranks == 1 else
                 ["-m", "torch.distributed.run", "--standalone",
                  "--nproc-per-node", str(ranks), path])
        log = os.path.join(folder, name + ".log")
        self._heard = os.path.getsize(log) if os.path.exists(log) else 0
        self.process = program(python, name, folder,
                               words + [str(a) for a in arguments],
                               environment)

    def times(self):
        try:
            with open(self._trace, encoding="ascii") as file:
                return [float(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def count_since(self, begin):
        return sum(moment > begin for moment in self.times())

    def state(self, begin, end):
        """What it did from `begin` to `end`, for people."""
        if self.has_ended():
            return "ended with %d" % self.process.poll()
        moments = [begin, *(m for m in self.times() if begin < m < end), end]
        longest = max(b - a for a, b in zip(moments, moments[1:]))
        if len(moments) == 2:
            return "no step in %.1f s" % longest
        still = end - moments[-2]
        return "waits %.1f s%s" % (
            longest, ", still" if still > max(_STILL_S, longest / 2) else
            ", trains")

    def has_ended(self):
        return self.process.poll() is not None

    def output(self):
        with open(self.process.log_path, encoding="utf-8",
                  errors="replace") as file:
            return file.read()

    def news(self):
        """The last line since the previous call that tells of a fault."""
        output = self.output()
        new, self._heard = output[self._heard:], len(output)
        lines = [line.strip() for line in new.splitlines()
                 if _NEWS.search(line)]
        return lines[-1] if lines else ""

    def said(self, what):
        """The newest of its lines `what VALUE`: the value."""
        found = re.findall("^%s (.+)$" % what, self.output(), re.M)
        if not found:
            raise AssertionError("no %s: %s" % (what, self.process.tail()))
        return found[-1]

    def loss(self, timeout):
        """Its validation loss, after its end."""
        if self.process.wait(timeout):
            raise AssertionError(self.process.tail())
        return float(self.said("validation loss"))


class Pair:
    """Two trainers, 0 and 1, and a service that brings them together."""

    name = ""

    def __init__(self, python, folder, script, seed, ranks=1, **environment):
        self.python, self.folder, self.script = python, folder, script
        self._seed, self._ranks = seed, ranks
        self._environment = environment
        self.trainers = {}

    def start(self):
        """Starts the service and the trainers; `close` also after an error."""
        os.makedirs(self.folder, exist_ok=True)
        os.chdir(self.folder)  # The islands' files are below it.
        self.start_service()
        for index in (0, 1):
            self.start_trainer(index)

    def start_service(self):
        raise NotImplementedError

    def start_trainer(self, index):
        self.trainers[index] = Trainer(
            self.python, self.folder, "trainer-%d" % index, self.script,
            (self._seed, index), self._ranks, **self._environment)

    def losses(self, timeout):
        return [self.trainers[i].loss(timeout) for i in (0, 1)]

    def close(self):
        for trainer in self.trainers.values():
            trainer.process.kill()
            trainer.process.stop()


def _pids_with(*words):
    """Processes whose command line has all of `words`."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                line = file.read().decode("utf-8", "replace")
        except OSError:
            continue
        if all(word in line for word in words):
            yield int(pid)


class Atoll(Pair):
    """Two islands of a run with the script's name, and one server."""

    name = "Atoll"

    def __init__(self, python, folder, script, seed, steps, schedule, **more):
        super().__init__(python, folder, script + "_atoll", seed,
                         STEPS=str(steps), **more)
        self._run = script
        self._cluster = cluster_module.Cluster(folder)
        self._schedule = {"inner_step_count": INTERVAL,
                          "round_count": steps // INTERVAL,
                          "island_count_min": 2, **schedule}

    def start_service(self):
        self._cluster.start_coordinator()
        self._cluster.start_servers(1)
        self._environment["ATOLL_COORDINATOR"] = (
            self._cluster.coordinator_address)
        create = program(self.python, "create", self.folder, [
            "-c", _CREATE, self._run, str(self._seed),
            json.dumps({**_TABLES, "schedule": self._schedule})],
                         self._environment)
        if create.wait():
            raise AssertionError(create.tail())

    def exchange(self, index):
        """The process that exchanges for a trainer."""
        return next(_pids_with("\0join\0", self.folder,
                               "island-%d/trainer.sock" % index))

    def kill_service(self):
        self._cluster.kill("coordinator")

    def restart_service(self):
        self._cluster.restart("coordinator")

    def close(self):
        super().close()
        for pid in _pids_with("\0join\0", self.folder):
            os.kill(pid, signal.SIGKILL)  # They outlive their trainers.
        self._cluster.close()


class Torchft(Pair):
    """Two replica groups of gpt_torchft.py, and a lighthouse."""

    name = "torchft"

    def __init__(self, python, folder, script, seed, steps, schedule, **more):
        super().__init__(python, folder, script + "_torchft", seed,
                         STEPS=str(steps), **more)
        self._replica_count_min = schedule["min_quorum"]
        self._port = ports.claim()
        self._environment["TORCHFT_LIGHTHOUSE"] = (
            "http://127.0.0.1:%d" % self._port)
        self._lighthouse = None

    def start_service(self):
        self._lighthouse = processes.Process(
            "lighthouse", [
                os.path.join(os.path.dirname(self.python),
                             "torchft_lighthouse"),
                "--bind", "127.0.0.1:%d" % self._port,
                "--min_replicas", str(self._replica_count_min),
                "--join_timeout_ms", "10000"],
            os.path.join(self.folder, "lighthouse.log"))

    def kill_service(self):
        if self._lighthouse is not None:
            self._lighthouse.kill()
            self._lighthouse.stop()
            self._lighthouse = None

    def restart_service(self):
        self.start_service()

    def close(self):
        super().close()
        self.kill_service()
        ports.release(self._port)


# --- Faults ------------------------------------------------------------------

def _signal(number):
    return lambda pair: pair.trainers[1].process.signal(number)


def _signal_exchange(number):
    return lambda pair: os.kill(pair.exchange(1), number)


def _kill(pair):
    pair.trainers[1].process.kill()


# Name: (begins, ends, its trainer or None, systems).
FAULTS = {
    "kill -9 of a trainer": (
        _kill, lambda pair: pair.start_trainer(1), 1, (Atoll, Torchft)),
    "SIGSTOP of a trainer": (_signal(signal.SIGSTOP), _signal(signal.SIGCONT),
                             1, (Atoll, Torchft)),
    # torchft has no such process: its manager is a part of the trainer.
    "SIGSTOP of an exchange": (
        _signal_exchange(signal.SIGSTOP), _signal_exchange(signal.SIGCONT), 1,
        (Atoll,)),
    "kill -9 of the coordinator, or lighthouse": (
        lambda pair: pair.kill_service(), lambda pair: pair.restart_service(),
        None, (Atoll, Torchft)),
}
_STILL_S = 3.0     # Longer than a round takes.
_HOLD_S = 15.0     # Longer than leases and timeouts of collectives.
_FAULT_S_MAX = 75  # Longer than torchft waits for a quorum.
_KILLS_S_MAX = 1200


def _settles(what, predicate, timeout):
    try:
        wait.until(what, predicate, timeout)
        return True
    except wait.TimedOut:
        return False


def play_fault(pair, begins, ends, victim):
    """Returns (during the fault, after it), each a dictionary of texts.

    Trainer 1 has the fault; without `victim` both are the same.
    """
    pair.start()
    steps = 3 * INTERVAL

    def all_step(indices, since):
        return lambda: all(t.has_ended() or t.count_since(since) >= steps
                           for i, t in pair.trainers.items() if i in indices)

    def look(since):
        now = time.monotonic()
        return {i: (t.state(since, now), t.news())
                for i, t in pair.trainers.items()}

    wait.until("both train", all_step((0, 1), 0.0))
    for trainer in pair.trainers.values():
        if trainer.has_ended():
            raise AssertionError(trainer.process.tail())
        trainer.news()
    begin = time.monotonic()
    begins(pair)
    # A trainer within a round may end it before it waits.
    _settles("the others train", lambda: (
        time.monotonic() > begin + _HOLD_S and all_step(
            [i for i in (0, 1) if i != victim], begin + _HOLD_S / 3)()),
             _FAULT_S_MAX)
    during = look(begin)
    ends(pair)
    back = time.monotonic()
    _settles("all train", all_step((0, 1), back), _FAULT_S_MAX)
    return during, look(back)


# --- Kills -------------------------------------------------------------------

def kill_trainer(pair, index):
    pair.trainers[index].process.kill()
    return True


def kill_exchange(pair, index):
    """False: there is none at this moment."""
    try:
        os.kill(pair.exchange(index), signal.SIGKILL)
    except (StopIteration, ProcessLookupError):
        return False
    return True


def play_kills(pair, kill, most):
    """Trains to the end over `most` kills. Returns the kills, and the starts.

    Each kill comes some steps after the one before it, of the two islands by
    turns. A trainer that is not there is started again.
    """
    pair.start()
    count, starts, since = 0, 2, time.monotonic()
    chance = random.Random(1)
    left = chance.randint(1, 2 * INTERVAL)

    def look():
        nonlocal count, starts, since, left
        for index, trainer in list(pair.trainers.items()):
            if trainer.process.poll() not in (None, 0):
                trainer.process.stop()
                pair.start_trainer(index)
                starts += 1
        victim = pair.trainers[count % 2]
        if kill and count < most and not victim.has_ended() and (
                victim.count_since(since) >= left) and kill(pair, count % 2):
            count += 1
            since, left = time.monotonic(), chance.randint(1, INTERVAL)
        return all(t.process.poll() == 0 for t in pair.trainers.values())

    wait.until("both trainers end", look, _KILLS_S_MAX)
    return count, starts
