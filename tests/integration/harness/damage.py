"""Finds and damages files of servers and of the coordinator."""

import glob
import os
import struct

from harness import arithmetic

PAGE = 4096


def run_directories(cluster, server, run_id="run"):
    """Directories of all runs of this id on a server, also of those that are
    being deleted."""
    runs = os.path.join(cluster.directory, server, "runs")
    return sorted(glob.glob(os.path.join(runs, run_id)) +
                  glob.glob(os.path.join(runs, run_id + ".*")))


def find(cluster, server, run_id, *below):
    """Paths below the run's directories on a server that match, sorted."""
    return sorted(path for directory in run_directories(cluster, server, run_id)
                  for path in glob.glob(os.path.join(directory, *below)))


def shard_directory(cluster, server, run_id="run"):
    """Where a server keeps its shard of a run."""
    found, = find(cluster, server, run_id, "shard-*")
    return found


def files(cluster, server, room, suffix, run_id="run"):
    """Files of a run on a server, sorted: room is "log", "versions" or
    "records"."""
    found = find(cluster, server, run_id, "shard-*", room, "*" + suffix)
    assert found, "%s has no %s in its %s" % (server, suffix, room)
    return found


def segments(cluster, server):
    """Without one that the server is making: it has no size yet."""
    return [path for path in files(cluster, server, "log", ".seg")
            if os.path.getsize(path) > 4096]


def segment_count(cluster, server, run_id="run"):
    """Log segments on a server; 0 for an ended run that keeps nothing."""
    return len(find(cluster, server, run_id, "shard-*", "log", "*.seg"))


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


def zero_page(path, offset):
    """Zeroes the page that has the byte at `offset`; returns what it was."""
    begin = offset // PAGE * PAGE
    with open(path, "r+b") as file:
        file.seek(begin)
        before = file.read(PAGE)
        assert before.strip(b"\0"), "the page is zero already"
        file.seek(begin)
        file.write(bytes(len(before)))
    return before


def write_back(path, offset, before):
    """Undoes zero_page."""
    with open(path, "r+b") as file:
        file.seek(offset // PAGE * PAGE)
        file.write(before)


# --- The coordinator's log: RocksDB's format of logs ---------------------------

_BLOCK = 32 << 10
_HEADER = 7     # Masked CRC-32C u32, length u16, type u8.
_WHOLE = b"\1"  # The type of a record in one piece.


def coordinator_logs(cluster):
    """Logs and MANIFESTs of the coordinator's store, sorted."""
    root = os.path.join(cluster.directory, "coordinator")
    found = sorted(glob.glob(os.path.join(root, "*.log")) +
                   glob.glob(os.path.join(root, "MANIFEST-*")))
    assert len(found) >= 2, found
    return found


def append_torn_record(path):
    """Appends what a power cut can leave of a record of RocksDB: the header,
    the first half, and zeros."""
    room = _BLOCK - os.path.getsize(path) % _BLOCK
    # No record begins in the last bytes of a block, and none crosses its end.
    skipped = room if room <= _HEADER else 0
    payload = bytes(range(1, 201))[:_BLOCK if skipped else room - _HEADER]
    crc = arithmetic.crc32c(_WHOLE + payload)
    masked = ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
    half = len(payload) // 2
    with open(path, "ab") as file:
        file.write(bytes(skipped) + struct.pack("<IH", masked, len(payload)) +
                   _WHOLE + payload[:half] + bytes(len(payload) - half))


# --- A server's records (server/store/records/record_frame.h) ------------------

# Magic, payload length, CRC-32C of all but these two, flags, seq, synced_seq,
# id of the file.
_FRAME = struct.Struct("<4sIIIQQQ")


def record_log(cluster, server, run_id="run"):
    """The newest log of a shard's records."""
    return files(cluster, server, "records", ".log", run_id)[-1]


def frames(path):
    """(offset, size without padding, unpacked header) of each whole frame."""
    with open(path, "rb") as file:
        data = file.read()
    found, at = [], 0
    while at + _FRAME.size <= len(data):
        header = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + header[1]
        if header[0] != b"ATRL" or end > len(data) or arithmetic.crc32c(
                data[at + 4:at + 8] + data[at + 12:end]) != header[2]:
            break
        found.append((at, end - at, header))
        at = -(-end // 8) * 8
    assert found, "no frame in " + path
    return found


def append_torn_frame(path):
    """As append_torn_record, for a server's records."""
    at, size, (magic, _, _, _, seq, synced_seq, file_id) = frames(path)[-1]
    payload = bytes(range(1, 201))
    rest = struct.pack("<IQQQ", 0, seq + 1, synced_seq, file_id)
    length = struct.pack("<I", len(payload))
    crc = arithmetic.crc32c(length + rest + payload)
    with open(path, "r+b") as file:
        file.seek(-(-(at + size) // 8) * 8)
        file.write(magic + length + struct.pack("<I", crc) + rest +
                   payload[:100] + bytes(100))
