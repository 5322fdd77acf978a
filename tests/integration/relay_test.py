#!/usr/bin/python3
"""A run whose every message goes through a relay that misbehaves.

Half of the messages between islands, servers and the coordinator are
duplicated, delayed, reordered or cut. The run ends with the bits of the
undisturbed run, and nothing is counted twice.
"""

import collections

from harness import cases
from harness import cluster as cluster_module
from harness import relay

# Large enough that a shard is pushed in several chunks, and little to train.
MODEL = {"model": {"hidden_size": 256, "intermediate_size": 512,
                   "layer_count": 3, "sequence_length": 8},
         "inner": {"batch_size": 1},
         "schedule": {"round_count": 5, "inner_step_count": 1}}


class RelayTest(cluster_module.IntegrationTest):

    def start_relay(self, name):
        made = relay.Relay("%d %s" % (cases.seed(), name), self.push_classes)
        self.addCleanup(made.close)
        return made

    def push_classes(self):
        push = self.cluster.client(self.cluster.server_address(
            "server-0")).service("ParameterService").PushOuterGradient
        return push.request_class, push.response_class

    def test_messages_twice_late_and_out_of_order_change_no_bit(self):
        self.expect_no_bit_changes(self.run_values(MODEL))

    def test_encoded_contributions_with_error_feedback_neither(self):
        # bf16 halves the bytes: a larger model for as many chunks.
        self.expect_no_bit_changes(self.run_values(MODEL, {
            "model": {"layer_count": 5},
            "exchange": {"up": "bf16", "error_feedback": True}}))

    def expect_no_bit_changes(self, values):
        undisturbed = self.new_cluster("undisturbed")
        reference = self.run_strict(undisturbed, values)
        undisturbed.close()

        cluster = self.cluster
        cluster.start_coordinator()
        control = {who: self.start_relay(who) for who in ("server", "island")}
        for who, made in control.items():
            made.forward_to(cluster.coordinator_address)
            cluster.dial_through(who, made.address)
        data = []
        for index in range(2):
            name = "server-%d" % index
            made = self.start_relay(name)
            cluster.start_server(name, arguments=["--advertise=" +
                                                  made.address])
            made.forward_to(cluster.server_address(name))
            data.append(made)
        cluster.create_run(values)
        cluster.start_islands()
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)

        self.assertEqual(cluster.parameters_sha256(), reference)
        self.assert_mischief(data + list(control.values()))

    def assert_mischief(self, relays):
        """Checks that every kind of fault happened."""
        counts = sum((r.counts for r in relays), collections.Counter())
        print(dict(counts), flush=True)
        for name in ("twice", "delayed", "replayed ReportShards",
                     "old WatchServerPlan", "old WatchPlan", "pull twice",
                     "pull cut", "chunks out of order", "chunk twice",
                     "chunk over both streams", "second stream", "push cut",
                     "push again"):
            self.assertGreater(counts[name], 0, name)
        self.assertTrue([n for n in relays[-1].counts
                         if n.startswith(("replayed Report",
                                          "replayed Heartbeat"))],
                        relays[-1].counts)


if __name__ == "__main__":
    cases.main()
