// Code that the vector kernels of all codecs share. It is included once for
// each instruction set (Highway). Internal to base/codec.

#if defined(BASE_CODEC_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASE_CODEC_KERNELS_INL_H_
#undef BASE_CODEC_KERNELS_INL_H_
#else
#define BASE_CODEC_KERNELS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"
#include "base/codec/format.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::codec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DU8 = hn::Rebind<uint8_t, DF>;
using DI8 = hn::Rebind<int8_t, DF>;
using DU16 = hn::Rebind<uint16_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;

// A divisor of every sub-block's element count.
constexpr size_t kLanes = HWY_LANES(float);

// The path of this instruction set.
constexpr SimdPath kPath =
    HWY_TARGET == HWY_AVX3 ? SimdPath::kAvx512 : SimdPath::kAvx2;

struct VectorLoops {
  // after = decay * before + gradient, shape [n].
  static void Combine(size_t n, float decay, const float* before,
                      const float* gradient, float* after) {
    const DF df;
    const VF decays = hn::Set(df, decay);
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const VF kept = hn::Mul(decays, hn::LoadU(df, before + i));
      hn::StoreU(hn::Add(kept, hn::LoadU(df, gradient + i)), df, after + i);
    }
    CombinePlain(n - i, decay, before + i, gradient + i, after + i);
  }
};

// Deliver for vectors.
template <Into kInto>
HWY_INLINE void DeliverVector(VF d, VF weight, float* out) {
  const DF df;
  if constexpr (kInto == Into::kSet) {
    hn::StoreU(d, df, out);
  } else if constexpr (kInto == Into::kScale) {
    hn::StoreU(hn::Mul(weight, d), df, out);
  } else {
    hn::StoreU(hn::Add(hn::LoadU(df, out), hn::Mul(weight, d)), df, out);
  }
}

// The bits of |v|, as signed numbers (their sign bit is 0).
HWY_INLINE VI ToMagnitudeBits(VF v) {
  const DI di;
  return hn::And(hn::BitCast(di, v),
                 hn::Set(di, static_cast<int32_t>(kMagnitudeMask)));
}

// The bits of the greatest magnitude in v, shape [n], n a multiple of 4 kLanes.
HWY_INLINE uint32_t GreatestMagnitude(size_t n, const float* v) {
  const DF df;
  const DI di;
  VI most0 = hn::Zero(di);
  VI most1 = most0;
  VI most2 = most0;
  VI most3 = most0;
  for (size_t i = 0; i < n; i += 4 * kLanes) {
    const float* at = v + i;
    most0 = hn::Max(most0, ToMagnitudeBits(hn::LoadU(df, at)));
    most1 = hn::Max(most1, ToMagnitudeBits(hn::LoadU(df, at + kLanes)));
    most2 = hn::Max(most2, ToMagnitudeBits(hn::LoadU(df, at + 2 * kLanes)));
    most3 = hn::Max(most3, ToMagnitudeBits(hn::LoadU(df, at + 3 * kLanes)));
  }
  const VI most = hn::Max(hn::Max(most0, most1), hn::Max(most2, most3));
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most)));
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::codec
HWY_AFTER_NAMESPACE();

#endif  // BASE_CODEC_KERNELS_INL_H_
