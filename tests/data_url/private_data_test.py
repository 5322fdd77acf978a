#!/usr/bin/python3
"""Private data: by the token of an enrolment, and by signed URLs."""

import glob
import os
import ssl
import sys
import threading
import unittest.mock
import urllib.error
import urllib.request

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import gated  # noqa: E402
from harness import processes  # noqa: E402
from harness import wait  # noqa: E402
import file_host  # noqa: E402
import published_data  # noqa: E402


class PrivateDataTest(gated.GatedTest):

    def setUp(self):
        super().setUp()
        self.buckets = os.path.join(self.cluster.directory, "buckets")
        self.published = os.path.join(self.buckets, "bucket", "data")
        published_data.publish(self.text, self.published)
        self.pki = self.security.issue("data", "d0")

    def create(self, url, *changes):
        """A run whose URL the operator's machine cannot read."""
        values = self.run_values(
            published_data.by_url(url, data_shard_count=1),
            {"schedule": {"island_count_min": 1, "min_quorum": 1}}, *changes)
        path = self.cluster.write_run_file(values)
        self.cluster.run_cli("run", "create", path, "--run-id", "run",
                             "--data-copy", self.published, check=0)

    def get(self, url, token=None):
        """The status of a GET."""
        request = urllib.request.Request(url)
        if token is not None:
            request.add_header("Authorization", "Bearer " + token)
        context = ssl.create_default_context(
            cafile=os.path.join(self.security.ca, "root.crt"))
        try:
            with urllib.request.urlopen(request, context=context,
                                        timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def data_token(self, volunteer):
        found = glob.glob(os.path.join(
            self.cluster.directory, volunteer + ".state", "atoll",
            "enrolments", "*", "data.token"))
        self.assertEqual(len(found), 1, found)
        self.assertEqual(os.stat(found[0]).st_mode & 0o777, 0o600)
        with open(found[0], encoding="ascii") as file:
            return file.read().strip()

    def test_an_enrolment_opens_the_data_and_nothing_else_does(self):
        cluster = self.cluster
        self.start()
        url = cluster.start_data_server("data-0", self.published, self.pki)
        self.create(url)
        cluster.start_volunteer("volunteer-0", self.token())
        cluster.wait_state(cluster_module.COMPLETED)
        token = self.data_token("volunteer-0")
        manifest = url + "/manifest.json"
        self.assertEqual(self.get(manifest, token), 200)
        self.assertEqual(self.get(url + "/../ca/root.key", token), 404)
        self.assertEqual(self.get(url + "/", token), 404)
        self.assertEqual(self.get(manifest), 401)
        parts = token.split(".")
        parts[2] = "0" * len(parts[2])
        self.assertEqual(self.get(manifest, ".".join(parts)), 401)
        self.assertEqual(self.get(manifest, token[:-8]), 401)
        other = cluster.start_data_server("data-1", self.published, self.pki,
                                          ["--run=" + "0" * 32])
        self.assertEqual(self.get(other + "/manifest.json", token), 403)
        cluster.may_end("data-1")
        self.assertEqual(cluster.processes["data-1"].stop(), 0)
        self.assertIn("refused", cluster.processes["data-1"].tail())

    def test_a_token_ends_with_its_certificate(self):
        cluster = self.cluster
        self.start(gate=["--certificate-s=6"])
        url = cluster.start_data_server("data-0", self.published, self.pki)
        self.create(url, {"schedule": {"round_count": 1000000}})
        cluster.start_volunteer("volunteer-0", self.token())
        cluster.wait_commits(1)
        first = self.data_token("volunteer-0")
        wait.until("the token is renewed",
                   lambda: self.data_token("volunteer-0") != first)
        manifest = url + "/manifest.json"
        wait.until("the first token ends",
                   lambda: self.get(manifest, first) == 401)

    def test_who_is_not_enrolled_is_told_what_to_do(self):
        cluster = self.cluster
        self.start()
        url = cluster.start_data_server("data-0", self.published, self.pki)
        self.create(url)
        island = self.security.certificate(
            self.security.issue("island", "kitchen"))
        done = processes.run_cli(
            "join", cluster.coordinator_address, "--run=run", "--threads=1",
            "--island-id=kitchen", *island.flags,
            env={"XDG_STATE_HOME": os.path.join(cluster.directory, "state")})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("atoll join", done.stderr)

    def test_signed_urls_need_no_credentials_at_the_island(self):
        lock, state = threading.Lock(), {"cut": 0, "urls": set()}

        def fault(target, start, body):
            if "X-Amz-Signature=" not in target:
                return 403
            if target.split("?")[0].endswith("manifest.json"):
                return body
            with lock:
                state["urls"].add(target)
                state["cut"] += 1
                # A transfer is cut, and its URL has expired meanwhile.
                if state["cut"] == 1:
                    return body[:len(body) // 2]
                if state["cut"] == 2:
                    return 403
            return body

        host = file_host.FileHost(self.buckets, fault=fault)
        self.addCleanup(host.close)
        keys = {"AWS_ENDPOINT_URL": host.url, "AWS_ACCESS_KEY_ID": "AKID",
                "AWS_SECRET_ACCESS_KEY": "very secret"}
        cluster = self.cluster
        with unittest.mock.patch.dict(os.environ, keys):
            self.start()
        self.create("s3://bucket/data")
        cluster.start_volunteer("volunteer-0", self.token())
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertGreater(len(state["urls"]), 1)
        for name, process in cluster.processes.items():
            with open(process.log_path, encoding="utf-8",
                      errors="replace") as file:
                self.assertNotIn("X-Amz-Signature", file.read(), name)

    def test_a_coordinator_without_credentials_says_so(self):
        cluster = self.cluster
        self.start()
        self.create("s3://bucket/data")
        done = self.join(self.token(), "--data-cache", os.path.join(
            cluster.directory, "cache"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("credentials", done.stderr)


if __name__ == "__main__":
    cases.main()
