// The 64 greatest of every 4096 elements, in 2 bits each, with their places
// entropy-coded: SparseLoCo's scheme (arXiv 2508.15706) in fewer bytes. Needs
// error feedback, which keeps the elements that are not sent. Pure.
// Thread-safe. No allocation.
//
// A block of n elements sends the k = ceil(n / 64) of greatest magnitude; among
// equal ones the lowest index goes first. In this order:
//   3 bytes               H and R of two_level.h over the k values in the order
//                         of their places; base is their least magnitude
//   ceil(k / 8) bytes     signs, as in two_bit.h
//   ceil(k / 8) bytes     classes
//   SubsetBytes(k) bytes  the places, subset_coder.h
// An element that is not sent decodes to 0.
//
// 78 bytes for 4096 elements, 210.05 times fewer than f32 (base/DESIGN.md,
// Codecs). log2 C(4096, 64) / 8 = 58.91 of them cannot be saved.
//
// Error: an element that is not sent is off by itself. With T the set that is
// sent, sum (v - d)^2 <= sum v^2 - (what the levels of T keep, two_level.h).
//
// Refused: a value that is not finite; a negative or not finite H; bits past
// the last code; a place past the last element (if n is not a power of two). So
// decoded values are finite.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"
#include "base/codec/block_grid.h"
#include "base/codec/codec.h"
#include "base/codec/format.h"
#include "base/codec/subset_coder.h"
#include "base/codec/subset_model.h"
#include "base/codec/two_bit.h"
#include "base/codec/two_level.h"

namespace atl::codec {

// The order in which values are chosen: the greatest key first.
ATL_CODEC_FN uint64_t TopKey(float v, size_t i) {
  return static_cast<uint64_t>(MagnitudeBits(v)) << 32 |
         (0xffffffffu - static_cast<uint32_t>(i));
}

const SubsetModel& TheSubsetModel();

// The format without the choice of places and without the loops over all
// elements.
struct TopKBytes {
  ATL_CODEC_FN static size_t PlaneBytes(size_t k) { return (k + 7) / 8; }
  ATL_CODEC_FN static size_t EncodedBytes(size_t n) {
    const size_t k = SubsetCount(n);
    return kTwoLevelsBytes + 2 * PlaneBytes(k) + SubsetBytes(k);
  }

  // Writes the k values at `places` (ascending) of `v`. With kResidual,
  // subtracts their decoded values from `v`.
  template <bool kResidual>
  ATL_CODEC_FN static void Write(const SubsetModel& model, size_t k,
                                 const uint16_t* places, Values<kResidual>* v,
                                 uint8_t* encoded) {
    float sent[kSubsetCountMax];
    uint32_t least = kInfinityBits;
    for (size_t i = 0; i < k; ++i) {
      sent[i] = v[places[i]];
      const uint32_t magnitude = MagnitudeBits(sent[i]);
      if (magnitude < least) least = magnitude;
    }
    const TwoLevelGroup group = MakeTwoLevels(k, sent, FromBits(least));
    StoreTwoLevels(group.levels, encoded);
    TwoBitPlain::EncodePlanes<true>(k, sent, group, encoded + kTwoLevelsBytes);
    if constexpr (kResidual) {
      for (size_t i = 0; i < k; ++i) v[places[i]] = sent[i];
    }
    EncodeSubset(model, SubsetLevel(k), k, places,
                 encoded + kTwoLevelsBytes + 2 * PlaneBytes(k));
  }

  // Reads k = SubsetCount(n) places and values.
  ATL_CODEC_FN static BlockFault Read(const SubsetModel& model, size_t n,
                                      const uint8_t* encoded, uint16_t* places,
                                      float* values) {
    const size_t k = SubsetCount(n);
    const BlockFault fault = TwoBitPlain::DecodeSub<Into::kSet, float>(
        k, encoded, encoded + kTwoLevelsBytes, 1, values);
    if (fault != BlockFault::kNone) return fault;
    DecodeSubset(model, SubsetLevel(k), k,
                 encoded + kTwoLevelsBytes + 2 * PlaneBytes(k), places);
    return places[k - 1] < n ? BlockFault::kNone : BlockFault::kBadIndex;
  }
};

// Plain definition. Finds the places one after another, in O(n k).
struct TopKPlain {
  static constexpr CodecId kId = CodecId::kTopK;

  static size_t EncodedBytes(size_t n) { return TopKBytes::EncodedBytes(n); }
  static void Combine(size_t n, float decay, const float* before,
                      const float* gradient, float* after) {
    CombinePlain(n, decay, before, gradient, after);
  }

  // The places of the k greatest, ascending.
  ATL_CODEC_FN static void Choose(size_t n, size_t k, const float* v,
                                  uint16_t* places) {
    uint64_t last = ~uint64_t{0};
    for (size_t taken = 0; taken < k; ++taken) {
      uint64_t next = 0;
      for (size_t i = 0; i < n; ++i) {
        const uint64_t key = TopKey(v[i], i);
        if (key < last && key > next) next = key;
      }
      last = next;
    }
    size_t count = 0;
    for (size_t i = 0; i < n; ++i) {
      if (TopKey(v[i], i) >= last) places[count++] = static_cast<uint16_t>(i);
    }
  }

  template <bool kResidual>
  static BlockFault Encode(const BlockKey&, size_t n, Values<kResidual>* v,
                           uint8_t* encoded) {
    for (size_t i = 0; i < n; ++i) {
      if (!IsFinite(v[i])) return BlockFault::kNotFinite;
    }
    const size_t k = SubsetCount(n);
    uint16_t places[kSubsetCountMax];
    Choose(n, k, v, places);
    TopKBytes::Write<kResidual>(TheSubsetModel(), k, places, v, encoded);
    return BlockFault::kNone;
  }

  template <Into kInto>
  static BlockFault Decode(size_t n, const uint8_t* encoded, float weight,
                           float* out) {
    uint16_t places[kSubsetCountMax];
    float values[kSubsetCountMax];
    const BlockFault fault =
        TopKBytes::Read(TheSubsetModel(), n, encoded, places, values);
    if (fault != BlockFault::kNone) return fault;
    const size_t k = SubsetCount(n);
    size_t next = 0;
    for (size_t i = 0; i < n; ++i) {
      const bool is_sent = next < k && places[next] == i;
      Deliver<kInto>(is_sent ? values[next++] : 0.0f, weight, out + i);
    }
    return BlockFault::kNone;
  }
};

// Requires: `path` is one of SupportedPaths().
const Codec& TopKCodec(SimdPath path);

}  // namespace atl::codec
