#!/usr/bin/python3
"""Version 0 from a model directory: same bits, resumable, or refused."""

import json
import os
import re
import signal
import struct

from harness import cases
from harness import cluster as cluster_module
from harness import damage
from harness import model_files
from harness import processes
from harness import run_file
from harness import wait

INVALID_CONFIG, UNHEALTHY, CONNECTION, NOT_FOUND, CONFLICT = 4, 5, 6, 8, 9

# 8.5 MiB in several chunks per shard.
WIDE = {"model": {"vocab_size": 8192, "hidden_size": 128, "head_count": 4,
                  "kv_head_count": 2, "intermediate_size": 128},
        "durability": "machine"}


class ImportTest(cluster_module.IntegrationTest):

    def atoll(self, *arguments, **kwargs):
        return processes.run_cli(*arguments, "--coordinator",
                                 self.cluster.coordinator_address, "-o",
                                 "json", **kwargs)

    def data(self, *arguments):
        return json.loads(self.atoll(*arguments, check=0).stdout)["data"]

    def error(self, code, *arguments):
        done = self.atoll(*arguments, check=code)
        return json.loads(done.stdout)["error"]

    def start(self, servers=2, failpoint=None, coordinator=None):
        self.cluster.start_coordinator(failpoint=coordinator)
        self.cluster.start_server("server-0", failpoint=failpoint)
        for index in range(1, servers):
            self.cluster.start_server("server-%d" % index)

    def make_model(self, *changes, rounds=False, name="origin"):
        """Exports version 0, or a trained version, of a run. Returns
        (directory, parameters_sha256); its cluster has ended."""
        cluster = self.new_cluster(name)
        values = self.run_values(*changes)
        if rounds:
            self.run_strict(cluster, values, name)
        else:
            cluster.start_coordinator()
            cluster.start_servers(2)
            cluster.create_run(values, name)
            cluster.wait_state(cluster_module.ACTIVE, name)
        sha = cluster.export_sha256(name)
        cluster.close()
        return os.path.join(cluster.directory, "export-" + name), sha

    def import_values(self, model, *changes):
        """A run file that imports `model` without giving its shape."""
        values = self.run_values({"init": {"model": model}})
        del values["model"]
        return run_file.merged(values, *changes)

    def create(self, model, *changes, run_id="run"):
        return self.cluster.create_run(self.import_values(model, *changes),
                                       run_id)

    # --- It works -------------------------------------------------------------

    def test_an_export_goes_on_in_a_run_with_other_servers(self):
        model, sha = self.make_model({"layout": {"fragment_count": 2}},
                                     rounds=True)
        self.start(servers=3)
        self.create(model, {"server_count": 3})
        self.assertEqual(self.cluster.run_state().run.state,
                         cluster_module.STARTING)
        split = model_files.split(model, model + "-split")
        done = self.data("run", "import", "run", "--model", split)
        self.assertEqual(done["parameters_sha256"], sha)
        self.assertEqual(done["state"], "ACTIVE")
        self.assertEqual(done["sent_bytes"], done["size_bytes"])
        self.assertEqual(self.cluster.parameters_sha256(), sha)
        self.assertEqual(
            self.data("run", "import", "run", "--model", model)["sent_bytes"],
            0)
        self.cluster.start_islands()
        self.cluster.wait_commits(1)
        self.assertEqual(
            self.data("run", "import", "run", "--model", model)["sent_bytes"],
            0)

    def test_one_command_trains_an_exported_model_on(self):
        model, sha = self.make_model()
        path = self.cluster.write_run_file(self.import_values(
            model, {"schedule": {"round_count": 1}}), "tune")
        directory = os.path.join(self.root, "dev-import")
        done = processes.run_cli("dev", "up", path, "--dir", directory, "-o",
                                 "json", check=0)
        self.assertIn(sha, done.stderr)
        data = json.loads(done.stdout)["data"]
        self.assertEqual(data["state"], "COMPLETED")
        self.assertNotEqual(data["parameters_sha256"], sha)

    def test_models_of_other_architectures_go_on_too(self):
        shapes = {
            "gpt2": {"kv_head_count": 2, "tie_embeddings": True},
            "mixtral": {"expert_count": 3, "experts_per_token": 2,
                        "router_loss_weight": 0.01}}
        for architecture, keys in shapes.items():
            model, sha = self.make_model(
                {"model": dict(keys, architecture=architecture)},
                name=architecture)
            self.assertIn({"gpt2": "transformer.h.1.attn.c_attn.bias",
                           "mixtral": "model.layers.1.block_sparse_moe.experts"
                                      ".2.w3.weight"}[architecture],
                          model_files.read(model))
            # A trained version of the same shape, in bf16.
            path = self.cluster.write_run_file(self.import_values(
                model, {"inner": {"compute": "bf16"},
                        "schedule": {"round_count": 1}}), architecture)
            done = processes.run_cli(
                "dev", "up", path, "--dir",
                os.path.join(self.root, "dev-" + architecture), "-o", "json",
                check=0)
            self.assertIn(sha, done.stderr)
            data = json.loads(done.stdout)["data"]
            self.assertEqual(data["state"], "COMPLETED")
            self.assertNotEqual(data["parameters_sha256"], sha)

    # --- It is cut ------------------------------------------------------------

    def test_a_killed_client_goes_on_from_what_the_servers_have(self):
        model, sha = self.make_model(WIDE)
        self.start()
        self.create(model)
        # Both shards are placed; then one stops accepting data.
        self.wait_placed()
        self.cluster.kill("server-1")
        client = self.cluster._start("import", [
            processes.binary(processes.CLI), "run", "import", "run", "--model",
            model, "--coordinator", self.cluster.coordinator_address])
        self.cluster.may_end("import")
        self.wait_initialized("server-0")
        client.signal(signal.SIGKILL)
        self.assertEqual(client.wait(), -signal.SIGKILL)
        self.cluster.restart("server-1")
        done = self.data("run", "import", "run", "--model", model)
        # Only the other shard's part was sent, and it is about a half.
        self.assertLess(done["sent_bytes"], 0.6 * done["size_bytes"])
        self.assertGreater(done["sent_bytes"], 0.4 * done["size_bytes"])
        self.assertEqual(self.cluster.parameters_sha256(), sha)

    def wait_placed(self):
        wait.until("both shards are placed",
                   lambda: len(self.cluster.run_state().servers) == 2)

    def wait_initialized(self, server_id):
        """Waits until the shard has a version file: its import is complete."""
        wait.until("%s has version 0" % server_id, lambda: damage.find(
            self.cluster, server_id, "run", "shard-*", "versions",
            "f0-v0.ver"))

    def test_a_killed_server_is_sent_only_the_rest(self):
        model, sha = self.make_model(WIDE)
        for point in ("server.bound.after", "server.chunk.after@3",
                      "server.stored.before", "server.stored.after",
                      "server.version0.before", "server.version0.after"):
            with self.subTest(point):
                self.cluster = self.new_cluster(point)
                self.cluster.guard("server-0")
                self.start(failpoint=point)
                self.create(model)
                client = self.cluster._start("import", [
                    processes.binary(processes.CLI), "run", "import", "run",
                    "--model", model, "--coordinator",
                    self.cluster.coordinator_address, "-o", "json"])
                self.cluster.wait_state(cluster_module.ACTIVE)
                self.assertEqual(client.wait(), 0, client.tail())
                # At most twice the bytes in flight.
                size, sent = (int(re.search(r'"%s": (\d+)' % name,
                                            client.tail()).group(1))
                              for name in ("size_bytes", "sent_bytes"))
                self.assertGreaterEqual(sent, size)
                self.assertLess(sent, size + (4 << 20))
                self.assertEqual(self.cluster.deaths, ["server-0"])
                self.assertEqual(self.cluster.parameters_sha256(), sha)
                self.cluster.close()

    def test_a_killed_coordinator_finds_the_import_again(self):
        model, sha = self.make_model()
        for point in ("coordinator.start.before", "coordinator.start.after"):
            with self.subTest(point):
                self.cluster = self.new_cluster(point)
                self.cluster.guard("coordinator")
                self.start(coordinator=point)
                self.create(model)
                client = self.cluster._start("import", [
                    processes.binary(processes.CLI), "run", "import", "run",
                    "--model", model, "--coordinator",
                    self.cluster.coordinator_address])
                self.cluster.wait_state(cluster_module.ACTIVE)
                self.assertEqual(client.wait(), 0, client.tail())
                self.assertEqual(self.cluster.deaths, ["coordinator"])
                self.assertEqual(self.cluster.parameters_sha256(), sha)
                self.cluster.close()

    # --- It is refused --------------------------------------------------------

    def test_a_model_that_does_not_fit_is_named_before_anything_is_sent(self):
        model, _ = self.make_model()
        self.start()
        self.create(model)
        good = model_files.read(model)
        name = "model.layers.1.mlp.up_proj.weight"
        dtype, shape, values = good[name]
        lacking = {k: v for k, v in good.items() if k != name}
        nan = struct.pack("<f", float("nan"))
        bad = {
            "shape": {**good, name: (dtype, shape[::-1], values)},
            "lacking": lacking,
            "extra": {**good, "other.weight": (dtype, [1], b"\0\0\0\0")},
            "dtype": {**good, name: ("I32", shape, values)},
            "nan": {**good, name: (dtype, shape, values[:-4] + nan)},
        }
        for kind, tensors in bad.items():
            with self.subTest(kind):
                other = model_files.copy(model, "%s-%s" % (model, kind),
                                         tensors)
                error = self.error(INVALID_CONFIG, "run", "import", "run",
                                   "--model", other)
                self.assertEqual(error["reason"], "MODEL_UNUSABLE")
                self.assertIn("other.weight" if kind == "extra" else name,
                              error["message"])
                # Creating a run from it fails too.
                path = self.cluster.write_run_file(
                    self.import_values(other), "bad")
                self.assertEqual(
                    self.error(INVALID_CONFIG, "run", "create", path,
                               "--run-id", "bad")["reason"], "MODEL_UNUSABLE")
        self.corrupt(model)
        state = self.cluster.run_state()
        self.assertEqual(state.run.state, cluster_module.STARTING)
        self.assertIn("run import run", state.run.state_reason)
        self.data("run", "import", "run", "--model", model)

    def corrupt(self, model):
        """The manifest detects a flipped bit, but a short file needs none."""
        flipped = model_files.copy(model, model + "-flipped")
        path = os.path.join(flipped, "model.safetensors")
        with open(path, "r+b") as file:
            file.seek(-3, os.SEEK_END)
            byte = file.read(1)
            file.seek(-3, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        error = self.error(UNHEALTHY, "run", "import", "run", "--model",
                           flipped)
        self.assertIn("damaged", error["message"])
        os.truncate(path, os.path.getsize(path) - 5)
        self.error(UNHEALTHY, "run", "import", "run", "--model", flipped)
        self.error(NOT_FOUND, "run", "import", "run", "--model",
                   model + "-nowhere")

    def test_other_content_other_runs_and_other_states_are_refused(self):
        model, sha = self.make_model()
        self.start()
        self.create(model)
        good = model_files.read(model)
        name = "lm_head.weight"
        dtype, shape, values = good[name]
        other = model_files.copy(model, model + "-other", {
            **good, name: (dtype, shape, values[4:] + values[:4])})
        for state in (cluster_module.STARTING, cluster_module.ACTIVE):
            self.cluster.wait_state(state)
            error = self.error(CONFLICT, "run", "import", "run", "--model",
                               other)
            self.assertEqual(error["reason"], "OTHER_MODEL")
            self.data("run", "import", "run", "--model", model)
        self.assertEqual(self.cluster.parameters_sha256(), sha)
        # The same id with another model is another run.
        path = self.cluster.write_run_file(self.import_values(other), "other")
        self.error(CONFLICT, "run", "create", path, "--run-id", "run")
        self.error(NOT_FOUND, "run", "import", "nobody", "--model", model)
        self.cluster.create_run(self.run_values(), "own")
        self.assertEqual(
            self.error(CONFLICT, "run", "import", "own", "--model",
                       model)["reason"], "NOT_IMPORTABLE")
        self.create(model, {"server_count": 5}, run_id="stopped")
        self.data("run", "cancel", "stopped")
        self.assertEqual(
            self.error(CONFLICT, "run", "import", "stopped", "--model",
                       model)["reason"], "NOT_IMPORTABLE")
        path = self.cluster.write_run_file(self.import_values(
            model, {"model": {"hidden_size": 64}}), "wrong")
        message = self.error(INVALID_CONFIG, "run", "create", path)["message"]
        self.assertIn("hidden_size is 64", message)

    def test_what_waits_for_servers_gives_up_in_time_and_says_why(self):
        model, _ = self.make_model()
        self.start()
        self.create(model, {"server_count": 3})
        done = self.atoll("run", "import", "run", "--model", model,
                          "--patience", "1s", check=3)
        message = json.loads(done.stdout)["error"]["message"]
        self.assertIn("2 of 3", message)


if __name__ == "__main__":
    cases.main()
