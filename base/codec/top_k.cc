#include "base/codec/top_k.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/codec/top_k.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "base/codec/kernels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::codec {
namespace HWY_NAMESPACE {

struct TopKVector : VectorLoops {
  static constexpr CodecId kId = CodecId::kTopK;
  // A whole block is kColumns columns of kRows elements. The 64th greatest of
  // the columns' maxima is at most the 64th greatest element.
  static constexpr size_t kColumns = 128;
  static constexpr size_t kBlock = static_cast<size_t>(kBlockElements);

  static size_t EncodedBytes(size_t n) { return TopKBytes::EncodedBytes(n); }

  // Keys of a superset of the 64 greatest of a whole block, in ascending order
  // of places. Returns their count, 0 if a value is not finite.
  static size_t Candidates(const float* v, uint64_t* keys) {
    const DF df;
    const DI di;
    uint32_t maxima[kColumns];
    VI most = hn::Zero(di);
    for (size_t column = 0; column < kColumns; column += kLanes) {
      VI greatest = hn::Zero(di);
      for (size_t i = column; i < kBlock; i += kColumns) {
        greatest = hn::Max(greatest, ToMagnitudeBits(hn::LoadU(df, v + i)));
      }
      most = hn::Max(most, greatest);
      hn::StoreU(greatest, di, reinterpret_cast<int32_t*>(maxima + column));
    }
    if (static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most))) >=
        kInfinityBits) {
      return 0;
    }
    std::nth_element(maxima, maxima + kSubsetCountMax - 1, maxima + kColumns,
                     std::greater<uint32_t>());
    const VI bound =
        hn::Set(di, static_cast<int32_t>(maxima[kSubsetCountMax - 1]) - 1);
    size_t count = 0;
    for (size_t i = 0; i < kBlock; i += kLanes) {
      const VI magnitude = ToMagnitudeBits(hn::LoadU(df, v + i));
      uint8_t bytes[8] = {};
      hn::StoreMaskBits(di, hn::Gt(magnitude, bound), bytes);
      uint64_t bits;
      std::memcpy(&bits, bytes, sizeof(bits));
      for (; bits != 0; bits &= bits - 1) {
        const size_t place = i + static_cast<size_t>(__builtin_ctzll(bits));
        keys[count++] = TopKey(v[place], place);
      }
    }
    return count;
  }

  // The places of the k greatest of `count` keys, which are sorted by place.
  static void ChooseAmong(size_t count, uint64_t* keys, size_t k,
                          uint16_t* places) {
    uint64_t sorted[kBlock];
    std::copy(keys, keys + count, sorted);
    std::nth_element(sorted, sorted + k - 1, sorted + count,
                     std::greater<uint64_t>());
    const uint64_t last = sorted[k - 1];
    size_t taken = 0;
    for (size_t i = 0; i < count; ++i) {
      if (keys[i] < last) continue;
      places[taken++] =
          static_cast<uint16_t>(0xffffffffu - static_cast<uint32_t>(keys[i]));
    }
  }

  template <bool kResidual>
  static BlockFault Encode(const BlockKey&, size_t n, Values<kResidual>* v,
                           uint8_t* encoded) {
    uint64_t keys[kBlock];
    size_t count = 0;
    if (n == kBlock) {
      count = Candidates(v, keys);
      if (count == 0) return BlockFault::kNotFinite;
    } else {
      for (size_t i = 0; i < n; ++i) {
        if (!IsFinite(v[i])) return BlockFault::kNotFinite;
        keys[count++] = TopKey(v[i], i);
      }
    }
    const size_t k = SubsetCount(n);
    uint16_t places[kSubsetCountMax];
    ChooseAmong(count, keys, k, places);
    TopKBytes::Write<kResidual>(TheSubsetModel(), k, places, v, encoded);
    return BlockFault::kNone;
  }

  template <Into kInto>
  static BlockFault Decode(size_t n, const uint8_t* encoded, float weight,
                           float* out) {
    const DF df;
    uint16_t places[kSubsetCountMax];
    float values[kSubsetCountMax];
    const BlockFault fault =
        TopKBytes::Read(TheSubsetModel(), n, encoded, places, values);
    if (fault != BlockFault::kNone) return fault;
    // An element that is not sent is +0 in all three forms. The weight matters
    // for the sign of zeros.
    const VF weights = hn::Set(df, weight);
    const size_t k = SubsetCount(n);
    const size_t whole = n - n % kLanes;
    float sums[kSubsetCountMax];
    if constexpr (kInto == Into::kAdd) {
      for (size_t i = 0; i < k; ++i) sums[i] = out[places[i]];
    }
    for (size_t i = 0; i < whole; i += kLanes) {
      DeliverVector<kInto>(hn::Zero(df), weights, out + i);
    }
    for (size_t i = whole; i < n; ++i) Deliver<kInto>(0.0f, weight, out + i);
    for (size_t i = 0; i < k; ++i) {
      float* at = out + places[i];
      if constexpr (kInto == Into::kAdd) *at = sums[i];
      Deliver<kInto>(values[i], weight, at);
    }
    return BlockFault::kNone;
  }
};

const Codec& TopKHere() {
  static const ToCodec<TopKVector, kPath> codec;
  return codec;
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::codec {

const SubsetModel& TheSubsetModel() {
  static constexpr SubsetModel model;
  return model;
}

const Codec& TopKCodec(SimdPath path) {
  return OnPath<TopKPlain>(path, N_AVX2::TopKHere, N_AVX3::TopKHere);
}

}  // namespace atl::codec
#endif  // HWY_ONCE
