"""A cluster with TLS, a gate, and volunteers that have a join string."""

import glob
import json
import os

from harness import certificates
from harness import client
from harness import cluster as cluster_module
from harness import processes
from harness import python_island


class Security:
    """A CA of `atoll ca init`, and a directory for each program."""

    def __init__(self, directory):
        self.ca = os.path.join(directory, "ca")
        self._directory = directory
        processes.run_cli("ca", "init", "--dir", self.ca, check=0)

    def issue(self, role, name, *arguments):
        path = os.path.join(self._directory, role + "-" + name)
        if not os.path.exists(path):
            listens = role in ("coordinator", "server", "gate", "data")
            processes.run_cli(
                "ca", "issue", "--dir", self.ca, "--role", role, "--id", name,
                "--out", path, *arguments,
                *(["--host=127.0.0.1"] if listens else []), check=0)
        return path

    def certificate(self, path):
        return certificates.Certificate(*(
            os.path.join(path, f) for f in ("tls.crt", "tls.key", "ca.crt")))

    def flags(self, process):
        """The TLS flags of a process, for harness/cluster.py."""
        if process.startswith(("volunteer", "data")) or process == "gate":
            return []
        role = {"cli": "operator", "coordinator": "coordinator"}.get(
            process, "island" if process.startswith("island") else "server")
        return ["--tls-dir=" + self.issue(role, process)]

    @property
    def credentials(self):
        return self.certificate(self.issue("operator", "test")).credentials


class _SeenBy:
    """A cluster as the holder of a certificate sees it."""

    def __init__(self, test, certificate):
        self._test = test
        self._certificate = certificate
        self._clients = {}

    def client(self, address):
        if address not in self._clients:
            self._clients[address] = self._test.caller(address,
                                                       self._certificate)
        return self._clients[address]

    def dialled_by(self, who):
        return self._test.cluster.dialled_by(who)

    @property
    def runs(self):
        return self.client(
            self._test.cluster.coordinator_address).service("RunService")


class GatedTest(cluster_module.IntegrationTest):
    """A test whose cluster has a CA, made once for its class."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.security = Security(os.path.join(cls.root, "pki"))
        cls.gate_dir = cls.security.issue("gate", "g0")

    def setUp(self):
        super().setUp()
        self.cluster = self.new_cluster("enrol", self.security)

    def start(self, server_count=2, gate=()):
        self.cluster.start_coordinator()
        self.cluster.start_gate(self.gate_dir, arguments=gate)
        self.cluster.start_servers(server_count)

    def create_run(self, *changes, run_id="run"):
        values = self.run_values({"schedule": {
            "island_count_min": 1, "min_quorum": 1}}, *changes)
        self.cluster.create_run(values, run_id)
        return values

    def token(self, *arguments, run_id="run"):
        """A join string."""
        done = self.cluster.run_cli("token", "create", "--run", run_id,
                                    *arguments, check=0)
        self.assertRegex(done.stdout, r"^atoll://127\.0\.0\.1:\d+/%s#atj1_"
                         r"[a-z0-9]{12}\.[\w-]+\.[\w-]{43}\.[0-9a-f]{8}\n$" %
                         run_id)
        return done.stdout.strip()

    def join(self, string, *arguments, state="state", check=None):
        """Runs `atoll join` to its end; for joins that are refused."""
        return processes.run_cli(
            "join", string, "--threads=1", *arguments, check=check,
            env={"XDG_STATE_HOME": os.path.join(self.cluster.directory,
                                                state)})

    def audit(self):
        done = self.cluster.run_cli("audit", "-o", "jsonl", check=0)
        return [json.loads(line)["data"] for line in done.stdout.splitlines()]

    def actions(self):
        """As of `audit`, without a process for each look."""
        service = self.cluster.coordinator.service("EnrolmentService")
        return [r.action for r in self.cluster.retry(
            service.ListAuditRecords, page_size=1000).records]

    def enrolled(self, volunteer):
        """Its certificate and key, as files."""
        found = glob.glob(os.path.join(
            self.cluster.directory, volunteer + ".state", "atoll",
            "enrolments", "*"))
        self.assertEqual(len(found), 1, found)
        return self.security.certificate(found[0])

    def caller(self, address, certificate):
        made = client.Client(address, certificate.credentials)
        self.addCleanup(made.close)
        return made

    def member(self, certificate, island_id, run_id="run"):
        """An island in Python with its own certificate."""
        return python_island.Member(_SeenBy(self, certificate), run_id,
                                    island_id)
