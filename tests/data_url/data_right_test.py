#!/usr/bin/python3
"""What a run can make a volunteer's machine open, dial and sign: nothing that
its person has not allowed."""

import ctypes
import json
import os
import struct
import sys
import unittest.mock
from concurrent import futures

import grpc

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import gated  # noqa: E402
from harness import processes  # noqa: E402
import file_host  # noqa: E402
import published_data  # noqa: E402

INVALID, CONFLICT, PREFLIGHT_FAILED = 4, 9, 10
IN_ACCESS, IN_OPEN, IN_NONBLOCK = 0x1, 0x20, 0o4000


class Watch:
    """Notices who opens a file, or a file of a directory."""

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(IN_NONBLOCK)
        assert self._fd >= 0 and libc.inotify_add_watch(
            self._fd, path.encode(), IN_ACCESS | IN_OPEN) >= 0, path

    def opened(self):
        """Whether anybody has opened it so far."""
        try:
            return len(os.read(self._fd, 4096)) >= struct.calcsize("iIII")
        except BlockingIOError:
            return False

    def close(self):
        os.close(self._fd)


class NamesARun(grpc.GenericRpcHandler):
    """A coordinator that answers each call with a list of runs."""

    def __init__(self, runs):
        self._answer = runs.SerializeToString()

    def service(self, handler_call_details):
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._answer)


