#!/usr/bin/python3
"""kill -9 before and after every durable record, then a restart.

One case for each named point that is compiled into a program (failpoints are
found in the binaries, so a new one is tested without a line here). The victim
kills itself at the point, is started again, and the run must end with the bits
of the undisturbed run. A point that is never reached fails its case.
"""

import random

from harness import cases
from harness import cluster as cluster_module
from harness import processes
from harness import wait

# Points that are passed once in a strict run; all others are armed for their
# second time, so that something is there to be lost.
ONCE = (
    "coordinator.run.",
    "coordinator.start.",
    "coordinator.placement.",
)

# Points that an undisturbed strict run does not pass: SPECIAL says what makes
# them happen. A new point that is in neither fails, which is the reminder.
SPECIAL = {}


class KillTest(cluster_module.IntegrationTest):
    """Three islands and two servers; one of all these dies once."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values()
        cls.reference = None

    def setUp(self):
        super().setUp()
        cls = type(self)
        if cls.reference is None:
            undisturbed = self.new_cluster("undisturbed")
            cls.reference = self.run_strict(undisturbed, self.values)
            cls.spec = undisturbed.runs.GetRun(
                run_id="run").run.spec.SerializeToString()
            undisturbed.close()

    def point(self, name):
        if any(name.startswith(prefix) for prefix in ONCE):
            return name
        return name + "@2"

    def finish(self):
        """Waits for the end; compares with the undisturbed run."""
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(self.cluster, self.values)
        self.assertEqual(self.cluster.parameters_sha256(), self.reference)

    def kill_at(self, victim, name):
        cluster = self.cluster
        armed = {victim: self.point(name)}
        # On a first start there is no older life; on a second there is.
        cluster.start_coordinator(failpoint=armed.get("coordinator"))
        for index in range(2):
            server = "server-%d" % index
            cluster.start_server(server, failpoint=armed.get(server))
        created = False
        if victim == "coordinator" and name.startswith("coordinator.run."):
            self.create_and_die()
            created = True
        if not created:
            cluster.create_run_of(self.spec)
        for index in range(3):
            island = "island-%d" % index
            cluster.start_island("run", island, failpoint=armed.get(island))
        if not created:
            cluster.await_failpoint(victim)
            cluster.restart(victim)
        self.finish()

    def create_and_die(self):
        """CreateRun kills the coordinator; the same call again succeeds."""
        try:
            self.cluster.create_run_of(self.spec)
        except (cluster_module.Died, wait.TimedOut):
            pass
        self.cluster.await_failpoint("coordinator")
        self.cluster.restart("coordinator")
        self.cluster.create_run_of(self.spec)


class StormTest(cluster_module.IntegrationTest):

    def test_a_kill_after_every_commit_changes_no_bit(self):
        generator = random.Random(cases.seed())
        values = self.run_values({"schedule": {"round_count": 8}})
        reference = self.run_strict(self.new_cluster("undisturbed"), values)
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(values)
        cluster.start_islands()
        kills = []
        for event in cluster.events():
            if not event.HasField("round_committed"):
                continue
            if event.round_committed.version >= 8:
                break
            victim = generator.choice(sorted(
                n for n in cluster.processes))
            cluster.kill(victim)
            cluster.restart(victim)
            kills.append(victim)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertGreaterEqual(len(kills), 5, "too few kills to prove it")
        self.assert_strict_run_whole(cluster, values)
        self.assertEqual(cluster.parameters_sha256(), reference, kills)

    def test_all_processes_die_at_once_and_come_back(self):
        values = self.run_values({"schedule": {"round_count": 6}})
        reference = self.run_strict(self.new_cluster("undisturbed"), values)
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(values)
        cluster.start_islands()
        cluster.wait_commits(2)
        names = list(cluster.processes)
        for name in names:
            cluster.kill(name)
        for name in names:
            cluster.restart(name)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_strict_run_whole(cluster, values)
        self.assertEqual(cluster.parameters_sha256(), reference)


def _add_cases():
    programs = [
        ("coordinator", processes.COORDINATOR, ["coordinator"]),
        ("server", processes.SERVER, ["server-0", "server-1"]),
        ("island", processes.CLI, ["island-1"]),
    ]
    for program, relative, victims in programs:
        names = processes.failpoints(relative, program)
        assert names, "no failpoint in %s" % relative
        for name in names:
            if name in SPECIAL:
                continue
            for victim in victims:
                def case(self, victim=victim, name=name):
                    self.kill_at(victim, name)
                title = "test_%s_%s" % (victim.replace("-", "_"),
                                        name.replace(".", "_"))
                setattr(KillTest, title, case)


_add_cases()

if __name__ == "__main__":
    cases.main()
