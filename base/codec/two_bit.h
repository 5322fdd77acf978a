// 2 bits an element, with two levels for every 512 elements. Needs error
// feedback: without it a run loses a third of its progress. Pure. Thread-safe.
// No allocation.
//
// Block of n elements, in sub-blocks of 512 (the last may be shorter):
//   3 bytes a sub-block   H and R of two_level.h, base 0
//   per sub-block of m    ceil(m / 8) bytes of signs (1: negative), then as
//                         many of classes (1: high); element i is bit i % 8 of
//                         byte i / 8; bits past the last element are 0
// 1048 bytes for 4096 elements, 15.63 times fewer than f32.
//
// Error: as two_level.h states for a group; one element's is at most
// max(t, max |v| - H, H).
//
// Why 512: two levels cost 3/64 bit an element there. Why planes: a plane is
// the mask of a vector comparison, on a CPU and on a GPU.
//
// Refused: a value that is not finite; a negative or not finite H; a nonzero
// bit past the last element. So decoded values are finite.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"
#include "base/codec/codec.h"
#include "base/codec/format.h"
#include "base/codec/two_level.h"

namespace atl::codec {

struct TwoBitPlain {
  static constexpr CodecId kId = CodecId::kTwoBit;
  static constexpr size_t kElements = 512;
  static constexpr size_t kScaleBytes = kTwoLevelsBytes;

  ATL_CODEC_FN static constexpr size_t CodeBytes(size_t m) {
    return 2 * ((m + 7) / 8);
  }

  template <bool kResidual, typename T>
  ATL_CODEC_FN static BlockFault EncodeSub(size_t m, Values<kResidual>* v,
                                           uint8_t* scale, uint8_t* codes) {
    for (size_t i = 0; i < m; ++i) {
      if (!IsFinite(v[i])) return BlockFault::kNotFinite;
    }
    const TwoLevelGroup group = MakeTwoLevels(m, v, 0);
    StoreTwoLevels(group.levels, scale);
    EncodePlanes<kResidual>(m, v, group, codes);
    return BlockFault::kNone;
  }

  // Encodes the two planes of `m` values.
  template <bool kResidual>
  ATL_CODEC_FN static void EncodePlanes(size_t m, Values<kResidual>* v,
                                        const TwoLevelGroup& group,
                                        uint8_t* codes) {
    const size_t plane_bytes = CodeBytes(m) / 2;
    const float high = group.levels.High();
    const float low = group.levels.Low();
    for (size_t byte = 0; byte < plane_bytes; ++byte) {
      uint32_t signs = 0;
      uint32_t classes = 0;
      for (size_t i = 8 * byte; i < m && i < 8 * byte + 8; ++i) {
        const bool negative = ToBits(v[i]) >> 31 != 0;
        const bool is_high = IsHigh(v[i], group.threshold);
        signs |= static_cast<uint32_t>(negative) << (i % 8);
        classes |= static_cast<uint32_t>(is_high) << (i % 8);
        if constexpr (kResidual) {
          v[i] = v[i] - TwoLevelValue(negative, is_high, high, low);
        }
      }
      codes[byte] = static_cast<uint8_t>(signs);
      codes[plane_bytes + byte] = static_cast<uint8_t>(classes);
    }
  }

  ATL_CODEC_FN static bool Bit(const uint8_t* plane, size_t i) {
    return (plane[i / 8] >> (i % 8) & 1) != 0;
  }

  // Returns whether the bits past `m` are 0 in both planes.
  ATL_CODEC_FN static bool IsPadded(size_t m, const uint8_t* codes) {
    const size_t plane_bytes = CodeBytes(m) / 2;
    return m % 8 == 0 || ((codes[plane_bytes - 1] >> (m % 8)) == 0 &&
                          (codes[2 * plane_bytes - 1] >> (m % 8)) == 0);
  }

  template <Into kInto, typename T>
  ATL_CODEC_FN static BlockFault DecodeSub(size_t m, const uint8_t* scale,
                                           const uint8_t* codes, float weight,
                                           float* out) {
    const TwoLevels levels = LoadTwoLevels(scale);
    if (!IsTwoLevels(levels)) return BlockFault::kBadScale;
    if (!IsPadded(m, codes)) return BlockFault::kBadPadding;
    const uint8_t* classes = codes + CodeBytes(m) / 2;
    const float high = levels.High();
    const float low = levels.Low();
    for (size_t i = 0; i < m; ++i) {
      Deliver<kInto>(TwoLevelValue(Bit(codes, i), Bit(classes, i), high, low),
                     weight, out + i);
    }
    return BlockFault::kNone;
  }
};

// Requires: `path` is one of SupportedPaths().
const Codec& TwoBitCodec(SimdPath path);

}  // namespace atl::codec
