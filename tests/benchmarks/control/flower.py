"""What idle clients and a round cost Flower's SuperLink.

    python3 -m venv venv && venv/bin/pip install flwr
    venv/bin/python tests/benchmarks/control/flower.py --clients 200

No part of the build: Flower is no dependency. A SuperLink without TLS, with its
state in memory, has one core. Each client is the connection of a SuperNode as
Flower makes it, with its heartbeats; it asks for messages every 3 s, as a
SuperNode does, and trains nothing. A server app sends parameters to each client,
and each answers with parameters of its own, through the SuperLink.

Prints the SuperLink's processor seconds a second while the clients wait, the
memory that each adds, and the time, processor seconds and memory of a round.
"""

# pylint: disable=import-outside-toplevel,import-error

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

_POLL_S = 3
_WORKERS = 16
_PATIENCE_S = 600
_APP = """
import json, os, time
import numpy
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
  while len(nodes := list(grid.get_node_ids())) < {clients}:
    time.sleep(0.5)
  open("{folder}/ready", "w").close()
  while not os.path.exists("{folder}/go"):
    time.sleep(0.1)
  for count in range({rounds}):
    begin = time.time()
    values = numpy.random.default_rng(count).random({size} // 4, "float32")
    content = RecordDict({{"arrays": ArrayRecord({{"w": Array(values)}})}})
    messages = [Message(content, node, "train") for node in nodes]
    answers = grid.send_and_receive(messages, timeout=600)
    good = sum(not answer.has_error() for answer in answers)
    with open("{folder}/rounds", "a") as file:
      file.write(json.dumps([time.time() - begin, good]) + "\\n")
"""
_PROJECT = """
project = {name = "round", version = "1.0.0", license = "Apache-2.0"}
tool.flwr.app.publisher = "benchmark"
tool.flwr.app.components = {serverapp = "app:app", clientapp = "app:app"}
"""


def _usage(pid):
    """Returns processor seconds and MiB of resident memory of one process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _answer(calls, size):
    """Answers one message of the server app, if there is one."""
    import numpy
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.supercore.inflatable import inflatable_object as parts
    node, receive, send, _, _, pull, push, confirm = calls
    received = receive()
    if received is None:
        return
    message, tree = received
    run = message.metadata.run_id
    for part in parts.iterate_object_tree(tree):
        pull(run, part.object_id)
    confirm(run, message.metadata.message_id)
    values = numpy.random.default_rng(node).random(size // 4, "float32")
    content = RecordDict({"arrays": ArrayRecord({"w": Array(values)})})
    answer = Message(content, reply_to=message)
    answer.metadata.__dict__["_message_id"] = answer.object_id
    wanted, session = send(answer, parts.get_object_tree(answer), 0.0)
    for name, part in parts.get_all_nested_objects(answer).items():
        if name in wanted:
            push(run, session, name, part.deflate())


def _serve_clients(address, count, size):
    """Has all clients until its input ends."""
    from flwr.supernode.fleet_http_connection import http_request_response

    def connect(_):
        connection = http_request_response(address, True)
        return connection, connection.__enter__()

    def work(calls, begin):
        while True:
            time.sleep(max(0, begin - time.monotonic()))
            begin = max(begin + _POLL_S, time.monotonic())
            try:
                _answer(calls, size)
            except Exception as error:  # pylint: disable=broad-except
                print(repr(error), file=sys.stderr)

    with concurrent.futures.ThreadPoolExecutor(_WORKERS) as pool:
        clients = list(pool.map(connect, range(count)))
    for index, (_, calls) in enumerate(clients):
        begin = time.monotonic() + index * _POLL_S / count
        threading.Thread(target=work, args=(calls, begin)).start()
    print("connected", flush=True)
    sys.stdin.read()
    os._exit(0)  # pylint: disable=protected-access


def _measure(flags, folder, start, log):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    address = "127.0.0.1:" + port
    app = pathlib.Path(folder, "app")
    app.mkdir()
    (app / "pyproject.toml").write_text(_PROJECT)
    (app / "app.py").write_text(_APP.format(
        folder=folder, clients=flags.clients, rounds=flags.rounds,
        size=flags.bytes))
    pathlib.Path(folder, "config.toml").write_text(
        f'superlink.default = "here"\n[superlink.here]\n'
        f'address = "{address}"\ninsecure = true\n')
    cores = sorted(os.sched_getaffinity(0))
    link = start(["flower-superlink", "--insecure", "--port", port,
                  "--disable-runtime-dependency-installation"], stdout=log)
    os.sched_setaffinity(link.pid, cores[:1])
    os.sched_setaffinity(0, cores[1:] or cores)
    time.sleep(10)
    _, empty = _usage(link.pid)
    clients = start([sys.executable, __file__, "--serve", address, "--clients",
                     str(flags.clients), "--bytes", str(flags.bytes)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if clients.stdout.readline() != b"connected\n":
        raise RuntimeError("the clients do not connect")
    time.sleep(2 * _POLL_S)
    before, _ = _usage(link.pid)
    time.sleep(flags.idle_s)
    after, idle = _usage(link.pid)
    row = {"clients": flags.clients, "bytes": flags.bytes, "idle_mib": idle,
           "idle_cores": (after - before) / flags.idle_s,
           "client_mib": (idle - empty) / flags.clients}
    print(json.dumps(row), file=sys.stderr)
    start(["flwr", "run", folder + "/app"], stdout=log)
    deadline = time.monotonic() + _PATIENCE_S
    rounds, before, most = [], None, 0
    while len(rounds) < flags.rounds:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(rounds)} rounds are done")
        time.sleep(0.1)
        cpu, mib = _usage(link.pid)
        most = max(most, mib)
        if before is None and os.path.exists(folder + "/ready"):
            before = cpu
            pathlib.Path(folder, "go").touch()
        with contextlib.suppress(FileNotFoundError), \
                open(folder + "/rounds", encoding="utf-8") as file:
            rounds = [json.loads(line) for line in file]
    row.update(answers=min(good for _, good in rounds),
               round_s=sum(took for took, _ in rounds) / flags.rounds,
               round_cpu_s=(cpu - before) / flags.rounds, round_mib=most)
    return row


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("clients", 200), ("rounds", 2), ("bytes", 1000000),
                          ("idle-s", 30)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.serve:
        return _serve_clients(flags.serve, flags.clients, flags.bytes)
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        programs = os.path.dirname(sys.executable)
        environment = dict(os.environ, FLWR_HOME=folder,
                           FLWR_TELEMETRY_ENABLED="0",
                           PATH=programs + ":" + os.environ["PATH"])

        def start(command, **options):
            processes.append(subprocess.Popen(
                command, env=environment, stderr=log, **options))
            return processes[-1]

        with open(folder + "/log", "w+", encoding="utf-8") as log:
            try:
                print(json.dumps(_measure(flags, folder, start, log)))
            except Exception:
                log.seek(0)
                print(log.read()[-3000:], file=sys.stderr)
                raise
            finally:
                for process in reversed(processes):
                    process.kill()
                    process.wait()


if __name__ == "__main__":
    main()
