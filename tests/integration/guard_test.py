#!/usr/bin/python3
"""A poisoned commit is seen before a checkpoint holds it, and one command
brings the run back."""

import grpc

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import toy
from harness import wait

PAUSE = 2  # GUARD_ACTION_PAUSE.
BAND = 16  # Commits that make the band.


class GuardTest(cluster_module.IntegrationTest):

    def start(self, *changes):
        self.members = toy.start(
            self.cluster, {"checkpoint_every_round_count": 1,
                           "schedule": {"round_count": 1000}}, *changes)

    def play(self, round_count):
        for version in range(round_count):
            toy.play_round(self.members, version, cases.seed())

    def sha256_of(self, pin_id):
        """SHA-256 of the parameters of a new pin."""
        pinned = self.cluster.pin(pin_id=pin_id)
        layout = arithmetic.LayoutView(pinned.run.spec.layout)
        return layout.parameters_sha256(self.cluster.parameters(pinned=pinned))

    def poison(self, version):
        """Each member pushes 1e30 for every parameter."""
        for member in self.members:
            member.wait_open(version)
        for member in self.members:
            count = member.layout.fragments[0].element_count
            member.contribution([1e30] * count, version).push()
        for member in self.members:
            member.wait_version(version + 1)

    def test_the_run_pauses_and_one_command_goes_back(self):
        cluster = self.cluster
        self.start({"guard": {"on_norm": PAUSE}})
        self.play(BAND + 1)
        newest = "round-%d" % (BAND + 1)
        good = self.sha256_of("good")
        cluster.wait_durable(newest)
        self.poison(BAND + 1)
        cluster.wait_state(cluster_module.PAUSED)
        run = cluster.run_state().run
        command = "atoll run restore run --from %s" % newest
        for words in ("commit %d" % (BAND + 2), "e+", "above", command):
            self.assertIn(words, run.state_reason)
        self.assertNotIn("round-%d" % (BAND + 2), cluster.checkpoints())
        self.assertNotEqual(self.sha256_of("bad"), good)
        shown = cluster.run_cli("run", "show", "run", check=0).stdout
        self.assertIn("outside the run's band", shown)
        listed = cluster.run_cli("round", "list", "run", check=0).stdout
        self.assertIn("!%d" % (BAND + 2), listed)
        # A restart of the coordinator forgets none of it.
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        cluster.wait_state(cluster_module.PAUSED)

        cluster.run_cli(*command.split()[1:], "--yes", check=0)
        cluster.wait_state(cluster_module.ACTIVE)

        def is_back():
            try:
                return self.sha256_of("back") == good
            except grpc.RpcError:  # A shard has not gone back yet.
                return False

        wait.until("the parameters are those of the checkpoint", is_back)


if __name__ == "__main__":
    cases.main()
