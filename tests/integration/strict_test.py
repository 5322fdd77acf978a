#!/usr/bin/python3
"""Undisturbed strict runs: the same bits for any distribution of the work."""

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import processes


class StrictRunTest(cluster_module.IntegrationTest):

    def reference(self):
        """SHA-256 of three islands with one thread, two servers."""
        return self.once("reference", lambda cluster: self.run_strict(
            cluster, self.run_values()))

    def test_a_run_goes_from_create_to_exported_model(self):
        values = self.run_values()
        cluster = self.cluster
        sha = self.run_strict(cluster, values)
        # The exporting client computes the same digest of the same cut.
        self.assertEqual(cluster.export_sha256(), sha)
        state = cluster.run_state()
        self.assertEqual(state.merged_token_count, 3 * 4 * 3 * 2 * 32)
        self.assertEqual([f.version for f in state.cut], [4])
        self.assertTrue(state.HasField("evaluation"), state)
        for island in cluster.islands():
            self.assertEqual(island.merged_count, 4, island)
            self.assertEqual(island.unmerged_count, 0, island)
        for index in range(3):
            process = cluster.processes["island-%d" % index]
            self.assertEqual(process.wait(), 0, process.tail())

    def test_the_layout_is_cut_as_the_contract_says(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(self.run_values())
        run = cluster.runs.GetRun(run_id="run").run
        layout = arithmetic.LayoutView(run.spec.layout)
        self.assertEqual(layout.fingerprint(), run.layout_fingerprint)

    def test_one_server_gives_the_same_bits(self):
        self.assertEqual(
            self.run_strict(self.cluster, self.run_values({"server_count": 1})),
            self.reference())

    def test_three_servers_give_the_same_bits(self):
        self.assertEqual(
            self.run_strict(self.cluster, self.run_values({"server_count": 3})),
            self.reference())

    def test_more_servers_than_blocks_give_the_same_bits(self):
        # Some shards hold nothing of a fragment; no round waits for them.
        values = self.run_values({"server_count": 5})
        self.assertEqual(self.run_strict(self.cluster, values),
                         self.reference())

    def test_islands_in_another_order_give_the_same_bits(self):
        self.assertEqual(
            self.run_strict(self.cluster, self.run_values(),
                            islands=["island-2", "island-0", "island-1"]),
            self.reference())

    def test_two_threads_give_the_same_bits(self):
        self.assertEqual(
            self.run_strict(self.cluster, self.run_values(), threads=2),
            self.reference())

    def test_durability_machine_gives_the_same_bits(self):
        values = self.run_values({"durability": "machine"})
        self.assertEqual(self.run_strict(self.cluster, values),
                         self.reference())

    def test_another_seed_gives_other_bits(self):
        values = self.run_values({"init": {"seed": 8}})
        self.assertNotEqual(self.run_strict(self.cluster, values),
                            self.reference())

    def test_two_fragments_commit_each_round_once(self):
        values = self.run_values({"layout": {"fragment_count": 2}})
        self.run_strict(self.cluster, values)


class DevUpTest(cluster_module.IntegrationTest):

    def test_dev_up_runs_it_all_and_resumes_where_it_was(self):
        values = self.run_values()
        path = self.cluster.write_run_file(values, "dev")
        directory = self.root + "/dev-up"
        # Its programs have no TLS, whatever this user's other runs have.
        done = processes.run_cli("dev", "up", path, "--dir", directory,
                                 "--servers", "2", "--islands", "3", check=0,
                                 env={"ATOLL_TLS_DIR": self.root + "/tls"})
        self.assertIn("endpoints.json", "".join(_files(directory)))
        # Restarted on an ended run, it says so and exits.
        again = processes.run_cli("dev", "up", path, "--dir", directory,
                                  "--servers", "2", "--islands", "3")
        self.assertEqual(again.returncode, 0, done.stderr + again.stderr)
        # A directory of one run takes no other, and loses nothing.
        before = _files(directory)
        other = self.cluster.write_run_file(values, "other")
        refused = processes.run_cli("dev", "up", other, "--dir", directory,
                                    "-o", "json", check=9)
        self.assertIn("DIRECTORY_OF_OTHER_RUN", refused.stdout)
        self.assertEqual(_files(directory), before)


def _files(directory):
    import os
    return sorted(os.listdir(directory))


if __name__ == "__main__":
    cases.main()
