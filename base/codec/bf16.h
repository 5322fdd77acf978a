// bf16, rounded to the nearest or stochastically. Pure. Thread-safe. No
// allocation.
//
// Block: n bf16 (the upper half of a binary32), little-endian, in order: 2 n
// bytes. Both codecs decode the same way.
//
// Error, for |v| up to the largest finite bf16 M = 2^128 - 2^120; greater |v|
// becomes sign(v) M:
//   nearest, ties to even    |v - d| <= max(2^-8 |v|, 2^-134)
//   stochastic               |v - d| <  max(2^-7 |v|, 2^-133), and the mean of
//                            d over seeds is v to within 2^-16 of bf16's step
// The stochastic codec adds 16 random bits below the last place and truncates.
// The bits are keyed by the seed and the element (BlockKey), so they depend on
// neither path, thread nor sharding. A value that is a bf16 is unchanged.
//
// Refused: a value or a bf16 that is NaN or infinite.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"
#include "base/codec/codec.h"
#include "base/codec/format.h"

namespace atl::codec {

template <bool kStochastic>
struct Bf16Plain {
  static constexpr CodecId kId =
      kStochastic ? CodecId::kBf16Stochastic : CodecId::kBf16;

  ATL_CODEC_FN static size_t EncodedBytes(size_t n) { return 2 * n; }

  ATL_CODEC_FN static void Combine(size_t n, float decay, const float* before,
                                   const float* gradient, float* after) {
    CombinePlain(n, decay, before, gradient, after);
  }

  // Elements [begin, n) of the block.
  template <bool kResidual>
  ATL_CODEC_FN static BlockFault EncodeFrom(size_t begin, const BlockKey& key,
                                            size_t n, Values<kResidual>* v,
                                            uint8_t* encoded) {
    const RandomKey random = MakeRandomKey(key.seed, key.first_element);
    for (size_t i = begin; i < n; ++i) {
      if (!IsFinite(v[i])) return BlockFault::kNotFinite;
      uint16_t bits;
      if constexpr (kStochastic) {
        const uint32_t sign = (ToBits(v[i]) >> 16) & 0x8000;
        bits = static_cast<uint16_t>(
            sign | CutToBf16(MagnitudeBits(v[i]),
                             Random16(random, static_cast<uint32_t>(i))));
      } else {
        bits = NearestBf16(v[i]);
      }
      StoreU16(bits, encoded + 2 * i);
      if constexpr (kResidual) v[i] = v[i] - FloatOfBf16(bits);
    }
    return BlockFault::kNone;
  }

  template <bool kResidual>
  ATL_CODEC_FN static BlockFault Encode(const BlockKey& key, size_t n,
                                        Values<kResidual>* v,
                                        uint8_t* encoded) {
    return EncodeFrom<kResidual>(0, key, n, v, encoded);
  }

  template <Into kInto>
  ATL_CODEC_FN static BlockFault Decode(size_t n, const uint8_t* encoded,
                                        float weight, float* out) {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t bits = LoadU16(encoded + 2 * i);
      if (!IsFiniteBf16(bits)) return BlockFault::kNotFinite;
      Deliver<kInto>(FloatOfBf16(bits), weight, out + i);
    }
    return BlockFault::kNone;
  }
};

// Require: `path` is one of SupportedPaths().
const Codec& Bf16Codec(SimdPath path);
const Codec& Bf16StochasticCodec(SimdPath path);

}  // namespace atl::codec
