// Makes a Codec from a codec's format. Internal to base/codec.
//
// A format is a struct of static functions over raw pointers:
//
//   static constexpr CodecId kId;
//   size_t EncodedBytes(size_t n)
//   void Combine(size_t n, float decay, const float* before,
//                const float* gradient, float* after)
//   template <bool kResidual> BlockFault Encode(
//       const BlockKey&, size_t n, Values<kResidual>* v, uint8_t* encoded)
//     kResidual: v = v - Dec(Enc(v)) too
//   template <Into kInto> BlockFault Decode(
//       size_t n, const uint8_t* encoded, float weight, float* out)

#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/codec/bits.h"
#include "base/codec/block_grid.h"
#include "base/codec/codec.h"
#include "base/codec/stream_copy.h"

namespace atl::codec {

// How a decoded value d reaches the output.
enum class Into {
  kSet,    // out = d
  kScale,  // out = weight * d
  kAdd,    // out = out + weight * d
};

// The values that an encoder reads; with kResidual it also replaces them.
template <bool kResidual, typename T = float>
using Values = std::conditional_t<kResidual, T, const T>;

template <Into kInto, typename T>
ATL_CODEC_FN void Deliver(T d, T weight, T* out) {
  if constexpr (kInto == Into::kSet) {
    *out = d;
  } else if constexpr (kInto == Into::kScale) {
    *out = weight * d;
  } else {
    const T product = weight * d;
    *out = *out + product;
  }
}

// after = decay * before + gradient, shape [n].
template <typename T>
ATL_CODEC_FN void CombinePlain(size_t n, T decay, const T* before,
                               const T* gradient, T* after) {
  for (size_t i = 0; i < n; ++i) {
    const T kept = decay * before[i];
    after[i] = kept + gradient[i];
  }
}

// A format that cuts a block into sub-blocks of S::kElements elements, each
// with its own scale. A block is all scales, then all codes.
//
//   S::kScaleBytes, S::CodeBytes(m), S::CombineFull
//   S::Plain::EncodeSub<kResidual>(m, v, scale, codes), DecodeSub<kInto>(...)
//   S::EncodeFull<kResidual>(v, scale, codes), DecodeFull<kInto>(...): for
//     m == S::kElements, only if S::kVectorised.
template <typename S>
struct SubBlocked {
  static constexpr CodecId kId = S::Plain::kId;

  static size_t EncodedBytes(size_t n) {
    const size_t rest = n % S::Plain::kElements;
    const size_t full = n / S::Plain::kElements;
    return full * (S::Plain::kScaleBytes +
                   S::Plain::CodeBytes(S::Plain::kElements)) +
           (rest > 0 ? S::Plain::kScaleBytes + S::Plain::CodeBytes(rest) : 0);
  }

  static void Combine(size_t n, float decay, const float* before,
                      const float* gradient, float* after) {
    S::Combine(n, decay, before, gradient, after);
  }

  template <bool kResidual>
  ATL_CODEC_FN static BlockFault Encode(const BlockKey&, size_t n,
                                        Values<kResidual>* v,
                                        uint8_t* encoded) {
    using P = typename S::Plain;
    uint8_t* scale = encoded;
    uint8_t* codes =
        encoded + (n + P::kElements - 1) / P::kElements * P::kScaleBytes;
    for (size_t begin = 0; begin < n; begin += P::kElements) {
      const size_t m = n - begin < P::kElements ? n - begin : P::kElements;
      BlockFault fault;
      if constexpr (S::kVectorised) {
        fault = m == P::kElements
                    ? S::template EncodeFull<kResidual>(v + begin, scale, codes)
                    : P::template EncodeSub<kResidual, float>(m, v + begin,
                                                              scale, codes);
      } else {
        fault =
            P::template EncodeSub<kResidual, float>(m, v + begin, scale, codes);
      }
      if (fault != BlockFault::kNone) return fault;
      scale += P::kScaleBytes;
      codes += P::CodeBytes(m);
    }
    return BlockFault::kNone;
  }

