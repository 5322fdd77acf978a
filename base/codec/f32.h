// The f32 codec: values as they are. Pure. Thread-safe. No allocation.
//
// Block: n binary32, little-endian, in order: 4 n bytes.
// Error: none; every finite bit pattern is preserved, -0 and subnormals too.
// Refused: a value that is NaN or infinite.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"
#include "base/codec/codec.h"
#include "base/codec/format.h"

namespace atl::codec {

struct F32Plain {
  static constexpr CodecId kId = CodecId::kF32;

  ATL_CODEC_FN static size_t EncodedBytes(size_t n) { return 4 * n; }

  ATL_CODEC_FN static void Combine(size_t n, float decay, const float* before,
                                   const float* gradient, float* after) {
    CombinePlain(n, decay, before, gradient, after);
  }

  template <bool kResidual>
  ATL_CODEC_FN static BlockFault Encode(const BlockKey&, size_t n,
                                        Values<kResidual>* v,
                                        uint8_t* encoded) {
    for (size_t i = 0; i < n; ++i) {
      if (!IsFinite(v[i])) return BlockFault::kNotFinite;
      memcpy(encoded + 4 * i, &v[i], sizeof(float));
      if constexpr (kResidual) v[i] = v[i] - v[i];
    }
    return BlockFault::kNone;
  }

  template <Into kInto>
  ATL_CODEC_FN static BlockFault Decode(size_t n, const uint8_t* encoded,
                                        float weight, float* out) {
    for (size_t i = 0; i < n; ++i) {
      float d;
      memcpy(&d, encoded + 4 * i, sizeof(float));
      if (!IsFinite(d)) return BlockFault::kNotFinite;
      Deliver<kInto>(d, weight, out + i);
    }
    return BlockFault::kNone;
  }
};

// Requires: `path` is one of SupportedPaths().
const Codec& F32Codec(SimdPath path);

}  // namespace atl::codec
