"""Files of an artifact, and archives whose bytes depend only on them.

Entries are sorted, belong to root and have one time; gzip headers are fixed.
"""

import dataclasses
import io
import os
import shutil
import struct
import tarfile
import zlib

LEVEL = 6  # Every compression of an archive has it.


@dataclasses.dataclass
class Entry:
    """One path of an artifact. A file has `data`, or is a copy of `source`."""
    mode: int = 0o644
    data: bytes = b""
    source: str = ""
    link: str = ""            # Target of a symbolic link.
    is_directory: bool = False
    package: str = ""         # Name of the package that it comes from.

    @property
    def is_file(self):
        return not self.link and not self.is_directory

    def size(self):
        return os.path.getsize(self.source) if self.source else len(self.data)

    def open(self):
        if self.source:
            return open(self.source, "rb")
        return io.BytesIO(self.data)


def directory(mode=0o755):
    return Entry(mode=mode, is_directory=True)


def with_parents(entries):
    """`entries` by path, with a directory for each parent that they lack."""
    result = dict(entries)
    for path in entries:
        parent = os.path.dirname(path)
        while parent and parent not in result:
            result[parent] = directory()
            parent = os.path.dirname(parent)
    return result


def write_tar(entries, mtime, file):
    """Writes `entries` ({path without a leading slash: Entry}) as a tar."""
    with tarfile.open(fileobj=file, mode="w",
                      format=tarfile.USTAR_FORMAT) as tar:
        for path, entry in sorted(with_parents(entries).items()):
            info = tarfile.TarInfo(path)
            info.mode = entry.mode
            info.mtime = mtime
            if entry.is_directory:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif entry.link:
                info.type = tarfile.SYMTYPE
                info.mode = 0o777
                info.linkname = entry.link
                tar.addfile(info)
            else:
                info.size = entry.size()
                with entry.open() as data:
                    tar.addfile(info, data)


class Gzip:
    """Compresses into a file, with a header that has no time and no system."""

    def __init__(self, file):
        self._file = file
        self._compressor = zlib.compressobj(LEVEL, zlib.DEFLATED,
                                            -zlib.MAX_WBITS)
        self._crc = 0
        self._size = 0
        file.write(b"\x1f\x8b\x08\0\0\0\0\0\0\xff")

    def write(self, data):
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        self._file.write(self._compressor.compress(data))

    def tell(self):
        return self._size

    def finish(self):
        self._file.write(self._compressor.flush())
        self._file.write(struct.pack("<II", self._crc,
                                     self._size & 0xffffffff))


def write_tree(entries, mtime, root):
    """Writes `entries` as files and directories below the new directory `root`.

    All have the time `mtime`; the owner is the caller.
    """
    os.makedirs(root)
    os.chmod(root, 0o755)
    for path, entry in sorted(with_parents(entries).items()):
        target = os.path.join(root, path)
        if entry.is_directory:
            os.mkdir(target)
        else:
            with entry.open() as data, open(target, "wb") as file:
                shutil.copyfileobj(data, file)
        os.chmod(target, entry.mode)
    for folder, folders, names in os.walk(root, topdown=False):
        for name in names:
            os.utime(os.path.join(folder, name), (mtime, mtime))
        os.utime(folder, (mtime, mtime))
