#!/usr/bin/python3
"""A volunteer's machine: limits, pause, resume, finish, service."""

import datetime
import json
import os
import re
import signal
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import processes  # noqa: E402
from harness import run_file  # noqa: E402
from harness import wait  # noqa: E402

_ENDLESS = {"schedule": {"round_count": 1000000, "island_count_min": 1,
                         "min_quorum": 1}}
# The preset's own values.
_AS_SHIPPED = {"schedule": {"island_count_min": None, "min_quorum": None,
                            "lease_duration": None}}


class VolunteerTest(cluster_module.IntegrationTest):

    def start(self, *changes):
        """A run of the preset `volunteers`, which one island is enough for."""
        self.cluster.start_service()
        self.cluster.create_run(run_file.merged(
            run_file.VOLUNTEERS, {"data": {"path": self.text}}, _ENDLESS,
            *changes))

    def island(self, *arguments, island_id="kitchen"):
        return self.cluster.start_island("run", island_id,
                                         arguments=arguments)

    def environment(self):
        return {"XDG_STATE_HOME": os.path.join(self.cluster.directory,
                                               "state")}

    def local(self, *arguments, check=0):
        done = processes.run_cli("local", *arguments, "-o", "json",
                                 env=self.environment(), check=check)
        return json.loads(done.stdout)

    def status(self, *arguments):
        return self.local("status", *arguments)["data"]

    def wait_status(self, what, predicate):
        """Waits until a running island has a status with `predicate`."""
        def reached():
            self.cluster.check_alive()
            done = processes.run_cli("local", "status", "-o", "json",
                                     env=self.environment())
            if done.returncode != 0:
                return None
            status = json.loads(done.stdout)["data"]
            return status if predicate(status) else None

        return wait.until(what, reached)

    def log_of(self, process):
        with open(process.log_path, encoding="utf-8") as log:
            return log.read()

    def result(self, process):
        """What a join that has ended printed at its end."""
        text = self.log_of(process)
        found = re.search(r"^\{\n.*?^\}\n", text, re.DOTALL | re.MULTILINE)
        self.assertTrue(found, text[-2000:])
        return json.loads(found.group())["data"]

    # --- atoll local ------------------------------------------------------------

    def test_pause_resume_and_finish(self):
        cluster = self.cluster
        self.start()
        process = self.island("-o", "json")
        cluster.wait_commits(2)
        status = self.wait_status(
            "a contribution is merged",
            lambda s: s["contributions"]["merged"] > 0)
        self.assertEqual((status["run_id"], status["island_id"]),
                         ("run", "kitchen"))
        self.assertGreater(status["merged_tokens"], 0)
        self.assertEqual(
            self.local("pause", "--for", "2h")["data"]["state"], "paused")
        held = self.wait_status(
            "it is paused", lambda s: s["state"] == "paused")
        self.assertEqual(held["reason"], "atoll local pause")
        self.assertIsNotNone(held["until"])

        wait.until("it waits for its user",
                   lambda: "paused by its user: atoll local pause" in
                   self.log_of(process))
        # What is in flight may still be merged.
        step = self.status()["step"]
        self.assertEqual(
            [i.island_id for i in cluster.islands()], ["kitchen"])
        self.assertEqual(self.status()["step"], step)
        self.assertNotEqual(self.local("resume")["data"]["state"], "finishing")
        seq = cluster.run_state().commit_seq
        cluster.wait_commits(seq + 2)
        done = self.local("finish", "--wait")
        self.assertEqual(done["data"]["state"], "finishing")
        self.assertEqual(process.wait(), 0)
        data = self.result(process)
        self.assertGreater(data["contributions"]["merged"], 0)
        self.assertEqual(data["contributions"]["dropped"], 0)
        self.assertEqual(cluster.run_state().run.state, cluster_module.ACTIVE)
        self.assertEqual(self.local("status", check=8)["error"]["reason"],
                         "NO_ISLAND")

    def test_a_paused_island_holds_up_no_other(self):
        cluster = self.cluster
        self.start(_AS_SHIPPED)
        others = {"attic", "cellar", "hall"}
        for name in sorted(others | {"kitchen"}):
            self.island(island_id=name)
        cluster.wait_commits(1)
        self.local("pause", "--island", "kitchen")

        def merged_alone():
            cluster.check_alive()
            last = cluster.rounds()[-2:]
            return len(last) == 2 and all(
                {c.island_id for c in r.contributions
                 if c.outcome == cluster_module.MERGED} == others
                for r in last)

        wait.until("two rounds go on without kitchen", merged_alone)
        # It is still a member: no lease had to end.
        self.assertIn("kitchen", [i.island_id for i in cluster.islands()])
        self.assertEqual(
            self.status("--island", "kitchen")["reason"], "atoll local pause")

    def test_a_strict_run_waits_for_a_paused_island(self):
        cluster = self.cluster
        cluster.start_service()
        cluster.create_run(self.run_values(
            _ENDLESS, {"schedule": {"island_count_min": 2, "min_quorum": 2,
                                    "lease_duration": "1h"}}))
        kitchen = self.island()
        self.island(island_id="attic")
        cluster.wait_commits(1)
        status = self.local("pause", "--island", "kitchen")["data"]
        self.assertIn("the round waits for this island", status["reason"])
        self.assertIsNone(status["until"])
        # It finishes the exchange that it is in, and then trains no step.
        wait.until("kitchen waits for its user",
                   lambda: "paused by its user: atoll local pause" in
                   self.log_of(kitchen))

        def held():
            cluster.check_alive()
            state = cluster.run_state()
            return (len(state.waiting_rounds) == 1 and
                    state.waiting_rounds[0].received_count == 1 and
                    list(state.waiting_rounds[0].island_ids) == ["kitchen"]
                    and state)

        state = wait.until("the round waits for kitchen alone", held)
        step = self.status("--island", "kitchen")["step"]
        # The next heartbeat says why.
        shown = wait.until(
            "the operator sees who paused it", lambda: [
                text for text in [
                    cluster.run_cli("run", "show", "run", check=0).stdout]
                if "kitchen does not train: paused by its user\n" in text])[0]
        self.assertIn("for kitchen since ", shown)
        self.assertEqual(self.status("--island", "kitchen")["step"], step)
        self.assertEqual(cluster.run_state().commit_seq, state.commit_seq)

        self.local("resume", "--island", "kitchen")
        cluster.wait_commits(state.commit_seq + 2)
        for after in cluster.rounds():
            if after.commit_seq > state.commit_seq:
                self.assertEqual(
                    {c.island_id for c in after.contributions
                     if c.outcome == cluster_module.MERGED},
                    {"kitchen", "attic"})

    def test_a_strict_run_goes_on_without_an_island_that_stays_paused(self):
        cluster = self.cluster
        cluster.start_service()
        cluster.create_run(self.run_values(
            _ENDLESS, {"schedule": {"island_count_min": 2, "min_quorum": 1,
                                    "lease_duration": "5s"}}))
        self.island()
        self.island(island_id="attic")
        cluster.wait_commits(1)
        self.local("pause", "--island", "kitchen")

        def merged_alone(island_ids):
            cluster.check_alive()
            last = cluster.rounds()[-1]
            return {c.island_id for c in last.contributions
                    if c.outcome == cluster_module.MERGED} == island_ids

        wait.until("the run goes on without kitchen",
                   lambda: merged_alone({"attic"}))
        self.assertEqual(
            self.status("--island", "kitchen")["reason"], "atoll local pause")
        self.local("resume", "--island", "kitchen")
        wait.until("kitchen is back",
                   lambda: merged_alone({"kitchen", "attic"}))

    def test_several_islands_are_told_apart(self):
        cluster = self.cluster
        self.start()
        self.island()
        self.island(island_id="attic")
        wait.until("both run", lambda: len(cluster.islands()) == 2)
        error = self.local("status", check=2)["error"]
        self.assertIn("run/kitchen", error["message"])
        self.assertIn("run/attic", error["message"])
        self.assertEqual(self.status("--island", "attic")["island_id"],
                         "attic")
        again = processes.run_cli(
            "join", cluster.coordinator_address, "--run", "run",
            "--island-id", "attic", "--dir",
            os.path.join(cluster.directory, "attic"), env=self.environment(),
            check=9)
        self.assertIn("already runs on this machine", again.stderr)
        # What a killed island leaves is no island.
        cluster.kill("attic")
        self.assertEqual(self.status()["island_id"], "kitchen")
        self.island(island_id="attic")
        wait.until("it is back", lambda: processes.run_cli(
            "local", "status", "--island", "attic",
            env=self.environment()).returncode == 0)

    # --- Limits -----------------------------------------------------------------

    def test_it_waits_for_its_hours_and_a_strict_run_refuses_them(self):
        cluster = self.cluster
        self.start()
        now = datetime.datetime.now()
        hours = "-".join((now + datetime.timedelta(hours=h)).strftime("%H:%M")
                         for h in (3, 4))
        process = self.island("--hours", hours)
        status = self.wait_status("it is paused",
                                  lambda s: s["state"] == "paused")
        self.assertEqual(status["reason"], "outside of --hours " + hours)
        self.assertIsNotNone(status["until"])
        self.assertEqual(list(cluster.islands()), [])
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(), 0)
        cluster.create_run(self.run_values(_ENDLESS), "strict")
        refused = processes.run_cli(
            "join", cluster.coordinator_address, "--run", "strict",
            "--hours", hours, "-o", "json", env=self.environment(), check=9)
        self.assertEqual(json.loads(refused.stdout)["error"]["reason"],
                         "STRICT_RUN")

    def test_a_days_transfer_is_kept_over_a_restart(self):
        self.start()
        limit = ("--daily-transfer", "1kB")
        self.island(*limit)
        first = self.wait_status("its day is used",
                                 lambda s: s["state"] == "paused")
        self.assertIn("--daily-transfer", first["reason"])
        self.assertEqual(first["day_bytes_max"], 1000)
        path = os.path.join(self.cluster.directory, "kitchen",
                            "transfer.json")

        def kept_bytes():
            if not os.path.exists(path):
                return 0
            with open(path, encoding="utf-8") as file:
                return json.load(file)["bytes"]

        wait.until("it is on the disk", lambda: kept_bytes() >= 1000)
        self.cluster.kill("kitchen")
        kept = kept_bytes()
        self.island(*limit)
        again = self.wait_status("it is paused at once",
                                 lambda s: s["state"] == "paused")
        self.assertGreaterEqual(again["day_bytes"], kept)
        self.assertEqual(again["step"], 0)

    def test_a_run_that_needs_more_memory_is_not_joined(self):
        cluster = self.cluster
        self.start()
        refused = processes.run_cli(
            "join", cluster.coordinator_address, "--run", "run", "--memory",
            "1MB", "-o", "json", env=self.environment(), check=10)
        error = json.loads(refused.stdout)["error"]
        self.assertEqual(error["reason"], "TOO_LITTLE_MEMORY")
        self.assertIn("--memory lends 1.0 MB", error["message"])
        self.assertEqual(list(cluster.islands()), [])

    # --- The service ------------------------------------------------------------

    def test_a_service_is_installed_or_nothing_is_left(self):
        root = os.path.join(self.cluster.directory, "service")
        calls = os.path.join(root, "calls")
        os.makedirs(os.path.join(root, "bin"))
        fake = os.path.join(root, "bin", "systemctl")
        unit = os.path.join(root, "config", "systemd", "user",
                            "atoll-run.service")
        environment = dict(self.environment(), XDG_CONFIG_HOME=os.path.join(
            root, "config"), PATH=os.path.dirname(fake) + ":/usr/bin:/bin")

        def install(script, check):
            with open(fake, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho \"$@\" >> %s\n%s\n" % (calls,
                                                                  script))
            os.chmod(fake, 0o755)
            return processes.run_cli(
                "join", "127.0.0.1:7400", "--run", "run", "--hours",
                "22:00-07:00", "--memory", "4GB", "--service",
                env=environment, check=check)

        refused = install("echo no bus; exit 1", 9)
        self.assertIn("no bus", refused.stderr)
        self.assertFalse(os.path.exists(unit))
        done = install("exit 0", 0)
        self.assertIn("systemctl --user disable --now atoll-run.service",
                      done.stdout)
        with open(unit, encoding="utf-8") as file:
            text = file.read()
        self.assertIn(
            'ExecStart="%s" "join" "127.0.0.1:7400" "--run=run" '
            '"--hours=22:00-07:00" "--memory=4GB"\n' %
            os.path.realpath(processes.binary(processes.CLI)), text)
        self.assertIn("MemoryMax=4000000000\n", text)
        with open(calls, encoding="utf-8") as file:
            self.assertEqual(file.read().splitlines()[-4:], [
                "--user show-environment", "--user daemon-reload",
                "--user enable atoll-run.service",
                "--user restart atoll-run.service"])


if __name__ == "__main__":
    cases.main()