  template <Into kInto>
  ATL_CODEC_FN static BlockFault Decode(size_t n, const uint8_t* encoded,
                                        float weight, float* out) {
    using P = typename S::Plain;
    const uint8_t* scale = encoded;
    const uint8_t* codes =
        encoded + (n + P::kElements - 1) / P::kElements * P::kScaleBytes;
    for (size_t begin = 0; begin < n; begin += P::kElements) {
      const size_t m = n - begin < P::kElements ? n - begin : P::kElements;
      BlockFault fault;
      if constexpr (S::kVectorised) {
        fault = m == P::kElements ? S::template DecodeFull<kInto>(
                                        scale, codes, weight, out + begin)
                                  : P::template DecodeSub<kInto, float>(
                                        m, scale, codes, weight, out + begin);
      } else {
        fault = P::template DecodeSub<kInto, float>(m, scale, codes, weight,
                                                    out + begin);
      }
      if (fault != BlockFault::kNone) return fault;
      scale += P::kScaleBytes;
      codes += P::CodeBytes(m);
    }
    return BlockFault::kNone;
  }
};

// A sub-block format on the plain path.
template <typename P>
struct PlainSub {
  using Plain = P;
  static constexpr bool kVectorised = false;
  static void Combine(size_t n, float decay, const float* before,
                      const float* gradient, float* after) {
    CombinePlain(n, decay, before, gradient, after);
  }
};

template <typename F, SimdPath kPath>
class ToCodec final : public Codec {
 public:
  CodecId id() const override { return F::kId; }
  SimdPath path() const override { return kPath; }
  size_t EncodedBytes(size_t n) const override { return F::EncodedBytes(n); }

  BlockFault Encode(const BlockKey& key, absl::Span<const float> values,
                    absl::Span<char> encoded) const override {
    if (!Fits(values.size(), encoded.size())) return BlockFault::kWrongSize;
    return F::template Encode<false>(key, values.size(), values.data(),
                                     Bytes(encoded.data()));
  }

  BlockFault EncodeWithFeedback(const BlockKey& key,
                                absl::Span<const float> gradient, float decay,
                                absl::Span<const float> before,
                                absl::Span<float> after,
                                absl::Span<char> encoded) const override {
    const size_t n = gradient.size();
    if (!Fits(n, encoded.size()) || before.size() != n || after.size() != n) {
      return BlockFault::kWrongSize;
    }
    // `values` stays in the L1 cache. `after` is written once and not read.
    alignas(64) float values[kBlockElements];
    F::Combine(n, decay, before.data(), gradient.data(), values);
    const BlockFault fault =
        F::template Encode<true>(key, n, values, Bytes(encoded.data()));
    StreamCopy(n * sizeof(float), reinterpret_cast<const char*>(values),
               reinterpret_cast<char*>(after.data()));
    return fault;
  }

  BlockFault Decode(absl::string_view encoded,
                    absl::Span<float> values) const override {
    return DecodeInto<Into::kSet>(encoded, 1, values);
  }
  BlockFault DecodeScaled(absl::string_view encoded, float weight,
                          absl::Span<float> values) const override {
    return DecodeInto<Into::kScale>(encoded, weight, values);
  }
  BlockFault DecodeAccumulate(absl::string_view encoded, float weight,
                              absl::Span<float> sum) const override {
    return DecodeInto<Into::kAdd>(encoded, weight, sum);
  }

 private:
  static bool Fits(size_t n, size_t encoded_bytes) {
    return n >= 1 && n <= kBlockElements && encoded_bytes == F::EncodedBytes(n);
  }
  static uint8_t* Bytes(char* bytes) {
    return reinterpret_cast<uint8_t*>(bytes);
  }

  template <Into kInto>
  static BlockFault DecodeInto(absl::string_view encoded, float weight,
                               absl::Span<float> out) {
    if (!Fits(out.size(), encoded.size())) return BlockFault::kWrongSize;
    return F::template Decode<kInto>(
        out.size(), reinterpret_cast<const uint8_t*>(encoded.data()), weight,
        out.data());
  }
};

// The Codec on `path` of the format whose plain definition is F. `avx2` and
// `avx512` return the vectorised codecs from the units compiled for those
// instructions; only the requested codec is constructed.
template <typename F>
const Codec& OnPath(SimdPath path, const Codec& (*avx2)(),
                    const Codec& (*avx512)()) {
  static const ToCodec<F, SimdPath::kPlain> plain;
  switch (path) {
    case SimdPath::kPlain:
      return plain;
    case SimdPath::kAvx2:
      return avx2();
    case SimdPath::kAvx512:
      return avx512();
  }
  return plain;
}

}  // namespace atl::codec
