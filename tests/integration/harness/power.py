"""A power cut: a process loses everything that it did not sync.

An unchanged program runs with power/durable_image.cc preloaded, which keeps an
image of what was synced. After kill -9 `cut` replaces the program's directory
with that image: unsynced bytes and directory entries are lost.

A disk in the middle of its writes keeps some of them. With a seed, `cut` chooses:
each unsynced page of a file is kept, zeroed, or as before; an unsynced length is
the new one, the old one, or between; each directory has its present entries or
those of its last sync.
"""

import collections
import ctypes
import os
import random
import shutil
import struct

from harness import processes

LIBRARY = "tests/integration/power/libdurable_image.so"


# A disk writes a page of this many bytes at once.
PAGE = 4096

# Constants of statx(2), which Python does not have.
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _STATX_INO_BTIME = -100, 0x100, 0x900

# The files and directories at a cut: paths of files, and entries of
# directories, (kind, key, name) each, by key.
_Present = collections.namedtuple("_Present", "files directories")


class Disk:
    """The directory of one process. `lies`: a sync keeps nothing. `seed`: cuts
    are in the middle of writes."""

    def __init__(self, directory, lies=False, seed=None):
        self._random = None if seed is None else random.Random(seed)
        self.directory = os.path.realpath(directory)
        self._image = self.directory + ".image"
        self._lies = lies
        self._cut_at = 0
        self.is_armed = False  # The newest process dies at a sync.
        self.losses = []  # Changed paths, by cut.
        os.makedirs(self.directory, exist_ok=True)

    def arm(self, sync_count):
        """The next process dies in the middle of its sync of this number."""
        self._cut_at = sync_count

    def environment(self):
        shutil.rmtree(self._image, ignore_errors=True)
        os.makedirs(self._image)
        result = {"LD_PRELOAD": processes.binary(LIBRARY),
                  "ATOLL_DISK_ROOT": self.directory,
                  "ATOLL_DISK_IMAGE": self._image}
        if self._lies:
            result["ATOLL_DISK_LIES"] = "1"
        self.is_armed = self._cut_at > 0
        if self.is_armed:
            result["ATOLL_DISK_CUT_AT"] = str(self._cut_at)
        self._cut_at = 0
        return result

    def cut(self):
        """Call after the process has died and before its restart."""
        with open(os.path.join(self._image, "root"), encoding="ascii") as file:
            root = file.read()
        after = self.directory + ".after"
        present = _Present({}, {})
        if self._random is not None:
            present = _read_present(self.directory)
        self._build(root, after, present)
        before, now = _tree(self.directory), _tree(after)
        self.losses.append(sorted(
            path for path in before.keys() | now.keys()
            if before.get(path) != now.get(path)))
        shutil.rmtree(self.directory)
        os.rename(after, self.directory)

    def _build(self, key, path, present):
        os.mkdir(path)
        for kind, child, name in sorted(self._entries(key, present),
                                        key=lambda entry: entry[2]):
            target = os.path.join(path, name)
            if kind == "d":
                self._build(child, target, present)
            else:
                with open(target, "wb") as file:
                    file.write(self._content(child, present))

    def _entries(self, key, present):
        if key in present.directories and self._random.random() < 0.5:
            return present.directories[key]
        path = os.path.join(self._image, "dirs", key)
        if not os.path.exists(path):
            return []  # Created but never synced: empty.
        with open(path, encoding="utf-8") as file:
            return [line.split(" ", 2) for line in file.read().splitlines()]

    def _content(self, key, present):
        # Empty if only its entry was synced.
        synced = _read(os.path.join(self._image, "files", key))
        if key not in present.files:
            return synced
        return mix_pages(synced, _read(present.files[key]), self._random)


def mix_pages(old, new, chance):
    """What a disk has of a file while it writes `new` over `old`."""
    size = max(len(old), len(new))
    before, after = old.ljust(size, b"\0"), new.ljust(size, b"\0")
    mixed = bytearray(before)
    for begin in range(0, size, PAGE):
        one, other = before[begin:begin + PAGE], after[begin:begin + PAGE]
        if one == other:
            continue
        choice = chance.choice(("kept", "zeroed", "old"))
        if choice == "kept":
            mixed[begin:begin + PAGE] = other
        elif choice == "zeroed":
            # Bytes around the written ones are synced.
            changed = [i for i, (a, b) in enumerate(zip(one, other)) if a != b]
            first, end = begin + changed[0], begin + changed[-1] + 1
            mixed[first:end] = bytes(end - first)
    length = chance.choice((len(old), len(new), chance.randint(
        min(len(old), len(new)), size)))
    return bytes(mixed[:length])


def _read(path):
    """The file's bytes; none if it does not exist."""
    if not os.path.exists(path):
        return b""
    with open(path, "rb") as file:
        return file.read()


def _key(path):
    """The key of a file or directory, as durable_image.cc makes it."""
    status = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None).statx(_AT_FDCWD, os.fsencode(path),
                               _AT_SYMLINK_NOFOLLOW, _STATX_INO_BTIME,
                               status) != 0:
        raise FileNotFoundError(path)
    inode, = struct.unpack_from("<Q", status, 32)
    return "%d-%d.%09u" % (inode, *struct.unpack_from("<qI", status, 80))


def _read_present(root):
    """A _Present of all below `root`."""
    present = _Present({}, {})
    for directory, names, files in os.walk(root):
        entries = present.directories[_key(directory)] = []
        for kind, found in (("d", names), ("f", files)):
            for name in found:
                path = os.path.join(directory, name)
                entries.append((kind, _key(path), name))
                if kind == "f":
                    present.files[_key(path)] = path
    return present


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
