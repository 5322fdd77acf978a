#!/usr/bin/python3
"""Versions in a lossy codec: strict runs keep their bits over servers and
kills, islands hold the servers' replica, and an export is theta."""

import array
import struct

import grpc

from harness import arithmetic
from harness import cases
from harness import cluster as cluster_module
from harness import python_island
from harness import run_file
from harness import toy
from harness import wait

PARAMETERS, REPLICA, CHAIN = 1, 2, 3
F32, BF16 = 1, 2


class StrictDownlinkTest(cluster_module.IntegrationTest):
    def values(self, down, *changes):
        return self.run_values({"exchange": {"down": down, "seed": 5}},
                               *changes)

    def expect_same_bits(self, down, points, *changes):
        """`points`: the process and failpoint of each run."""
        values = self.values(down, *changes)
        undisturbed = self.new_cluster("undisturbed")
        expected = self.run_strict(undisturbed, values)
        self.assertEqual(undisturbed.export_sha256(), expected)
        spec = undisturbed.spec()
        undisturbed.close()
        for index, (victim, point) in enumerate(points):
            cluster = self.new_cluster("killed-%d" % index)
            self.assert_a_death_changes_no_bit(
                cluster, values, expected, victim, point,
                lambda armed: cluster.start_armed(spec, armed))
            cluster.close()
        return expected

    def test_bf16_keeps_its_bits_over_servers(self):
        expected = self.run_strict(self.cluster, self.values("bf16"))
        for count in (1, 3):
            cluster = self.new_cluster("servers-%d" % count)
            self.assertEqual(
                self.run_strict(cluster,
                                self.values("bf16", {"server_count": count})),
                expected)
            cluster.close()
        f32 = self.new_cluster("f32")
        self.assertNotEqual(self.run_strict(f32, self.values("f32")), expected)

    def test_bf16_keeps_its_bits_when_a_server_is_killed(self):
        self.expect_same_bits("bf16", [
            # COMMIT is known, nothing of the version is on the disk.
            ("server-0", "server.commit.after@2"),
            # Version and delta are on the disk, STATE is not.
            ("server-1", "server.state.renamed@2"),
            # The newest version's file leaves the replica out.
            ("server-0", "server.state.after@1"),
        ])

    def test_two_bit_keeps_its_bits_at_level_island(self):
        # Versions outlive their contributions; the deltas are recomputed.
        self.expect_same_bits("two_bit", [
            ("server-0", "server.prepared.after@2"),
            # Recomputed from version 1, whose file leaves the replica out.
            ("server-1", "server.commit.after@2"),
        ], {"durability": "island"})

    def test_int8_keeps_its_bits_when_an_island_is_killed(self):
        self.expect_same_bits("int8", [
            # In a round: it restarts from the replica of its cut.
            ("island-1", "island.trained.after@5"),
            # It already has the next version.
            ("island-2", "island.pulled.after@3"),
            ("server-0", "server.state.after@3"),
        ], {"exchange": {"up": "int8", "error_feedback": True}})

    def test_every_other_codec_goes_to_the_end(self):
        seen = set()
        for down in ("bf16_stochastic", "e3m0", "two_bit", "top_k"):
            cluster = self.new_cluster(down)
            sha256 = self.run_strict(
                cluster, self.values(down, {"schedule": {"round_count": 2}}))
            self.assertEqual(cluster.export_sha256(), sha256)
            seen.add(sha256)
            cluster.close()
        self.assertEqual(len(seen), 4)


class ElasticDownlinkTest(cluster_module.IntegrationTest):

    def test_an_island_joins_in_the_middle_and_one_comes_back(self):
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(self.run_values(
            run_file.ELASTIC, {"exchange": {"down": "int8"},
                               "schedule": {"island_count_min": 2}}))
        cluster.start_islands(count=2)
        cluster.wait_commits(3)
        cluster.start_island("run", "island-2")
        cluster.kill("island-0")
        cluster.wait_commits(8)
        cluster.restart("island-0")
        cluster.wait_commits(12)
        self.assert_rounds_whole(cluster, {})
        slots = {c.info.key.slot for r in cluster.rounds()
                 for c in r.contributions}
        self.assertEqual(slots, {0, 1, 2})


