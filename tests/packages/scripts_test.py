#!/usr/bin/python3
"""The maintainer scripts of atoll-server, below a folder instead of the root.

The paths in a script are rewritten, and fakes in its PATH record their
arguments, so it runs without rights and changes nothing of the machine.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
_FILES = os.path.join(_HERE, "..", "..", "deploy", "packages", "files")
sys.path[:0] = [os.path.join(_HERE, "..", "integration")]

from harness import cases  # noqa: E402

_FAKES = {
    "systemctl": "",
    "systemd-sysusers": "",
    "runuser": "",
    # Without owners, which do not exist here.
    "install": 'for last; do :; done; mkdir -p "$last"\n',
}
_RECORD = """#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
"""
_UNITS = "atoll-coordinator.service atoll-server.service atoll-gate.service"


class ScriptsTest(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = directory.name
        self.make("fakes")
        for name, text in _FAKES.items():
            path = self.write("fakes/" + name, _RECORD + text)
            os.chmod(path, 0o755)

    def path(self, relative):
        return os.path.join(self.root, relative)

    def make(self, relative):
        os.makedirs(self.path(relative))

    def write(self, relative, text):
        os.makedirs(os.path.dirname(self.path(relative)), exist_ok=True)
        with open(self.path(relative), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(relative)

    def run_script(self, name, *arguments):
        """Runs it as dpkg does. Returns (its commands, what it says)."""
        with open(os.path.join(_FILES, name), encoding="utf-8") as file:
            text = file.read()
        script = self.write("script", re.sub(
            r"(?<![\w/])/(?=(etc|var|run)/)", self.root + "/", text))
        calls = self.write("calls", "")
        done = subprocess.run(
            ["sh", script, *arguments], stderr=subprocess.PIPE, text=True,
            env={"PATH": self.path("fakes") + ":/usr/bin:/bin",
                 "CALLS": calls})
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(calls, encoding="utf-8") as file:
            return (file.read().replace(self.root, "").splitlines(),
                    done.stderr.replace(self.root, ""))

    def test_the_scripts_are_shell(self):
        for name in ("postinst", "postrm", "prerm"):
            subprocess.run(["sh", "-n", os.path.join(_FILES, name)],
                           check=True)

    def test_an_installation_makes_users_and_directories_and_starts_none(self):
        self.make("run/systemd/system")
        calls, _ = self.run_script("postinst", "configure", "")
        self.assertEqual(calls, [
            "systemd-sysusers atoll-server.conf",
            "install -d -m 2750 -o root -g atoll-coordinator "
            "/etc/atoll/coordinator",
            "install -d -m 2750 -o root -g atoll-server /etc/atoll/server",
            "install -d -m 2750 -o root -g atoll-gate /etc/atoll/gate",
            "install -d -m 0700 -o atoll-coordinator -g atoll-coordinator "
            "/var/lib/atoll/coordinator",
            "install -d -m 0700 -o atoll-server -g atoll-server "
            "/var/lib/atoll/server",
            "runuser -u atoll-coordinator -- /usr/bin/atoll-coordinator init "
            "--if-empty --data-dir /var/lib/atoll/coordinator",
            "systemctl daemon-reload",
        ])

    def test_settings_of_an_older_version_are_no_longer_for_all(self):
        for name in ("coordinator", "server", "gate"):
            os.chmod(self.write("etc/atoll/%s.env" % name, "AWS_X=y"), 0o644)
        self.run_script("postinst", "configure", "0.0.9")
        for name in ("coordinator", "server", "gate"):
            mode = os.stat(self.path("etc/atoll/%s.env" % name)).st_mode
            self.assertEqual(mode & 0o7777, 0o640)

    def test_the_units_have_private_state_and_get_their_keys_from_root(self):
        for name in ("coordinator", "server"):
            with open(os.path.join(_FILES, "atoll-%s.service" % name),
                      encoding="utf-8") as file:
                unit = file.read()
            self.assertIn("\nStateDirectory=atoll/%s\n"
                          "StateDirectoryMode=0700\n" % name, unit)
            self.assertIn("\nLoadCredential=tls.key:/etc/atoll/%s/tls.key\n"
                          % name, unit)
            self.assertIn("--tls-key ${CREDENTIALS_DIRECTORY}/tls.key", unit)

    def test_every_unit_limits_memory_and_restarts(self):
        for name in ("coordinator", "server", "gate", "island@"):
            with open(os.path.join(_FILES, "atoll-%s.service" % name),
                      encoding="utf-8") as file:
                unit = file.read()
            # A peer may make it take memory (SECURITY.md).
            self.assertRegex(unit, r"\nMemoryMax=[1-9][0-9]*%\n")
            self.assertRegex(unit, r"\nRestart=(on-failure|always)\n")

    def test_an_installation_makes_no_log_in_a_directory_that_is_there(self):
        # It may be the mount point of a volume that is not mounted now.
        self.make("var/lib/atoll/coordinator")
        calls, _ = self.run_script("postinst", "configure", "")
        self.assertEqual([c for c in calls if c.startswith("runuser")], [])

    def test_an_upgrade_restarts_what_runs_and_keeps_directories(self):
        self.make("run/systemd/system")
        for name in ("coordinator", "server", "gate"):
            self.make("etc/atoll/" + name)
            self.make("var/lib/atoll/" + name)
        calls, _ = self.run_script("postinst", "configure", "0.0.9")
        self.assertEqual(calls, [
            "systemd-sysusers atoll-server.conf",
            "systemctl daemon-reload",
            "systemctl try-restart " + _UNITS,
        ])

    def test_without_systemd_nothing_is_started_or_stopped(self):
        self.run_script("postinst", "configure", "")
        calls, _ = self.run_script("postinst", "configure", "0.0.9")
        self.assertEqual(calls, ["systemd-sysusers atoll-server.conf"])
        calls, _ = self.run_script("prerm", "remove")
        self.assertEqual(len(calls), 1)
        self.assertRegex(calls[0], "^systemctl --quiet disable ")

    def test_a_removal_stops_and_disables_the_services(self):
        self.make("run/systemd/system")
        calls, _ = self.run_script("prerm", "remove")
        self.assertEqual([c.split(" atoll")[0] for c in calls],
                         ["systemctl stop", "systemctl --quiet disable"])
        for call in calls:
            self.assertEqual(set(_UNITS.split()) - set(call.split()), set())
        self.assertEqual(self.run_script("prerm", "upgrade", "2.0")[0], [])
        self.assertEqual(self.run_script("postrm", "remove")[0],
                         ["systemctl daemon-reload"])

    def test_a_removal_keeps_keys_and_data(self):
        key = self.write("etc/atoll/server/tls.key", "key")
        data = self.write("var/lib/atoll/server/log", "data")
        self.run_script("prerm", "remove")
        self.run_script("postrm", "remove")
        self.assertTrue(os.path.exists(key))
        self.assertTrue(os.path.exists(data))

    def test_purging_says_which_files_of_the_operator_it_keeps(self):
        key = self.write("etc/atoll/gate/island-ca.key", "key")
        data = self.write("var/lib/atoll/server/log", "data")
        self.make("etc/atoll/server")
        self.make("var/lib/atoll/coordinator")
        _, said = self.run_script("postrm", "purge")
        self.assertTrue(os.path.exists(key))
        self.assertFalse(os.path.exists(self.path("etc/atoll/server")))
        self.assertTrue(os.path.exists(data))
        self.assertFalse(os.path.exists(
            self.path("var/lib/atoll/coordinator")))
        self.assertEqual(said, "/etc/atoll/gate has certificates and keys and "
                         "stays. To delete it: rm -r /etc/atoll/gate\n"
                         "/var/lib/atoll/server has data and stays. To "
                         "delete it: rm -r /var/lib/atoll/server\n")

    def test_purging_leaves_nothing_of_the_package(self):
        for directory in ("etc/atoll/coordinator", "etc/atoll/server",
                          "etc/atoll/gate", "var/lib/atoll/coordinator",
                          "var/lib/atoll/server"):
            self.make(directory)
        self.assertEqual(self.run_script("postrm", "purge"), ([], ""))
        self.assertFalse(os.path.exists(self.path("etc/atoll")))
        self.assertFalse(os.path.exists(self.path("var/lib/atoll")))

    def test_purging_twice_or_after_nothing_is_no_error(self):
        self.assertEqual(self.run_script("postrm", "purge"), ([], ""))


if __name__ == "__main__":
    cases.main()
