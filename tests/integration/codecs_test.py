#!/usr/bin/python3
"""Encoded contributions from end to end.

Every codec: the same bits on any number of servers, with deaths during pushes,
and with error feedback in the local checkpoint. Islands in Python, which know
the formats only from their manuals, check the merge of encoded contributions
and send bytes that no encoder writes.
"""

import grpc

from harness import arithmetic
from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import codecs
from harness import python_island
from harness import toy

# Codec, further keys of [exchange], and the failpoint.
RUNS = {
    "bf16": ({}, ("server-0", "server.chunk.after@3")),
    "bf16_stochastic": ({"seed": 9}, ("island-2", "island.push.before@2")),
    "int8": ({"error_feedback": True}, ("server-1", "server.stored.before@2")),
    "e3m0": ({"error_feedback": True}, ("island-0", "island.save.before@3")),
    "two_bit": ({"error_feedback": True, "error_feedback_decay": 0.95},
                ("server-0", "server.prepared.after@2")),
    "top_k": ({"error_feedback": True, "error_feedback_decay": 0.95},
              ("island-1", "island.save.after@3")),
}

# Further failpoints of the island with error feedback. Each resumes from
# another part of the local checkpoint.
LIVES = ["island.push.before@3", "island.pushed.after@3",
         "island.pulled.after@3"]


def exchange(name):
    return {"exchange": dict(RUNS[name][0], up=name)}


class CodecRunTest(cluster_module.IntegrationTest):

    def reference(self, name):
        """SHA-256 of the undisturbed run with one server, and its spec."""
        values = self.run_values(exchange(name), {"server_count": 1})

        def make(cluster):
            sha = self.run_strict(cluster, values)
            spec = cluster.spec()
            spec.server_count = 2
            return sha, spec

        return self.once(name, make)

    def kill_at(self, name, victim, point):
        sha, spec = self.reference(name)
        self.assert_a_death_changes_no_bit(
            self.cluster, self.run_values(), sha, victim, point,
            lambda armed: self.cluster.start_armed(spec, armed))

    def test_three_servers_at_level_island_give_the_same_bits(self):
        values = self.run_values(exchange("top_k"), {
            "server_count": 3, "durability": "island"})
        self.assertEqual(self.run_strict(self.cluster, values),
                         self.reference("top_k")[0])

    def test_chunks_of_several_cells_at_level_island_give_the_same_bits(self):
        # Two hundred blocks: a chunk of int8 has three cells of a live merge.
        values = self.run_values(exchange("int8"), {
            "model": {"hidden_size": 256, "intermediate_size": 512,
                      "layer_count": 1},
            "schedule": {"round_count": 2, "inner_step_count": 1},
            "server_count": 1})
        expected = self.run_strict(self.new_cluster("process"), values)
        self.assertEqual(
            self.run_strict(self.cluster,
                            dict(values, durability="island")), expected)

    def test_what_travels_is_encoded_and_a_run_says_so(self):
        cluster = self.cluster
        self.run_strict(cluster, self.run_values(exchange("int8")))
        state = cluster.run_state()
        layout = cluster.runs.GetRun(run_id="run").run.spec.layout
        elements = arithmetic.LayoutView(layout).fragments[0].element_count
        # Three islands, four rounds; a scale for every 256 elements of a tensor.
        self.assertGreater(state.sent_bytes, 12 * elements)
        self.assertLess(state.sent_bytes, 12 * elements * 1.05)
        # Nothing was pushed twice, so the rounds' own count is the same.
        self.assertEqual(sum(c.payload_bytes for r in cluster.rounds()
                             for c in r.contributions), state.sent_bytes)
        shown = cluster.run_cli("run", "show", "run", check=0).stdout
        self.assertIn("int8 up with error feedback, f32 down", shown)


