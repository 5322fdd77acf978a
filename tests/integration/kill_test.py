#!/usr/bin/python3
"""kill -9 before and after every durable record, then a restart.

One case for each failpoint in a program; the names come from the binaries, so a
new one needs no change here. The victim kills itself at the point and is
restarted, and the run must end with the bits of the undisturbed run. A point
that is never reached fails its case.
"""

import hashlib
import os
import shutil
import signal
import time

import grpc

from harness import cases
from harness import churn
from harness import client
from harness import cluster as cluster_module
from harness import damage
from harness import mirror
from harness import processes
from harness import run_file
from harness import toy
from harness import wait

# Points that a strict run passes once. All others are armed for their second
# hit, so that there is something to lose.
ONCE = (
    "coordinator.epoch.",
    "coordinator.run.",
    "coordinator.audit.",
    "coordinator.start.",
    "coordinator.placement.",
    "server.incarnation.",
    "server.run.",
    "server.version0.",
    "island.joined.",
    # Each evaluation is by another island.
    "island.evaluated.",
)

# Points that are armed later: the first snapshots cover little and delete
# nothing.
LATER = {"coordinator.snapshot.": 3}

# Points that an undisturbed strict run does not pass, and their scenario (a
# method of SpecialKillTest). A new point that needs a scenario and has none
# fails its case.
SPECIAL = {
    "server.refused.": "refuse",
    "server.drop.": "late",
    "server.lost.": "lose",
    "server.manifest.": "manifest",
    "server.kept.": "keep",
    "coordinator.outcome.": "late",
    "coordinator.abort.": "abort",
    "coordinator.pin.": "pin",
    "coordinator.unpin.": "pin",
    "coordinator.removal.": "remove",
    "coordinator.readmission.": "remove",
    "island.leave.": "leave",
    "coordinator.verdict.": "verdict",
    "server.measured.": "verdict",
    "coordinator.delete.": "delete",
    "coordinator.forget.": "delete",
    "server.delete.": "delete",
    "coordinator.token.": "enrol",
    "coordinator.identity.": "enrol",
    "coordinator.restore.": "restore",
    "server.restore.": "restore",
    "server.download.": "replace",
    "server.mirror_": "mirror",
    "coordinator.mirror_": "mirror",
    "coordinator.cluster_object.": "know",
    "coordinator.run_owner.": "own",
    "coordinator.unpushed.": "tell",
}


def scenario_of(name):
    for prefix, scenario in SPECIAL.items():
        if name.startswith(prefix):
            return scenario
    return None


class KillTest(cluster_module.IntegrationTest):
    """Three islands and two servers; one of all these dies once.

    The coordinator takes a snapshot after every record, so that it usually
    restarts from one; the undisturbed run takes none.
    """

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.values = cls.run_values({"evaluation": {"every_round_count": 1}})

    def setUp(self):
        super().setUp()
        self.reference, self.spec = self.once("undisturbed", lambda cluster: (
            self.run_strict(cluster, self.values), cluster.spec()))

    def point(self, name):
        if any(name.startswith(prefix) for prefix in ONCE):
            return name
        for prefix, time in LATER.items():
            if name.startswith(prefix):
                return "%s@%d" % (name, time)
        return name + "@2"

    def kill_at(self, victim, name):
        self.assert_a_death_changes_no_bit(
            self.cluster, self.values, self.reference, victim,
            self.point(name),
            lambda armed: self.cluster.start_armed(self.spec, armed))


