#!/usr/bin/python3
"""What another user of the machine puts into a directory that a user gives
leads to no file of that user, and what programs keep is for this user alone."""

import os
import stat
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE]

from harness import cases  # noqa: E402
from harness import cluster as cluster_module  # noqa: E402
from harness import processes  # noqa: E402

_OTHER = 12345
_SECRET = "of a person\n"


@unittest.skipUnless(os.geteuid() == 0, "only root can give files away")
class OtherUsersTest(unittest.TestCase):

    def setUp(self):
        place = tempfile.TemporaryDirectory(
            dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(place.cleanup)
        self.root = place.name
        self.secret = os.path.join(self.root, "secret")
        with open(self.secret, "w", encoding="ascii") as file:
            file.write(_SECRET)

    def put(self, directory, names):
        """Another user's directory with links to the secret."""
        os.makedirs(directory)
        for name in names:
            os.makedirs(os.path.dirname(os.path.join(directory, name)),
                        exist_ok=True)
            os.symlink(self.secret, os.path.join(directory, name))
        for folder, folders, files in os.walk(directory):
            for name in [""] + folders + files:
                os.lchown(os.path.join(folder, name), _OTHER, _OTHER)
        os.chmod(directory, 0o777)

    def assert_secret(self):
        with open(self.secret, encoding="ascii") as file:
            self.assertEqual(file.read(), _SECRET)

    def dev_up(self, directory):
        return processes.run_cli("dev", "up", "laptop", "--dir", directory,
                                 "-o", "json", check=None)

    def test_dev_up_refuses_a_directory_of_another_user(self):
        place = os.path.join(self.root, "x")
        for names in ([], ["lock"]):
            directory = place + str(len(names))
            self.put(directory, names)
            before = sorted(os.listdir(directory))
            done = self.dev_up(directory)
            self.assertEqual(done.returncode, 9, done.stdout + done.stderr)
            self.assertIn("NOT_OURS", done.stdout)
            self.assertEqual(sorted(os.listdir(directory)), before)
        self.assert_secret()

    def test_dev_up_refuses_a_directory_below_one_of_another_user(self):
        above = os.path.join(self.root, "above")
        self.put(above, [])
        done = self.dev_up(os.path.join(above, "mine"))
        self.assertEqual(done.returncode, 9, done.stdout + done.stderr)
        self.assertIn("belongs to user %d" % _OTHER, done.stdout)


class OwnDataTest(cluster_module.IntegrationTest):

    def test_parameters_and_local_checkpoints_are_for_their_owner_alone(self):
        cluster = self.cluster
        self.addCleanup(os.umask, os.umask(0))
        cluster.start_run(self.run_values())
        cluster.wait_commits(1)
        for name in ["coordinator", "island-0"] + cluster.server_ids:
            found = os.stat(os.path.join(cluster.directory, name))
            self.assertEqual(stat.S_IMODE(found.st_mode), 0o700, name)


if __name__ == "__main__":
    cases.main()
