#!/usr/bin/python3
"""A run whose certificates, of all programs, are valid for two minutes.

    short_certificates.py [--seconds 120] [--lives 4]

Each service's certificate is replaced in its file at half its life; islands
renew by themselves. After --lives lives one island is stopped until its
certificate has expired, and continued. Ends with 1 if a process ended, an
island was lost before, a round was tried twice, or a commit is missing.
Needs the programs of `bazel build -c opt //...`, or ATOLL_BIN.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time

_TREE = os.path.normpath(os.path.join(os.path.dirname(
    os.path.realpath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(_TREE, "tests", "integration"))

# pylint: disable=wrong-import-position
from harness import client
from harness import cluster as cluster_module
from harness import gated
from harness import run_file
from harness import wait

# Of `openssl ca`, the only command that sets an end to the second.
_CONFIG = """[ca]
default_ca = d
[d]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
copy_extensions = copyall
unique_subject = no
policy = p
[p]
commonName = supplied
"""
_END = "-----END CERTIFICATE-----\n"
VOLUNTEERS = ("volunteer-0", "volunteer-1")


def openssl(directory, *arguments):
    subprocess.run(("openssl",) + arguments, cwd=directory, check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


class Security(gated.Security):
    """Services' certificates are valid for `seconds`."""

    def __init__(self, directory, seconds):
        super().__init__(directory)
        self._seconds = seconds
        self._work = os.path.join(directory, "signing")
        os.makedirs(self._work)
        for name, content in (("cnf", _CONFIG), ("index.txt", "")):
            with open(os.path.join(self._work, name), "w",
                      encoding="ascii") as file:
                file.write(content)
        self._lock = threading.Lock()
        self._issued = []

    def issue(self, role, name, *arguments):
        with self._lock:
            path = super().issue(role, name, *arguments)
            if path not in self._issued:
                self._renew(path)
                self._issued.append(path)
        return path

    def renew(self):
        with self._lock:
            for path in self._issued:
                self._renew(path)

    def _renew(self, path):
        now = time.time()
        at = lambda t: time.strftime("%Y%m%d%H%M%SZ", time.gmtime(t))
        file = os.path.join(path, "tls.crt")
        openssl(self._work, "x509", "-x509toreq", "-in", file, "-signkey",
                os.path.join(path, "tls.key"), "-copy_extensions", "copyall",
                "-out", "csr")
        openssl(self._work, "ca", "-batch", "-notext", "-config", "cnf", "-in",
                "csr", "-out", "new.crt", "-cert",
                os.path.join(self.ca, "service-ca.crt"), "-keyfile",
                os.path.join(self.ca, "service-ca.key"), "-startdate",
                at(now - 60), "-enddate", at(now + self._seconds))
        with open(os.path.join(self._work, "new.crt"),
                  encoding="ascii") as made, open(
                      file, encoding="ascii") as old:
            chain = made.read() + old.read().split(_END, 1)[1]
        with open(file + ".new", "w", encoding="ascii") as new:
            new.write(chain)
        os.replace(file + ".new", file)


class ShortCertificates(gated.GatedTest):

    seconds = 120

    @classmethod
    def setUpClass(cls):
        cluster_module.IntegrationTest.setUpClass.__func__(cls)
        cls.security = Security(os.path.join(cls.root, "pki"), cls.seconds)
        cls.gate_dir = cls.security.issue("gate", "g0")

    def renew_until(self, ended):
        while not ended.wait(self.seconds / 2):
            self.security.renew()

    def fresh(self):
        """Clients of now: they read the operator's certificate once."""
        for address in list(self.cluster._clients):  # pylint: disable=W0212
            self.cluster._clients.pop(address).close()

    def live(self, lives):
        cluster = self.cluster
        ended = threading.Event()
        renewer = threading.Thread(target=self.renew_until, args=(ended,))
        self.addCleanup(renewer.join)
        self.addCleanup(ended.set)
        renewer.start()
        self.start(gate=["--certificate-s=%d" % self.seconds])
        self.create_run(run_file.ELASTIC, {"schedule": {
            "min_quorum": 2, "island_count_min": 2, "grace_window": "600s",
            "lease_duration": "10s", "round_count": 10000000}})
        token = self.token("--uses=2")
        for name in VOLUNTEERS:
            cluster.start_volunteer(name, token)
        cluster.wait_commits(1)
        epochs = self.epochs()
        begin = time.monotonic()
        stall, seq, seen = 0.0, 1, begin
        while time.monotonic() - begin < lives * self.seconds:
            time.sleep(1)
            self.fresh()
            now = cluster.wait_commits(seq + 1).commit_seq
            stall = max(stall, time.monotonic() - seen)
            seq, seen = now, time.monotonic()
        actions = self.actions()
        print("%d commits in %d lives of %d s; longest second %.1f s; "
              "%d renewals of islands" % (seq, lives, self.seconds, stall,
                                          actions.count("island.renew")))
        self.assertEqual(actions.count("island.enrol"), 2)
        self.assertGreaterEqual(actions.count("island.renew"), 2 * lives)
        self.assertEqual(self.epochs(), epochs)
        self.assertEqual({r.attempt for r in cluster.rounds()}, {0})
        self.sleep_past_the_end(seq)

    def epochs(self):
        """An island that was lost gets the next epoch when it returns."""
        return {i.island_id: (i.state, i.island_epoch)
                for i in self.cluster.islands()}

    def sleep_past_the_end(self, seq):
        cluster = self.cluster
        sleeper = cluster.processes[VOLUNTEERS[0]]
        sleeper.signal(signal.SIGSTOP)
        time.sleep(1.2 * self.seconds)
        self.fresh()
        probe = self.caller(cluster.coordinator_address,
                            self.enrolled(VOLUNTEERS[0]))
        error = client.error_of(
            lambda: probe.service("RunService").GetRun(run_id="run"))
        print("stopped past its end: %s" % error.code.name)
        sleeper.signal(signal.SIGCONT)
        seq = cluster.run_state().commit_seq
        wait.until("it contributes again", lambda: any(
            len(r.contributions) == 2 for r in cluster.rounds()[-3:]))
        cluster.wait_commits(seq + 2)
        print("it goes on at commit %d" % cluster.run_state().commit_seq)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--lives", type=int, default=4)
    options = parser.parse_args()
    ShortCertificates.seconds = options.seconds
    ShortCertificates.setUpClass()
    test = ShortCertificates("live")
    try:
        test.setUp()
        test.live(options.lives)
    finally:
        test.doCleanups()
        ShortCertificates.tearDownClass()


if __name__ == "__main__":
    main()
