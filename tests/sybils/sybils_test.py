#!/usr/bin/python3
"""One person with many names against a run and its other islands."""

import json
import os
import re
import subprocess
import sys
import threading

import grpc

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import certificates  # noqa: E402
from harness import client  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import gated  # noqa: E402
from harness import processes  # noqa: E402
from harness import run_file  # noqa: E402
from harness import wait  # noqa: E402

DENIED = grpc.StatusCode.PERMISSION_DENIED
USAGE, FORBIDDEN = 2, 7
# A run whose rounds end soon; all of its data shards can be held.
SHARDS = 3
RUN = run_file.merged(run_file.ELASTIC, {
    "schedule": {"round_deadline": "1s", "lease_duration": "10s"},
    "data": {"data_shard_count": SHARDS}})


class Idler:
    """An enrolled island that holds what it gets and does nothing."""

    def __init__(self, test, name, string, *arguments):
        # It enrols, and ends before it joins: its metrics have no port.
        test.join(string, "--metrics-listen=none", *arguments,
                  state=name + ".state")
        self.certificate = test.enrolled(name)
        record = os.path.join(os.path.dirname(self.certificate.cert),
                              "enrolment.json")
        with open(record, encoding="utf-8") as file:
            self.name = json.load(file)["name"]
        self.islands = test.caller(test.cluster.coordinator_address,
                                   self.certificate).service("IslandService")
        self._fingerprint = test.cluster.runs.GetRun(
            run_id="run").run.spec.data.fingerprint
        self._stop = threading.Event()
        test.addCleanup(self._stop.set)

    def join(self):
        joined = self.islands.Join(
            run_id="run", island_id=self.name, capabilities={
                "devices": [{"kind": "cpu", "name": "python",
                             "memory_bytes": 1 << 30}],
                "thread_count": 1, "program_version": "test",
                "data_fingerprint": self._fingerprint})
        self._member = {"run_id": "run", "island_id": self.name,
                        "island_epoch": joined.island_epoch}
        self._secret = joined.session_secret.hex()
        threading.Thread(target=self._live, daemon=True).start()
        return self

    def heartbeat(self):
        return self.islands.Heartbeat(
            metadata=(("atoll-session", self._secret),), **self._member)

    def _live(self):
        while not self._stop.wait(0.5):
            try:
                self.heartbeat()
            except grpc.RpcError:
                return


