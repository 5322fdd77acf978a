#!/usr/bin/python3
"""Data directories that are empty, or older copies, or another's.

Each is refused by a fault with a name. Nothing is deleted and nothing is
decided meanwhile. With the right directory the run ends with the bits.
"""

import json
import os
import shutil

import grpc

from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import faults
from harness import processes
from harness import toy
from harness import wait

SERVERS = ["server-0", "server-1"]
VICTIM = "server-1"
ISLANDS = ["island-0", "island-1", "island-2"]


class IdentityTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"durability": "machine",
                                     "checkpoint_every_round_count": 3,
                                     "schedule": {"round_count": 14}})

    def setUp(self):
        super().setUp()
        self.reference, self.spec = self.once("undisturbed", lambda cluster: (
            self.run_strict(cluster, self.values), cluster.spec()))

    def go_on(self, commit_count):
        """The run goes on for some commits, until its coordinator dies."""
        self.cluster.restart("coordinator",
                             "coordinator.commit.after@%d" % commit_count)
        self.cluster.await_failpoint("coordinator")

    def directory(self, name):
        return os.path.join(self.cluster.directory, name)

    def keep(self, name, other):
        """Moves the directory of a process that does not run."""
        os.rename(self.directory(name), self.directory(other))

    def copy(self, name, other):
        shutil.copytree(self.directory(name), self.directory(other))

    def put_back(self, name, newest):
        """Stops the process and starts it on its right directory."""
        self.cluster.kill(name)
        shutil.rmtree(self.directory(name))
        self.keep(newest, name)
        self.cluster.restart(name)

    def settle(self):
        """Stops the servers after a start without a coordinator, so that they
        have nothing left to tidy. Returns the sizes of their files."""
        cluster = self.cluster
        for name in SERVERS:
            cluster.kill(name)
            cluster.restart(name)
            cluster.kill(name)
        return self.files()

    def files(self):
        return {name: faults.sizes(self.directory(name)) for name in SERVERS}

    def runs_on_servers(self):
        return {name: os.listdir(os.path.join(self.directory(name), "runs"))
                for name in SERVERS}

    def wait_log(self, name, text):
        """Waits until the newest process of this name has logged `text`."""

        def told():
            self.cluster.check_alive()
            return text in self.newest_log(name)

        wait.until("%s says %r" % (name, text), told)

    def newest_log(self, name):
        with open(self.cluster.processes[name].log_path,
                  errors="replace") as file:
            return file.read().rsplit("\n--- ", 1)[-1]

    def finish(self):
        faults.wait_gone(self.cluster)
        self.assertEqual(self.finish_strict(self.cluster, self.values),
                         self.reference)

    # --- The coordinator's directory ---------------------------------------------

    def lose_the_coordinators_disk(self, peers_restart):
        """Another directory is in place of the coordinator's for a while."""
        cluster = self.cluster
        cluster.start_up_to(3, self.spec)
        if peers_restart:
            before = self.settle()
        runs = self.runs_on_servers()
        cluster.start_other_coordinator(self.directory("other"))
        if peers_restart:
            for name in SERVERS:
                cluster.restart(name)
            for name in ISLANDS:
                cluster.kill(name)
                cluster.restart(name)
        # It does not even have the run.
        for name in SERVERS + ISLANDS:
            self.wait_log(name, "this coordinator is cluster ")
        self.assert_doctor_names_all()
        for name in ISLANDS:
            self.wait_local_status(name)
        # Another run of this id decides nothing either.
        cluster.create_run_of(self.spec)
        fault = faults.wait_fault(cluster, "OTHER_CLUSTER")
        self.assertIn("cluster ", fault["expected"])
        self.assertIn("cluster ", fault["found"])
        if peers_restart:
            cluster.kill(ISLANDS[0])
            cluster.restart(ISLANDS[0])
            self.wait_log(ISLANDS[0], "this coordinator is cluster ")
        shown = faults.shown(cluster)["run"]
        self.assertEqual(shown["state"], "RUN_STATE_STARTING")
        self.assertEqual(shown["fault"]["code"], "OTHER_CLUSTER")
        self.assertEqual(self.runs_on_servers(), runs)
        if peers_restart:
            self.assertEqual(self.files(), before)
        for name in SERVERS + ISLANDS:
            self.assertIsNone(cluster.processes[name].poll(), name)

        cluster.kill("coordinator")
        cluster.restart("coordinator")
        self.finish()

    def wait_local_status(self, name):
        """`atoll local status` says why the island waits."""
        state = os.path.join(self.cluster.directory, "state")

        def told():
            self.cluster.check_alive()
            done = processes.run_cli("local", "status", "--island", name, "-o",
                                     "json", env={"XDG_STATE_HOME": state})
            if done.returncode != 0:
                return None
            data = json.loads(done.stdout)["data"]
            return data["state"] == "waiting" and data["reason"].startswith(
                "waits for its coordinator: ")

        wait.until("the status of %s says why it waits" % name, told)

    def assert_doctor_names_all(self):
        """`atoll doctor --operator` says who is refused, and what to do."""
        cluster = self.cluster

        def refused():
            cluster.check_alive()
            answer = cluster.retry(lambda: cluster.state.GetCluster())
            return sorted(p.name for p in answer.refused_peers) == sorted(
                SERVERS + ISLANDS)

        wait.until("the coordinator names the refused peers", refused)
        done = cluster.run_cli("doctor", "--operator", "-o", "json", check=10)
        checks = {c["id"]: c for c in json.loads(done.stdout)["data"]["checks"]}
        self.assertEqual(checks["peers"]["result"], "FAILED")
        self.assertIn("island island-0 of run run belongs to cluster ",
                      checks["peers"]["message"])
        self.assertIn("start it with the right --data-dir",
                      checks["peers"]["action"])
        self.assertNotIn("Start atoll-server", done.stdout)
        log = self.newest_log("coordinator")
        for name in SERVERS:
            self.assertIn("refused server %s: OTHER_CLUSTER" % name, log)
        for name in ISLANDS:
            self.assertIn("refused island %s of run run: OTHER_CLUSTER" % name,
                          log)

    def test_peers_that_restart_wait_for_their_coordinator(self):
        self.lose_the_coordinators_disk(peers_restart=True)

    def test_peers_that_run_wait_for_their_coordinator(self):
        self.lose_the_coordinators_disk(peers_restart=False)

    def restore_the_coordinator(self, servers_restart):
        cluster = self.cluster
        cluster.start_up_to(4, self.spec)  # After the first checkpoint.
        self.copy("coordinator", "older")
        self.go_on(6)
        self.keep("coordinator", "newest")
        self.keep("older", "coordinator")
        if servers_restart:
            before = self.settle()
        runs = self.runs_on_servers()
        cluster.restart("coordinator")
        if servers_restart:
            for name in SERVERS:
                cluster.restart(name)
        fault = faults.wait_fault(cluster, "LOG_BEHIND")
        not_serving = 2
        self.assertEqual(cluster.retry(cluster.coordinator.health),
                         not_serving)
        self.assertIn("batch ", fault["expected"])
        self.assertIn("batch ", fault["found"])
        # A checkpoint can still be read, as it says.
        self.assertRegex(fault["next_command"], "^atoll run export run "
                         "--checkpoint round-[0-9]+ --output run$")
        command = fault["next_command"].split()[1:]
        cluster.run_cli(*command[:-1], self.directory("model"), check=0)

        # Nothing is decided, and nothing new is accepted.
        at = cluster.run_state().commit_seq
        for call, fields in ((cluster.runs.CancelRun, {"run_id": "run"}),
                             (cluster.runs.PauseRun, {"run_id": "run"}),
                             (cluster.runs.DeleteRun, {"run_id": "run"}),
                             (cluster.runs.GetRun, {"run_id": "other"}),
                             (cluster.create_run_of, {"run_id": "other",
                                                      "spec": self.spec})):
            details = client.error_of(call, **fields)
            self.assertEqual((details.code, details.reason),
                             (grpc.StatusCode.FAILED_PRECONDITION,
                              "LOG_BEHIND"), fields)
        not_serving = 2  # As its /readyz.
        wait.until("it is not ready", lambda: cluster.retry(
            cluster.coordinator.health) == not_serving)
        for name in SERVERS:
            self.wait_log(name, "the coordinator's log is an older copy")
        self.assertEqual(cluster.run_state().commit_seq, at)
        self.assertEqual(faults.shown(cluster)["run"]["fault"]["code"],
                         "LOG_BEHIND")
        self.assertEqual(self.runs_on_servers(), runs)
        if servers_restart:
            self.assertEqual(self.files(), before)

        self.put_back("coordinator", "newest")
        self.finish()

    def test_an_older_coordinator_with_servers_that_restart(self):
        self.restore_the_coordinator(servers_restart=True)

    def test_an_older_coordinator_with_servers_that_run(self):
        self.restore_the_coordinator(servers_restart=False)

    # --- A server's directory ----------------------------------------------------

    def restore_a_server(self, start_count):
        """`start_count`: starts of the server after the copy was made."""
        cluster = self.cluster
        cluster.start_up_to(2, self.spec)
        self.settle()
        self.copy(VICTIM, "older")
        cluster.restart("server-0")
        for _ in range(start_count):
            cluster.kill(VICTIM)
            cluster.restart(VICTIM)
            self.go_on(3)
        cluster.kill(VICTIM)
        cluster.restart("coordinator")
        self.keep(VICTIM, "newest")
        newest = faults.tree(self.directory("newest"))
        self.keep("older", VICTIM)
        before = faults.sizes(os.path.join(self.directory(VICTIM), "runs"))
        # As long as it has fewer starts than the right one had.
        for _ in range(start_count - 1):
            cluster.restart(VICTIM)
            cluster.may_end(VICTIM)
            self.assertNotEqual(cluster.processes[VICTIM].wait(), 0)
            self.wait_log(VICTIM, "this data directory is an old copy")
        cluster.restart(VICTIM)
        fault = faults.wait_fault(cluster, "SHARD_BEHIND", "DATA_LOSS")
        self.assertIn(VICTIM, fault["expected"])
        cluster.wait_state(cluster_module.PAUSED)
        now = faults.sizes(os.path.join(self.directory(VICTIM), "runs"))
        missing = [path for path in before if path not in now]
        # It may go on as far as its contributions reach, and tidy as usual.
        if "persist fragment" not in self.newest_log(VICTIM):
            self.assertEqual(missing, [])
        self.assertEqual([path for path in missing if "/records/" in path], [])
        self.assertEqual(faults.tree(self.directory("newest")), newest)
        self.put_back(VICTIM, "newest")
        self.finish()

    def test_an_older_copy_of_a_server(self):
        self.restore_a_server(1)

    def test_an_older_copy_of_a_server_that_was_started_often_since(self):
        self.restore_a_server(3)

    def wait_refused(self, name):
        """A process with another directory under the victim's id ends."""
        self.cluster.may_end(name)
        self.assertNotEqual(self.cluster.processes[name].wait(), 0)
        self.wait_log(name, "runs have shards in data directory")

    def test_an_empty_directory_in_place_of_a_stopped_server(self):
        cluster = self.cluster
        cluster.start_up_to(3, self.spec)
        cluster.kill(VICTIM)
        cluster.restart("coordinator")
        before = faults.tree(self.directory(VICTIM))
        # Its count of starts does not make it the right one.
        for _ in range(3):
            cluster.start_server(VICTIM, data_dir=self.directory("empty"))
            self.wait_refused(VICTIM)
        fault = faults.wait_fault(cluster, "OTHER_DIRECTORY")
        self.assertIn("data directory", fault["expected"])
        self.assertIn("data directory", fault["found"])
        self.assertEqual([path for path in faults.tree(
            self.directory("empty")) if path.startswith("runs")], [])
        self.assertEqual(faults.tree(self.directory(VICTIM)), before)
        cluster.restart(VICTIM)
        self.finish()

    def test_an_empty_directory_beside_a_server_that_runs(self):
        cluster = self.cluster
        # A push takes half a second.
        cluster.start_up_to(3, self.spec, arguments=["--up=2Mb/s"])
        cluster.restart("coordinator")
        for _ in range(3):
            cluster.start_server(VICTIM, name="other")
            self.wait_refused("other")
            self.assertFalse(cluster.run_state().run.HasField("fault"))
        self.assertEqual(self.finish_strict(cluster, self.values),
                         self.reference)
        cluster.check_alive()