class SpecialKillTest(cluster_module.IntegrationTest):
    """Points that only faults reach; islands in Python cause the faults."""

    def kill_at(self, victim, name):
        self.victim, self.name = victim, name
        getattr(self, scenario_of(name))()

    def start(self, *changes, island_count=3):
        """A toy run whose first round is open; the victim is armed."""
        cluster = self.cluster
        cluster.start_service({self.victim: self.name})
        members = toy.start(cluster, *changes, island_count=island_count)
        for member in members:
            member.wait_open(0)
        return members

    def revive(self):
        self.cluster.await_failpoint(self.victim)
        self.cluster.restart(self.victim)
        self.cluster.coordinator.wait_ready(wait.PATIENCE_S)

    def dying(self, call, *args, **kwargs):
        """Makes a call during which the server may die."""
        try:
            return call(*args, **kwargs)
        except grpc.RpcError as error:
            self.assertIn(error.code(), (
                grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED,
                grpc.StatusCode.UNKNOWN, grpc.StatusCode.INVALID_ARGUMENT,
                # Decided meanwhile: the run is faster than the push.
                grpc.StatusCode.ABORTED))
            return None

    def expected(self, *changes, members=slice(None), island_count=3,
                 round_count=2):
        def play(cluster):
            everyone = toy.start(cluster, *changes, island_count=island_count)
            for member in everyone:
                member.wait_open(0)
            taking_part = everyone[members]
            for member in everyone:
                if member not in taking_part:
                    member.leave()
            return toy.play(cluster, taking_part, cases.seed(), round_count)

        return self.once((changes, members, island_count, round_count), play)

    def refuse(self):
        expected = self.expected(toy.TRIO, members=slice(1, None))
        liar, *honest = self.start(toy.TRIO)
        bad = toy.poison(liar, 0)
        shard = [p.server_id for p in liar.plan.shards].index(self.victim)
        self.dying(bad.push_to, shard)
        self.revive()

        def refused():
            try:
                bad.push_to(shard)
            except grpc.RpcError as error:
                return error.code() == grpc.StatusCode.INVALID_ARGUMENT
            raise AssertionError("NaN was stored")

        wait.until("the poison is refused", refused)
        toy.play_round(honest, 0, cases.seed())
        self.assertEqual(liar.wait_outcome(bad.seq).outcome,
                         cluster_module.REJECTED)
        liar.leave()
        toy.play_round(honest, 1, cases.seed())
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(), expected)

    def push_until_stored(self, contribution):
        """Repeats a push, like islands while a server restarts. Also ends when
        the round is over, with the contribution or without."""

        def stored():
            try:
                contribution.push()
                return True
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.ABORTED:
                    return True
                return None

        wait.until("the contribution is stored", stored)

    def late(self):
        slow, *fast = self.start({"schedule": dict(
            toy.ELASTIC_SCHEDULE, min_quorum=2, island_count_min=3)})
        for contribution in toy.gradients(fast, 0, cases.seed()):
            contribution.push()
        for member in fast:
            member.wait_version(1)
        late = slow.contribution(slow.random_values("late"), 0, step_count=4)
        # The victim first: the other shard may learn of the outcome before the
        # push, and then has nothing to drop.
        order = sorted(range(2), key=lambda s:
                       slow.plan.shards[s].server_id != self.victim)
        for shard in order:
            self.dying(late.push_to, shard)
        self.revive()
        self.push_until_stored(late)
        outcome = slow.wait_outcome(late.seq).outcome
        self.assertIn(outcome, (cluster_module.LATE, cluster_module.STALE))
        for r in self.cluster.rounds():
            for c in r.contributions:
                if c.info.key.slot == slow.slot:
                    self.assertNotEqual(c.outcome, cluster_module.MERGED)

    def lose(self):
        changes = {"schedule": {"round_count": 2}}
        members = self.start(changes, island_count=2)
        made = toy.gradients(members, 0, cases.seed())
        made[0].push()
        for path in damage.segments(self.cluster, self.victim):
            damage.flip(path)
        self.dying(made[1].push)
        self.revive()

        def merged():
            # Contributions that are found lost only now must be pushed again.
            for contribution in made:
                try:
                    contribution.push()
                except (grpc.RpcError, ValueError):
                    pass
            return members[0].newest_plan().cut[0].version == 1

        wait.until("the round is committed", merged)
        for member in members:
            member.wait_version(1)
            member.ready()
        toy.play_round(members, 1, cases.seed())
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(),
                         self.expected(changes, island_count=2))

    def tell(self):
        """Work that was never pushed counts once, however often it is told."""
        member = self.start()[0]
        work = {"run_epoch": 1, "fragment": 0, "version": 0, "step_count": 3,
                "token_count": 12}

        def told():
            return self.dying(member.service.ReportProgress, unpushed=[work],
                              metadata=member.metadata, **member.who)

        told()
        self.revive()
        wait.until("the work is told", lambda: told() is not None)
        island, = [i for i in self.cluster.islands() if i.slot == member.slot]
        self.assertEqual(island.totals.unpushed_step_count, 3)
        self.assertEqual(island.totals.unpushed_token_count, 12)
        self.cluster.runs.CancelRun(run_id="run")

    def manifest(self):
        changes = {"schedule": {"round_count": 2},
                   "checkpoint_every_round_count": 1}
        members = self.start(changes, island_count=2)
        for contribution in toy.gradients(members, 0, cases.seed()):
            self.dying(contribution.push)
        self.revive()
        for member in members:
            member.wait_version(1)
            member.ready()
        toy.play_round(members, 1, cases.seed())
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.cluster.wait_durable("round-1", "final")
        self.assertEqual(self.cluster.parameters_sha256(),
                         self.expected(changes, island_count=2))

    def mirror(self):
        cluster = self.cluster
        mirror.use(cluster)
        changes = {"schedule": {"round_count": 4},
                   "checkpoint_every_round_count": 1}
        members = self.start(
            changes, {"checkpoint": {"keep_count": 2, "mirror": True}},
            island_count=2)
        for contribution in toy.gradients(members, 0, cases.seed()):
            self.dying(contribution.push)
        cluster.await_failpoint(self.victim)
        stamps = mirror.stamps(cluster)
        self.revive()
        for member in members:
            member.wait_version(1)
            member.ready()
        for version in range(1, 4):
            toy.play_round(members, version, cases.seed())
        cluster.wait_state(cluster_module.COMPLETED)
        mirror.wait_whole(cluster)
        after = mirror.stamps(cluster)
        for name in stamps.keys() & after.keys():
            self.assertEqual(after[name], stamps[name], name)
        self.assertEqual(
            cluster.parameters_sha256(),
            self.expected(changes, island_count=2, round_count=4))

    def know(self):
        cluster = self.cluster
        mirror.use(cluster)
        # The first object has the starts of init and of now, the second has a
        # server.
        cluster.start_coordinator(failpoint=self.name + "@2")
        cluster.start_servers(2)
        self.revive()

        def known():
            found = mirror.cluster_object(cluster) or {}
            return (len(found.get("servers", [])), len(found.get("starts", [])))

        wait.until("the mirror knows all", lambda: known() == (2, 3) or None)
        wait.until("the two newest objects stay",
                   lambda: len(mirror.cluster_objects(cluster)) == 2 or None)

    def own(self):
        cluster = self.cluster
        mirror.use(cluster)
        cluster.start_coordinator()
        cluster.start_servers(2)
        toy.create(cluster, {"server_count": 2, "checkpoint": {"mirror": True},
                             "checkpoint_every_round_count": 1})

        def wait_owned():
            wait.until("the cluster owns the run", lambda: (
                mirror.owner(cluster)["run_epoch"] == "1" or None))

        wait_owned()
        cluster.kill("coordinator")
        mirror.forget_owners(cluster)
        cluster.restart("coordinator", self.name)
        self.revive()
        wait_owned()

    def keep(self):
        changes = {"schedule": {"round_count": 2}}
        members = self.start(changes, island_count=2)
        self.cluster.pin(pin_id="audit", keep_bytes_max=1 << 30)
        toy.play_round(members, 0, cases.seed())
        wait.until("each has kept it", lambda: all(
            server.persisted_commit_seq >= 1
            for server in self.cluster.run_state().servers))
        self.cluster.pin(pin_id="audit", release=True)
        self.revive()
        for contribution in toy.gradients(members, 1, cases.seed()):
            self.push_until_stored(contribution)
        self.cluster.wait_state(cluster_module.COMPLETED)
        # There would be two per round, if any were kept.
        wait.until("what was kept is gone", lambda: damage.segment_count(
            self.cluster, self.victim) == 0)
        self.assertEqual(self.cluster.parameters_sha256(),
                         self.expected(changes, island_count=2))

    def abort(self):
        members = self.start(toy.STEEP, {"schedule": {"round_count": 2}},
                             island_count=2)
        bad = [toy.overflow(member, 0) for member in members]
        for contribution in bad:
            self.dying(contribution.push)
        self.revive()
        state = self.cluster.wait_state(cluster_module.PAUSED)
        self.assertIn("finite", state.run.state_reason)
        for member, contribution in zip(members, bad):
            outcome = member.wait_outcome(contribution.seq)
            self.assertEqual(outcome.outcome, cluster_module.DROPPED)
            self.assertNotEqual(outcome.reason, "")
        self.cluster.runs.ResumeRun(run_id="run")
        self.assertEqual(
            toy.play(self.cluster, members, cases.seed(), 2),
            self.expected(toy.STEEP, {"schedule": {"round_count": 2}},
                          island_count=2))

    def verdict(self):
        changes = toy.robust(toy.KRUM, {"schedule": {"round_count": 2}})
        expected = self.expected(*changes, island_count=5)
        members = self.start(*changes, island_count=5)
        pushed = toy.gradients(members, 0, cases.seed())
        for contribution in pushed:
            self.dying(contribution.push)
        self.revive()
        for contribution in pushed:
            self.push_until_stored(contribution)
        for member in members:
            member.wait_version(1)
            member.ready()
        toy.play_round(members, 1, cases.seed())
        self.cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(self.cluster.parameters_sha256(), expected)

    def pin(self):
        members = self.start(island_count=2)
        toy.play_round(members, 0, cases.seed())
        cluster = self.cluster
        release = ".unpin." in self.name
        if release:
            cluster.pin(pin_id="mine")
        self.dying(cluster.pin, pin_id="mine", release=release)
        self.revive()
        pinned = cluster.pin(pin_id="mine", release=release)
        toy.play_round(members, 1, cases.seed())
        toy.play_round(members, 2, cases.seed())
        names = [c.pin.pin_id for c in cluster.state.ListCheckpoints(
            run_id="run").checkpoints]
        self.assertEqual(names.count("mine"), 0 if release else 1)
        if not release:
            self.assertEqual(pinned.pin.cut[0].version, 1)
            cluster.parameters(pinned=pinned)

    def without_one(self, cluster, members, take_out, let_in):
        """Plays a run of four rounds, two of them without the third island;
        returns its SHA-256."""
        toy.play_round(members, 0, cases.seed())
        pair = members[:2]
        for contribution in toy.gradients(pair, 1, cases.seed()):
            contribution.push()
        take_out()
        for member in pair:
            member.wait_version(2)
            member.ready()
        let_in()
        third = cluster.join("run", "python-2")
        third.ready()
        toy.play_round(pair, 2, cases.seed())
        toy.play_round(pair + [third], 3, cases.seed())
        cluster.wait_state(cluster_module.COMPLETED)
        return cluster.parameters_sha256()

    def remove(self):
        changes = {"schedule": {"round_count": 4, "island_count_min": 3}}

        def play(cluster):
            members = toy.start(cluster, changes, island_count=3)
            return self.without_one(cluster, members, members[2].leave,
                                    lambda: None)

        expected = self.once("without one", play)

        def state():
            return {i.island_id: i.state for i in self.cluster.islands()}[
                "python-2"]

        def steer(readmit, before, after):
            def call():
                return self.cluster.runs.RemoveIsland(
                    run_id="run", island_id="python-2", readmit=readmit)
            if (".readmission." in self.name) == readmit:
                self.dying(call)
                self.revive()
                self.assertEqual(
                    state(), after if self.name.endswith(".after") else before)
            call()
            self.assertEqual(state(), after)

        members = self.start(changes, island_count=3)
        self.assertEqual(expected, self.without_one(
            self.cluster, members,
            lambda: steer(False, cluster_module.READY, cluster_module.REMOVED),
            lambda: steer(True, cluster_module.REMOVED,
                          cluster_module.READMITTED)))

    def delete(self):
        cluster = self.cluster
        members = self.start({"schedule": {"round_count": 1}}, island_count=2)
        toy.play(cluster, members, cases.seed(), 1)
        self.dying(cluster.runs.DeleteRun, run_id="run")
        self.revive()

        def deleted():
            try:
                waiting = cluster.runs.DeleteRun(run_id="run")
                return not waiting.waiting_server_ids
            except grpc.RpcError as error:
                return error.code() == grpc.StatusCode.NOT_FOUND

        wait.until("the run is deleted", deleted)
        churn.wait_gone(cluster)
        self.assertEqual(list(cluster.retry(cluster.runs.ListRuns).runs), [])

    def enrol(self):
        """One use of a token makes one identity, of one key."""
        cluster = self.cluster
        self.start()
        service = cluster.coordinator.service("EnrolmentService")
        token = dict(token_id="abcdefghijkl", run_id="run", role=1)
        made = dict(token, use_count_max=1, expire_time={
            "seconds": int(time.time()) + 3600})

        def call(method, **fields):
            cluster.retry(service.AnnounceGate, address="gate:1",
                          pin="p" * 43)
            try:
                return method(**fields)
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE,
                                        grpc.StatusCode.CANCELLED):
                    raise
            self.revive()
            return call(method, **fields)

        def consume(key):
            return call(service.ConsumeToken, token_secret=b"secret",
                        key_sha256=key * 32, lifetime={"seconds": 60},
                        **token).grant

        call(service.CreateToken, token=made,
             secret_sha256=hashlib.sha256(b"secret").digest())
        grant = consume(b"a")
        self.assertEqual(consume(b"a"), grant)
        error = client.error_of(consume, b"b")
        self.assertEqual(error.reason, "TOKEN_USED", str(error))
        events = service.ListAuditRecords().records
        self.assertEqual([e.action for e in events if e.subject in (
            "abcdefghijkl", grant.identity.name)],
            ["token.create", "island.enrol"])

    def restore(self):
        changes = {"checkpoint_every_round_count": 1}
        cluster = self.cluster
        members = self.start(changes, island_count=2)
        for version in range(2):
            toy.play_round(members, version, cases.seed())
        cluster.wait_durable("round-1", "round-2")
        ask = {"run_id": "run", "from": "round-1"}
        self.dying(cluster.runs.RestoreRun, **ask)
        self.revive()
        self.assertEqual(cluster.retry(
            lambda: cluster.runs.RestoreRun(**ask)).run.run_epoch, 2)
        for member in members:
            member.wait_plan("the restore is in the plan",
                             lambda plan: plan.run_epoch == 2)
            member.ready()
        for version in range(1, 3):
            for member in members:
                member.wait_open(version)
            for contribution in toy.gradients(members, version, cases.seed()):
                self.push_until_stored(contribution)
            for member in members:
                member.wait_version(version + 1)
                member.ready()
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(
            cluster.parameters_sha256(),
            self.expected(changes, island_count=2, round_count=3))

    def replace(self):
        changes = {"checkpoint_every_round_count": 1}
        cluster = self.cluster
        mirror.use(cluster)
        cluster.start_service()
        members = toy.start(cluster, changes, {"checkpoint": {"mirror": True}})
        for version in range(2):
            toy.play_round(members, version, cases.seed())
        mirror.wait_whole(cluster)
        cluster.kill(self.victim)
        shutil.rmtree(os.path.join(cluster.directory, self.victim))

        def wait_replaced(what, holds):
            def reached():
                cluster.check_alive()
                answer = cluster.runs.ReplaceServer(server_id=self.victim)
                return holds(answer)
            wait.until(what, reached)

        wait_replaced("it may come back", lambda a: not a.registered)
        cluster.restart(self.victim, self.name)
        wait_replaced("it lacks what the run needs",
                      lambda a: a.registered and all(r.lost for r in a.runs))
        cluster.runs.RestoreRun(run_id="run")
        cluster.await_failpoint(self.victim)
        cluster.restart(self.victim)
        for member in members:
            member.wait_plan("the restore is in the plan",
                             lambda plan: plan.run_epoch == 2)
            member.ready()
        toy.play_round(members, 2, cases.seed())
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(
            cluster.parameters_sha256(),
            self.expected(changes, island_count=2, round_count=3))

    def leave(self):
        values = self.run_values(run_file.ELASTIC)
        cluster = self.cluster
        cluster.start_run(values, {self.victim: self.name})
        cluster.wait_commits(2)
        cluster.processes[self.victim].signal(signal.SIGINT)
        cluster.await_failpoint(self.victim)
        cluster.wait_commits(cluster.run_state().commit_seq + 3)
        self.assert_rounds_whole(cluster, values)
        cluster.runs.CancelRun(run_id="run")


