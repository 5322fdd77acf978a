#!/usr/bin/python3
"""Checkpoints on the servers: files with a manifest."""

import hashlib
import json
import os

import grpc

from harness import arithmetic
from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import damage
from harness import processes
from harness import toy
from harness import wait

# A checkpoint every round, and more rounds than kept checkpoints.
KEPT = 32
EVERY = {"checkpoint_every_round_count": 1,
         "checkpoint": {"keep_count": KEPT}, "schedule": {"round_count": 1000}}


def manifest_path(cluster, server, pin_id):
    return os.path.join(damage.shard_directory(cluster, server),
                        "checkpoints", pin_id + ".json")


def read_manifest(cluster, server, pin_id):
    with open(manifest_path(cluster, server, pin_id), encoding="utf-8") as f:
        return json.load(f)


class CheckpointTest(cluster_module.IntegrationTest):

    def play(self, first, last):
        for version in range(first, last):
            for member in self.members:
                member.wait_open(version)
            for contribution in toy.gradients(self.members, version,
                                              cases.seed()):
                # A restarted server needs its plan first.
                self.cluster.retry(contribution.push)
            for member in self.members:
                member.wait_version(version + 1)
                member.ready()

    def start(self, *changes):
        self.members = toy.start(self.cluster, EVERY, *changes)

    def check_manifest(self, server, shard, pin, parent):
        cluster = self.cluster
        manifest = read_manifest(cluster, server, pin.pin_id)
        run = cluster.runs.GetRun(run_id="run").run
        self.assertEqual(manifest["format"], 1)
        self.assertEqual(manifest["kind"], "atoll shard checkpoint")
        self.assertEqual(manifest["run_id"], "run")
        self.assertEqual(manifest["run_epoch"], run.run_epoch)
        self.assertEqual(manifest["pin_id"], pin.pin_id)
        self.assertEqual(manifest["commit_seq"], pin.commit_seq)
        self.assertEqual(manifest["layout_fingerprint"],
                         "%016x" % run.layout_fingerprint)
        self.assertEqual((manifest["shard"], manifest["shard_count"]),
                         (shard, 2))
        self.assertEqual(manifest["parent"], parent)
        self.assertEqual([f["fragment"] for f in manifest["files"]], [0])
        for entry, cut in zip(manifest["files"], pin.cut):
            self.assertEqual(entry["version"], cut.version)
            self.assertEqual(entry["commit_seq"], cut.commit_seq)
            self.assertEqual(entry["digest"], "%016x%016x" % (
                cut.digest.high, cut.digest.low))
            path = os.path.join(damage.shard_directory(cluster, server),
                                entry["file"])
            with open(path, "rb") as file:
                data = file.read()
            self.assertEqual(entry["size_bytes"], len(data))
            self.assertEqual(entry["sha256"],
                             hashlib.sha256(data).hexdigest())
        with open(manifest_path(cluster, server, pin.pin_id), "rb") as file:
            return {"pin_id": pin.pin_id,
                    "sha256": hashlib.sha256(file.read()).hexdigest()}

    def test_each_checkpoint_has_a_manifest_until_it_is_released(self):
        self.start()
        placements = self.cluster.run_state().servers
        parents = {s.placement.server_id: None for s in placements}
        for version in range(1, 4):
            self.play(version - 1, version)
            name = "round-%d" % version
            checkpoint = self.cluster.wait_durable(name)[name]
            self.assertEqual([(s.server_id, s.durable, s.fault)
                              for s in checkpoint.shards],
                             [(s.placement.server_id, True, "")
                              for s in placements])
            for s in placements:
                server = s.placement.server_id
                parents[server] = self.check_manifest(
                    server, s.placement.shard, checkpoint.pin,
                    parents[server])
        # The parts of all shards add up to the fragment's digest.
        newest = self.cluster.checkpoints()["round-3"].pin.cut[0].digest
        parts = [read_manifest(self.cluster, s.placement.server_id, "round-3")[
            "files"][0]["shard_digest"] for s in placements]
        self.assertEqual(
            arithmetic.sum_digests([(int(p[:16], 16), int(p[16:], 16))
                                    for p in parts]),
            (newest.high, newest.low))
        # Deleted with its pin, and then its version.
        self.play(3, KEPT + 2)
        self.assertNotIn("round-1", self.cluster.checkpoints())
        for s in placements:
            server = s.placement.server_id
            wait.until("the manifest is gone", lambda: not os.path.exists(
                manifest_path(self.cluster, server, "round-1")))
            wait.until("its version is gone", lambda: not any(
                "f0-v1.ver" in p for p in damage.versions(self.cluster,
                                                          server)))
            self.assertTrue(os.path.exists(
                manifest_path(self.cluster, server, "round-3")))

    def test_a_restart_knows_what_is_durable(self):
        self.start()
        self.play(0, 2)
        self.cluster.wait_durable("round-1", "round-2")
        before = read_manifest(self.cluster, "server-0", "round-1")
        for name in ("server-0", "coordinator"):
            self.cluster.kill(name)
            self.cluster.restart(name)
        self.cluster.wait_durable("round-1", "round-2")
        self.assertEqual(
            read_manifest(self.cluster, "server-0", "round-1"), before)
        shown = processes.run_cli(
            "run", "show", "run", "--coordinator",
            self.cluster.coordinator_address, "-o", "json", check=0)
        self.assertEqual([(c["pin"]["pin_id"], c["durable"]) for c in
                          json.loads(shown.stdout)["data"]["checkpoints"]],
                         [("round-1", True), ("round-2", True)])

    def test_a_manifest_that_is_damaged_is_written_again(self):
        self.start()
        self.play(0, 1)
        self.cluster.wait_durable("round-1")
        path = manifest_path(self.cluster, "server-1", "round-1")
        with open(path, "rb") as file:
            before = file.read()
        self.cluster.kill("server-1")
        damage.remove(path)
        with open(path, "wb") as file:
            file.write(before[:len(before) // 2])
        self.cluster.restart("server-1")

        def same():
            # Removed first, then written under another name and renamed.
            if not os.path.exists(path):
                return False
            with open(path, "rb") as file:
                return file.read() == before

        wait.until("it is written again", same)

    def broken(self, happen):
        """Damages a checkpoint's file while its server is down. It is reported,
        and the run continues. Returns the checkpoint."""
        self.start({"schedule": {"round_count": 5}})
        self.play(0, 4)
        self.cluster.wait_durable("round-1")
        self.cluster.kill("server-1")
        path, = [p for p in damage.versions(self.cluster, "server-1")
                 if p.endswith("f0-v1.ver")]
        happen(path)
        self.cluster.restart("server-1")

    def check_broken(self):
        cluster = self.cluster

        def reported():
            checkpoint = cluster.checkpoints()["round-1"]
            return checkpoint if any(
                s.fault for s in checkpoint.shards) else None

        checkpoint = wait.until("the damage is reported", reported)
        self.assertFalse(checkpoint.durable)
        self.assertEqual([bool(s.fault) for s in checkpoint.shards],
                         [s.server_id == "server-1"
                          for s in checkpoint.shards])
        fault, = [s.fault for s in checkpoint.shards if s.fault]
        self.assertIn("f0-v1.ver", fault)
        self.assertIn("export the newest cut", fault)
        shown = processes.run_cli("run", "show", "run", "--coordinator",
                                  cluster.coordinator_address, check=0)
        self.assertIn("f0-v1.ver", " ".join(shown.stdout.split()))
        self.assertEqual(cluster.run_state().run.state,
                         cluster_module.ACTIVE)
        self.play(4, 5)
        cluster.wait_state(cluster_module.COMPLETED)
        cluster.wait_durable("round-2", "final")
        cluster.parameters_sha256()
        cluster.check_alive()

    def pull_broken(self):
        plan = self.members[0].newest_plan()
        shard, = [s for s in plan.shards if s.server_id == "server-1"]
        service = self.cluster.client(shard.address).service(
            "ParameterService")
        return client.error_of(
            service.PullParameters, run_id="run", run_epoch=plan.run_epoch,
            fragment=0, version=1, layout_fingerprint=plan.layout_fingerprint,
            placement_epoch=plan.placement_epoch, shard=shard.shard)

    def test_a_checkpoint_that_is_cut_short_is_an_error_and_the_run_goes_on(
            self):
        self.broken(damage.shorten)
        details = wait.until("it serves", self.pulled_or_none)
        self.assertEqual(details.code, grpc.StatusCode.OUT_OF_RANGE)
        self.check_broken()

    def test_a_checkpoint_that_is_gone_is_an_error_and_the_run_goes_on(self):
        self.broken(damage.remove)
        self.check_broken()

    def test_a_checkpoint_with_a_flipped_bit_is_an_error_when_it_is_read(self):
        self.broken(damage.flip)
        details = wait.until("it serves", self.pulled_or_none)
        self.assertEqual(details.code, grpc.StatusCode.DATA_LOSS)
        self.assertIn("f0-v1.ver", details.message)
        self.check_broken()

    def pulled_or_none(self):
        details = self.pull_broken()
        if details.code == grpc.StatusCode.UNAVAILABLE:
            return None
        return details


if __name__ == "__main__":
    cases.main()
