#!/usr/bin/python3
"""Strangers of a few addresses that hold connections keep nobody out of the
gate, `atoll data serve` and the metrics port.

The bounds of an address are not for loopback. So the script restarts itself in
a network namespace where loopback has other addresses, or skips if that is not
permitted.
"""

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import threading

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import gated  # noqa: E402
from harness import metrics  # noqa: E402
from harness import wait  # noqa: E402
import published_data  # noqa: E402

_INSIDE = "ATOLL_TEST_NET_NAMESPACE"
_SIOCSIFFLAGS, _SIOCSIFADDR, _IFF_UP = 0x8914, 0x8916, 1
ADDRESSES = ["10.9.0.%d" % i for i in range(1, 9)]
HELD = 300  # More than a port has places.


def _add_addresses():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for i, address in enumerate(["127.0.0.1"] + ADDRESSES):
            name = b"lo:%d" % i if i else b"lo"
            fcntl.ioctl(any_socket, _SIOCSIFADDR, struct.pack(
                "16sH2x4s8x", name, socket.AF_INET, socket.inet_aton(address)))
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack(
                "16sH14x", name, _IFF_UP))


class Strangers:
    """Connections to a port that send a byte and wait; the next takes the
    place of one that ends."""

    def __init__(self, test, port):
        self._port = port
        self._open = []
        self.opened = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()
        test.addCleanup(self._end)

    def _end(self):
        self._stop.set()
        self._thread.join()
        for connection in self._open:
            connection.close()

    def _hold(self):
        while not self._stop.wait(0.05):
            for ended in select.select(self._open, [], [], 0)[0]:
                self._open.remove(ended)
                ended.close()
            for _ in range(min(20, HELD - len(self._open))):
                source = ADDRESSES[self.opened % len(ADDRESSES)]
                self.opened += 1
                try:
                    made = socket.create_connection(
                        ("127.0.0.1", self._port), timeout=wait.PATIENCE_S,
                        source_address=(source, 0))
                    self._open.append(made)
                    made.sendall(b"G")
                except ConnectionError:
                    pass


class StrangersTest(gated.GatedTest):

    def setUp(self):
        if not os.environ.get(_INSIDE):
            self.skipTest("needs `unshare --net` (root, or user namespaces);"
                          " not permitted here")
        super().setUp()

    def test_connections_that_are_held_shut_no_port(self):
        cluster = self.cluster
        published = os.path.join(cluster.directory, "published")
        published_data.publish(self.text, published)
        self.start(server_count=1, gate=metrics.flags(cluster, "gate"))
        url = cluster.start_data_server("data-0", published,
                                        self.security.issue("data", "d0"))
        path = cluster.write_run_file(self.run_values(
            published_data.by_url(url, data_shard_count=1),
            {"server_count": 1,
             "schedule": {"island_count_min": 1, "min_quorum": 1}}))
        cluster.run_cli("run", "create", path, "--run-id", "run",
                        "--data-copy", published, check=0)
        string = self.token()
        probed = metrics.port(cluster, "gate")
        all_strangers = [
            Strangers(self, int(address.rsplit(":", 1)[1])) for address in (
                cluster.gate_address, url, "gate:%d" % probed)]
        wait.until("they want more places than there are", lambda: all(
            s.opened > HELD for s in all_strangers))
        # It enrols at the gate, and reads the data.
        cluster.start_volunteer("volunteer-0", string)
        cluster.wait_state(cluster_module.COMPLETED)
        for path in (metrics.LIVE, metrics.READY):
            self.assertEqual(metrics.get(probed, path), (200, "ok\n"))


def _enter():
    if os.environ.get(_INSIDE):
        return
    apart = ["unshare", "--net"]
    if os.geteuid() != 0:
        apart.append("--map-root-user")
    if subprocess.run(apart + ["true"], stderr=subprocess.DEVNULL,
                      check=False).returncode != 0:
        return
    os.environ[_INSIDE] = "1"
    os.execvp("unshare", apart + [sys.executable, "-B"] + sys.argv)


if __name__ == "__main__":
    _enter()
    if os.environ.get(_INSIDE):
        _add_addresses()
    cases.main()