class StormTest(cluster_module.IntegrationTest):

    def test_a_kill_after_every_commit_changes_no_bit(self):
        values = self.run_values({"schedule": {"round_count": 8}})
        reference = self.run_strict(self.new_cluster("undisturbed"), values)
        self.cluster.start_run(values)
        kills = self.cluster.kill_after_every_commit(8)
        self.assertEqual(self.finish_strict(self.cluster, values), reference,
                         kills)
        self.assertGreaterEqual(len(kills), 5, "too few kills to prove it")

    def test_all_processes_die_at_once_and_come_back(self):
        values = self.run_values({"schedule": {"round_count": 6}})
        reference = self.run_strict(self.new_cluster("undisturbed"), values)
        cluster = self.cluster
        cluster.start_run(values)
        cluster.wait_commits(2)
        names = list(cluster.processes)
        for name in names:
            cluster.kill(name)
        for name in names:
            cluster.restart(name)
        self.assertEqual(self.finish_strict(cluster, values), reference)


class SteeringKillTest(cluster_module.IntegrationTest):
    """The record of a run's state after an operator's change."""

    def steer(self, point, calls, state):
        cluster = self.cluster
        # The first such record made the run active.
        cluster.start_coordinator(failpoint="coordinator.state.%s@%d" % (
            point, 1 + len(calls)))
        cluster.start_servers(2)
        members = toy.start(cluster)
        toy.play_round(members, 0, cases.seed())
        for name in calls[:-1]:
            getattr(cluster.runs, name)(run_id="run")
        last = getattr(cluster.runs, calls[-1])
        try:
            last(run_id="run")
        except grpc.RpcError as error:
            self.assertIn(error.code(), (grpc.StatusCode.UNAVAILABLE,
                                         grpc.StatusCode.CANCELLED))
        cluster.await_failpoint("coordinator")
        cluster.restart("coordinator")
        cluster.coordinator.wait_ready(wait.PATIENCE_S)
        self.assertEqual(last(run_id="run").run.state, state)
        if state == cluster_module.CANCELLED:
            return
        cluster.runs.ResumeRun(run_id="run")
        for version in range(1, 3):
            toy.play_round(members, version, cases.seed())
        cluster.wait_state(cluster_module.COMPLETED)

    def test_killed_before_a_pause(self):
        self.steer("before", ["PauseRun"], cluster_module.PAUSED)

    def test_killed_after_a_pause(self):
        self.steer("after", ["PauseRun"], cluster_module.PAUSED)

    def test_killed_before_a_resume(self):
        self.steer("before", ["PauseRun", "ResumeRun"], cluster_module.ACTIVE)

    def test_killed_after_a_resume(self):
        self.steer("after", ["PauseRun", "ResumeRun"], cluster_module.ACTIVE)

    def test_killed_before_a_cancel(self):
        self.steer("before", ["CancelRun"], cluster_module.CANCELLED)

    def test_killed_after_a_cancel(self):
        self.steer("after", ["CancelRun"], cluster_module.CANCELLED)


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
            if ".unknown." in name:
                continue
            for victim in victims:
                def case(self, victim=victim, name=name):
                    self.kill_at(victim, name)
                test = SpecialKillTest if scenario_of(name) else KillTest
                title = "test_%s_%s" % (victim.replace("-", "_"),
                                        name.replace(".", "_"))
                setattr(test, title, case)


_add_cases()

if __name__ == "__main__":
    cases.main()
