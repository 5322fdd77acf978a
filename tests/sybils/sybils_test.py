#!/usr/bin/python3
"""One person with many names against a run and its other islands."""

import json
import os
import re
import sys
import threading

import grpc

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import client  # noqa: E402
from harness import gated  # noqa: E402
from harness import run_file  # noqa: E402
from harness import wait  # noqa: E402

DENIED = grpc.StatusCode.PERMISSION_DENIED
PREFLIGHT, FORBIDDEN = 10, 7
# A run whose rounds end soon; all of its data shards can be held.
SHARDS = 3
RUN = run_file.merged(run_file.ELASTIC, {
    "schedule": {"round_deadline": "1s"},
    "data": {"data_shard_count": SHARDS}})


class Idler:
    """An enrolled island that holds what it gets and does nothing."""

    def __init__(self, test, name, string):
        # It enrols, and does not join: the machine lends too little.
        test.join(string, "--memory=1MB", state=name + ".state",
                  check=PREFLIGHT)
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
            return any(len([c for c in r.contributions]) == SHARDS
                       for r in cluster.rounds())

        wait.until("a round has three contributions", merged)


if __name__ == "__main__":
    cases.main()