def _add_cases():
    for name, (_, death) in RUNS.items():
        deaths = [death]
        if name == "top_k":
            deaths += [("island-1", point) for point in LIVES]
        for victim, point in deaths:
            def case(self, name=name, victim=victim, point=point):
                self.kill_at(name, victim, point)
            title = "test_%s_with_a_death_at_%s" % (
                name, point.split("@")[0].replace(".", "_"))
            setattr(CodecRunTest, title, case)


_add_cases()


class EncodedMergeTest(cluster_module.IntegrationTest):
    """Islands in Python: theta = theta - mean(decoded contributions)."""

    def start(self):
        return toy.start(self.cluster, {"exchange": {"up": codecs.Int8.number}})

    def theta(self, members, version):
        run = self.cluster.runs.GetRun(run_id="run").run
        return arithmetic.from_bytes(python_island.pull(
            self.cluster, run, members[0].plan.shards, version))

    def test_a_merge_is_the_mean_of_what_the_formats_say(self):
        members = self.start()
        before = self.theta(members, 0)
        for member in members:
            member.wait_open(0)
        sent = []
        for member in members:
            values = member.random_values("%s %d" % (cases.seed(),
                                                     member.slot))
            made = member.contribution(values, 0, codec=codecs.Int8)
            made.push()
            sent.append(codecs.decode(codecs.Int8, made.payload,
                                      made.block_offsets))
        members[0].wait_version(1)
        after = self.theta(members, 1)
        f32 = arithmetic.f32
        expected = [f32(t - f32(f32(0.5 * a) + f32(0.5 * b)))
                    for t, a, b in zip(before, *sent)]
        self.assertEqual(list(after), expected)

    def push_bytes(self, member, change):
        made = member.contribution(member.random_values(1), 0,
                                   codec=codecs.Int8)
        made.change_payload(change)
        return made, client.error_of(made.push)

    def test_bytes_that_no_encoder_writes_are_refused(self):
        members = self.start()
        for member in members:
            member.wait_open(0)

        def bad_scale(data):
            data[1] = 0xff

        def bad_code(data):
            data[-1] = 0x80

        pushed = []
        for member, change in zip(members, (bad_scale, bad_code)):
            made, error = self.push_bytes(member, change)
            self.assertEqual(error.code, grpc.StatusCode.INVALID_ARGUMENT)
            self.assertEqual(error.reason, "MALFORMED", str(error))
            pushed.append(made)
        for member, made in zip(members, pushed):
            outcome = member.wait_outcome(made.seq)
            self.assertEqual(outcome.outcome, cluster_module.REJECTED)
            self.assertIn("block", outcome.reason)

    def test_another_codec_than_the_runs_is_refused(self):
        members = self.start()
        members[0].wait_open(0)
        made = members[0].contribution(members[0].random_values(1), 0)
        self.assertEqual(client.error_of(made.push).reason, "OTHER_CODEC")

    def test_what_makes_no_sense_is_refused_at_creation(self):
        self.cluster.start_coordinator()
        for change, field in (
                ({"exchange": {"up": 6}}, "exchange.error_feedback"),
                ({"exchange": {"up": 7}}, "exchange.error_feedback"),
                ({"exchange": {"error_feedback": True}},
                 "exchange.error_feedback"),
                ({"exchange": {"up": 4, "error_feedback": True},
                  "schedule": {"sample_fraction": 0.5}},
                 "exchange.error_feedback"),
                ({"exchange": {"up": 4, "error_feedback": True,
                               "error_feedback_decay": 1.5}},
                 "exchange.error_feedback_decay"),
                ({"exchange": {"up": 9}}, "exchange.up"),
                ({"exchange": {"up": 7, "error_feedback": True},
                  "outer": {"merge": toy.MEDIAN}}, "outer.merge.rule")):
            with self.assertRaises(Exception) as caught:
                toy.create(self.cluster, change)
            self.assertIn("spec." + field, str(caught.exception))


if __name__ == "__main__":
    cases.main()
