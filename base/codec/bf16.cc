#include "base/codec/bf16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/codec/bf16.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "base/codec/kernels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::codec {
namespace HWY_NAMESPACE {

// Random16 of the elements `index` of a block.
HWY_INLINE VU Random16Vector(RandomKey key, VU index) {
  const DU du;
  VU x =
      hn::Add(hn::Set(du, key.add), hn::Mul(index, hn::Set(du, kRandomStep)));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, kRandomMixA));
  x = hn::Xor(x, hn::Set(du, key.flip));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, kRandomMixB));
  return hn::ShiftRight<16>(x);
}

template <bool kStochastic>
struct Bf16Vector : VectorLoops {
  using Plain = Bf16Plain<kStochastic>;
  static constexpr CodecId kId = Plain::kId;
  static size_t EncodedBytes(size_t n) { return Plain::EncodedBytes(n); }

  template <bool kResidual>
  static BlockFault Encode(const BlockKey& key, size_t n, Values<kResidual>* v,
                           uint8_t* encoded) {
    const DF df;
    const DI di;
    const DU du;
    const DU16 du16;
    RandomKey random;
    if constexpr (kStochastic) {
      random = MakeRandomKey(key.seed, key.first_element);
    }
    const VU magnitude_mask = hn::Set(du, kMagnitudeMask);
    const VU lane = hn::Iota(du, 0u);
    const VU bf16_max = hn::Set(du, uint32_t{kBf16Max});
    VI most = hn::Zero(di);
    uint16_t* to = reinterpret_cast<uint16_t*>(encoded);
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const VF value = hn::LoadU(df, v + i);
      const VU bits = hn::BitCast(du, value);
      const VU magnitude = hn::And(bits, magnitude_mask);
      most = hn::Max(most, hn::BitCast(di, magnitude));
      VU addend;
      if constexpr (kStochastic) {
        addend = Random16Vector(
            random, hn::Add(lane, hn::Set(du, static_cast<uint32_t>(i))));
      } else {
        const VU odd = hn::And(hn::ShiftRight<16>(magnitude), hn::Set(du, 1u));
        addend = hn::Add(hn::Set(du, 0x7fffu), odd);
      }
      const VU cut =
          hn::Min(hn::ShiftRight<16>(hn::Add(magnitude, addend)), bf16_max);
      const VU sign = hn::AndNot(magnitude_mask, bits);
      const VU bf16 = hn::Or(cut, hn::ShiftRight<16>(sign));
      hn::StoreU(hn::TruncateTo(du16, bf16), du16, to + i);
      if constexpr (kResidual) {
        const VF d = hn::BitCast(df, hn::ShiftLeft<16>(bf16));
        hn::StoreU(hn::Sub(value, d), df, v + i);
      }
    }
    if (static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most))) >=
        kInfinityBits) {
      return BlockFault::kNotFinite;
    }
    return Plain::template EncodeFrom<kResidual>(i, key, n, v, encoded);
  }

  template <Into kInto>
  static BlockFault Decode(size_t n, const uint8_t* encoded, float weight,
                           float* out) {
    const DF df;
    const DI di;
    const DU du;
    const DU16 du16;
    const VF weights = hn::Set(df, weight);
    const uint16_t* from = reinterpret_cast<const uint16_t*>(encoded);
    VI most = hn::Zero(di);
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const VU bits = hn::PromoteTo(du, hn::LoadU(du16, from + i));
      const VF d = hn::BitCast(df, hn::ShiftLeft<16>(bits));
      most = hn::Max(most, ToMagnitudeBits(d));
      DeliverVector<kInto>(d, weights, out + i);
    }
    if (static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most))) >=
        kInfinityBits) {
      return BlockFault::kNotFinite;
    }
    return Plain::template Decode<kInto>(n - i, encoded + 2 * i, weight,
                                         out + i);
  }
};

const Codec& Bf16Here() {
  static const ToCodec<Bf16Vector<false>, kPath> codec;
  return codec;
}

const Codec& Bf16StochasticHere() {
  static const ToCodec<Bf16Vector<true>, kPath> codec;
  return codec;
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::codec {

const Codec& Bf16Codec(SimdPath path) {
  return OnPath<Bf16Plain<false>>(path, N_AVX2::Bf16Here, N_AVX3::Bf16Here);
}

const Codec& Bf16StochasticCodec(SimdPath path) {
  return OnPath<Bf16Plain<true>>(path, N_AVX2::Bf16StochasticHere,
                                 N_AVX3::Bf16StochasticHere);
}

}  // namespace atl::codec
#endif  // HWY_ONCE
