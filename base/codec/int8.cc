#include "base/codec/int8.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/codec/int8.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "base/codec/kernels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::codec {
namespace HWY_NAMESPACE {

struct Int8Vector : VectorLoops {
  using Plain = Int8Plain;
  static constexpr bool kVectorised = true;

  template <bool kResidual>
  static BlockFault EncodeFull(Values<kResidual>* v, uint8_t* scale,
                               uint8_t* codes) {
    const DF df;
    const DU8 du8;
    const uint32_t most = GreatestMagnitude(Plain::kElements, v);
    if (most >= kInfinityBits) return BlockFault::kNotFinite;
    const uint16_t bits = Plain::ComputeScale(FromBits(most));
    StoreU16(bits, scale);
    const VF s = hn::Set(df, FloatOfBf16(bits));
    const VF inverse = hn::Set(df, 1.0f / FloatOfBf16(bits));
    const VF rounder = hn::Set(df, Plain::Rounder<float>());
    for (size_t i = 0; i < Plain::kElements; i += kLanes) {
      const VF value = hn::LoadU(df, v + i);
      const VF rounded = hn::Add(hn::Mul(value, inverse), rounder);
      // The low byte of the sum is q.
      hn::StoreU(hn::TruncateTo(du8, hn::BitCast(DU(), rounded)), du8,
                 codes + i);
      if constexpr (kResidual) {
        const VF d = hn::Mul(hn::Sub(rounded, rounder), s);
        hn::StoreU(hn::Sub(value, d), df, v + i);
      }
    }
    return BlockFault::kNone;
  }

  template <Into kInto>
  static BlockFault DecodeFull(const uint8_t* scale, const uint8_t* codes,
                               float weight, float* out) {
    const DF df;
    const DI di;
    const DI8 di8;
    const uint16_t bits = LoadU16(scale);
    if (!Plain::IsScale(bits)) return BlockFault::kBadScale;
    const VF s = hn::Set(df, FloatOfBf16(bits));
    const VF weights = hn::Set(df, weight);
    const int8_t* from = reinterpret_cast<const int8_t*>(codes);
    VI least = hn::Zero(di);
    for (size_t i = 0; i < Plain::kElements; i += kLanes) {
      const VI q = hn::PromoteTo(di, hn::LoadU(di8, from + i));
      least = hn::Min(least, q);
      DeliverVector<kInto>(hn::Mul(hn::ConvertTo(df, q), s), weights, out + i);
    }
    return hn::GetLane(hn::MinOfLanes(di, least)) == -128 ? BlockFault::kBadCode
                                                          : BlockFault::kNone;
  }
};

const Codec& Int8Here() {
  static const ToCodec<SubBlocked<Int8Vector>, kPath> codec;
  return codec;
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::codec {

const Codec& Int8Codec(SimdPath path) {
  return OnPath<SubBlocked<PlainSub<Int8Plain>>>(path, N_AVX2::Int8Here,
                                                 N_AVX3::Int8Here);
}

}  // namespace atl::codec
#endif  // HWY_ONCE
