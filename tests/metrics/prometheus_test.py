#!/usr/bin/python3
"""Debian's Prometheus scrapes the programs: metrics, alerts, dashboard."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import certificates  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import processes  # noqa: E402
from harness import run_file  # noqa: E402
from harness import wait  # noqa: E402

ALERTS = "deploy/kubernetes/atoll/files/alerts.yaml"
DASHBOARD = "deploy/kubernetes/atoll/files/dashboard.json"

# Where install_prometheus.sh puts the programs of a package that is not
# installed.
os.environ["PATH"] += ":%s-prometheus/usr/bin" % os.environ.get(
    "ATOLL_TOOLS", "/var/tmp/atoll-tools")
_needs_prometheus = unittest.skipIf(
    cases.is_without("prometheus"),
    "install_prometheus.sh could not get Debian's package prometheus")

# Fires on a test machine with a full disk, which is no fault of the programs.
_OF_THE_MACHINE = "AtollDiskLow"


def promtool(*arguments, text=None):
    return subprocess.run(("promtool",) + arguments, input=text, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=wait.PATIENCE_S)


class RulesTest(unittest.TestCase):

    @_needs_prometheus
    def test_the_rules_are_valid(self):
        done = promtool("check", "rules", processes.source(ALERTS))
        self.assertEqual(done.returncode, 0, done.stdout)

    @_needs_prometheus
    def test_each_alert_fires_on_its_fault_and_on_nothing_else(self):
        # The tests name the rules as a file of their own directory.
        with tempfile.TemporaryDirectory() as directory:
            tests = shutil.copy(os.path.join(_HERE, "alerts_test.yaml"),
                                directory)
            shutil.copy(processes.source(ALERTS), directory)
            done = promtool("test", "rules", tests)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_every_alert_has_a_case_that_fires_and_one_that_does_not(self):
        with open(processes.source(ALERTS), encoding="utf-8") as file:
            alerts = {line.split(": ")[1].strip() for line in file
                      if line.strip().startswith("- alert: ")}
        with open(os.path.join(_HERE, "alerts_test.yaml"),
                  encoding="utf-8") as file:
            silent, *firing = file.read().split("\n  - name: ")[1:]
        self.assertEqual(len(alerts), 13)
        for alert in sorted(alerts):
            self.assertIn("alertname: %s}" % alert, silent)
            self.assertTrue(
                any("alertname: %s\n        exp_alerts:" % alert in case
                    for case in firing), alert)


@_needs_prometheus
class ScrapeTest(cluster_module.IntegrationTest):
    """One Prometheus over a `dev up` cluster and a coordinator with TLS."""

    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.root, self.id())
        self.dev = self.start_dev_up()
        self.secured = self.start_secured_coordinator()
        self.prometheus = self.start_prometheus()

    def start(self, name, command):
        process = processes.Process(
            name, command, os.path.join(self.root, name + ".log"))
        self.addCleanup(process.stop)
        return process

    def start_dev_up(self):
        values = run_file.merged(self.run_values(), {
            "schedule": {"round_count": 1000000},
            "evaluation": {"every_round_count": 1}})
        path = self.cluster.write_run_file(values, "dev")
        return self.start("dev-up", [
            processes.binary(processes.CLI), "dev", "up", path, "--dir",
            self.directory, "--servers", "2", "--islands", "3"])

    def start_secured_coordinator(self):
        """The address of its metrics: the only program with a certificate."""
        authority = certificates.Authority(os.path.join(self.root, "ca"))
        own = authority.issue("atoll:coordinator:c", dialled=True)
        port_file = os.path.join(self.root, "secured.port")
        processes.init_coordinator(os.path.join(self.root, "secured"))
        process = self.start("secured", [
            processes.binary(processes.COORDINATOR), "--listen=127.0.0.1:0",
            "--data-dir=" + os.path.join(self.root, "secured"),
            "--metrics-listen=127.0.0.1:0",
            "--metrics-port-file=" + port_file] + own.flags)
        return "127.0.0.1:%d" % processes.read_port(process, port_file)

    def start_prometheus(self):
        """The address of its API."""
        targets = os.path.join(self.directory, "prometheus-targets.json")
        config = os.path.join(self.root, "prometheus.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s",
                           "evaluation_interval": "1s"},
                "rule_files": [os.path.abspath(processes.source(ALERTS))],
                "scrape_configs": [
                    {"job_name": "dev",
                     "file_sd_configs": [{"files": [targets],
                                          "refresh_interval": "1s"}]},
                    {"job_name": "secured",
                     "static_configs": [{"targets": [self.secured]}]},
                ]}, file)
        address = "127.0.0.1:%d" % self.cluster.claim_port()
        self.start("prometheus", [
            "prometheus", "--config.file=" + config,
            "--storage.tsdb.path=" + os.path.join(self.root, "tsdb"),
            "--web.listen-address=" + address, "--log.level=warn"])
        return address

    def get(self, path, **parameters):
        """The `data` of an answer of Prometheus' API, None while it starts."""
        url = "http://%s/api/v1/%s?%s" % (self.prometheus, path,
                                          urllib.parse.urlencode(parameters))
        try:
            with urllib.request.urlopen(url, timeout=wait.PATIENCE_S) as answer:
                return json.load(answer)["data"]
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 400:
                raise AssertionError("%s: %s" % (url, error.read().decode()))
            return None

    def query(self, expression):
        data = self.get("query", query=expression)
        # A quantile of nothing is NaN.
        return [] if data is None else [
            series for series in data["result"]
            if series["value"][1] != "NaN"]

    def targets(self):
        data = self.get("targets", state="active")
        return [] if data is None else data["activeTargets"]

    def await_all_targets(self):
        def all_up():
            targets = self.targets()
            return (len(targets) == 7 and
                    all(t["health"] == "up" for t in targets) and targets)
        return wait.until("7 targets are up", all_up)

    def await_panels(self):
        """Waits until each panel's queries return data."""
        with open(processes.source(DASHBOARD), encoding="utf-8") as file:
            panels = json.load(file)["panels"]
        missing = {"%s: %s" % (panel["title"], target["expr"])
                   for panel in panels for target in panel.get("targets", ())}
        self.assertGreater(len(missing), 25)

        def all_seen():
            for text in sorted(missing):
                expression = text.split(": ", 1)[1].replace(
                    "$run", ".+").replace("$__rate_interval", "15s")
                if self.query(expression):
                    missing.discard(text)
            return not missing or None

        try:
            wait.until("every panel has data", all_seen)
        except wait.TimedOut:
            self.fail("no data: %s" % "\n".join(sorted(missing)))

    def test_scrapes_are_clean_panels_have_data_and_no_alert_fires(self):
        urls = [target["scrapeUrl"] for target in self.await_all_targets()]
        self.await_panels()
        for url in urls:
            with urllib.request.urlopen(url, timeout=wait.PATIENCE_S) as page:
                text = page.read().decode()
            done = promtool("check", "metrics", text=text)
            self.assertEqual((done.returncode, done.stdout), (0, ""), url)
        # All rules were evaluated, and none failed.
        rules = [rule for group in self.get("rules")["groups"]
                 for rule in group["rules"]]
        self.assertEqual({rule["health"] for rule in rules}, {"ok"}, rules)
        firing = {series["metric"]["alertname"] for series in self.query(
            'ALERTS{alertstate="firing"}')}
        self.assertLessEqual(firing, {_OF_THE_MACHINE})
        self.assertIsNone(self.dev.poll(), self.dev.tail())


if __name__ == "__main__":
    cases.main()
