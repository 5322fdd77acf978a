"""A cluster of real processes, and the methods that tests use."""

import collections
import json
import os
import random
import re
import signal
import shutil
import tempfile
import unittest
import unittest.mock

import grpc

from harness import arithmetic
from harness import broken_disk
from harness import cases
from harness import client as client_module
from harness import ports
from harness import power
from harness import processes
from harness import python_island
from harness import run_file
from harness import text
from harness import wait

# RunState, by the names of run.proto.
STARTING, ACTIVE, PAUSED, COMPLETED, CANCELLED = 1, 2, 3, 4, 5
# Outcome.
MERGED, LATE, STALE, REJECTED, DROPPED, OUTCOME_CANCELLED = 1, 2, 3, 4, 5, 6
# IslandState.
JOINING, READY, LOST, LEFT, REMOVED, READMITTED = 1, 2, 3, 4, 5, 6


# Trainers of start_trainer_island: the program and its arguments.
NUMPY_TRAINER = ("tests/integration/harness/numpy_trainer.py", "run",
                 "{socket}", "{directory}")
VARIANCE_TRAINER = ("tests/integration/harness/variance_trainer.py", "run",
                    "{socket}", "{directory}")
STDLIB_TRAINER = ("tests/conformance/stdlib_trainer.py", "{socket}",
                  "{directory}")

# Makes the coordinator take a snapshot after every record.
SNAPSHOTS = ("--log-records-max=1",)

_OWN_PORT = re.compile(r"its (\w+) port is (\S+)")


