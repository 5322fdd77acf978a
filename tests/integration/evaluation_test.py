#!/usr/bin/python3
"""An island with a token writes no validation loss of a run that has another.
"""

import json

import grpc

from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import gated
from harness import run_file
from harness import wait

EVALUATED = {"evaluation": {"every_round_count": 1},
             # Islands in Python send no heartbeat.
             "schedule": {"lease_duration": "600s"}}
FALSE_LOSS = 0.0001
VERSIONS = 4


class EvaluationTest(gated.GatedTest):

    def claim(self, member, versions):
        member.service.ReportProgress(
            evaluations=[{"version": version, "loss": FALSE_LOSS,
                          "token_count": 1} for version in versions],
            metadata=member.metadata, **member.who)

    def test_only_an_operators_island_writes_the_loss(self):
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run(run_file.ELASTIC, EVALUATED, {"server_count": 1})
        cluster.wait_state(cluster_module.ACTIVE)
        cluster.run_cli("run", "pause", "run", check=0)
        cluster.start_volunteer("volunteer-0", self.token(),
                                arguments=["--island-id=attic"])
        wait.until("it is a member", lambda: len(cluster.islands()) == 1)
        cluster.kill("volunteer-0")
        attic = self.member(self.enrolled("volunteer-0"), "e-attic")
        cluster.start_island("run", "island-0")
        wait.until("both are members", lambda: len(cluster.islands()) == 2)
        cluster.run_cli("run", "resume", "run", check=0)

        def evaluated():
            cluster.check_alive()
            version = attic.newest_plan().cut[0].version
            # Before anybody else, once more later, and with a false name.
            self.claim(attic, range(1, version + 2))
            return cluster.run_state().evaluation.version >= VERSIONS

        wait.until("versions are evaluated", evaluated)
        rounds = json.loads(cluster.run_cli(
            "round", "list", "run", "-o", "json", check=0).stdout)
        kept = [r["evaluation"] for r in rounds["data"]["rounds"]
                if "evaluation" in r]
        self.assertGreaterEqual(len(kept), VERSIONS - 1)
        for evaluation in kept:
            self.assertGreater(evaluation["loss"], 1)
            self.assertEqual(evaluation["island_id"], "island-0")
        shown = cluster.run_cli("run", "show", "run", check=0).stdout
        self.assertRegex(shown, r"validation loss .*, by island-0\n")
        error = client.error_of(lambda: attic.service.ReportProgress(
            island_id="island-0", run_id="run", island_epoch=1,
            metadata=attic.metadata))
        self.assertEqual(error.code, grpc.StatusCode.PERMISSION_DENIED)


if __name__ == "__main__":
    cases.main()
