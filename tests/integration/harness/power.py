"""A power cut: a process loses everything that it did not sync.

An unchanged program runs with power/durable_image.cc preloaded, which keeps an
image of what was synced. After kill -9 `cut` replaces the program's directory
with that image: unsynced bytes and directory entries are lost. A real disk may
keep some of them.
"""

import os
import shutil

from harness import processes

LIBRARY = "tests/integration/power/libdurable_image.so"


class Disk:
    """The directory of one process. `lies`: a sync keeps nothing."""

    def __init__(self, directory, lies=False):
        self.directory = os.path.realpath(directory)
        self._image = self.directory + ".image"
        self._lies = lies
        self.losses = []  # Changed paths, by cut.
        os.makedirs(self.directory, exist_ok=True)

    def environment(self):
        shutil.rmtree(self._image, ignore_errors=True)
        os.makedirs(self._image)
        result = {"LD_PRELOAD": processes.binary(LIBRARY),
                  "ATOLL_DISK_ROOT": self.directory,
                  "ATOLL_DISK_IMAGE": self._image}
        if self._lies:
            result["ATOLL_DISK_LIES"] = "1"
        return result

    def cut(self):
        """Call after the process has died and before its restart."""
        with open(os.path.join(self._image, "root"), encoding="ascii") as file:
            root = file.read()
        after = self.directory + ".after"
        self._build(root, after)
        before, now = _tree(self.directory), _tree(after)
        self.losses.append(sorted(
            path for path in before.keys() | now.keys()
            if before.get(path) != now.get(path)))
        shutil.rmtree(self.directory)
        os.rename(after, self.directory)

    def _build(self, key, path):
        os.mkdir(path)
        entries = os.path.join(self._image, "dirs", key)
        if not os.path.exists(entries):
            return  # Created but never synced: empty.
        with open(entries, encoding="utf-8") as file:
            lines = file.read().splitlines()
        for line in lines:
            kind, child, name = line.split(" ", 2)
            target = os.path.join(path, name)
            source = os.path.join(self._image, "files", child)
            if kind == "d":
                self._build(child, target)
            elif os.path.exists(source):
                shutil.copyfile(source, target)
            else:
                open(target, "wb").close()  # Only its entry was synced.


def _tree(root):
    """{relative path: bytes, or None for a directory}."""
    result = {}
    for directory, names, files in os.walk(root):
        for name in names:
            result[os.path.relpath(os.path.join(directory, name), root)] = None
        for name in files:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                result[os.path.relpath(path, root)] = file.read()
    return result