class WireTest(cluster_module.IntegrationTest):
    """The contract from the view of an island in another language."""

    def pull(self, run, plan, version, **fields):
        """Pulls from all shards: [(header, [(first, count, payload)])]."""
        answers = []
        for shard, placement in enumerate(plan.shards):
            service = self.cluster.client(placement.address).service(
                "ParameterService")

            def pulled():
                try:
                    return list(service.PullParameters(
                        run_id=run.run_id, version=version, shard=shard,
                        layout_fingerprint=run.layout_fingerprint, **fields))
                except grpc.RpcError as error:
                    # The server's plan may be behind the islands'.
                    if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
                        raise
                    return None

            responses = wait.until("shard %d has the version" % shard, pulled)
            chunks = []
            for response in responses[1:]:
                chunk = response.chunk
                crc = arithmetic.chunk_crc(0, 0, 0, 0, chunk.codec,
                                           chunk.first_block,
                                           chunk.block_count, chunk.payload)
                self.assertEqual(crc, chunk.crc32c)
                chunks.append((chunk.first_block, chunk.block_count,
                               chunk.payload))
            answers.append((responses[0].header, chunks))
        return answers

    def full_view(self, run, plan, version):
        data = b""
        for header, chunks in self.pull(run, plan, version, content=REPLICA):
            self.assertEqual(header.content, REPLICA)
            self.assertEqual(header.codec, F32)
            data += b"".join(payload for _, _, payload in chunks)
        return data

    def replay(self, run, plan, held, from_version, version):
        """The replica of `version`, from `from_version`'s; bf16 in Python."""
        layout = arithmetic.LayoutView(run.spec.layout)
        replica = array.array("f", held)
        digests = []
        for header, chunks in self.pull(run, plan, version, content=REPLICA,
                                        from_version=from_version):
            self.assertEqual(header.content, CHAIN)
            self.assertEqual(header.codec, BF16)
            self.assertEqual(header.from_version, from_version)
            self.assertEqual(len(chunks) % (version - from_version), 0)
            digests.append((header.digest.high, header.digest.low))
            for first, count, payload in chunks:
                offsets = layout.fragments[0].block_offsets
                begin, end = offsets[first], offsets[first + count]
                self.assertEqual(len(payload), 2 * (end - begin))
                deltas = struct.unpack("<%dH" % (end - begin), payload)
                for i, bits in enumerate(deltas):
                    delta = struct.unpack("<f", struct.pack("<I", bits << 16))
                    # Stored as f32, so rounded once.
                    replica[begin + i] = replica[begin + i] + delta[0]
        data = replica.tobytes()
        self.assertEqual(arithmetic.sum_digests(digests),
                         layout.fragment_digest(0, data))
        return data

    def test_a_chain_leads_to_the_replica_and_exports_are_theta(self):
        cluster = self.cluster
        members = toy.start(cluster, {"exchange": {"down": BF16}})
        run = cluster.runs.GetRun(run_id="run").run
        plan = members[0].plan
        replicas = [self.full_view(run, plan, 0)]
        self.assertEqual(replicas[0],
                         python_island.pull(cluster, run, plan.shards, 0))
        for version in range(3):
            for member in members:
                member.wait_open(version)
            for made in toy.gradients(members, version, cases.seed()):
                made.push()
            for member in members:
                member.wait_version(version + 1)
                member.ready()
            replicas.append(self.replay(run, plan, replicas[-1], version,
                                     version + 1))
            self.assertEqual(self.full_view(run, plan, version + 1),
                             replicas[-1])
        cluster.wait_state(cluster_module.COMPLETED)
        # Two versions at once; bf16 sends more than two in full.
        self.assertEqual(self.replay(run, plan, replicas[1], 1, 3), replicas[3])
        headers = [header for header, _ in self.pull(
            run, plan, 3, content=REPLICA, from_version=0)]
        self.assertEqual([h.content for h in headers], [REPLICA, REPLICA])
        theta = cluster.parameters()[0]
        self.assertNotEqual(theta, replicas[3])
        # bf16 has 8 bits: the remaining error is small against a step.
        left = max(abs(a - b) for a, b in zip(array.array("f", theta),
                                              array.array("f", replicas[3])))
        self.assertLess(left, 1e-3)


if __name__ == "__main__":
    cases.main()
