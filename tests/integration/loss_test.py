#!/usr/bin/python3
"""A shard loses contributions. Before a COMMIT they are pushed again and no bit
changes; after it the shard stops and the run reports it."""

import os

import grpc

from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import damage
from harness import processes
from harness import toy
from harness import wait

VICTIM = "server-1"


class LossTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"evaluation": {"every_round_count": 0}})

    def undisturbed(self):
        return self.once("undisturbed", lambda cluster: self.run_strict(
            cluster, self.values))

    def start(self, point):
        """A strict run whose victim dies at `point`."""
        self.cluster.start_run(self.values, {VICTIM: point})
        self.cluster.await_failpoint(VICTIM)

    def lose_before_commit(self, point, happen):
        """Loses contributions in the first round. In a later one an earlier
        commit may not be persisted yet, which is another kind of loss."""
        reference = self.undisturbed()
        self.start(point)
        for path in damage.segments(self.cluster, VICTIM):
            happen(path)
        self.cluster.restart(VICTIM)
        self.assertEqual(self.finish_strict(self.cluster, self.values),
                         reference)
        self.assertIn("is lost here", self.log_of(VICTIM))

    def log_of(self, name):
        with open(self.cluster.processes[name].log_path,
                  errors="replace") as file:
            return file.read()

    def test_a_sealed_set_whose_segments_are_gone_is_pushed_again(self):
        self.lose_before_commit("server.prepared.before", damage.remove)

    def test_a_sealed_set_whose_segments_are_short_is_pushed_again(self):
        self.lose_before_commit("server.prepared.before", damage.shorten)

    def test_a_sealed_set_whose_bytes_are_wrong_is_pushed_again(self):
        self.lose_before_commit("server.prepared.before", damage.flip)
        self.assertIn("it is pushed again", "".join(
            self.log_of("island-%d" % i) for i in range(3)))

    def test_what_is_stored_and_not_sealed_is_pushed_again(self):
        self.lose_before_commit("server.stored.after@2", damage.remove)

    # --- The protocol for islands in any language ----------------------------

    def sealed_toys(self, *changes, island_count=2,
                    point="server.prepared.before"):
        """Returns members with sealed contributions that the victim has lost.
        The victim died at `point` and runs again."""
        cluster = self.cluster
        cluster.start_service({VICTIM: point})
        members = toy.start(cluster, *changes, island_count=island_count)
        for member in members:
            member.wait_open(0)
        made = toy.gradients(members, 0, cases.seed())
        for contribution in made:
            try:
                contribution.push()
            except grpc.RpcError:
                pass  # The victim may die before it answers the last one.
        cluster.await_failpoint(VICTIM)
        for path in damage.segments(cluster, VICTIM):
            damage.flip(path)
        cluster.restart(VICTIM)
        return members, made

    def wait_needed(self, member, contribution):
        def named(plan):
            return [(k.fragment, k.slot, k.seq) for k in plan.needs_repush
                    ] == [(0, member.slot, contribution.seq)]
        member.wait_plan("its contribution is needed again", named)

    def test_the_plan_names_what_is_needs_repush_until_it_is_there(self):
        undisturbed = self.new_cluster("undisturbed-toy")
        expected = toy.play(undisturbed, toy.start(undisturbed), cases.seed())
        members, made = self.sealed_toys()
        for member, contribution in zip(members, made):
            self.wait_needed(member, contribution)
        self.assertIn("push them again",
                      self.cluster.run_state().run.state_reason)
        for contribution in made:
            wait.until("it is stored again", lambda: self.stored(contribution))
        for member in members:
            member.wait_version(1)
            self.assertEqual(list(member.plan.needs_repush), [])
            member.ready()
        for version in range(1, 3):
            toy.play_round(members, version, cases.seed())
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(), expected)

    def test_what_is_lost_before_the_verdict_is_pushed_again(self):
        changes = toy.robust(toy.KRUM, {"schedule": {"round_count": 2}})
        undisturbed = self.new_cluster("undisturbed-krum")
        expected = toy.play(undisturbed, toy.start(
            undisturbed, *changes, island_count=5), cases.seed(), 2)
        members, made = self.sealed_toys(*changes, island_count=5,
                                         point="server.measured.before")
        self.push_until_merged(made)
        for member in members:
            member.ready()
        toy.play_round(members, 1, cases.seed())
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(), expected)

    def stored(self, contribution):
        """Pushes like an island while a server restarts."""
        try:
            contribution.member.newest_plan()
            return contribution.push()
        except (grpc.RpcError, ValueError) as error:
            if isinstance(error, grpc.RpcError) and error.code() in (
                    grpc.StatusCode.ABORTED,
                    grpc.StatusCode.INVALID_ARGUMENT):
                raise
            return None

    def push_until_merged(self, made):
        """Pushes whenever the plan asks for it, like an island. A shard detects
        a loss when it reads the data, possibly after it reported "stored"."""

        def merged():
            waiting = False
            for contribution in made:
                plan = contribution.member.newest_plan()
                if not plan.cut or plan.cut[0].version == 0:
                    waiting = True
                    if plan.needs_repush:
                        self.stored(contribution)
            return not waiting

        wait.until("version 1 of fragment 0 commits", merged)

    def test_an_owner_that_is_gone_is_not_awaited(self):
        (gone, here), made = self.sealed_toys({"schedule": dict(
            toy.ELASTIC_SCHEDULE, min_quorum=1, island_count_min=2,
            grace_window={"seconds": 300})})
        self.wait_needed(gone, made[0])
        gone.leave()
        self.push_until_merged(made[1:])
        first = self.cluster.rounds()[0]
        self.assertEqual([(c.info.key.slot, c.outcome)
                          for c in first.contributions],
                         [(here.slot, cluster_module.MERGED)])
        self.assertEqual(first.attempt, 1)
        for event in self.cluster.events():
            if event.HasField("round_aborted"):
                self.assertIn(gone.island_id, event.round_aborted.reason)
                self.assertIn("lost", event.round_aborted.reason)
                break
        self.cluster.check_alive()


