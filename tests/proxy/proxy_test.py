#!/usr/bin/python3
"""An island that reaches nothing but a proxy, which permits port 443 alone.

Gate, coordinator, servers and data are known as NAME.invalid:443. Nothing on this
machine can look up such a name, so a program that dials one itself fails.
"""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "data_url"),
                os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import gated  # noqa: E402
from harness import processes  # noqa: E402
from harness import wait  # noqa: E402
import connect_proxy  # noqa: E402
import published_data  # noqa: E402

_HOSTS = {"coordinator": "coordinator.invalid", "gate": "gate.invalid",
          "data": "data.invalid",
          "server-0": "server-0.invalid", "server-1": "server-1.invalid"}


class Security(gated.Security):
    """Certificates also name the hosts as the island knows them."""

    def issue(self, role, name, *arguments):
        host = _HOSTS.get(name) or _HOSTS.get(role)
        if host and role in ("coordinator", "server", "gate", "data"):
            arguments += ("--host=" + host,)
        return super().issue(role, name, *arguments)


class ProxyTest(gated.GatedTest):

    @classmethod
    def setUpClass(cls):
        cluster_module.IntegrationTest.setUpClass.__func__(cls)
        cls.security = Security(os.path.join(cls.root, "pki"))
        cls.gate_dir = cls.security.issue("gate", "g0")

    def start_far(self, credentials=None, data_url=None):
        """The services, and the proxy that knows them."""
        cluster = self.cluster
        cluster.start_coordinator()
        cluster.start_gate(self.gate_dir, arguments=[
            "--advertise=gate.invalid:443",
            "--island-coordinator=coordinator.invalid:443"])
        for name in ("server-0", "server-1"):
            cluster.start_server(name, arguments=[
                "--advertise=%s.invalid:443" % name])
        ports = {_HOSTS["coordinator"]: cluster.coordinator_address,
                 _HOSTS["gate"]: cluster.gate_address}
        for name in ("server-0", "server-1"):
            ports[_HOSTS[name]] = cluster.server_address(name)
        if data_url:
            ports[_HOSTS["data"]] = data_url
        proxy = connect_proxy.ConnectProxy(
            {host: int(address.rsplit(":", 1)[1])
             for host, address in ports.items()}, credentials)
        self.addCleanup(proxy.close)
        return proxy

    def far_token(self, *arguments):
        done = self.cluster.run_cli("token", "create", "--run", "run",
                                    *arguments, check=0)
        self.assertTrue(done.stdout.startswith("atoll://gate.invalid:443/run#"),
                        done.stdout)
        return done.stdout.strip()

    def test_a_string_and_a_proxy_are_all_that_a_volunteer_needs(self):
        cluster = self.cluster
        published = os.path.join(cluster.directory, "published")
        published_data.publish(self.text, published)
        proxy = self.start_far("me:hidden", cluster.start_data_server(
            "data-0", published, self.security.issue("data", "d0")))
        values = self.run_values(
            published_data.by_url("https://" + _HOSTS["data"],
                                  data_shard_count=1),
            {"schedule": {"island_count_min": 1, "min_quorum": 1}})
        path = cluster.write_run_file(values)
        cluster.run_cli("run", "create", path, "--run-id", "run",
                        "--data-copy", published, check=0)
        string = self.far_token()
        checked = processes.run_cli("doctor", string, "--proxy", proxy.url)
        for line in checked.stdout.splitlines():
            self.assertNotIn("FAILED", line)
        self.assertIn("gate.invalid:443 answers", checked.stdout)
        cluster.start_volunteer("volunteer", string,
                                arguments=["--proxy=" + proxy.url])
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_rounds_whole(cluster, values)
        self.assertEqual(set(proxy.counts), set(_HOSTS.values()))
        self.assertEqual(proxy.refused, [])
        self.assertNotIn("hidden@", cluster.processes["volunteer"].tail(
            10_000).split("\n--- ", 1)[-1].split("\n", 1)[-1])

    def test_without_the_proxy_nothing_is_reached(self):
        self.start_far()
        self.create_run()
        done = self.join(self.far_token())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("gate.invalid", done.stderr)

    def test_a_refusal_names_proxy_answer_and_target(self):
        proxy = self.start_far("me:hidden")
        self.create_run()
        wrong = "http://me:hunter2@" + proxy.address
        done = self.join(self.far_token(), "--proxy", wrong)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("the proxy %s answered 407 to CONNECT gate.invalid:443" %
                      proxy.address, done.stderr)
        self.assertNotIn("hunter2", done.stderr)
        # The coordinator's name is one that the proxy does not know.
        done = processes.run_cli(
            "run", "list", "--coordinator", "elsewhere.invalid:443",
            "--timeout", "5s", "--proxy", proxy.url,
            *self.security.flags("cli"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("elsewhere.invalid:443", done.stderr)
        self.assertIn("the proxy %s answered 403 to CONNECT" % proxy.address,
                      done.stderr)

    def test_an_operator_finds_the_proxy_in_the_environment(self):
        proxy = self.start_far()
        self.create_run()

        def listed(timeout="60s", **environment):
            done = processes.run_cli(
                "run", "list", "--coordinator", "coordinator.invalid:443",
                "--timeout", timeout, "-o", "json",
                *self.security.flags("cli"), env=environment)
            return done.returncode == 0 and '"run"' in done.stdout

        self.assertTrue(listed(ATOLL_PROXY=proxy.url))
        self.assertTrue(listed(HTTPS_PROXY=proxy.url))
        self.assertFalse(listed("5s", HTTPS_PROXY=proxy.url,
                                NO_PROXY="invalid"))
        self.assertTrue(listed(ATOLL_PROXY=proxy.url, NO_PROXY="invalid"))
        self.assertEqual(list(proxy.counts), [_HOSTS["coordinator"]])

    def test_a_server_reaches_the_coordinator_through_it(self):
        proxy = self.start_far()
        self.cluster.dial_through("server", "coordinator.invalid:443")
        self.cluster.start_server("server-2",
                                  arguments=["--proxy=" + proxy.url])
        wait.until("the server dials", lambda: proxy.counts.get(
            _HOSTS["coordinator"], 0) > 0)


if __name__ == "__main__":
    cases.main()
