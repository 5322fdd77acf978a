#!/usr/bin/python3
"""Control connections that a NAT forgets: nothing arrives, nobody is told.

The coordinator loses the island, the island opens another connection and joins
again. No answer about the membership before that ends it, no bit changes. A
process of the same island that really is newer ends the older one.
"""

from harness import cases
from harness import cluster as cluster_module
from harness import cutter
from harness import run_file
from harness import wait

FORGET_COUNT = 3
ISLANDS = ["island-%d" % i for i in range(3)]
# Much shorter than the time in which a dead connection is found.
LEASE = {"schedule": {"lease_duration": "3s"}}


class NatTest(cluster_module.IntegrationTest):

    def start(self, values):
        cluster = self.cluster
        cluster.start_service()
        nat = cutter.Nat()
        self.addCleanup(nat.close)
        nat.forward_to(cluster.coordinator_address)
        cluster.dial_through("island", nat.address)
        cluster.create_run(values)
        cluster.start_islands()
        return nat

    def epochs(self):
        return {i.island_id: i.island_epoch for i in self.cluster.islands()}

    def forget(self, nat):
        """Forgets the islands' flows; waits until all have joined again."""
        cluster = self.cluster
        cluster.wait_commits(cluster.run_state().commit_seq + 2)
        before = self.epochs()
        nat.forget()

        def rejoined():
            cluster.check_alive()
            now = self.epochs()
            return all(now[name] > before[name] for name in ISLANDS)

        wait.until("all islands join again", rejoined)

    def test_a_strict_run_joins_again_and_keeps_its_bits(self):
        values = self.run_values(LEASE, {"schedule": {"round_count": 30}})
        undisturbed = self.new_cluster("undisturbed")
        reference = self.run_strict(undisturbed, values)
        undisturbed.close()
        nat = self.start(values)
        for _ in range(FORGET_COUNT):
            self.forget(nat)
        self.assertEqual(self.finish_strict(self.cluster, values), reference)

    def test_an_elastic_run_joins_again(self):
        nat = self.start(self.run_values(run_file.ELASTIC, LEASE))
        for _ in range(FORGET_COUNT):
            self.forget(nat)
        self.cluster.wait_commits(self.cluster.run_state().commit_seq + 2)

    def test_a_newer_process_of_an_island_ends_the_older_one(self):
        cluster = self.cluster
        self.start(self.run_values(run_file.ELASTIC, LEASE))
        cluster.wait_commits(1)
        older = cluster.processes["island-0"]
        cluster.may_end("island-0")
        cluster.start_island("run", "island-0", name="newer")
        self.assertEqual(older.wait(), 9, older.tail())
        self.assertIn("another process joined as this island", older.tail())
        cluster.wait_commits(cluster.run_state().commit_seq + 2)


if __name__ == "__main__":
    cases.main()
