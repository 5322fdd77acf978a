"""What an island in another language must compute, from the protos alone.

Shares nothing with the C++ programs. Layouts, ranges, checksums and digests
follow proto/DESIGN.md and the comments of the protos, so tests that use them
also check those documents.
"""

import array
import bisect
import ctypes
import ctypes.util
import functools
import hashlib
import math
import struct

BLOCK_ELEMENTS = 4096

# --- CRC-32C ------------------------------------------------------------------


def _crc_table():
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC_TABLE = _crc_table()


# Cases of one test send the same chunks, and a byte takes 50 ns.
@functools.lru_cache(maxsize=256)
def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    table = _CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def chunk_crc(run_epoch, fragment, slot, seq, codec, first_block, block_count,
              payload):
    """Chunk.crc32c (parameter_service.proto)."""
    header = struct.pack("<7q", run_epoch, fragment, slot, seq, codec,
                         first_block, block_count)
    return crc32c(payload, crc32c(header))


# --- XXH3-128 -----------------------------------------------------------------


class _Hash128(ctypes.Structure):
    _fields_ = [("low64", ctypes.c_uint64), ("high64", ctypes.c_uint64)]


_XXHASH = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
_XXHASH.XXH3_128bits_withSeed.restype = _Hash128
_XXHASH.XXH3_128bits_withSeed.argtypes = [
    ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64
]


def xxh3_128(data, seed=0):
    """The digest as (high, low)."""
    data = bytes(data)
    value = _XXHASH.XXH3_128bits_withSeed(data, len(data), seed)
    return value.high64, value.low64


# --- Layouts ------------------------------------------------------------------


class Fragment:
    def __init__(self):
        self.tensors = []         # Indices in the layout.
        self.block_offsets = [0]  # First element of each block, and the end.

    @property
    def block_count(self):
        return len(self.block_offsets) - 1

    @property
    def element_count(self):
        return self.block_offsets[-1]


class LayoutView:
    """An atoll.v1.Layout, cut into blocks as every party cuts it."""

    def __init__(self, layout):
        self.layout = layout
        self.fragments = [Fragment() for _ in range(layout.fragment_count)]
        # (tensor, fragment, first block, block count), in layout order.
        self.places = []
        for index, tensor in enumerate(layout.tensors):
            fragment = self.fragments[tensor.fragment]
            count = math.prod(tensor.shape)
            first = fragment.block_count
            start = fragment.element_count
            for offset in range(0, count, BLOCK_ELEMENTS):
                fragment.block_offsets.append(
                    start + min(offset + BLOCK_ELEMENTS, count))
            fragment.tensors.append(index)
            self.places.append((index, tensor.fragment, first,
                                fragment.block_count - first))

    def fingerprint(self):
        """layout_fingerprint: of the canonical text (proto/DESIGN.md)."""
        text = "atoll layout 1 %d\n" % self.layout.fragment_count
        for tensor in self.layout.tensors:
            text += "%s %d %d %d %s\n" % (
                tensor.name, tensor.dtype, tensor.tensor_class,
                tensor.fragment, "x".join(str(d) for d in tensor.shape))
        digest = hashlib.sha256(text.encode()).digest()
        return struct.unpack("<Q", digest[:8])[0]

    def shard_blocks(self, fragment, shard, shard_count):
        """[begin, end): blocks of `fragment` that `shard` holds."""
        offsets = self.fragments[fragment].block_offsets
        total = self.fragments[fragment].element_count

        def cut(s):
            # The first whole block at or after total * s / shard_count.
            return bisect.bisect_left(offsets, total * s // shard_count)

        return cut(shard), cut(shard + 1)

    def parameters_sha256(self, fragments):
        """The SHA-256 of whole fragments, {fragment: f32 bytes}."""
        outer = hashlib.sha256()
        for _, fragment, first, count in self.places:
            data = fragments[fragment]
            offsets = self.fragments[fragment].block_offsets
            for block in range(first, first + count):
                outer.update(hashlib.sha256(
                    data[4 * offsets[block]:4 * offsets[block + 1]]).digest())
        return outer.hexdigest()

    def fragment_digest(self, fragment, data):
        """FragmentVersion.digest of one whole fragment, (high, low)."""
        offsets = self.fragments[fragment].block_offsets
        return sum_digests(
            xxh3_128(data[4 * offsets[b]:4 * offsets[b + 1]], seed=b)
            for b in range(len(offsets) - 1))


def sum_digests(digests):
    total = 0
    for high, low in digests:
        total += (high << 64) | low
    total &= (1 << 128) - 1
    return total >> 64, total & ((1 << 64) - 1)


# --- f32 arithmetic -----------------------------------------------------------


def to_bytes(values):
    return array.array("f", values).tobytes()


def from_bytes(data):
    values = array.array("f")
    values.frombytes(data)
    return values


def f32(value):
    """`value` rounded to the nearest f32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]
