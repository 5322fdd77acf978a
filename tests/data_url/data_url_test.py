#!/usr/bin/python3
"""Data by URL: the same bits as from files, whatever the source does."""

import glob
import hashlib
import os
import sys
import threading
import unittest

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import gated  # noqa: E402
from harness import ports  # noqa: E402
from harness import processes  # noqa: E402
from harness import wait  # noqa: E402
import file_host  # noqa: E402
import published_data  # noqa: E402


class DataUrlTest(cluster_module.IntegrationTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.published = os.path.join(cls.root, "published")
        published_data.publish(cls.text, cls.published)

    def by_url(self, url, *changes):
        return self.run_values(published_data.by_url(url), *changes)

    def host(self, fault=None, port=0):
        made = file_host.FileHost(self.published, port, fault)
        self.addCleanup(made.close)
        return made

    def run_once(self, name, url, data=None):
        """The digests of a strict run's versions."""
        cluster = self.new_cluster(name)
        cluster.start_service()
        cluster.create_run(self.by_url(url))
        cluster.start_islands(data=data)
        cluster.wait_state(cluster_module.COMPLETED)
        digest = cluster.parameters_sha256()
        cluster.close()
        return digest

    def reference(self):
        """The run whose islands read the published files where they are."""
        return self.once("files", lambda _: self.run_once(
            "files", "file://" + self.published))

    def test_a_directory_and_a_url_give_the_same_bits(self):
        host = self.host()
        self.assertEqual(self.run_once("url", host.url), self.reference())
        self.assertGreater(host.served_bytes, 0)
        served = host.served_bytes
        # A copy of the files beside the islands: only its maker needs the URL.
        self.assertEqual(self.run_once("copy", host.url, self.published),
                         self.reference())
        manifest = os.path.getsize(os.path.join(self.published,
                                                "manifest.json"))
        self.assertLessEqual(host.served_bytes - served, 4 * manifest)

    def test_cut_and_wrong_bytes_change_no_bit(self):
        lock, state = threading.Lock(), {"count": 0}

        def fault(path, start, body):
            if path.endswith("manifest.json") or not body:
                return body
            with lock:
                state["count"] += 1
                count = state["count"]
            if count % 5 == 1:
                return body[:len(body) // 2]
            if count % 5 == 2:
                return 503
            if count == 3:
                return bytes([body[0] ^ 1]) + body[1:]
            return body

        host = self.host(fault)
        self.assertEqual(self.run_once("faults", host.url), self.reference())
        self.assertGreater(state["count"], 5)

    def test_a_source_that_is_away_is_waited_for(self):
        port = ports.claim()
        self.addCleanup(ports.release, port)
        first = file_host.FileHost(self.published, port)
        cluster = self.cluster
        cluster.start_service()
        cluster.create_run(self.by_url(first.url))
        first.close()
        cluster.start_islands()
        wait.until("the islands wait for the source", lambda: all(
            "waits for" in cluster.processes[name].tail(200)
            for name in ("island-0", "island-1", "island-2")))
        self.host(port=port)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(cluster.parameters_sha256(), self.reference())

    def test_islands_of_a_machine_share_a_cache_of_bounded_size(self):
        host = self.host()
        cluster = self.cluster
        cluster.start_service()
        cluster.create_run(self.by_url(host.url))
        cache = os.path.join(cluster.directory, "cache")
        cluster.start_islands(arguments=["--data-cache", cache,
                                         "--cache-size", "64kB"])
        cluster.wait_state(cluster_module.COMPLETED)
        self.assertEqual(cluster.parameters_sha256(), self.reference())
        left = sum(os.path.getsize(f) for f in glob.glob(
            os.path.join(cache, "??", "*")))
        self.assertGreater(left, 0)
        # Files in use may exceed the size; none is left in use.
        self.assertLessEqual(left, 64_000 + 3 * 2 * 8_192)

    @unittest.skipUnless(os.geteuid() == 0, "only root can give files away")
    def test_links_of_another_user_in_a_cache_are_not_followed(self):
        cache = os.path.join(self.root, "planted")
        secret = os.path.join(self.root, "secret")
        with open(secret, "w", encoding="ascii") as file:
            file.write("of a person")
        names = set()
        for folder in (self.published,):
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), "rb") as file:
                    names.add(hashlib.sha256(file.read()).hexdigest())
        for name in names:
            os.makedirs(os.path.join(cache, name[:2]), exist_ok=True)
            os.symlink(secret, os.path.join(cache, name[:2], name + ".part"))
        cluster = self.new_cluster("planted")
        cluster.start_service()
        cluster.create_run(self.by_url(self.host().url, {
            "schedule": {"island_count_min": 1, "min_quorum": 1}}))
        # A cache in /tmp is root's, its directories another user's.
        for owned in (False, True):
            if owned:
                for name in names:
                    os.chown(os.path.join(cache, name[:2]), 12345, 12345)
            done = processes.run_cli(
                "join", cluster.coordinator_address, "--run=run", "--threads=1",
                "--island-id=i0", "--dir=" + os.path.join(self.root, "work"),
                "--data-cache=" + cache, check=None)
            self.assertEqual(done.returncode, 9, done.stdout + done.stderr)
            self.assertIn(cache, done.stderr)
        with open(secret, encoding="ascii") as file:
            self.assertEqual(file.read(), "of a person")

    def test_what_is_wrong_with_the_data_is_said_at_once(self):
        cluster = self.cluster
        cluster.start_service()
        host = self.host()
        for change, word in (
                ({"order": None}, "by_file"),
                ({"path": self.text}, "path"),
                ({"url": "ftp://x/manifest.json"}, "ftp"),
                ({"url": host.url + "/nothing.json"}, "nothing.json")):
            path = cluster.write_run_file(
                self.by_url(host.url, {"data": change}), "wrong")
            done = cluster.run_cli("run", "create", path)
            self.assertNotEqual(done.returncode, 0, change)
            self.assertIn(word, done.stderr, change)


class JourneyTest(gated.GatedTest):
    """From `ca init` to the export: only the string is passed by hand."""

    def test_a_string_is_all_that_a_volunteer_needs(self):
        published = os.path.join(self.cluster.directory, "published")
        published_data.publish(self.text, published)
        host = file_host.FileHost(published)
        self.addCleanup(host.close)
        cluster = self.cluster
        self.start()
        values = self.run_values(
            published_data.by_url(host.url, data_shard_count=2),
            {"schedule": {"island_count_min": 2, "min_quorum": 2}})
        cluster.create_run(values)
        string = self.token("--uses=2")
        for index in range(2):
            cluster.start_volunteer("volunteer-%d" % index, string)
        cluster.wait_state(cluster_module.COMPLETED)
        self.assert_rounds_whole(cluster, values)
        self.assertEqual(cluster.export_sha256(), cluster.parameters_sha256())
        self.assertGreater(host.served_bytes, 0)


if __name__ == "__main__":
    cases.main()
