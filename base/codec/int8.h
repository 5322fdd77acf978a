// 8-bit integers with a scale for every 256 elements. Pure. Thread-safe. No
// allocation.
//
// Block of n elements, in sub-blocks of 256 (the last may be shorter):
//   2 bytes a sub-block   scale s, bf16 bits, little-endian
//   1 byte an element     q, two's complement, -127 to 127
// 2 ceil(n / 256) + n bytes: 4128 for 4096 elements, 3.97 times fewer than f32.
//
//   a = max |v| of the sub-block
//   s = the least bf16 >= a / 127, at least 2^-126, at most 2^121 (1 + 2^-7)
//   q = v * (1 / s), rounded to the nearest, ties to even;   d = q * s
//
// Error: |v - d| <= s (1/2 + 2^-6), and s <= max(2^-126, (1 + 2^-7) a / 127).
// The 2^-6 covers magnitudes near the end of f32's range, where s is capped. It
// also covers the far smaller roundings of 1 / s, v * (1 / s) and q * s.
//
// Why 256: a scale costs 1/16 bit an element. Halving the sub-block lowers the
// greatest of normally distributed values by 0.1 bit, which gains as much as
// the extra scales cost. Longer ones lose more than they save.
//
// Refused: a value that is not finite; a scale below 2^-126 or above
// 2^121 (1 + 2^-7); q = -128. So decoded values are finite.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"
#include "base/codec/codec.h"
#include "base/codec/format.h"

namespace atl::codec {

struct Int8Plain {
  static constexpr CodecId kId = CodecId::kInt8;
  static constexpr size_t kElements = 256;
  static constexpr size_t kScaleBytes = 2;
  // bf16 bits of 2^-126, and of 2^121 (1 + 2^-7). The latter times 127 is
  // finite, and the greatest f32 divided by it still rounds to 127.
  static constexpr uint16_t kScaleMin = 0x0080;
  static constexpr uint16_t kScaleMax = 0x7c01;

  ATL_CODEC_FN static constexpr size_t CodeBytes(size_t m) { return m; }

  // Adding and subtracting it rounds to the nearest integer, ties to even. The
  // sum has that integer in its low bits.
  template <typename T>
  ATL_CODEC_FN static constexpr T Rounder() {
    return sizeof(T) == 4 ? T{12582912} : T{6755399441055744};
  }

  // The scale of a sub-block whose greatest magnitude is `most` (finite).
  ATL_CODEC_FN static uint16_t ComputeScale(float most) {
    const uint16_t bits = LeastBf16AtLeast(most / 127.0f);
    return bits < kScaleMin ? kScaleMin : bits > kScaleMax ? kScaleMax : bits;
  }

  ATL_CODEC_FN static bool IsScale(uint16_t bits) {
    return bits >= kScaleMin && bits <= kScaleMax;
  }

  template <bool kResidual, typename T>
  ATL_CODEC_FN static BlockFault EncodeSub(size_t m, Values<kResidual, T>* v,
                                           uint8_t* scale, uint8_t* codes) {
    T most = 0;
    for (size_t i = 0; i < m; ++i) {
      if (!IsFinite(v[i])) return BlockFault::kNotFinite;
      const T magnitude = v[i] < 0 ? -v[i] : v[i];
      if (magnitude > most) most = magnitude;
    }
    const uint16_t bits = ComputeScale(static_cast<float>(most));
    StoreU16(bits, scale);
    const T s = FloatOfBf16(bits);
    const T inverse = T{1} / s;
    for (size_t i = 0; i < m; ++i) {
      const T scaled = v[i] * inverse;
      const T q = (scaled + Rounder<T>()) - Rounder<T>();
      codes[i] = static_cast<uint8_t>(static_cast<int8_t>(q));
      if constexpr (kResidual) {
        const T d = q * s;
        v[i] = v[i] - d;
      }
    }
    return BlockFault::kNone;
  }

  template <Into kInto, typename T>
  ATL_CODEC_FN static BlockFault DecodeSub(size_t m, const uint8_t* scale,
                                           const uint8_t* codes, T weight,
                                           T* out) {
    const uint16_t bits = LoadU16(scale);
    if (!IsScale(bits)) return BlockFault::kBadScale;
    const T s = FloatOfBf16(bits);
    for (size_t i = 0; i < m; ++i) {
      const int8_t q = static_cast<int8_t>(codes[i]);
      if (q == -128) return BlockFault::kBadCode;
      Deliver<kInto>(static_cast<T>(q) * s, weight, out + i);
    }
    return BlockFault::kNone;
  }
};

// Requires: `path` is one of SupportedPaths().
const Codec& Int8Codec(SimdPath path);

}  // namespace atl::codec