def planned_steps(values, a_round):
    """Inner steps of an island for round `a_round` of a strict run."""
    schedule = values["schedule"]
    steps = schedule["inner_step_count"]
    staggered = schedule.get("fragment_schedule") == "staggered"
    if not staggered or a_round.version > 1:
        return steps
    # The first push comes ceil(H (p + 1) / P) steps after the start.
    count = values.get("layout", {}).get("fragment_count", 1)
    return -(-steps * (a_round.fragment + 1) // count)


class Died(AssertionError):
    """A process ended unexpectedly."""


class Cluster:
    """Processes of one test, all below one directory.

    `security` is None for plaintext. Otherwise `flags(name)` gives the flags of
    a process by name ("cli" for short commands), and `credentials` are those of
    the test's own clients.
    """

    def __init__(self, directory, security=None):
        self.directory = directory
        self.mirror = None     # Directory of --mirror (harness/mirror.py).
        self._security = security
        self._own_ports = {}   # Address of the coordinator by class of callers.
        os.makedirs(directory, exist_ok=True)
        self._ports = {}       # Port by name of a service; kept over restarts.
        self._claimed = []     # Ports that are held for this cluster.
        self._clients = {}     # Address: Client.
        self.processes = {}    # Newest Process by name.
        self._servers = []     # Ids in the order of their first start.
        self._doomed = set()   # Names of processes that may end.
        self._islands = {}     # Name: arguments of start_island.
        self._trainers = {}    # Name: id of the island that it trains.
        self._sockets = None   # Directory of the trainers' sockets.
        self._coordinator_arguments = []  # Of its last start.
        self._disks = {}       # Name: its power.Disk or broken_disk.Disk.
        self._roots = {}       # Name: directory of its program's version.
        self._guarded = None   # Name of the process to restart after its death.
        self.deaths = []       # Names of restarted processes, in order.

    # --- Processes --------------------------------------------------------------

    def _start(self, name, command, port_file=None, failpoint=None,
               prefix=(), environment=None):
        command = command + self.security_flags(name)
        if failpoint:
            command = command + ["--failpoint=" + failpoint]
        log = os.path.join(self.directory, name + ".log")
        if port_file and os.path.exists(port_file):
            os.unlink(port_file)
        # Where programs keep state of the machine.
        environment = environment or {
            "XDG_STATE_HOME": os.path.join(self.directory, "state")}
        if name in self._disks:
            environment.update(self._disks[name].environment())
        if failpoint or self._is_disk_armed(name):
            self._doomed.add(name)
        else:
            self._doomed.discard(name)
        process = processes.Process(name, list(prefix) + command, log,
                                    environment)
        self.processes[name] = process
        return process

    def _serve(self, name, relative, arguments, failpoint, data_dir, prefix):
        if name not in self._ports:
            # After a kill it must return there.
            self._ports[name] = self.claim_port()
        port_file = os.path.join(self.directory, name + ".port")
        command = [
            processes.binary(relative, self._roots.get(name)),
            "--listen=127.0.0.1:%d" % self._ports[name],
            "--data-dir=" + (data_dir or os.path.join(self.directory, name)),
            "--port-file=" + port_file,
        ] + arguments
        if self.mirror:
            command.append("--mirror=file://" + self.mirror)
        process = self._start(name, command, port_file, failpoint, prefix)
        try:
            processes.read_port(process, port_file)
        except AssertionError:
            # A death during the start: the test waits for it.
            if (not failpoint and not self._is_disk_armed(name) or
                    process.poll() != -signal.SIGKILL):
                raise
        return process

    def _is_disk_armed(self, name):
        return name in self._disks and self._disks[name].is_armed

    def claim_port(self):
        """A port that only this cluster uses, until it is closed."""
        port = ports.claim()
        self._claimed.append(port)
        return port

    def start_coordinator(self, failpoint=None, data_dir=None, prefix=(),
                          arguments=(), cluster_id=None):
        """Starts the coordinator, or restarts it at the same address. In a
        directory without a log it is a new cluster, with `cluster_id` if one is
        given."""
        self._coordinator_arguments = list(arguments)
        directory = data_dir or os.path.join(self.directory, "coordinator")
        if not os.path.exists(os.path.join(directory, "CURRENT")):
            processes.init_coordinator(
                directory, *(["--cluster-id=" + cluster_id] if cluster_id
                             else []), root=self._roots.get("coordinator"),
                prefix=prefix, seen=lambda process: self.processes.update(
                    coordinator=process))
        return self._serve("coordinator", processes.COORDINATOR,
                           list(arguments), failpoint, data_dir, prefix)

    def start_other_coordinator(self, data_dir):
        """Starts a coordinator of another cluster, which has no run yet, at
        the same address. `restart` starts the cluster's own again."""
        return self.start_coordinator(
            data_dir=data_dir, arguments=self._coordinator_arguments)

    def start_coordinator_with_own_ports(self):
        """Starts it with separate ports for islands, servers and queries."""
        names = ("island", "server", "query")
        process = self.start_coordinator(
            arguments=["--%s-listen=127.0.0.1:%d" % (n, self.claim_port())
                       for n in names])

        def told():
            self.check_alive()
            self._own_ports = dict(_OWN_PORT.findall(process.tail()))
            return sorted(self._own_ports) == sorted(names)

        wait.until("the coordinator names its ports", told)
        return process

    def start_server(self, server_id, failpoint=None, data_dir=None,
                     prefix=(), arguments=(), name=None):
        """`name`: of a further process with this id; its port is its own."""
        if server_id not in self._servers:
            self._servers.append(server_id)
        return self._serve(name or server_id, processes.SERVER, [
            "--coordinator=" + self.dialled_by("server"),
            "--server-id=" + server_id,
        ] + list(arguments), failpoint, data_dir, prefix)

    def start_gate(self, ca_dir, failpoint=None, arguments=(), prefix=()):
        """Starts the gate, or restarts it at the same address."""
        if "gate" not in self._ports:
            self._ports["gate"] = self.claim_port()
        port_file = os.path.join(self.directory, "gate.port")
        self._gate = (ca_dir, arguments)
        process = self._start("gate", [
            processes.binary(processes.GATE),
            "--listen=127.0.0.1:%d" % self._ports["gate"],
            "--coordinator=" + self.coordinator_address,
            "--ca-dir=" + ca_dir,
            "--port-file=" + port_file,
        ] + list(arguments), port_file, failpoint, prefix)
        processes.read_port(process, port_file)
        return process

    def start_volunteer(self, name, join_string, failpoint=None,
                        arguments=(), prefix=()):
        """An island that has nothing but a join string."""
        state = os.path.join(self.directory, name + ".state")
        process = self._start(
            name, [processes.binary(processes.CLI), "join", join_string,
                   "--threads=1"] + list(arguments),
            failpoint=failpoint, prefix=prefix,
            environment={"XDG_STATE_HOME": state})
        return process

    def start_data_server(self, name, published, pki, arguments=()):
        """`atoll data serve`; `name` begins with "data". Returns its URL."""
        port_file = os.path.join(self.directory, name + ".port")
        process = self._start(name, [
            processes.binary(processes.CLI), "data", "serve", published,
            "--listen=127.0.0.1:0",
            "--tls-cert=" + os.path.join(pki, "tls.crt"),
            "--tls-key=" + os.path.join(pki, "tls.key"),
            "--island-ca=" + os.path.join(pki, "island-ca.crt"),
            "--port-file=" + port_file] + list(arguments), port_file)
        return "https://127.0.0.1:%d" % processes.read_port(process, port_file)

    @property
    def gate_address(self):
        return "127.0.0.1:%d" % self._ports["gate"]

    def start_servers(self, count, armed=None):
        """`armed`, here and below: failpoints by name of the process."""
        for index in range(count):
            name = "server-%d" % index
            self.start_server(name, failpoint=(armed or {}).get(name))

    def start_island(self, run_id, island_id, failpoint=None, threads=1,
                     data=None, arguments=(), prefix=(),
                     program=processes.CLI, name=None, directory=None):
        """`program` has a `join` with our flags. `name` is the process's, for
        an island of several; `directory` overrides that of its saves."""
        if name is None:
            name = (island_id if run_id == "run"
                    else "%s-%s" % (run_id, island_id))
        self._islands[name] = dict(run_id=run_id, island_id=island_id,
                                   threads=threads, data=data,
                                   arguments=arguments, prefix=prefix,
                                   program=program, name=name,
                                   directory=directory)
        command = [
            processes.binary(program, self._roots.get(name)), "join",
            self.dialled_by("island"),
            "--run", run_id, "--island-id", island_id,
            "--dir", os.path.join(self.directory, directory or name),
            "--threads", str(threads),
        ] + list(arguments)
        if data:
            command += ["--data", data]
        return self._start(name, command, failpoint=failpoint, prefix=prefix)

    def start_trainer_island(self, island_id, armed=None, arguments=(),
                             trainer=NUMPY_TRAINER):
        """An island whose trainer is a process of its own: trainer-of-ID."""
        if self._sockets is None:
            # A socket's path is short; a test's directory may not be.
            self._sockets = tempfile.mkdtemp(prefix="atoll-", dir="/tmp")
        self.start_island(
            "run", island_id, failpoint=(armed or {}).get(island_id),
            arguments=["--trainer=unix:" + self._socket(island_id)] +
            list(arguments))
        name = "trainer-of-" + island_id
        self._trainers[name] = (island_id, trainer)
        self.start_trainer(name, (armed or {}).get(name))

    def _socket(self, island_id):
        return os.path.join(self._sockets, island_id)

    def start_trainer(self, name, die_at=None):
        island_id, (program, *words) = self._trainers[name]
        directory = os.path.join(self.directory, name)
        command = ["/usr/bin/python3", "-B", processes.source(program)]
        command += [w.format(socket=self._socket(island_id),
                             directory=directory) for w in words]
        if die_at:
            command.append("--die-at=" + die_at)
        (self._doomed.add if die_at else self._doomed.discard)(name)
        process = processes.Process(
            name, command, os.path.join(self.directory, name + ".log"),
            # One thread: sums have one order.
            {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
             "ATOLL_SDK": processes.sdk().name})
        self.processes[name] = process
        return process

    def start_mesh_island(self, island_id, mesh, process_count=1, armed=None,
                          arguments=(), directory=None):
        """Starts an island with ranks. Several processes are ISLAND.0,
        ISLAND.1, ...; `directory` as in start_island."""
        if process_count == 1:
            return self.start_island(
                "run", island_id, failpoint=(armed or {}).get(island_id),
                arguments=["--mesh", mesh] + list(arguments),
                directory=directory)
        rendezvous = "127.0.0.1:%d" % self.claim_port()
        for index in range(process_count):
            name = "%s.%d" % (island_id, index)
            self.start_island("run", island_id, name=name, directory=directory,
                              failpoint=(armed or {}).get(name), arguments=[
                "--mesh", mesh, "--processes", str(process_count),
                "--process-index", str(index), "--rendezvous", rendezvous] +
                              list(arguments))

    def start_mesh_islands(self, meshes, armed=None, directory=None):
        """Starts island-0 with one rank, then an island for each of `meshes`:
        (mesh, processes, further arguments ...). The last saves in
        `directory`."""
        self.start_island("run", "island-0",
                          failpoint=(armed or {}).get("island-0"))
        # One after the other, because the first gets the first data shard.
        for index, (mesh, process_count, *arguments) in enumerate(meshes, 1):
            wait.until("%d islands have joined" % index,
                       lambda: len(self.islands()) >= index)
            self.start_mesh_island(
                "island-%d" % index, mesh, process_count, armed, arguments,
                directory if index == len(meshes) else None)

    def start_islands(self, run_id="run", count=3, armed=None, **kwargs):
        for index in range(count):
            name = "island-%d" % index
            self.start_island(run_id, name, failpoint=(armed or {}).get(name),
                              **kwargs)

    def start_service(self, armed=None, arguments=()):
        self.start_coordinator(failpoint=(armed or {}).get("coordinator"),
                               arguments=arguments)
        self.start_servers(2, armed)

    def start_run(self, values, armed=None, arguments=()):
        self.start_service(armed, arguments)
        self.create_run(values)
        self.start_islands(armed=armed)

    def start_armed(self, spec, armed):
        """As start_run, for a RunSpec. The coordinator takes a snapshot after
        every record, so that it restarts from one."""
        self.start_service(armed, SNAPSHOTS)
        self.create_run_of(spec)
        self.start_islands(armed=armed)

    def start_up_to(self, commit_count, spec, **islands):
        """Starts a run that stands still after some commits: its coordinator
        has died, and `restart` lets it go on. `islands`: of start_islands."""
        self.start_service({
            "coordinator": "coordinator.commit.after@%d" % commit_count})
        self.create_run_of(spec)
        self.start_islands(**islands)
        self.await_failpoint("coordinator")

    def restart(self, name, failpoint=None):
        """Restarts a killed process with its arguments. Only a coordinator or
        a server may have a failpoint."""
        assert self.processes[name].poll() is not None, name + " still runs"
        if name in self._disks:
            self._disks[name].cut()
        if name == "coordinator":
            return self.start_coordinator(
                failpoint, arguments=self._coordinator_arguments)
        if name in self._servers:
            return self.start_server(name, failpoint)
        if name in self._trainers:
            return self.start_trainer(name)
        return self.start_island(**self._islands[name])

    def cut_power_of(self, name, lies=False, seed=None):
        """Call before the start of `name`: each restart loses all unsynced
        writes, or with a `seed` some of them. Returns its power.Disk."""
        disk = power.Disk(os.path.join(self.directory, name), lies, seed)
        self._disks[name] = disk
        return disk

    def use_programs(self, root, *names):
        """From their next start on, `names` run the programs below `root`, which
        has cli/atoll and so on; None: the programs under test."""
        for name in names:
            self._roots[name] = root

    def break_disk_of(self, name):
        """Call before the start of `name`: its disk can be made to fail.
        Returns its broken_disk.Disk."""
        disk = broken_disk.Disk(os.path.join(self.directory, name))
        self._disks[name] = disk
        return disk

    def kill(self, name):
        self._doomed.add(name)
        return self.processes[name].kill()

    def await_failpoint(self, name, timeout=wait.PATIENCE_S):
        process = self.processes[name]

        def gone():
            self.check_alive()
            return process.poll() is not None

        wait.until("%s reaches %s" % (name, process.command[-1]), gone,
                   timeout)
        assert process.poll() == -signal.SIGKILL, (
            "%s ended with %d and not by its failpoint; its log ends:\n%s" %
            (name, process.poll(), process.tail()))

    def guard(self, name):
        """From now on every wait restarts `name` if it kills itself."""
        self._guarded = name

    def kill_after_every_commit(self, version):
        """Kills and restarts one process after each commit up to `version`.
        Returns their names."""
        generator = random.Random(cases.seed())
        kills = []
        for event in self.events():
            if not event.HasField("round_committed"):
                continue
            if event.round_committed.version >= version:
                break
            victim = generator.choice(sorted(self.processes))
            self.kill(victim)
            self.restart(victim)
            kills.append(victim)
        return kills

    def await_death(self, what):
        def died():
            self.check_alive()
            return self.deaths

        wait.until(what, died)

    def may_end(self, name):
        self._doomed.add(name)

    def check_alive(self):
        """Raises Died if a process ended with an unexpected error."""
        guarded = self.processes.get(self._guarded)
        if guarded is not None and guarded.poll() == -signal.SIGKILL:
            self.deaths.append(self._guarded)
            self.restart(self._guarded)
            # The caller sees the death before the next look judges what the
            # restarted process does.
            return
        for name, process in self.processes.items():
            status = process.poll()
            if status in (None, 0) or name in self._doomed:
                continue
            raise Died("%s ended with %d; its log ends:\n%s" %
                       (name, status, process.tail()))

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.signal(signal.SIGKILL)
        for process in self.processes.values():
            process.stop()
        for known in self._clients.values():
            known.close()
        while self._claimed:
            ports.release(self._claimed.pop())
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)

    def describe(self):
        return "\n".join("--- %s (status %s)\n%s" % (n, p.poll(), p.tail(15))
                         for n, p in self.processes.items())

    # --- Clients ----------------------------------------------------------------

    @property
    def coordinator_address(self):
        return "127.0.0.1:%d" % self._ports["coordinator"]

    def dialled_by(self, who):
        """The coordinator's address for an "island", "server" or "query"."""
        return self._own_ports.get(who, self.coordinator_address)

    def dial_through(self, who, address):
        """Makes them dial the coordinator at `address` from now on."""
        self._own_ports[who] = address

    @property
    def server_ids(self):
        return list(self._servers)

    def server_address(self, server_id):
        return "127.0.0.1:%d" % self._ports[server_id]

    def client(self, address):
        if address not in self._clients:
            self._clients[address] = client_module.Client(
                address, self._security and self._security.credentials)
        return self._clients[address]

    def security_flags(self, name):
        return self._security.flags(name) if self._security else []

    def run_cli(self, *arguments, **options):
        """`options` as of processes.run_cli."""
        return processes.run_cli(
            *arguments, "--coordinator", self.coordinator_address,
            *self.security_flags("cli"), **options)

    @property
    def coordinator(self):
        return self.client(self.coordinator_address)

    @property
    def runs(self):
        return self.coordinator.service("RunService")

    @property
    def state(self):
        return self.client(self.dialled_by("query")).service(
            "TrainingStateService")

    def retry(self, call, timeout=wait.PATIENCE_S, **fields):
        """Repeats the call while it is UNAVAILABLE, as a client should."""
        last = []

        def attempt():
            self.check_alive()
            try:
                return (call(**fields),)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                last[:] = [error.details()]
                return None

        return wait.until("the call is answered", attempt, timeout)[0]

    # --- Runs -------------------------------------------------------------------

    def write_run_file(self, values, name="run"):
        path = os.path.join(self.directory, name + ".toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(run_file.to_toml(values))
        return path

    def create_run(self, values, run_id="run"):
        path = self.write_run_file(values, run_id)
        self.run_cli("run", "create", path, "--run-id", run_id, "-o", "json",
                     check=0)
        return run_id

    def create_run_of(self, spec, run_id="run"):
        def create():
            method = self.runs.CreateRun
            request = method.request_class(run_id=run_id)
            request.spec.ParseFromString(
                spec if isinstance(spec, bytes) else spec.SerializeToString())
            return method(request).run

        return self.retry(create)

    def spec(self, run_id="run"):
        return self.runs.GetRun(run_id=run_id).run.spec

    def run_state(self, run_id="run"):
        return self.retry(lambda: self.state.GetRunState(run_id=run_id))

    def events(self, run_id="run", after_revision=0,
               timeout=wait.PATIENCE_S):
        """Watches a run by revision, over restarts of the coordinator."""
        revision = after_revision

        def watch():
            return self.state.WatchRun(run_id=run_id, after_revision=revision,
                                       timeout=timeout)

        failures = 0
        while True:
            try:
                for response in watch():
                    failures = 0
                    for event in response.events:
                        if event.revision < revision:
                            raise AssertionError(
                                "revision %d after %d" %
                                (event.revision, revision))
                        revision = event.revision
                        yield event
                return
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise wait.TimedOut("run %s: no news for long; state:\n%s"
                                        % (run_id, self.run_state(run_id)))
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                failures += 1
                self.check_alive()
                self.retry(self.runs.GetRun, run_id=run_id)

    def wait_state(self, state, run_id="run", timeout=wait.PATIENCE_S):
        def reached():
            self.check_alive()
            now = self.run_state(run_id)
            return now if now.run.state == state else None

        try:
            return wait.until("run %s is in state %d" % (run_id, state),
                              reached, timeout)
        except wait.TimedOut:
            raise wait.TimedOut("run %s is not in state %d:\n%s" % (
                run_id, state, self.run_state(run_id)))

    def wait_commits(self, count, run_id="run", timeout=wait.PATIENCE_S):
        """Waits until commit_seq is at least `count`; returns the state."""

        def reached():
            self.check_alive()
            now = self.run_state(run_id)
            return now if now.commit_seq >= count else None

        return wait.until("run %s commits %d rounds" % (run_id, count),
                          reached, timeout)

    def rounds(self, run_id="run", page_size=0):
        result, token = [], ""
        while True:
            # The first call after a restart of the coordinator fails.
            page = self.retry(lambda: self.state.ListRounds(
                run_id=run_id, page_size=page_size, page_token=token))
            result += page.rounds
            token = page.next_page_token
            if not token:
                return result

    def checkpoints(self, run_id="run"):
        """Pinned cuts by pin_id."""
        return {c.pin.pin_id: c for c in self.retry(
            lambda: self.state.ListCheckpoints(run_id=run_id)).checkpoints}

    def wait_durable(self, *pin_ids, run_id="run"):
        def durable():
            self.check_alive()
            known = self.checkpoints(run_id)
            return all(i in known and known[i].durable for i in pin_ids)

        wait.until("checkpoints %s are durable" % (pin_ids,), durable)
        return self.checkpoints(run_id)

    def islands(self, run_id="run"):
        return list(self.retry(
            lambda: self.state.ListIslands(run_id=run_id)).islands)

    def join(self, run_id="run", island_id="python-0", **capabilities):
        return python_island.Member(self, run_id, island_id, **capabilities)

    # --- Parameters -------------------------------------------------------------

    def pin(self, run_id="run", pin_id="test", **fields):
        return self.runs.ExportCheckpoint(run_id=run_id, pin_id=pin_id,
                                          **fields)

    def parameters(self, run_id="run", pinned=None):
        """{fragment: f32 bytes} of a pinned cut, checked against its digests.
        """
        pinned = pinned or self.pin(run_id)
        layout = arithmetic.LayoutView(pinned.run.spec.layout)
        result = {}
        for entry in pinned.pin.cut:
            data = python_island.pull(self, pinned.run, pinned.shards,
                                      entry.version, entry.fragment)
            digest = (entry.digest.high, entry.digest.low)
            assert digest == layout.fragment_digest(entry.fragment, data), (
                "fragment %d differs from its digest" % entry.fragment)
            result[entry.fragment] = data
        return result

    def parameters_sha256(self, run_id="run"):
        pinned = self.pin(run_id)
        layout = arithmetic.LayoutView(pinned.run.spec.layout)
        return layout.parameters_sha256(self.parameters(run_id, pinned))

    def export_sha256(self, run_id="run"):
        """parameters_sha256 from the manifest of `atoll run export`."""
        directory = os.path.join(self.directory, "export-" + run_id)
        self.run_cli("run", "export", run_id, directory, "--force", "-o",
                     "json", check=0)
        with open(os.path.join(directory, "manifest.json"),
                  encoding="utf-8") as file:
            return json.load(file)["parameters_sha256"]


class IntegrationTest(unittest.TestCase):
    """A test with its own cluster; its class has its own text."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(
            prefix="atoll-", dir=os.environ.get("TEST_TMPDIR"))
        cls.text = text.write_text(os.path.join(cls.root, "text"),
                                   cases.seed())
        cls._made = {}  # Results of once() by key.
        # This machine's person has allowed runs to read the class's files.
        cls._config = unittest.mock.patch.dict(os.environ, {
            "XDG_CONFIG_HOME": os.path.join(cls.root, "config")})
        cls._config.start()
        processes.run_cli("data", "allow", cls.root, check=0)

    @classmethod
    def tearDownClass(cls):
        cls._config.stop()
        if "ATOLL_TEST_KEEP" not in os.environ:
            shutil.rmtree(cls.root, ignore_errors=True)

    def setUp(self):
        self._clusters = []
        self.cluster = self.new_cluster("cluster")

    def new_cluster(self, name, security=None):
        made = Cluster(os.path.join(self.root, self._testMethodName, name),
                       security)
        self._clusters.append(made)
        self.addCleanup(made.close)
        return made

    def once(self, key, make):
        """The result of `make` with its own cluster, called only for the first
        test of this class that asks for `key`."""
        made, key = type(self)._made, repr(key)
        if key not in made:
            cluster = self.new_cluster("made-%d" % len(made))
            made[key] = make(cluster)
            cluster.close()
        return made[key]

    def describe_failure(self):
        return "\n".join(c.describe() for c in self._clusters)

    @classmethod
    def run_values(cls, *changes):
        return run_file.merged(run_file.BASE, {"data": {"path": cls.text}},
                               *changes)

    # --- Invariants of every run ------------------------------------------------

    def assert_taken_back(self, cluster, victim, island_id, values):
        """An elastic run of two fragments loses the process `victim` of
        `island_id`, continues, and merges the island again. Cancels the run."""
        cluster.wait_commits(4)
        cluster.kill(victim)
        before = cluster.run_state().commit_seq

        def merged_since(name):
            """Fragments with a contribution of `name` after `before`."""
            cluster.check_alive()
            return {r.fragment for r in cluster.rounds()
                    if r.commit_seq > before + 2 for c in r.contributions
                    if c.island_id == name and c.outcome == MERGED}

        wait.until("both fragments go on without it",
                   lambda: merged_since("island-0") == {0, 1})
        cluster.restart(victim)
        wait.until("it is merged in both again",
                   lambda: merged_since(island_id) == {0, 1})
        self.assert_rounds_whole(cluster, values)
        cluster.runs.CancelRun(run_id="run")

    def assert_rounds_whole(self, cluster, values, run_id="run"):
        """One commit a round; every contribution has one outcome and counts
        once; weights sum to 1."""
        rounds = cluster.rounds(run_id)
        seqs = [r.commit_seq for r in rounds]
        self.assertEqual(seqs, sorted(set(seqs)), "commit_seq repeats")
        versions = collections.defaultdict(list)
        keys = collections.Counter()
        for r in rounds:
            versions[r.fragment].append(r.version)
            merged = [c for c in r.contributions if c.outcome == MERGED]
            self.assertTrue(merged, "a round without contributions")
            self.assertAlmostEqual(sum(c.weight for c in merged), 1.0,
                                   places=6)
            shards = [c.info.data_shard for c in merged]
            self.assertEqual(len(shards), len(set(shards)),
                             "a data shard was read twice in one round")
            for c in r.contributions:
                self.assertNotEqual(c.outcome, 0, "no outcome: %s" % c)
                if c.outcome != MERGED:
                    self.assertEqual(c.weight, 0)
                key = c.info.key
                keys[key.run_epoch, key.fragment, key.slot, key.seq] += 1
        self.assertEqual([k for k, n in keys.items() if n > 1], [],
                         "contributions that were decided twice")
        for fragment, seen in versions.items():
            self.assertEqual(seen, list(range(1, len(seen) + 1)),
                             "versions of fragment %d" % fragment)
        return rounds

    def assert_strict_run_whole(self, cluster, values, run_id="run"):
        """As above; and each round has every island, with its tokens."""
        rounds = self.assert_rounds_whole(cluster, values, run_id)
        schedule = values["schedule"]
        count = schedule["island_count_min"]
        self.assertEqual(len(rounds), schedule["round_count"] *
                         values.get("layout", {}).get("fragment_count", 1))
        tokens_a_step = (values["inner"]["batch_size"] *
                         values["model"]["sequence_length"])
        ranges = collections.defaultdict(list)
        for r in rounds:
            self.assertEqual([c.info.key.slot for c in r.contributions],
                             list(range(count)))
            for c in r.contributions:
                self.assertEqual(c.outcome, MERGED, c)
                self.assertEqual(c.token_count,
                                 planned_steps(values, r) * tokens_a_step)
                self.assertEqual(c.info.anchor_version, r.version - 1)
                if r.fragment == 0:
                    ranges[c.info.data_shard].append(
                        (c.info.data_begin, c.info.data_end))
        for shard, seen in ranges.items():
            for before, after in zip(seen, seen[1:]):
                self.assertEqual(before[1], after[0],
                                 "windows of data shard %d" % shard)
        return rounds

    def run_strict(self, cluster, values, run_id="run", islands=None,
                   threads=1, servers=None):
        cluster.start_coordinator()
        cluster.start_servers(servers or values["server_count"])
        cluster.create_run(values, run_id)
        for island in islands or ["island-0", "island-1", "island-2"]:
            cluster.start_island(run_id, island, threads=threads)
        return self.finish_strict(cluster, values, run_id)

    def finish_strict(self, cluster, values, run_id="run"):
        """Waits for the end of a strict run, checks it, returns its SHA-256."""
        cluster.wait_state(COMPLETED, run_id)
        self.assert_strict_run_whole(cluster, values, run_id)
        return cluster.parameters_sha256(run_id)

    def assert_a_death_changes_no_bit(self, cluster, values, expected, victim,
                                      point, start):
        """`start(armed)` starts a strict run. The armed process dies once and
        is restarted, at any time: the last evaluation may come after the run's
        end."""
        cluster.guard(victim)
        start({victim: point})
        cluster.await_death("%s is reached" % point)
        self.assertEqual(self.finish_strict(cluster, values), expected, point)
        self.assertEqual(cluster.deaths, [victim])
