// The codecs of a run, each way.
//
// Pure. Thread-safe.

#ifndef BASE_LAYOUT_EXCHANGE_H_
#define BASE_LAYOUT_EXCHANGE_H_

#include "atoll/v1/run.pb.h"
#include "base/codec/codec.h"

namespace atl {

// `codec`, with what is not set as F32: nobody has to name it. Requires: it is
// UNSPECIFIED or one of base/codec.
inline const codec::Codec& CodecOf(v1::Codec codec) {
  return codec::GetCodec(codec == v1::CODEC_UNSPECIFIED
                             ? codec::CodecId::kF32
                             : static_cast<codec::CodecId>(codec));
}

// Of outer gradients, islands to servers.
inline const codec::Codec& UpCodec(const v1::RunSpec& spec) {
  return CodecOf(spec.exchange().up());
}

// Of versions, servers to islands.
inline const codec::Codec& DownCodec(const v1::RunSpec& spec) {
  return CodecOf(spec.exchange().down());
}

// True if versions travel in a codec that loses something: then islands hold V,
// a view that follows theta, and theta itself is what servers keep, what is
// evaluated and what is exported. Else V is theta.
inline bool HasView(const v1::RunSpec& spec) {
  const v1::Codec down = spec.exchange().down();
  return down != v1::CODEC_UNSPECIFIED && down != v1::CODEC_F32;
}

// The number of `codec` in messages.
inline v1::Codec ProtoOf(const codec::Codec& codec) {
  return static_cast<v1::Codec>(codec.id());
}

}  // namespace atl

#endif  // BASE_LAYOUT_EXCHANGE_H_
