#!/usr/bin/python3
"""`atoll doctor`: what it says of a good way to a run, and of each bad one."""

import json
import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import gated  # noqa: E402
from harness import processes  # noqa: E402
from harness import text  # noqa: E402
from harness import wait  # noqa: E402

FAILED = 10
LOCAL = ["memory", "cores", "isa", "sandbox", "disk_space", "disk_sync"]
WAY = ["dns", "tcp", "tls", "clock", "token", "version", "coordinator",
       "servers", "data"]
LINK = ["link_up", "link_down"]
OPERATOR = ["coordinator", "peers", "servers", "gates", "island_ca",
            "certificates", "clocks", "version", "disks", "log_secret",
            "runs"]


class BareSecurity(gated.Security):
    """Some programs get the files of TLS without the island CA."""

    bare = ()

    def flags(self, process):
        if process in self.bare:
            role = process.split("-")[0]
            return self.certificate(self.issue(role, process)).flags
        return super().flags(process)


class DoctorTest(gated.GatedTest):

    def doctor(self, *arguments, state="state", exit_code=0):
        """The checks by id, and the forecast."""
        done = processes.run_cli(
            "doctor", *arguments, "-o", "json",
            env={"XDG_STATE_HOME": os.path.join(self.cluster.directory,
                                                state)})
        self.assertEqual(done.returncode, exit_code,
                         done.stdout + done.stderr)
        return self.read(done, exit_code)

    def read(self, done, exit_code):
        envelope = json.loads(done.stdout)
        self.assertEqual(envelope["exit_code"], exit_code)
        self.assertEqual(envelope["status"], "error" if exit_code else "ok")
        data = envelope["data"]
        self.assertEqual(set(data), {"checks", "forecast"})
        for check in data["checks"]:
            self.assertEqual(set(check), {"id", "result", "message", "action"})
            self.assertIn(check["result"], ("PASSED", "WARN", "FAILED"))
        checks = {c["id"]: c for c in data["checks"]}
        self.assertEqual(len(checks), len(data["checks"]))
        failed = [i for i, c in checks.items() if c["result"] == "FAILED"]
        self.assertEqual(bool(failed), exit_code == FAILED, checks)
        if failed:
            self.assertEqual(envelope["error"]["reason"], "CHECK_FAILED")
        return checks, data["forecast"]

    def failed(self, checks):
        return [i for i, c in checks.items() if c["result"] == "FAILED"]

    # --- A volunteer ------------------------------------------------------------

    def test_a_good_way_has_no_failure_and_a_forecast(self):
        self.start()
        self.create_run({"schedule": {"round_count": 1000000}})
        string = self.token()
        checks, forecast = self.doctor(string)
        self.assertEqual(list(checks), WAY + LOCAL + LINK)
        for name in ("dns", "tcp", "tls", "clock", "token", "version",
                     "coordinator", "servers", "memory", "isa", "sandbox",
                     "link_up", "link_down"):
            self.assertEqual(checks[name]["result"], "PASSED", checks[name])
        self.assertEqual(set(forecast), {
            "round_seconds", "up_bytes_per_day", "down_bytes_per_day",
            "utilization", "tokens_per_second"})
        self.assertGreater(forecast["round_seconds"], 0)
        self.assertGreater(forecast["tokens_per_second"], 0)
        self.assertLessEqual(forecast["utilization"], 1)
        # The token keeps its only use, and the secret is nowhere.
        self.assertNotIn("island.enrol", self.actions())
        self.assertNotIn(string.split(".")[-3], json.dumps(checks))
        self.cluster.start_volunteer("volunteer-0", string)
        self.cluster.wait_commits(1)
        self.assertEqual(self.actions().count("island.enrol"), 1)

    def test_a_table_has_80_columns(self):
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        done = processes.run_cli("doctor", self.token(), check=0, env={
            "XDG_STATE_HOME": os.path.join(self.cluster.directory, "state")})
        lines = done.stdout.splitlines()
        self.assertTrue(any(l.startswith("PASSED  tls") for l in lines), lines)
        self.assertTrue(any("a round takes" in l for l in lines), lines)
        for line in lines:
            # A path has no place where it could be broken.
            if self.root not in line:
                self.assertLessEqual(len(line), 80, line)

    def test_an_enrolled_machine_needs_no_string(self):
        self.start(server_count=1)
        self.create_run({"server_count": 1,
                         "schedule": {"round_count": 1000000}})
        string = self.token()
        self.cluster.start_volunteer("volunteer-0", string)
        self.cluster.wait_commits(1)
        for arguments in ((), ("--run=run",), (string,)):
            checks, forecast = self.doctor(*arguments,
                                           state="volunteer-0.state")
            self.assertEqual(
                list(checks), [("certificate" if i == "token" else i)
                               for i in WAY] + LOCAL + LINK)
            self.assertEqual(checks["certificate"]["result"], "PASSED")
            self.assertEqual(checks["version"]["result"], "PASSED",
                             checks["version"])
            self.assertIn("round_seconds", forecast)

    def test_a_token_that_admits_nobody_fails(self):
        self.start(server_count=1)
        self.create_run({"server_count": 1,
                         "schedule": {"round_count": 1000000}})
        used = self.token()
        self.cluster.start_volunteer("volunteer-0", used)
        self.cluster.wait_commits(1)
        checks, forecast = self.doctor(used, state="other", exit_code=FAILED)
        self.assertEqual(self.failed(checks), ["token"])
        self.assertIn("1 of 1", checks["token"]["message"])
        self.assertIn("join string", checks["token"]["action"])
        self.assertEqual(checks["link_up"]["result"], "WARN")
        self.assertEqual(forecast, {})

    def test_a_wrong_pin_fails_before_the_token_is_sent(self):
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        head, pin, _ = self.token().rsplit(".", 2)
        body = head + "." + "A" * 43
        string = "%s.%08x" % (body, _crc32c(
            body[body.index("atj1_"):].encode()))
        checks, _ = self.doctor(string, exit_code=FAILED)
        self.assertEqual(self.failed(checks), ["tls"])
        self.assertIn(pin, checks["tls"]["message"])
        self.assertTrue(checks["token"]["message"].startswith("not checked"))

    def test_a_gate_that_is_away_fails_once(self):
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        string = self.token()
        self.cluster.kill("gate")
        checks, _ = self.doctor(string, exit_code=FAILED)
        self.assertEqual(self.failed(checks), ["tcp"])
        for name in ("tls", "clock", "token", "version", "data", "link_up"):
            self.assertEqual(checks[name]["result"], "WARN", checks[name])

    def test_data_that_is_not_the_runs_fails(self):
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        string = self.token()
        other = text.write_text(os.path.join(self.cluster.directory, "other"),
                                seed=1)
        missing = os.path.join(self.cluster.directory, "missing")
        for path, words in ((missing, "no data at"),
                            (other, "is not the run's")):
            checks, _ = self.doctor(string, "--data=" + path,
                                    exit_code=FAILED)
            self.assertEqual(self.failed(checks), ["data"])
            self.assertIn(words, checks["data"]["message"])
            self.assertIn(path, checks["data"]["message"])
            self.assertIn("--data PATH", checks["data"]["action"])
        checks, _ = self.doctor(string, "--data=" + self.text)
        self.assertIn("it is the run's data", checks["data"]["message"])
        # Without a run, too.
        checks, _ = self.doctor("--data=" + missing, state="empty",
                                exit_code=FAILED)
        self.assertEqual(list(checks), ["data"] + LOCAL)
        self.assertIn("no data at", checks["data"]["message"])

    def test_without_anything_only_this_machine_is_checked(self):
        checks, forecast = self.doctor(state="empty")
        self.assertEqual(list(checks), LOCAL)
        self.assertEqual(forecast, {})
        for wrong in (("10.0.0.1:7400",), ("--operator", "--run=run")):
            done = processes.run_cli("doctor", *wrong)
            self.assertEqual(done.returncode, 2, done.stderr)
        done = processes.run_cli("doctor", "--run=nothing", env={
            "XDG_STATE_HOME": os.path.join(self.cluster.directory, "empty")})
        self.assertEqual(done.returncode, 8, done.stderr)

    # --- Join -------------------------------------------------------------------

    def test_a_machine_that_cannot_keep_it_costs_no_token(self):
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        string = self.token()
        # No directory can be made below a file.
        state = os.path.join(self.cluster.directory, "file")
        with open(state, "w", encoding="utf-8"):
            pass
        done = self.join(string, state="file/state")
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("island.enrol", self.actions())
        self.doctor(string, state="good")

    # --- Without the island CA --------------------------------------------------

    def start_bare(self):
        security = BareSecurity(os.path.join(self.cluster.directory, "pki"))
        self.cluster = self.new_cluster("bare", security)
        self.gate_dir = security.issue("gate", "g0")
        return security

    def test_a_server_without_the_island_ca_is_named(self):
        security = self.start_bare()
        security.bare = ("server-1",)
        self.start()
        self.create_run({"schedule": {"round_count": 1000000}})
        string = self.token()
        checks, _ = self.doctor(string, exit_code=FAILED)
        self.assertEqual(self.failed(checks), ["servers"])
        self.assertIn("admits no island", checks["servers"]["message"])
        checks = self.operator(exit_code=FAILED)
        self.assertEqual(self.failed(checks), ["island_ca"])
        self.assertIn("server-1", checks["island_ca"]["message"])
        self.assertNotIn("server-0", checks["island_ca"]["message"])

    def test_a_coordinator_without_the_island_ca_spends_no_token(self):
        security = self.start_bare()
        self.start(server_count=1)
        self.create_run({"server_count": 1})
        string = self.token()
        self.cluster.kill("coordinator")
        self.cluster.processes["coordinator"].wait()
        security.bare = ("coordinator",)
        self.cluster.restart("coordinator")

        def refused():  # Once the gate has connected again.
            checks, _ = self.doctor(string, exit_code=FAILED)
            self.assertEqual(self.failed(checks), ["token"])
            return "island CA" in checks["token"]["message"]

        wait.until("the coordinator refuses", refused)
        done = self.join(string)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("island CA", done.stderr)
        self.assertNotIn("island.enrol", self.actions())
        # It refuses the gate too.
        done = self.cluster.run_cli("doctor", "--operator", "-o", "json")
        checks = {c["id"]: c for c in json.loads(done.stdout)["data"]["checks"]}
        self.assertIn(checks["island_ca"]["result"], ("WARN", "FAILED"))
        self.assertIn("the coordinator", checks["island_ca"]["message"])

    # --- An operator ------------------------------------------------------------

    def operator(self, exit_code=0):
        done = self.cluster.run_cli("doctor", "--operator", "-o", "json")
        self.assertEqual(done.returncode, exit_code,
                         done.stdout + done.stderr)
        checks, forecast = self.read(done, exit_code)
        self.assertEqual(list(checks), OPERATOR)
        self.assertEqual(forecast, {})
        return checks

    def test_an_operator_sees_the_cluster(self):
        self.start()
        self.create_run({"schedule": {"round_count": 1000000}})
        self.cluster.wait_state(cluster_module.ACTIVE)
        self.token()  # The gate has announced itself.

        def all_report():
            disks = self.operator()["disks"]
            return "does not say" not in disks["message"]

        wait.until("the servers report their disks", all_report)
        checks = self.operator()
        for name in ("coordinator", "servers", "gates", "clocks", "version",
                     "runs"):
            self.assertEqual(checks[name]["result"], "PASSED", checks[name])
        self.assertNotIn("not checked", checks["certificates"]["message"])
        self.cluster.kill("server-1")
        checks = self.operator(exit_code=FAILED)
        self.assertEqual(self.failed(checks), ["servers"])
        self.assertIn("server-1", checks["servers"]["message"])

    def test_without_a_coordinator_nothing_else_is_a_failure(self):
        self.start(server_count=1)
        self.cluster.kill("coordinator")
        done = self.cluster.run_cli("doctor", "--operator", "--timeout=2s",
                                    "-o", "json")
        self.assertEqual(done.returncode, FAILED, done.stderr)
        checks, _ = self.read(done, FAILED)
        self.assertEqual(self.failed(checks), ["coordinator"])


def _crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


if __name__ == "__main__":
    cases.main()
