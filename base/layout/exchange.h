// The codecs of a run, each way, and what follows from them.
//
// Pure. Thread-safe.

#ifndef BASE_LAYOUT_EXCHANGE_H_
#define BASE_LAYOUT_EXCHANGE_H_

#include <algorithm>
#include <cstdint>

#include "atoll/v1/run.pb.h"
#include "base/codec/codec.h"

namespace atl {

// `codec`, with what is not set as F32: nobody has to name it. Requires: it is
// UNSPECIFIED or one of base/codec.
inline const codec::Codec& ToCodec(v1::Codec codec) {
  return codec::GetCodec(codec == v1::CODEC_UNSPECIFIED
                             ? codec::CodecId::kF32
                             : static_cast<codec::CodecId>(codec));
}

// Of outer gradients, islands to servers.
inline const codec::Codec& UpCodec(const v1::RunSpec& spec) {
  return ToCodec(spec.exchange().up());
}

// Of versions, servers to islands.
inline const codec::Codec& DownCodec(const v1::RunSpec& spec) {
  return ToCodec(spec.exchange().down());
}

// True if versions travel in a codec that loses something: then islands hold V,
// a view that follows theta, and theta itself is what servers keep, what is
// evaluated and what is exported. Else V is theta.
inline bool HasReplica(const v1::RunSpec& spec) {
  const v1::Codec down = spec.exchange().down();
  return down != v1::CODEC_UNSPECIFIED && down != v1::CODEC_F32;
}

// How many D's of a view, what takes it from one version to the next, a shard
// keeps: as long as a chain of them takes no more bytes than the view in full,
// at least 1 and at most kDeltasMax. Requires: full_bytes, delta_bytes >= 0.
inline constexpr int64_t kDeltasMax = 64;
inline int64_t DeltasKept(int64_t full_bytes, int64_t delta_bytes) {
  if (delta_bytes == 0) return 1;
  return std::clamp<int64_t>(full_bytes / delta_bytes, 1, kDeltasMax);
}

// The number of `codec` in messages.
inline v1::Codec ToProto(const codec::Codec& codec) {
  return static_cast<v1::Codec>(codec.id());
}

}  // namespace atl

#endif  // BASE_LAYOUT_EXCHANGE_H_