class FaultTest(cluster_module.IntegrationTest):

    def test_a_loss_after_the_commit_pauses_the_run_until_it_is_repaired(self):
        undisturbed = self.new_cluster("undisturbed")
        expected = toy.play(undisturbed, toy.start(undisturbed), cases.seed())
        cluster = self.cluster
        cluster.start_service({VICTIM: "server.state.before"})
        members = toy.start(cluster)
        for member in members:
            member.wait_open(0)
        for contribution in toy.gradients(members, 0, cases.seed()):
            contribution.push()
        cluster.await_failpoint(VICTIM)
        lost = damage.segments(cluster, VICTIM)
        for path in lost:
            os.rename(path, self.aside(path))
        cluster.restart(VICTIM)
        state = cluster.wait_state(cluster_module.PAUSED)
        self.check_reason(state.run.state_reason)
        self.check_everywhere(state)
        with self.assertRaises(grpc.RpcError):
            cluster.runs.ResumeRun(run_id="run")
        details = client.error_of(cluster.runs.ResumeRun, run_id="run")
        self.assertEqual(details.code, grpc.StatusCode.FAILED_PRECONDITION)
        self.assertEqual(details.reason, "SHARD_FAULT")
        self.assertIn(VICTIM, details.message)
        # The coordinator forgets nothing of it.
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        self.check_reason(cluster.wait_state(
            cluster_module.PAUSED).run.state_reason)

        cluster.kill(VICTIM)
        for path in lost:
            os.rename(self.aside(path), path)
        cluster.restart(VICTIM)

        def resumed():
            try:
                return cluster.runs.ResumeRun(run_id="run").run
            except grpc.RpcError as error:
                self.assertIn(error.code(), (
                    grpc.StatusCode.FAILED_PRECONDITION,
                    grpc.StatusCode.UNAVAILABLE))
                return None

        run = wait.until("the run is resumed", resumed)
        self.assertEqual(run.state, cluster_module.ACTIVE)
        for member in members:
            member.wait_version(1)
            member.ready()
        for version in range(1, 3):
            toy.play_round(members, version, cases.seed())
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(cluster.parameters_sha256(), expected)

    def aside(self, path):
        return os.path.join(self.cluster.directory, os.path.basename(path))

    def check_reason(self, reason):
        self.assertIn(VICTIM, reason)
        self.assertRegex(reason, "shard [01] ")
        self.assertIn("DATA_LOSS", reason)
        self.assertIn(".seg", reason)
        self.assertIn("atoll run resume run", reason)

    def check_everywhere(self, state):
        cluster = self.cluster
        self.assertEqual([bool(s.fault) for s in state.servers],
                         [s.placement.server_id == VICTIM
                          for s in state.servers])
        self.check_reason(cluster.runs.GetRun(run_id="run").run.state_reason)
        for event in cluster.events():
            changed = event.run_state_changed
            if changed.state == cluster_module.PAUSED:
                self.check_reason(changed.reason)
                break
        shown = processes.run_cli("run", "show", "run", "--coordinator",
                                  cluster.coordinator_address, check=0)
        self.assertIn("PAUSED", shown.stdout)
        self.check_reason(" ".join(shown.stdout.split()))

    def test_a_run_whose_files_are_gone_pauses_too(self):
        cluster = self.cluster
        toy.start(cluster)
        cluster.kill(VICTIM)
        versions = damage.versions(cluster, VICTIM)
        for path in versions:
            os.rename(path, self.aside(path))
        cluster.restart(VICTIM)
        reason = cluster.wait_state(cluster_module.PAUSED).run.state_reason
        self.assertIn(VICTIM, reason)
        self.assertIn(".ver", reason)
        cluster.kill(VICTIM)
        for path in versions:
            os.rename(self.aside(path), path)
        cluster.restart(VICTIM)
        wait.until("the fault is gone", lambda: not any(
            s.fault for s in cluster.run_state().servers))
        self.assertEqual(cluster.runs.ResumeRun(run_id="run").run.state,
                         cluster_module.ACTIVE)


if __name__ == "__main__":
    cases.main()
