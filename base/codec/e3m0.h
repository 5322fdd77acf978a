// 4-bit floats of 1 sign, 3 exponent and 0 mantissa bits, with a scale for
// every 256 elements, as in Streaming DiLoCo (arXiv 2501.18512, section 3.3).
// Pure. Thread-safe. No allocation.
//
// Block of n elements, in sub-blocks of 256 (the last may be shorter):
//   1 byte a sub-block    b, 8 to 254
//   4 bits an element     element 2 j in the low half of byte j of its
//                         sub-block, 2 j + 1 in the high half; a half past the
//                         last element is 0
// A code is 8 (sign bit) + c. c = 0 stands for 0 (or -0), c = 1 to 7 for
// 2^(b - 127 - 7 + c): powers of two from 1/64 of the greatest to the greatest.
// ceil(n / 256) + bytes of codes: 2064 for 4096 elements, 7.94 times fewer than
// f32.
//
//   b = the exponent field of max |v|, plus 1 if its mantissa is 1.5 or more;
//       at least 8, at most 254
//   c = the nearest level; midway the greater one
//
// Error: |v - d| <= max(|v| / 3, 2^(b - 134)). For |v| >= 1.5 * 2^127, where
// the level 2^128 is missing, it is |v| / 2.
//
// Why a power of two: with levels a factor of 2 apart, any other scale shifts
// all levels alike and gains nothing for the typical value. A power of two
// takes one byte, and every product is exact. Why 256: as for int8, and a byte
// is 1/32 bit.
//
// Refused: a value that is not finite; b outside 8 to 254; a nonzero half byte
// past the last element. So decoded values are finite and never subnormal.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"
#include "base/codec/codec.h"
#include "base/codec/format.h"

namespace atl::codec {

struct E3m0Plain {
  static constexpr CodecId kId = CodecId::kE3m0;
  static constexpr size_t kElements = 256;
  static constexpr size_t kScaleBytes = 1;
  static constexpr uint32_t kScaleMin = 8;
  static constexpr uint32_t kScaleMax = 254;
  // Added to magnitude bits, it carries into the exponent from 1.5 on.
  static constexpr uint32_t kHalfMantissa = 0x00400000;

  ATL_CODEC_FN static constexpr size_t CodeBytes(size_t m) {
    return (m + 1) / 2;
  }

  // b from the bits of the greatest magnitude.
  ATL_CODEC_FN static uint32_t ComputeScale(uint32_t most) {
    const uint32_t b = (most + kHalfMantissa) >> 23;
    return b < kScaleMin ? kScaleMin : b > kScaleMax ? kScaleMax : b;
  }

  // c from the bits of a magnitude.
  ATL_CODEC_FN static uint32_t ToCode(uint32_t magnitude, uint32_t b) {
    const uint32_t zero = b - 7;  // The exponent field of half of level 1.
    const uint32_t nearest = (magnitude + kHalfMantissa) >> 23;
    const uint32_t c = nearest > zero ? nearest - zero : 0;
    // From half of level 1 on, level 1 is nearer than 0.
    const uint32_t least = (magnitude >> 23) >= zero ? 1 : 0;
    return c > 7 ? 7 : c > least ? c : least;
  }

  ATL_CODEC_FN static float ToLevel(uint32_t code, uint32_t b) {
    const uint32_t c = code & 7;
    const uint32_t bits = c == 0 ? 0 : (b - 7 + c) << 23;
    return FromBits(bits | (code & 8) << 28);
  }

  template <bool kResidual, typename T>
  ATL_CODEC_FN static BlockFault EncodeSub(size_t m, Values<kResidual>* v,
                                           uint8_t* scale, uint8_t* codes) {
    uint32_t most = 0;
    for (size_t i = 0; i < m; ++i) {
      const uint32_t magnitude = MagnitudeBits(v[i]);
      if (magnitude > most) most = magnitude;
    }
    if (most >= kInfinityBits) return BlockFault::kNotFinite;
    const uint32_t b = ComputeScale(most);
    *scale = static_cast<uint8_t>(b);
    for (size_t i = 0; i < m; ++i) {
      const uint32_t code =
          (ToBits(v[i]) >> 31) << 3 | ToCode(MagnitudeBits(v[i]), b);
      if (i % 2 == 0) {
        codes[i / 2] = static_cast<uint8_t>(code);
      } else {
        codes[i / 2] = static_cast<uint8_t>(codes[i / 2] | code << 4);
      }
      if constexpr (kResidual) v[i] = v[i] - ToLevel(code, b);
    }
    return BlockFault::kNone;
  }

  template <Into kInto, typename T>
  ATL_CODEC_FN static BlockFault DecodeSub(size_t m, const uint8_t* scale,
                                           const uint8_t* codes, float weight,
                                           float* out) {
    const uint32_t b = *scale;
    if (b < kScaleMin || b > kScaleMax) return BlockFault::kBadScale;
    for (size_t i = 0; i < m; ++i) {
      const uint32_t code = i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
      Deliver<kInto>(ToLevel(code, b), weight, out + i);
    }
    if (m % 2 == 1 && codes[m / 2] >> 4 != 0) return BlockFault::kBadPadding;
    return BlockFault::kNone;
  }
};

// Requires: `path` is one of SupportedPaths().
const Codec& E3m0Codec(SimdPath path);

}  // namespace atl::codec
