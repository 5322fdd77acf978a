#include "base/codec/f32.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/codec/f32.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "base/codec/kernels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::codec {
namespace HWY_NAMESPACE {

struct F32Vector : VectorLoops {
  static constexpr CodecId kId = CodecId::kF32;
  static size_t EncodedBytes(size_t n) { return F32Plain::EncodedBytes(n); }

  template <bool kResidual>
  static BlockFault Encode(const BlockKey& key, size_t n, Values<kResidual>* v,
                           uint8_t* encoded) {
    const DF df;
    const DI di;
    VI most = hn::Zero(di);
    float* to = reinterpret_cast<float*>(encoded);
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const VF value = hn::LoadU(df, v + i);
      most = hn::Max(most, ToMagnitudeBits(value));
      hn::StoreU(value, df, to + i);
      if constexpr (kResidual) hn::StoreU(hn::Sub(value, value), df, v + i);
    }
    if (!AllBelowInfinity(most)) return BlockFault::kNotFinite;
    return F32Plain::Encode<kResidual>(key, n - i, v + i, encoded + 4 * i);
  }

  template <Into kInto>
  static BlockFault Decode(size_t n, const uint8_t* encoded, float weight,
                           float* out) {
    const DF df;
    const DI di;
    const VF weights = hn::Set(df, weight);
    const float* from = reinterpret_cast<const float*>(encoded);
    VI most = hn::Zero(di);
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const VF d = hn::LoadU(df, from + i);
      most = hn::Max(most, ToMagnitudeBits(d));
      DeliverVector<kInto>(d, weights, out + i);
    }
    if (!AllBelowInfinity(most)) return BlockFault::kNotFinite;
    return F32Plain::Decode<kInto>(n - i, encoded + 4 * i, weight, out + i);
  }

 private:
  static bool AllBelowInfinity(VI magnitudes) {
    const DI di;
    return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, magnitudes))) <
           kInfinityBits;
  }
};

const Codec& F32Here() {
  static const ToCodec<F32Vector, kPath> codec;
  return codec;
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::codec {

const Codec& F32Codec(SimdPath path) {
  return OnPath<F32Plain>(path, N_AVX2::F32Here, N_AVX3::F32Here);
}

}  // namespace atl::codec
#endif  // HWY_ONCE
