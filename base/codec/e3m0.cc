#include "base/codec/e3m0.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/codec/e3m0.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "base/codec/kernels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::codec {
namespace HWY_NAMESPACE {

struct E3m0Vector : VectorLoops {
  using Plain = E3m0Plain;
  static constexpr bool kVectorised = true;
  // Two elements in a 16-bit lane.
  using DU16Half = hn::Repartition<uint16_t, DU8>;
  using DU8Half = hn::Rebind<uint8_t, DU16Half>;

  static HWY_INLINE VF ToLevels(VI code, VI zero_exponent) {
    const DF df;
    const DI di;
    const VI c = hn::And(code, hn::Set(di, 7));
    const VI sign = hn::ShiftLeft<28>(hn::And(code, hn::Set(di, 8)));
    const VI bits = hn::ShiftLeft<23>(hn::Add(c, zero_exponent));
    const VI level = hn::IfThenZeroElse(hn::Eq(c, hn::Zero(di)), bits);
    return hn::BitCast(df, hn::Or(level, sign));
  }

  template <bool kResidual>
  static BlockFault EncodeFull(Values<kResidual>* v, uint8_t* scale,
                               uint8_t* codes) {
    const DF df;
    const DI di;
    const DU8 du8;
    const uint32_t most = GreatestMagnitude(Plain::kElements, v);
    if (most >= kInfinityBits) return BlockFault::kNotFinite;
    const uint32_t b = Plain::ComputeScale(most);
    *scale = static_cast<uint8_t>(b);
    const VI zero_exponent = hn::Set(di, static_cast<int32_t>(b - 7));
    const VI half = hn::Set(di, static_cast<int32_t>(Plain::kHalfMantissa));
    const VI below = hn::Set(di, static_cast<int32_t>(b - 8));
    const VI one = hn::Set(di, 1);
    for (size_t i = 0; i < Plain::kElements; i += kLanes) {
      const VF value = hn::LoadU(df, v + i);
      const VI magnitude = ToMagnitudeBits(value);
      // c < 0 is below every level. The truncated exponent distinguishes 1 from
      // 0.
      VI c =
          hn::Sub(hn::ShiftRight<23>(hn::Add(magnitude, half)), zero_exponent);
      const VI least = hn::Min(
          hn::Max(hn::Sub(hn::ShiftRight<23>(magnitude), below), hn::Zero(di)),
          one);
      c = hn::Max(hn::Min(c, hn::Set(di, 7)), least);
      const VI sign =
          hn::And(hn::BitCast(di, hn::ShiftRight<28>(hn::BitCast(DU(), value))),
                  hn::Set(di, 8));
      const VI code = hn::Or(c, sign);
      if constexpr (kResidual) {
        const VF d = ToLevels(code, zero_exponent);
        hn::StoreU(hn::Sub(value, d), df, v + i);
      }
      // Packs the bytes of two neighbours into one.
      const DU16Half du16;
      const DU8Half out;
      const auto pairs =
          hn::BitCast(du16, hn::TruncateTo(du8, hn::BitCast(DU(), code)));
      const auto packed = hn::Or(pairs, hn::ShiftRight<4>(pairs));
      hn::StoreU(hn::TruncateTo(out, packed), out, codes + i / 2);
    }
    return BlockFault::kNone;
  }

  template <Into kInto>
  static BlockFault DecodeFull(const uint8_t* scale, const uint8_t* codes,
                               float weight, float* out) {
    const DF df;
    const DI di;
    const DU8 du8;
    const DU16Half du16;
    const DU8Half in;
    const uint32_t b = *scale;
    if (b < Plain::kScaleMin || b > Plain::kScaleMax) {
      return BlockFault::kBadScale;
    }
    const VI zero_exponent = hn::Set(di, static_cast<int32_t>(b - 7));
    const VF weights = hn::Set(df, weight);
    const auto low_halves = hn::Set(du16, 0x0f0f);
    for (size_t i = 0; i < Plain::kElements; i += kLanes) {
      const auto bytes = hn::PromoteTo(du16, hn::LoadU(in, codes + i / 2));
      const auto halves =
          hn::And(hn::Or(bytes, hn::ShiftLeft<4>(bytes)), low_halves);
      const VI code = hn::PromoteTo(di, hn::BitCast(du8, halves));
      DeliverVector<kInto>(ToLevels(code, zero_exponent), weights, out + i);
    }
    return BlockFault::kNone;
  }
};

const Codec& E3m0Here() {
  static const ToCodec<SubBlocked<E3m0Vector>, kPath> codec;
  return codec;
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::codec {

const Codec& E3m0Codec(SimdPath path) {
  return OnPath<SubBlocked<PlainSub<E3m0Plain>>>(path, N_AVX2::E3m0Here,
                                                 N_AVX3::E3m0Here);
}

}  // namespace atl::codec
#endif  // HWY_ONCE
