#!/usr/bin/python3
"""Joining, pausing, ending, and concurrent runs."""

import signal

import grpc

from harness import arithmetic
from harness import cases
from harness import client
from harness import cluster as cluster_module
from harness import python_island
from harness import run_file
from harness import toy
from harness import wait


class JoinerTest(cluster_module.IntegrationTest):

    def test_a_joiner_holds_exactly_the_committed_parameters(self):
        cluster = self.cluster
        first = toy.start(cluster, {"schedule": dict(
            toy.ELASTIC_SCHEDULE, island_count_min=1)}, island_count=1)[0]
        for version in range(2):
            toy.play_round([first], version, cases.seed())
        joiner = cluster.join(island_id="joiner")
        plan = joiner.newest_plan()
        self.assertEqual(plan.cut[0].version, 2)
        held = python_island.pull(cluster, joiner.response.run, plan.shards, 2)
        self.assertEqual(
            joiner.layout.fragment_digest(0, held),
            (plan.cut[0].digest.high, plan.cut[0].digest.low))
        # It holds version 0 and all merged steps, in f32.
        joiner.ready(plan.commit_seq)
        toy.play_round([first], 2, cases.seed(), ready=False)
        joiner.wait_open(3)
        self.assertIn(joiner.slot, [s.slot for s in python_island.find_open(
            joiner.plan, 0, 3).slots])
        first.ready()
        made = toy.gradients([first, joiner], 3, cases.seed())
        for contribution in made:
            contribution.push()
        first.wait_version(4)
        self.assertEqual(len(cluster.rounds()[3].contributions), 2)

    def test_an_island_that_joins_midway_contributes(self):
        cluster = self.cluster
        values = self.run_values(run_file.ELASTIC, {
            "schedule": {"island_count_min": 2}})
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(values)
        cluster.start_islands(count=2)
        cluster.wait_commits(3)
        cluster.start_island("run", "joiner")

        def contributed():
            cluster.check_alive()
            return [i for i in cluster.islands()
                    if i.island_id == "joiner" and i.merged_count >= 2]

        wait.until("the joiner is merged twice", contributed)
        mine = [(r.version, c) for r in cluster.rounds()
                for c in r.contributions if c.island_id == "joiner"]
        self.assertGreaterEqual(mine[0][1].info.anchor_version, 3)
        self.assert_rounds_whole(cluster, values)
        cluster.runs.CancelRun(run_id="run")

    def test_a_merge_is_the_mean_in_f32_in_the_order_of_slots(self):
        cluster = self.cluster
        members = toy.start(cluster)
        run = members[0].response.run
        plan = members[0].newest_plan()
        before = arithmetic.from_bytes(python_island.pull(
            cluster, run, plan.shards, 0))
        for member in members:
            member.wait_open(0)
        made = toy.gradients(members, 0, cases.seed())
        for contribution in reversed(made):
            contribution.push()
        members[0].wait_version(1)
        after = arithmetic.from_bytes(python_island.pull(
            cluster, run, plan.shards, 1))
        f32 = arithmetic.f32
        values = [arithmetic.from_bytes(c.payload) for c in made]
        expected = []
        for index, theta in enumerate(before):
            # Multiply, then add; theta - mean: old minus new is subtracted.
            mean = f32(0.5 * values[0][index])
            mean = f32(mean + f32(0.5 * values[1][index]))
            expected.append(f32(theta - mean))
        self.assertEqual(list(after), expected)

    def test_no_data_shard_is_free(self):
        cluster = self.cluster
        members = toy.start(cluster, {"data": {"data_shard_count": 2}})
        error = client.error_of(
            members[0].service.Join, run_id="run", island_id="third",
            capabilities=members[0].capabilities)
        self.assertEqual(error.code, grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIsNotNone(error.retry_delay_s, str(error))
        members[1].leave()
        wait.until("the shard of an island that left is given on",
                   lambda: self.try_join("third"))

    def try_join(self, island_id):
        try:
            return self.cluster.join(island_id=island_id)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            return None


class SteeringTest(cluster_module.IntegrationTest):

    def test_a_paused_run_commits_nothing_until_it_is_resumed(self):
        cluster = self.cluster
        members = toy.start(cluster)
        toy.play_round(members, 0, cases.seed())
        self.assertEqual(cluster.runs.PauseRun(run_id="run").run.state,
                         cluster_module.PAUSED)
        cluster.runs.PauseRun(run_id="run")
        members[0].wait_plan("the pause", lambda p: p.run_state == 3)
        state = cluster.run_state()
        self.assertEqual(state.commit_seq, 1)
        cluster.runs.ResumeRun(run_id="run")
        cluster.runs.ResumeRun(run_id="run")
        for version in range(1, 3):
            toy.play_round(members, version, cases.seed())
        cluster.wait_state(cluster_module.COMPLETED)
        undisturbed = self.new_cluster("undisturbed")
        self.assertEqual(
            cluster.parameters_sha256(),
            toy.play(undisturbed, toy.start(undisturbed), cases.seed()))

    def test_real_islands_are_paused_and_resumed_with_the_same_bits(self):
        values = self.run_values({"schedule": {"round_count": 6}})
        reference = self.run_strict(self.new_cluster("undisturbed"), values)
        cluster = self.cluster
        cluster.start_run(values)
        for commits in (1, 3):
            cluster.wait_commits(commits)
            cluster.runs.PauseRun(run_id="run")
            cluster.runs.ResumeRun(run_id="run")
        cluster.wait_commits(4)
        cluster.runs.PauseRun(run_id="run")
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        self.assertEqual(cluster.run_state().run.state, cluster_module.PAUSED)
        cluster.runs.ResumeRun(run_id="run")
        self.assertEqual(self.finish_strict(cluster, values), reference)

    def test_cancel_ends_a_run_and_settles_every_contribution(self):
        cluster = self.cluster
        members = toy.start(cluster)
        toy.play_round(members, 0, cases.seed())
        for member in members:
            member.wait_open(1)
        pushed = toy.gradients(members[:1], 1, cases.seed())[0].push()
        plans = members[0].service.WatchPlan(
            metadata=members[0].metadata, **members[0].who)
        run = cluster.runs.CancelRun(run_id="run").run
        self.assertEqual(run.state, cluster_module.CANCELLED)
        cluster.runs.CancelRun(run_id="run")
        # The watch ends with the run; its last plan has the final state.
        last = [response.plan for response in plans][-1]
        self.assertEqual(last.run_state, cluster_module.CANCELLED)
        outcomes = {o.key.seq: o.outcome for o in last.outcomes}
        self.assertEqual(outcomes.get(pushed.seq),
                         cluster_module.OUTCOME_CANCELLED)
        for method in (cluster.runs.PauseRun, cluster.runs.ResumeRun):
            error = client.error_of(method, run_id="run")
            self.assertEqual(error.code, grpc.StatusCode.FAILED_PRECONDITION)
        error = client.error_of(members[0].service.Join, run_id="run",
                                island_id="late",
                                capabilities=members[0].capabilities)
        self.assertEqual(error.code, grpc.StatusCode.FAILED_PRECONDITION)

    def test_who_holds_a_strict_round_up_is_named_and_can_be_put_out(self):
        cluster = self.cluster
        members = toy.start(cluster)
        toy.play_round(members, 0, cases.seed())
        for member in members:
            member.wait_open(1)
        spare = cluster.join(island_id="spare")
        spare.ready()
        # python-1 is a member, and pushes nothing.
        toy.gradients(members[:1], 1, cases.seed())[0].push()

        def held():
            rounds = cluster.run_state().waiting_rounds
            return rounds and rounds[0].received_count == 1 and rounds[0]

        waiting = wait.until("one contribution is received", held)
        self.assertEqual((waiting.fragment, waiting.version,
                          waiting.expected_count, waiting.awaited_count),
                         (0, 1, 2, 1))
        self.assertEqual(list(waiting.island_ids), ["python-1"])
        self.assertTrue(waiting.since_time.seconds)
        shown = cluster.run_cli("run", "show", "run", check=0).stdout
        self.assertIn("for python-1 since ", shown)
        self.assertIn("round 2 has 1 of 2", shown)

        cluster.run_cli("island", "remove", "run", "python-1", check=0)
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        cluster.coordinator.wait_ready(wait.PATIENCE_S)

        def refused():
            # The channel may not have noticed yet that it is back.
            error = client.error_of(members[1].service.Join, run_id="run",
                                    island_id="python-1",
                                    capabilities=members[1].capabilities)
            return error.code != grpc.StatusCode.UNAVAILABLE and error

        error = wait.until("the coordinator answers python-1", refused)
        self.assertEqual((error.code, error.reason),
                         (grpc.StatusCode.PERMISSION_DENIED, "ISLAND_REMOVED"))
        states = {i.island_id: i.state for i in cluster.islands()}
        self.assertEqual(states["python-1"], cluster_module.REMOVED)
        spare.wait_open(1)
        toy.gradients([spare], 1, cases.seed())[0].push()
        spare.wait_version(2)

        cluster.run_cli("island", "readmit", "run", "python-1", check=0)
        shown = cluster.run_cli("island", "list", "run", check=0).stdout
        self.assertRegex(shown, "python-1 .*READMITTED")
        cluster.join(island_id="python-1").ready()
        wrong = cluster.run_cli("island", "remove", "run", "nobody")
        self.assertEqual(wrong.returncode, 8, wrong.stderr)

    def test_real_islands_leave_a_cancelled_run(self):
        cluster = self.cluster
        cluster.start_run(self.run_values({"schedule": {
            "round_count": 100000}}))
        cluster.wait_commits(1)
        wait.until("every island tells its phase",
                   lambda: all(i.phase for i in cluster.islands()))
        shown = cluster.run_cli("run", "show", "run", check=0).stdout
        self.assertRegex(shown, "at work +[0-9]+ [A-Z_]+")
        cluster.runs.CancelRun(run_id="run")
        for index in range(3):
            name = "island-%d" % index
            cluster.may_end(name)
            status = cluster.processes[name].wait()
            self.assertIn(status, (0, 1, 9), cluster.processes[name].tail())

    def test_an_island_may_idle_once_its_run_has_ended(self):
        cluster = self.cluster
        cluster.start_service()
        cluster.create_run(self.run_values())
        cluster.start_islands(arguments=["--idle-after-run"])
        cluster.wait_state(cluster_module.COMPLETED)
        idle = cluster.processes["island-1"]
        wait.until("it idles",
                   lambda: "the run has ended: idle" in idle.tail())
        self.assertIsNone(idle.poll())
        # A process that finds the run complete idles, too.
        cluster.kill("island-1")
        idle = cluster.restart("island-1")
        wait.until("it idles again",
                   lambda: idle.tail().count("the run has ended: idle") == 2)
        idle.signal(signal.SIGTERM)
        self.assertEqual(idle.wait(), 0, idle.tail())

    def test_ctrl_c_leaves_cleanly(self):
        cluster = self.cluster
        cluster.start_run(self.run_values(run_file.ELASTIC))
        cluster.wait_commits(2)
        cluster.processes["island-2"].signal(signal.SIGINT)
        self.assertEqual(cluster.processes["island-2"].wait(), 0,
                         cluster.processes["island-2"].tail())
        self.assertEqual(
            [i.state for i in cluster.islands() if i.island_id == "island-2"],
            [cluster_module.LEFT])
        cluster.wait_commits(cluster.run_state().commit_seq + 2)
        cluster.runs.CancelRun(run_id="run")


class TwoRunsTest(cluster_module.IntegrationTest):

    def test_two_runs_at_once_do_not_touch_each_other(self):
        one = self.run_values()
        two = self.run_values({"init": {"seed": 99}, "inner": {"seed": 98},
                               "layout": {"fragment_count": 2}})
        alone = [self.run_strict(self.new_cluster("one"), one, "one"),
                 self.run_strict(self.new_cluster("two"), two, "two")]
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_servers(2)
        cluster.create_run(one, "one")
        cluster.create_run(two, "two")
        for run_id in ("one", "two"):
            cluster.start_islands(run_id)
        for run_id, values in (("one", one), ("two", two)):
            cluster.wait_state(cluster_module.COMPLETED, run_id)
            self.assert_strict_run_whole(cluster, values, run_id)
        self.assertEqual([cluster.parameters_sha256(r)
                          for r in ("one", "two")], alone)

    def test_a_secret_of_one_run_is_worth_nothing_in_another(self):
        cluster = self.cluster
        one = toy.start(cluster, run_id="one")
        two = toy.start(cluster, run_id="two")
        error = client.error_of(
            two[0].service.Heartbeat, run_id="two", island_id="python-0",
            island_epoch=two[0].epoch, metadata=one[0].metadata)
        self.assertIn(error.code, (grpc.StatusCode.UNAUTHENTICATED,
                                   grpc.StatusCode.PERMISSION_DENIED))


class SamplingTest(cluster_module.IntegrationTest):

    def test_a_federated_run_asks_a_seeded_sample_of_its_clients(self):
        def samples(name):
            cluster = self.new_cluster(name)
            members = toy.start(cluster, {"schedule": {
                "sample_fraction": 0.5, "sample_seed": 11,
                "island_count_min": 4, "min_quorum": 2, "round_count": 4}},
                                island_count=4)
            seen = []
            for version in range(4):
                # An island's plan has its own slot if it is sampled.
                asked = [m for m in members if m.wait_open(version).slots]
                self.assertEqual(len(asked), 2)
                seen.append([m.slot for m in asked])
                for member in asked:
                    toy.gradients([member], version, 1)[0].push()
                for member in members:
                    member.wait_version(version + 1)
                    member.ready()
            cluster.wait_state(cluster_module.COMPLETED)
            cluster.close()
            return seen

        first = samples("first")
        self.assertEqual(first, samples("second"))
        self.assertGreater(len({tuple(s) for s in first}), 1, first)


class CoordinatorRestartTest(cluster_module.IntegrationTest):

    def test_a_received_contribution_survives_the_coordinator(self):
        cluster = self.cluster
        members = toy.start(cluster)
        for member in members:
            member.wait_open(0)
        toy.gradients(members[:1], 0, cases.seed())[0].push()
        cluster.kill("coordinator")
        cluster.restart("coordinator")
        # Nothing is pushed again: the servers report what they hold.
        cluster.client(cluster.coordinator_address).wait_ready(wait.PATIENCE_S)
        members[1].wait_open(0)
        toy.gradients(members[1:], 0, cases.seed())[0].push()
        members[0].wait_version(1)
        self.assertEqual(len(cluster.rounds()[0].contributions), 2)

    def test_a_stored_contribution_survives_its_server(self):
        cluster = self.cluster
        members = toy.start(cluster)
        for member in members:
            member.wait_open(0)
        toy.gradients(members[:1], 0, cases.seed())[0].push()
        for name in ("server-0", "server-1"):
            cluster.kill(name)
            cluster.restart(name)
        members[1].wait_open(0)
        cluster.retry(toy.gradients(members[1:], 0, cases.seed())[0].push)
        members[0].wait_version(1)
        self.assertEqual(len(cluster.rounds()[0].contributions), 2)


if __name__ == "__main__":
    cases.main()
