#!/usr/bin/python3
"""The rendezvous of an island's processes: who is accepted, who is refused with
a reason, and that no stranger keeps the island from its run."""

import os
import socket
import threading

from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import wait

MODEL = {"model": {"kv_head_count": 2},
         "schedule": {"island_count_min": 1, "min_quorum": 1,
                      "round_count": 3},
         "data": {"data_shard_count": 1}}
HOST = "127.0.0.1"


class MeshRendezvousTest(cluster_module.IntegrationTest):

    def setUp(self):
        super().setUp()
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        self.values = self.run_values(MODEL)
        cluster.create_run(self.values)
        self.port = cluster.claim_port()

    def arguments(self, index, *further, mesh="dp_shard=2"):
        return ["--mesh", mesh, "--processes", "2", "--process-index",
                str(index), "--rendezvous", "%s:%d" % (HOST, self.port)] + \
            list(further)

    def start(self, index, *further, name=None, **kwargs):
        return self.cluster.start_island(
            "run", "rack", name=name or "rack.%d" % index,
            arguments=self.arguments(index, *further, **kwargs))

    def secret(self, name, bytes_="0123456789abcdef" * 4):
        path = os.path.join(self.cluster.directory, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(bytes_ + "\n")
        return ["--rendezvous-secret", path]

    def await_listener(self):
        def listens():
            self.cluster.check_alive()
            try:
                return socket.create_connection((HOST, self.port),
                                                wait.PATIENCE_S)
            except OSError:
                return None

        wait.until("process 0 listens", listens).close()

    def refused(self, process, code, sentence):
        self.cluster.may_end(process.name)
        self.assertEqual(process.wait(), code, process.tail())
        self.assertIn(sentence, process.tail())

    def finish(self):
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(self.cluster, self.values)
        for name in ("rack.0", "rack.1"):
            process = self.cluster.processes[name]
            self.assertEqual(process.wait(), 0, process.tail())

    def test_whoever_has_another_secret_is_sent_away(self):
        secret = self.secret("secret")
        self.start(0, *secret)
        stranger = self.start(1, *self.secret("other", "another secret!!"),
                              name="stranger")
        self.refused(stranger, 7, "has another secret")
        self.assertIn("--rendezvous-secret", stranger.tail())
        # The machine's own secret is not enough.
        self.refused(self.start(1, name="neighbour"), 7, "has another secret")
        self.start(1, *secret)
        self.finish()

    def test_on_one_machine_processes_meet_by_its_own_secret(self):
        self.start(0)
        self.start(1)
        self.finish()
        path = os.path.join(self.cluster.directory, "state", "atoll",
                            "rendezvous.secret")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)

    def test_strangers_do_not_hold_up_the_island(self):
        self.start(0)
        self.await_listener()
        strangers = []

        def dial(words=b""):
            stranger = socket.create_connection((HOST, self.port),
                                                wait.PATIENCE_S)
            if words:
                stranger.sendall(words)
            strangers.append(stranger)
            return stranger

        hello = bytes.fromhex("1603010200010001fc0303") + os.urandom(400)
        for words in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(5000),
                      b"ATLM" + b"\0" * 200, b"\x16\x03\x01\xff\xff", hello):
            dial(words)
        for _ in range(200):
            dial()
        slow = dial()
        done = threading.Event()

        def trickle():
            for byte in hello:
                if done.wait(0.02):
                    return
                try:
                    slow.sendall(bytes([byte]))
                except OSError:
                    return  # Refused after ten seconds.

        trickler = threading.Thread(target=trickle)
        trickler.start()
        try:
            self.start(1)
            # They stay while the island trains, and more connect.
            self.cluster.wait_commits(1)
            for _ in range(50):
                dial(b"\x16\x03\x01")
            self.finish()
        finally:
            done.set()
            trickler.join()
            for stranger in strangers:
                stranger.close()

    def test_a_process_that_is_there_twice_is_sent_away(self):
        # Four, so that the first two wait for the others.
        def start(index, name):
            return self.cluster.start_island("run", "rack", name=name,
                                             arguments=[
                "--mesh", "dp_shard=2,tp=2", "--processes", "4",
                "--process-index", str(index), "--rendezvous",
                "%s:%d" % (HOST, self.port)])

        start(0, "rack.0")
        start(1, "rack.1")
        start(1, "twin")

        def told():
            self.cluster.check_alive()
            return any("has joined already" in
                       self.cluster.processes[name].tail()
                       for name in ("rack.1", "twin"))

        wait.until("the second of them hears it", told)
        # One of the two twins is enough, whichever was first.
        self.cluster.kill("twin")
        start(2, "rack.2")
        start(3, "rack.3")
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(self.cluster, self.values)

    def test_who_wants_another_mesh_hears_which(self):
        self.start(0)
        self.await_listener()
        other = self.start(1, mesh="tp=2", name="other")

        def told():
            self.cluster.check_alive()
            return "wants a world of 2 processes" in other.tail()

        wait.until("it hears why", told)
        self.assertIn("tp=2", other.tail())
        self.cluster.kill("other")
        self.start(1)
        self.finish()

    def test_off_the_machine_there_has_to_be_a_secret(self):
        ended = processes.run_cli(
            "join", self.cluster.coordinator_address, "--run", "run",
            "--island-id", "rack", "--mesh", "dp_shard=2", "--processes", "2",
            "--process-index", "1", "--rendezvous", "192.0.2.1:29500")
        self.assertEqual(ended.returncode, 4, ended)
        for words in ("192.0.2.1:29500", "--rendezvous-secret", "--tls-key",
                      "--insecure"):
            self.assertIn(words, ended.stderr)


if __name__ == "__main__":
    cases.main()
