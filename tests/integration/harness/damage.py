"""Damages files on a server's disk."""

import glob
import os


def shard_directory(cluster, server, run_id="run"):
    """Where a server keeps its shard of a run."""
    found, = glob.glob(os.path.join(cluster.directory, server, "runs",
                                    run_id + ".*", "shard-*"))
    return found


def files(cluster, server, room, suffix, run_id="run"):
    """Files of a run on a server, sorted: room is "log" or "versions"."""
    found = sorted(glob.glob(os.path.join(
        cluster.directory, server, "runs", run_id + ".*", "shard-*", room,
        "*" + suffix)))
    assert found, "%s has no %s in its %s" % (server, suffix, room)
    return found


def segments(cluster, server):
    return files(cluster, server, "log", ".seg")


def segment_count(cluster, server, run_id="run"):
    """Log segments on a server; 0 for an ended run that keeps nothing."""
    return len(glob.glob(os.path.join(
        cluster.directory, server, "runs", run_id + ".*", "shard-*", "log",
        "*.seg")))


def versions(cluster, server):
    return files(cluster, server, "versions", ".ver")


def remove(path):
    os.unlink(path)


def shorten(path):
    """Truncates the file to the header page and a little more."""
    os.truncate(path, 4096 + 100)


def flip(path, offset=4096 + 10):
    """Changes one byte; by default after the header page, in the first
    block."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x21]))