class SybilsTest(gated.GatedTest):

    def test_idle_names_yield_their_shards_and_go_with_their_token(self):
        cluster = self.cluster
        self.start()
        self.create_run(RUN)
        leaked = self.token("--uses=%d" % SHARDS)
        idlers = [Idler(self, "idle-%d" % i, leaked).join()
                  for i in range(SHARDS)]
        cluster.start_volunteer("volunteer-0", self.token())
        cluster.wait_commits(1)
        lost = [i for i in idlers if client.error_or_none(i.heartbeat)]
        self.assertEqual(len(lost), 1)
        self.assertEqual(client.error_of(lost[0].heartbeat).reason,
                         "LEASE_ENDED")
        # It takes no shard of the others, which are idle too.
        self.assertEqual(client.error_of(lost[0].join).reason, "NO_DATA_SHARD")

        token_id = re.search("atj1_(.{12})", leaked).group(1)
        done = cluster.run_cli("token", "revoke", "--islands", token_id,
                               check=0)
        self.assertIn("%d names" % SHARDS, done.stdout)
        for idler in idlers:
            error = client.error_of(idler.join)
            self.assertEqual((error.code, error.reason), (DENIED, "REVOKED"))
        again = self.join(leaked, "-o", "json", state="idle-0.state")
        self.assertEqual(again.returncode, FORBIDDEN, again.stdout)
        # One event, and room for two others at once.
        self.assertEqual(self.actions().count("token.revoke"), 1)
        for name in ("volunteer-1", "volunteer-2"):
            cluster.start_volunteer(name, self.token())

        def merged():
            cluster.check_alive()
            return {c.island_id for r in cluster.rounds()
                    for c in r.contributions
                    if c.outcome == cluster_module.MERGED}

        wait.until("three islands are merged",
                   lambda: len(merged()) == SHARDS)


    # --- A leaked string --------------------------------------------------------

    def test_a_leaked_string_has_few_uses_and_frees_its_names(self):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run(RUN, {"server_count": 1})
        cluster.run_cli("token", "create", "--run", "run", "--uses", "513",
                        check=USAGE)
        # The string itself says how many it admits: one.
        once = self.token()
        Idler(self, "idle-0", once)
        error = json.loads(self.join(once, "-o", "json", state="other").stdout)
        self.assertEqual(error["error"]["reason"], "TOKEN_USED")
        # Seven more strings have the run's room, but for the one name.
        strings = [self.token("--uses=512") for _ in range(7)]
        full = cluster.run_cli("token", "create", "--run", "run",
                               "--uses=512", "-o", "json", check=None)
        self.assertEqual(json.loads(full.stdout)["error"]["reason"],
                         "TOO_MANY_IDENTITIES")
        leaked = strings.pop()
        taken = Idler(self, "idle-1", leaked, "--island-id=attic")
        token_id = re.search("atj1_(.{12})", leaked).group(1)
        cluster.run_cli("token", "revoke", "--islands", token_id, check=0)
        again = Idler(self, "idle-2", self.token("--uses=512"),
                      "--island-id=attic")
        self.assertEqual(again.name, taken.name)
        again.join()
        self.assertEqual(client.error_of(taken.join).reason, "NOT_ENROLLED")
        # Events of operators and strangers are one list, in order.
        events = self.audit()
        numbers = [int(e["number"]) for e in events]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual([e["action"] for e in events if e["action"] in (
            "token.revoke", "island.enrol")],
            ["island.enrol"] * 2 + ["token.revoke", "island.enrol"])

    # --- Two issuers ------------------------------------------------------------

    def test_no_stranger_has_the_name_of_an_operators_island(self):
        cluster = self.cluster
        self.start()
        self.create_run(RUN)
        stranger = Idler(self, "idle-0", self.token(),
                         "--island-id=island-0").join()
        self.assertEqual(stranger.name, "e-island-0")
        cluster.start_island("run", "island-0")
        cluster.wait_commits(1)
        self.assertEqual({i.island_id for i in cluster.islands()},
                         {"island-0", "e-island-0"})
        # Revoking the one does not ban the other.
        cluster.run_cli("island", "revoke", "run", stranger.name, check=0)
        self.assertEqual(client.error_of(stranger.join).reason, "REVOKED")
        cluster.kill("island-0")
        cluster.restart("island-0")
        cluster.wait_commits(cluster.run_state().commit_seq + 2)
        for role in ("island", "reader"):
            processes.run_cli(
                "ca", "issue", "--dir", self.security.ca, "--role", role,
                "--id", "e-island-0", "--out",
                os.path.join(self.root, "e-" + role), check=USAGE)

    def test_the_island_cas_key_makes_no_member(self):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run(RUN, {"server_count": 1})
        cluster.start_volunteer("volunteer-0", self.token("--name=attic"))
        cluster.wait_commits(1)
        attic = self.enrolled("volunteer-0")
        uri = re.search(r"URI:(\S+/e-attic)", subprocess.run(
            ["openssl", "x509", "-in", attic.cert, "-noout", "-ext",
             "subjectAltName"], check=True, capture_output=True,
            text=True).stdout).group(1)
        root = os.path.join(self.root, "thief")
        os.makedirs(root)
        thief = certificates.Authority.of(
            root, os.path.join(self.gate_dir, "island-ca.crt"),
            os.path.join(self.gate_dir, "island-ca.key"),
            os.path.join(self.gate_dir, "ca.crt"))
        for name in ("e-attic", "e-cellar"):
            forged = thief.issue("atoll:island:" + name, uses="clientAuth",
                                 uri=uri.replace("e-attic", name))
            control = self.caller(cluster.coordinator_address, forged)
            data = self.caller(cluster.server_address("server-0"), forged)
            for service, method, fields in (
                    (control.service("RunService"), "GetRun", {}),
                    (control.service("IslandService"), "Join",
                     {"island_id": name}),
                    (data.service("ParameterService"), "PullParameters", {})):
                error = client.error_of(getattr(service, method), run_id="run",
                                        **fields)
                self.assertEqual(error.reason, "NOT_ENROLLED",
                                 (name, method, str(error)))
        # The member with the name stays the one that it was.
        cluster.wait_commits(cluster.run_state().commit_seq + 2)
        self.assertEqual([i.island_id for i in cluster.islands()], ["e-attic"])


if __name__ == "__main__":
    cases.main()