class PushTest(cluster_module.IntegrationTest):
    """The same with islands in Python, which push whatever the test wants."""

    def test_servers_take_no_push_for_a_coordinator_that_is_behind(self):
        undisturbed = self.new_cluster("undisturbed")
        expected = toy.play(undisturbed, toy.start(undisturbed), cases.seed())
        undisturbed.close()
        cluster = self.cluster
        members = toy.start(cluster)
        directory = os.path.join(cluster.directory, "coordinator")
        cluster.kill("coordinator")
        shutil.copytree(directory, directory + ".older")
        cluster.restart("coordinator")
        toy.play_round(members, 0, cases.seed())
        toy.play_round(members, 1, cases.seed(), ready=False)
        for name in ["coordinator"] + SERVERS:
            cluster.kill(name)
        os.rename(directory, directory + ".newest")
        os.rename(directory + ".older", directory)
        for name in ["coordinator"] + SERVERS:
            cluster.restart(name)
        faults.wait_fault(cluster, "LOG_BEHIND")
        # Round 1 once more, as this log would have it, and the next.
        for version in (0, 1, 2):
            for contribution in toy.gradients(members, version, cases.seed()):
                self.assertEqual(client.error_of(contribution.push).code,
                                 grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(cluster.run_state().commit_seq, 0)
        for member in members:
            details = client.error_of(member.newest_plan)
            self.assertEqual((details.code, details.reason),
                             (grpc.StatusCode.FAILED_PRECONDITION,
                              "LOG_BEHIND"))

        cluster.kill("coordinator")
        shutil.rmtree(directory)
        os.rename(directory + ".newest", directory)
        cluster.restart("coordinator")
        faults.wait_gone(cluster)
        for member in members:
            member.wait_version(2)
            member.ready()
        for member in members:
            member.wait_open(2)
        for contribution in toy.gradients(members, 2, cases.seed()):
            # A restarted server needs its plan first.
            cluster.retry(contribution.push)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(cluster.parameters_sha256(), expected)


if __name__ == "__main__":
    cases.main()