class DataRightTest(gated.GatedTest):

    def setUp(self):
        super().setUp()
        self.home = os.path.join(self.cluster.directory, "home")
        self.data = os.path.join(self.home, "corpus")
        os.makedirs(self.data)
        self.key = os.path.join(self.home, "id_ed25519")
        with open(self.key, "w", encoding="ascii") as file:
            file.write("a key that no run may learn\n" * 400)
        os.symlink(self.key, os.path.join(self.data, "link"))
        with open(os.path.join(self.data, "text"), "wb") as file:
            file.write(os.urandom(20000))

    def environment(self, **more):
        """Of a person who has allowed nothing."""
        return dict({"XDG_STATE_HOME": os.path.join(self.home, "state"),
                     "XDG_CONFIG_HOME": os.path.join(self.home, "config"),
                     "HOME": self.home}, **more)

    def run_cli(self, *arguments, check=None, **more):
        return processes.run_cli(*arguments, check=check,
                                 env=self.environment(**more))

    def join_string(self, *arguments, check=None, **more):
        return self.run_cli("join", self.token(), "--threads=1", "-o", "json",
                            *arguments, check=check, **more)

    def create(self, data, run_id="run"):
        """A run whose operator says what its islands open."""
        values = self.run_values(
            {"data": dict({"path": None, "validation_fraction": None,
                           "seed": None, "data_shard_count": 1}, **data)},
            {"server_count": 1, "evaluation": {"every_round_count": 0},
             "schedule": {"island_count_min": 1, "min_quorum": 1}})
        self.cluster.create_run(values, run_id)

    def assert_refused(self, done, *words):
        self.assertEqual(done.returncode, CONFLICT, done.stdout + done.stderr)
        error = json.loads(done.stdout)["error"]
        for word in words:
            self.assertIn(word, error["message"])
        self.assertNotIn("\n", error["message"])
        return error

    def data_check(self, *arguments, exit_code=0, **more):
        done = self.run_cli("doctor", self.token(), "-o", "json", *arguments,
                            check=exit_code, **more)
        return {c["id"]: c for c in
                json.loads(done.stdout)["data"]["checks"]}["data"]

    # --- Files ------------------------------------------------------------------

    def test_a_run_reads_no_file_that_a_volunteer_did_not_allow(self):
        self.start(server_count=1)
        self.create({"path": self.key, "fingerprint": ""})
        watch = Watch(self.key)
        self.addCleanup(watch.close)
        error = self.assert_refused(self.join_string(), self.key,
                                    "--data PATH", "atoll data allow DIR")
        self.assertEqual(error["reason"], "DATA_NOT_ALLOWED")
        # A service would end at once, so none is installed.
        self.assert_refused(self.join_string("--service"), "--data PATH")
        self.assertFalse(os.path.exists(
            os.path.join(self.home, "config", "systemd")))
        check = self.data_check(exit_code=PREFLIGHT_FAILED)
        self.assertEqual(check["result"], "FAILED")
        self.assertIn("--data PATH", check["action"])
        self.assertIn("atoll data allow DIR", check["action"])
        # A folder is allowed, and a link in it leads to the key.
        self.run_cli("data", "allow", self.data, check=0)
        self.assert_refused(self.join_string())
        self.create({"path": os.path.join(self.data, "link"),
                     "fingerprint": ""}, "linked")
        self.assert_refused(self.run_cli(
            "join", self.token(run_id="linked"), "-o", "json"))
        self.create({"path": os.path.join(self.data, "..", "id_ed25519"),
                     "fingerprint": ""}, "dotted")
        self.assert_refused(self.run_cli(
            "join", self.token(run_id="dotted"), "-o", "json"))
        self.assertFalse(watch.opened())
        self.assertEqual(self.cluster.run_state().commit_seq, 0)
        # The watch sees an open.
        with open(self.key, "rb") as file:
            file.read(1)
        self.assertTrue(watch.opened())

    def test_the_name_of_a_run_is_no_path(self):
        self.start(server_count=1)
        self.create({"path": os.path.join(self.data, "text")})
        runs = self.cluster.runs.ListRuns()
        runs.runs[0].run_id = "../../../escaped"
        server = grpc.server(futures.ThreadPoolExecutor(2),
                             handlers=[NamesARun(runs)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(server.stop, 0)
        done = self.run_cli("join", "127.0.0.1:%d" % port, "--threads=1",
                            check=INVALID)
        self.assertIn("run_id", done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.home, "escaped")))

    def test_an_allowed_folder_is_allowed_once_for_all_runs(self):
        self.start(server_count=1)
        self.create({"path": os.path.join(self.data, "text")})
        self.assertEqual(self.data_check(exit_code=PREFLIGHT_FAILED)["result"],
                         "FAILED")
        self.run_cli("data", "allow", self.data, check=0)
        self.assertEqual(self.run_cli("data", "allow", check=0).stdout.split(),
                         ["FOLDER", os.path.realpath(self.data)])
        consent = os.path.join(self.home, "config", "atoll", "data.consent")
        self.assertEqual(os.stat(consent).st_mode & 0o777, 0o600)
        check = self.data_check()
        self.assertEqual(check["result"], "PASSED")
        self.assertIn("atoll data allow", check["message"])
        done = self.join_string(check=0)
        self.assertIn("opens \"%s\"" % os.path.realpath(
            os.path.join(self.data, "text")), done.stderr)
        self.run_cli("data", "allow", "--remove", self.data, check=0)
        self.create({"path": os.path.join(self.data, "text")}, "again")
        self.assert_refused(self.run_cli(
            "join", self.token(run_id="again"), "-o", "json"))

    def test_an_old_run_goes_on_with_the_persons_own_path(self):
        self.start(server_count=1)
        path = os.path.join(self.data, "text")
        self.create({"path": path})
        check = self.data_check("--data", path)
        self.assertEqual(check["result"], "PASSED")
        done = self.join_string("--data", path, check=0)
        self.assertIn("given with --data", done.stderr)
        self.cluster.wait_state(cluster_module.COMPLETED)

    def test_a_file_url_is_a_path(self):
        self.start(server_count=1)
        published = os.path.join(self.home, "published")
        published_data.publish(self.text, published)
        values = self.run_values(
            published_data.by_url("file://" + published, data_shard_count=1),
            {"server_count": 1,
             "schedule": {"island_count_min": 1, "min_quorum": 1}})
        self.cluster.create_run(values)
        watch = Watch(os.path.join(published, "manifest.json"))
        self.addCleanup(watch.close)
        self.assert_refused(self.join_string(), published)
        self.assertEqual(self.data_check(exit_code=PREFLIGHT_FAILED)["result"],
                         "FAILED")
        self.assertFalse(watch.opened())
        self.run_cli("data", "allow", published, check=0)
        self.join_string(check=0)

    # --- Hosts ------------------------------------------------------------------

    def create_by_url(self, url):
        published = os.path.join(self.home, "bucket", "data")
        published_data.publish(self.text, published)
        path = self.cluster.write_run_file(self.run_values(
            published_data.by_url(url, data_shard_count=1),
            {"server_count": 1,
             "schedule": {"island_count_min": 1, "min_quorum": 1}}))
        self.cluster.run_cli("run", "create", path, "--run-id", "run",
                             "--data-copy", published, check=0)

    def test_a_runs_url_dials_no_private_address(self):
        self.start(server_count=1)
        self.create_by_url("https://10.1.2.3/data")
        self.assert_refused(self.join_string(), "10.0.0.0/8",
                            "--allow-data-host 10.1.2.3")
        check = self.data_check(exit_code=PREFLIGHT_FAILED)
        self.assertIn("--allow-data-host 10.1.2.3", check["message"])

    def test_a_redirect_dials_no_private_address(self):
        self.start(server_count=1)
        host = file_host.FileHost(self.home)
        self.addCleanup(host.close)
        # The coordinator is on loopback, so a run's data may be there too.
        self.create_by_url(host.redirected("https://169.254.169.254"))
        self.assert_refused(self.join_string(), "169.254.0.0/16")

    def test_a_signed_url_dials_no_private_address(self):
        keys = {"AWS_ENDPOINT_URL": "https://192.168.77.7",
                "AWS_ACCESS_KEY_ID": "AKID",
                "AWS_SECRET_ACCESS_KEY": "very secret"}
        with unittest.mock.patch.dict(os.environ, keys):
            self.start(server_count=1)
        self.create_by_url("s3://bucket/data")
        self.assert_refused(self.join_string(), "192.168.0.0/16")

    # --- Keys -------------------------------------------------------------------

    def test_a_volunteers_own_keys_sign_only_if_it_says_so(self):
        asked = []

        def fault(target, start, body):
            asked.append(target)
            return body

        host = file_host.FileHost(self.home, fault=fault)
        self.addCleanup(host.close)
        self.start(server_count=1)
        self.create_by_url("s3://bucket/data")
        keys = {"AWS_ENDPOINT_URL": host.url, "AWS_ACCESS_KEY_ID": "AKID",
                "AWS_SECRET_ACCESS_KEY": "very secret"}
        done = self.join_string(**keys)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("credentials", done.stderr)
        self.data_check(**keys)
        self.assertEqual(asked, [])
        self.join_string("--data-credentials", check=0, **keys)
        self.assertNotEqual(asked, [])


if __name__ == "__main__":
    cases.main()
