"""A disk that breaks while a process uses it.

An unchanged program runs with power/broken_disk.cc preloaded. It fails the
given calls until the disk is repaired.
"""

import os

from harness import processes

LIBRARY = "tests/integration/power/libbroken_disk.so"


class Disk:
    """The disk of one process, initially without faults."""

    is_armed = False  # As power.Disk.

    def __init__(self, directory):
        self._fault = directory + ".fault"

    def environment(self):
        return {"LD_PRELOAD": processes.binary(LIBRARY),
                "ATOLL_DISK_FAULT": self._fault}

    def cut(self):
        """After the process ended: keeps everything that was written."""

    def fail(self, call, part, error_number):
        """Makes `call` ("write", "sync", "read") fail with this errno on files
        whose path contains `part`."""
        with open(self._fault + ".new", "w", encoding="ascii") as file:
            file.write("%s %s %d\n" % (call, part, error_number))
        os.rename(self._fault + ".new", self._fault)

    def repair(self):
        os.unlink(self._fault)
