#include "base/codec/two_bit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/codec/two_bit.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "base/codec/kernels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::codec {
namespace HWY_NAMESPACE {

// f64 lanes [0, kSumLanes) of a sum of f32.
struct LaneSums {
  using DD = hn::ScalableTag<double>;
  using DHalf = hn::Rebind<float, DD>;
  static constexpr size_t kWide = HWY_LANES(double);
  static constexpr size_t kCount = kSumLanes / kWide;

  hn::Vec<DD> lanes[kCount];

  LaneSums() {
    for (auto& lane : lanes) lane = hn::Zero(DD());
  }

  // Adds 16 values, held by `parts` as vectors of f32.
  HWY_INLINE void Add(const VF* parts) {
    const DHalf half;
    const DD dd;
    for (size_t i = 0; i < kSumLanes / kLanes; ++i) {
      lanes[2 * i] = hn::Add(lanes[2 * i],
                             hn::PromoteTo(dd, hn::LowerHalf(half, parts[i])));
      lanes[2 * i + 1] = hn::Add(
          lanes[2 * i + 1], hn::PromoteTo(dd, hn::UpperHalf(half, parts[i])));
    }
  }

  double Sum() const {
    double all[kSumLanes];
    for (size_t i = 0; i < kCount; ++i) {
      hn::StoreU(lanes[i], DD(), all + i * kWide);
    }
    double sum = 0;
    for (const double lane : all) sum += lane;
    return sum;
  }
};

struct TwoBitVector : VectorLoops {
  using Plain = TwoBitPlain;
  static constexpr bool kVectorised = true;
  static constexpr size_t kPlaneBytes = Plain::kElements / 8;
  static constexpr size_t kParts = kSumLanes / kLanes;

  // Quantises a whole sub-block, and writes its plane of classes.
  static TwoLevelGroup MakeGroup(const float* v, uint8_t* classes) {
    const DF df;
    LaneSums sums;
    VF parts[kParts];
    for (size_t i = 0; i < Plain::kElements; i += kSumLanes) {
      for (size_t p = 0; p < kParts; ++p) {
        parts[p] = hn::Abs(hn::LoadU(df, v + i + p * kLanes));
      }
      sums.Add(parts);
    }
    const double sum = sums.Sum();
    TwoLevelGroup group;
    group.threshold = ComputeThreshold(sum, Plain::kElements, 0);
    const VF threshold = hn::Set(df, group.threshold);
    LaneSums high_sums;
    size_t high_count = 0;
    for (size_t i = 0; i < Plain::kElements; i += kSumLanes) {
      for (size_t p = 0; p < kParts; ++p) {
        const VF magnitude = hn::Abs(hn::LoadU(df, v + i + p * kLanes));
        const auto is_high = hn::Ge(magnitude, threshold);
        parts[p] = hn::IfThenElseZero(is_high, magnitude);
        hn::StoreMaskBits(df, is_high, classes + (i + p * kLanes) / 8);
        high_count += hn::CountTrue(df, is_high);
      }
      high_sums.Add(parts);
    }
    double high_sum = high_sums.Sum();
    if (high_count == 0) {
      group.threshold = 0;
      high_sum = sum;
      high_count = Plain::kElements;
      for (size_t i = 0; i < kPlaneBytes; ++i) classes[i] = 0xff;
    }
    group.levels = ToLevels(sum, Plain::kElements, high_sum, high_count);
    return group;
  }

  static HWY_INLINE VF ToValues(const uint8_t* signs, const uint8_t* classes,
                                size_t i, VF high, VF low) {
    const DF df;
    const auto is_high = hn::LoadMaskBits(df, classes + i / 8);
    const auto negative = hn::LoadMaskBits(df, signs + i / 8);
    const VF magnitude = hn::IfThenElse(is_high, high, low);
    const VF sign_bit = hn::IfThenElseZero(negative, hn::Set(df, -0.0f));
    return hn::Or(magnitude, sign_bit);
  }

  template <bool kResidual>
  static BlockFault EncodeFull(Values<kResidual>* v, uint8_t* scale,
                               uint8_t* codes) {
    const DF df;
    if (GreatestMagnitude(Plain::kElements, v) >= kInfinityBits) {
      return BlockFault::kNotFinite;
    }
    uint8_t* classes = codes + kPlaneBytes;
    const TwoLevelGroup group = MakeGroup(v, classes);
    StoreTwoLevels(group.levels, scale);
    const VF high = hn::Set(df, group.levels.High());
    const VF low = hn::Set(df, group.levels.Low());
    for (size_t i = 0; i < Plain::kElements; i += kLanes) {
      const VF value = hn::LoadU(df, v + i);
      const auto negative = hn::MaskFromVec(
          hn::BitCast(df, hn::BroadcastSignBit(hn::BitCast(DI(), value))));
      hn::StoreMaskBits(df, negative, codes + i / 8);
      if constexpr (kResidual) {
        const VF d = ToValues(codes, classes, i, high, low);
        hn::StoreU(hn::Sub(value, d), df, v + i);
      }
    }
    return BlockFault::kNone;
  }

  template <Into kInto>
  static BlockFault DecodeFull(const uint8_t* scale, const uint8_t* codes,
                               float weight, float* out) {
    const DF df;
    const TwoLevels levels = LoadTwoLevels(scale);
    if (!IsTwoLevels(levels)) return BlockFault::kBadScale;
    const VF high = hn::Set(df, levels.High());
    const VF low = hn::Set(df, levels.Low());
    const VF weights = hn::Set(df, weight);
    for (size_t i = 0; i < Plain::kElements; i += kLanes) {
      DeliverVector<kInto>(ToValues(codes, codes + kPlaneBytes, i, high, low),
                           weights, out + i);
    }
    return BlockFault::kNone;
  }
};

const Codec& TwoBitHere() {
  static const ToCodec<SubBlocked<TwoBitVector>, kPath> codec;
  return codec;
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::codec {

const Codec& TwoBitCodec(SimdPath path) {
  return OnPath<SubBlocked<PlainSub<TwoBitPlain>>>(path, N_AVX2::TwoBitHere,
                                                   N_AVX3::TwoBitHere);
}

}  // namespace atl::codec
#endif  // HWY_ONCE
