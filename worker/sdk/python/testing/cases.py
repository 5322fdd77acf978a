"""What the tests of this package share: paths, and a folder for each case."""

import os
import random as random_module
import sys
import tempfile
import unittest

_PYTHON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
TREE = os.path.normpath(os.path.join(_PYTHON, "..", "..", ".."))
PACKAGE = os.path.normpath(_PYTHON)  # What PYTHONPATH must name.
sys.path[:0] = [PACKAGE, os.path.join(TREE, "tests", "integration")]

from harness import cases  # noqa: E402

main = cases.main


def random():
    """Random inputs, from the seed that the run prints."""
    return random_module.Random(cases.seed())


class FolderCase(unittest.TestCase):
    """A case with a folder of its own, and no settings of the caller's."""

    def setUp(self):
        # A Unix socket's path has at most 107 bytes.
        short = len(tempfile.gettempdir()) < 60
        folder = tempfile.TemporaryDirectory(prefix="atoll-sdk-",
                                             dir=None if short else "/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(),
                                 os.environ.update(before)))
        for name in list(os.environ):
            if name.startswith("ATOLL_") and not name.startswith("ATOLL_TEST"):
                del os.environ[name]

    def path(self, *names):
        return os.path.join(self.folder, *names)
