#!/usr/bin/python3
"""Islands that push without end fill no server's disk.

All islands of a token have one total of undecided contributions, also in a
paused run. A revocation discards what the revoked island has pushed.
"""

import grpc

from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import damage
from harness import gated
from harness import run_file
from harness import wait

# Islands in Python send no heartbeat.
PATIENT = {"schedule": {"lease_duration": "600s"}}
VOLUNTEERS = ["v0", "v1", "v2"]
TRIES = 8  # Beyond every limit of one island.


class UndecidedTest(gated.GatedTest):

    def start_paused(self):
        """A paused run; a member for each volunteer, with its certificate."""
        cluster = self.cluster
        self.start(server_count=1)
        self.create_run(run_file.ELASTIC, PATIENT, {
            "server_count": 1, "data": {"data_shard_count": 8}})
        cluster.wait_state(cluster_module.ACTIVE)
        cluster.run_cli("run", "pause", "run", check=0)
        token = self.token("--uses=%d" % len(VOLUNTEERS))
        for name in VOLUNTEERS:
            cluster.start_volunteer("volunteer-" + name, token,
                                    arguments=["--island-id=" + name])
        wait.until("they are members",
                   lambda: len(cluster.islands()) == len(VOLUNTEERS))
        for name in VOLUNTEERS:
            cluster.kill("volunteer-" + name)
        return [self.member(self.enrolled("volunteer-" + name), "e-" + name)
                for name in VOLUNTEERS]

    def begin(self, member):
        """Begins a push, and sends no block. True if it was admitted."""
        member.newest_plan()
        contribution = member.contribution(member.random_values("x"), 0)

        def answered():
            error = client.error_of(
                lambda: contribution.push_to(0, chunks=[]))
            if error.reason == "NOT_A_MEMBER":
                return None  # The server's plan is older than the Join.
            if (error.code == grpc.StatusCode.UNAVAILABLE and
                    error.reason != "BLOCKS_MISSING"):
                return None  # It starts, or its plan is older.
            return error

        error = wait.until("the server answers", answered)
        self.assertIn((error.code, error.reason), [
            (grpc.StatusCode.UNAVAILABLE, "BLOCKS_MISSING"),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CONTRIBUTIONS")],
                      str(error))
        return error.reason == "BLOCKS_MISSING"

    def fill(self, member):
        return sum(self.begin(member) for _ in range(TRIES))

    def segment_count(self):
        self.cluster.check_alive()
        return damage.segment_count(self.cluster, "server-0")

    def test_a_token_has_a_total_and_a_revocation_frees_its_part(self):
        members = self.start_paused()
        counts = [self.fill(member) for member in members]
        # Two of each island and two more; the last island's first one is always
        # admitted.
        self.assertEqual(counts, [4, 4, 1])
        own = self.member(self.security.certificate(
            self.security.issue("island", "own")), "own")
        self.assertEqual(self.fill(own), 4)
        self.assertEqual(self.segment_count(), 13)
        # Not even a restart makes room.
        self.cluster.kill("server-0")
        self.cluster.restart("server-0")
        self.assertFalse(self.begin(members[0]))
        self.cluster.run_cli("island", "revoke", "run", "e-v0", check=0)
        wait.until("its contributions are gone",
                   lambda: self.segment_count() == 9)
        error = client.error_of(self.begin, members[0])
        self.assertEqual(error.code, grpc.StatusCode.PERMISSION_DENIED,
                         str(error))
        self.assertTrue(self.begin(members[2]), "there is room again")


if __name__ == "__main__":
    cases.main()
