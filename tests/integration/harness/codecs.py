"""Encodings of outer gradients, from their manuals in base/codec alone.

A codec is an object with `number`, `sizes(count)` (the bytes of a block), and
`encode(values)` and `decode(data, count)` for one block.
"""

import struct

from harness import arithmetic

BLOCK_ELEMENTS = arithmetic.BLOCK_ELEMENTS


class F32:
    """CODEC_F32: 4 bytes an element."""

    number = 1

    @staticmethod
    def size(count):
        return 4 * count

    @staticmethod
    def encode(values):
        return arithmetic.to_bytes(values)

    @staticmethod
    def decode(data, count):
        return list(arithmetic.from_bytes(data))


def _bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def _of_bits(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


class Int8:
    """CODEC_INT8: a bf16 scale for every 256 elements, then the integers."""

    number = 4
    SUB = 256
    SCALE_MIN, SCALE_MAX = 0x0080, 0x7c01

    @classmethod
    def size(cls, count):
        return 2 * -(-count // cls.SUB) + count

    @classmethod
    def _scale(cls, most):
        # The least bf16 that is at least most / 127.
        bits = _bits(arithmetic.f32(most / 127.0))
        scale = (bits + 0xffff) >> 16
        return min(max(scale, cls.SCALE_MIN), cls.SCALE_MAX)

    @classmethod
    def encode(cls, values):
        scales, codes = b"", b""
        for begin in range(0, len(values), cls.SUB):
            part = values[begin:begin + cls.SUB]
            scale = cls._scale(max(abs(v) for v in part))
            inverse = arithmetic.f32(1.0 / _of_bits(scale << 16))
            # round() takes ties to even.
            codes += struct.pack("<%db" % len(part), *[
                round(arithmetic.f32(v * inverse)) for v in part])
            scales += struct.pack("<H", scale)
        return scales + codes

    @classmethod
    def decode(cls, data, count):
        sub_count = -(-count // cls.SUB)
        scales = struct.unpack("<%dH" % sub_count, data[:2 * sub_count])
        codes = struct.unpack("<%db" % count, data[2 * sub_count:])
        return [arithmetic.f32(q * _of_bits(scales[i // cls.SUB] << 16))
                for i, q in enumerate(codes)]


def encode(codec, values, block_offsets):
    """All blocks of a fragment, and the offset of each in bytes."""
    data, offsets = b"", [0]
    for begin, end in zip(block_offsets, block_offsets[1:]):
        data += codec.encode(values[begin:end])
        offsets.append(len(data))
    return data, offsets


def decode(codec, data, block_offsets):
    values, place = [], 0
    for begin, end in zip(block_offsets, block_offsets[1:]):
        size = codec.size(end - begin)
        values += codec.decode(data[place:place + size], end - begin)
        place += size
    return values
