"""The regions of shared memory in which parameters travel.

A fragment has one region: f32, little-endian. A connection has its own regions.
Only this package sees them: the trainer has copies.
"""

from __future__ import annotations

import math
import mmap
import os
from typing import Any

import numpy as np

from ._messages import unreadable
from .errors import Error

_ELEMENT_BYTES = 4
_ELEMENTS_MAX = 1 << 40


class Region:
    """One fragment's memory.

    Attributes:
      element_count: Elements, each 4 bytes.
      tensors: {name: (shape, element offset)} in the layout's order.
      views: {name: float32 array of the tensor's shape}, in the region.
    """

    def __init__(self, file: int, element_count: int):
        """Maps `file`, and owns it."""
        self._file = file
        self.element_count = element_count
        self.tensors: dict[str, tuple[tuple[int, ...], int]] = {}
        self.views: dict[str, np.ndarray] = {}
        self._end = 0  # End of the last tensor, in elements.
        size = os.fstat(file).st_size
        if size < element_count * _ELEMENT_BYTES:
            self.close()
            raise unreadable("a region of %d bytes for %d elements" %
                             (size, element_count))
        # The arrays keep the mapping; it goes with the last of them.
        self.flat = np.frombuffer(
            mmap.mmap(file, element_count * _ELEMENT_BYTES), dtype="<f4")

    def describe(self) -> dict[str, Any]:
        """The region, for `Regions.of`."""
        file = os.fstat(self._file)
        return {"file": self._file, "inode": [file.st_dev, file.st_ino],
                "element_count": self.element_count, "last": True,
                "tensors": [{"name": name, "shape": list(shape),
                             "element_offset": offset}
                            for name, (shape, offset) in self.tensors.items()]}

    def add(self, name: str, shape: list[int], offset: int) -> None:
        if any(size < 1 for size in shape):
            raise unreadable("tensor %s has the shape %s" % (name, shape))
        end = offset + math.prod(shape)
        if not self._end <= offset < end <= self.element_count:
            raise unreadable(
                "tensor %s has elements [%d, %d); the one before it ends at "
                "%d, the region at %d" % (name, offset, end, self._end,
                                          self.element_count))
        self._end = end
        self.tensors[name] = (tuple(shape), offset)
        self.views[name] = self.flat[offset:end].reshape(shape)

    def close(self) -> None:
        """Closes the descriptor. The memory stays mapped."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Regions:
    """The regions of a connection, in the order of fragments.

    Attributes:
      is_shared: Their memory is the exchange's, not a stand-in.
    """

    def __init__(self, fragment_count: int):
        if fragment_count < 1:
            raise unreadable("fragment_count is %d" % fragment_count)
        self.fragment_count = fragment_count
        self.is_shared = True
        self.fragments: list[Region] = []
        self.complete = False
        self._names: set[str] = set()
        self._is_open = False  # The newest fragment expects more messages.

    def add(self, layout: dict[str, Any], file: int | None) -> None:
        """Takes one `layout` message, and owns `file`, its descriptor."""
        try:
            self._check(layout, file)
        except Error:
            if file is not None:
                os.close(file)
            raise
        if file is not None:
            self.fragments.append(Region(file, layout["element_count"]))
        region = self.fragments[-1]
        for tensor in layout["tensors"]:
            name = tensor["name"]
            if not name or name in self._names:
                raise unreadable("two tensors have the name %r" % name)
            self._names.add(name)
            region.add(name, tensor["shape"], tensor["element_offset"])
        self._is_open = not layout["last"]
        if layout["last"] and not region.tensors:
            raise unreadable("fragment %d has no tensor" % layout["fragment"])
        self.complete = (not self._is_open and
                         len(self.fragments) == self.fragment_count)

    def _check(self, layout: dict[str, Any], file: int | None) -> None:
        if self.complete:
            raise unreadable("a layout after the last one")
        expected = len(self.fragments) - (1 if self._is_open else 0)
        if layout["fragment"] != expected:
            raise unreadable("a layout of fragment %d; expected fragment %d" %
                             (layout["fragment"], expected))
        if self._is_open:
            if file is not None:
                raise unreadable("a second region for fragment %d" % expected)
            if layout["element_count"] not in (
                    0, self.fragments[-1].element_count):
                raise unreadable("fragment %d has %d and then %d elements" % (
                    expected, self.fragments[-1].element_count,
                    layout["element_count"]))
        elif file is None:
            raise unreadable("fragment %d comes without a region" % expected)
        elif not 0 < layout["element_count"] < _ELEMENTS_MAX:
            raise unreadable("a region of %d elements" %
                             layout["element_count"])

    def views(self, fragment: int) -> dict[str, np.ndarray]:
        """The tensors of a fragment. Error: there is no such fragment."""
        if not self.complete:
            raise unreadable("a request before the last layout")
        if not 0 <= fragment < self.fragment_count:
            raise unreadable("fragment %d of %d" %
                             (fragment, self.fragment_count))
        return self.fragments[fragment].views

    def all_views(self) -> dict[str, np.ndarray]:
        """Every tensor, in the layout's order of fragments and tensors."""
        return {name: view for region in self.fragments
                for name, view in region.views.items()}

    def close(self) -> None:
        for region in self.fragments:
            region.close()

    def release(self) -> None:
        """Gives up the memory, whose views must not be used any more."""
        for region in self.fragments:
            region.views.clear()
            region.flat = np.empty(0, "<f4")

    def describe(self) -> dict[str, Any]:
        """The argument of `of` in another process; valid until `close`."""
        return {"node": node(), "pid": os.getpid(),
                "fragments": [region.describe() for region in self.fragments]}

    @classmethod
    def of(cls, described: dict[str, Any]) -> "Regions":
        """The regions of another process.

        On another node they are memory of this process which nothing touches,
        and which therefore takes no room.
        """
        regions = cls(len(described["fragments"]))
        files = _open_files(described)
        regions.is_shared = files is not None
        for number, region in enumerate(described["fragments"]):
            if files is None:
                file = os.memfd_create("region", os.MFD_CLOEXEC)
                os.ftruncate(file, region["element_count"] * _ELEMENT_BYTES)
            else:
                file = files[number]
            regions.add({**region, "fragment": number}, file)
        return regions


def node() -> tuple[str, str]:
    """Names the processes that can open each other's descriptors."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read(), os.readlink("/proc/self/ns/pid")


def _open_files(described: dict[str, Any]) -> list[int] | None:
    """Opens the regions of a process; None if it is on another node."""
    if described["node"] != node():
        return None
    files: list[int] = []
    try:
        for region in described["fragments"]:
            files.append(os.open("/proc/%d/fd/%d" % (
                described["pid"], region["file"]), os.O_RDWR | os.O_CLOEXEC))
            file = os.fstat(files[-1])
            if [file.st_dev, file.st_ino] != region["inode"]:
                raise OSError("another file")
        return files
    except OSError:  # For example, of another user.
        for opened in files:
            os.close(opened)
        return None
