"""A disk that breaks while a process uses it.

An unchanged program runs with power/broken_disk.cc before its libc, which fails
the calls that it is told to fail, from when it is told until it is repaired.
"""

import os

from harness import processes

LIBRARY = "tests/integration/power/libbroken_disk.so"


class Disk:
    """What one process writes to. It begins whole."""

    def __init__(self, directory):
        self._fault = directory + ".fault"

    def environment(self):
        """For the next start of the process."""
        return {"LD_PRELOAD": processes.binary(LIBRARY),
                "ATOLL_DISK_FAULT": self._fault}

    def cut(self):
        """The process ended: everything that was written is there."""

    def fail(self, call, part, error_number):
        """`call` ("write", "sync", "read") on files whose path contains `part`
        ends with this errno."""
        with open(self._fault + ".new", "w", encoding="ascii") as file:
            file.write("%s %s %d\n" % (call, part, error_number))
        os.rename(self._fault + ".new", self._fault)

    def repair(self):
        os.unlink(self._fault)
