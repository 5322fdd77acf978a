// The codecs of a run, up and down, and what follows from them. Pure.
// Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/run.pb.h"
#include "base/codec/codec.h"

namespace atl {

// INVALID_ARGUMENT: this program does not know `up` or `down`; the message has
// its number. Check it before the functions below.
inline absl::Status CheckCodecs(const v1::ExchangeSpec& exchange) {
  const auto is_known = [](v1::Codec codec) {
    return codec == v1::CODEC_UNSPECIFIED ||
           codec::FindCodec(static_cast<int32_t>(codec)) != nullptr;
  };
  if (!is_known(exchange.up())) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange.up is ", static_cast<int>(exchange.up()),
                     ", a codec that this program does not know"));
  }
  if (!is_known(exchange.down())) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange.down is ", static_cast<int>(exchange.down()),
                     ", a codec that this program does not know"));
  }
  return absl::OkStatus();
}

// UNSPECIFIED means F32, the default. Requires: `codec` is UNSPECIFIED or a
// codec of base/codec.
inline const codec::Codec& ToCodec(v1::Codec codec) {
  return codec::GetCodec(codec == v1::CODEC_UNSPECIFIED
                             ? codec::CodecId::kF32
                             : static_cast<codec::CodecId>(codec));
}

// The uplink's codec: outer gradients, islands to servers.
inline const codec::Codec& UpCodec(const v1::RunSpec& spec) {
  return ToCodec(spec.exchange().up());
}

// The downlink's codec: versions, servers to islands.
inline const codec::Codec& DownCodec(const v1::RunSpec& spec) {
  return ToCodec(spec.exchange().down());
}

// True if the downlink codec is lossy. Islands then hold a replica that follows
// theta; servers keep theta itself, and it is what is evaluated and exported.
// Otherwise the replica is theta.
inline bool HasReplica(const v1::RunSpec& spec) {
  const v1::Codec down = spec.exchange().down();
  return down != v1::CODEC_UNSPECIFIED && down != v1::CODEC_F32;
}

// The number of deltas that a shard keeps (a delta takes the replica from one
// version to the next): 1 to kDeltasMax. A chain of them is at most as large as
// the full replica. Requires: full_bytes, delta_bytes >= 0.
inline constexpr int64_t kDeltasMax = 64;
inline int64_t DeltasKept(int64_t full_bytes, int64_t delta_bytes) {
  if (delta_bytes == 0) return 1;
  return std::clamp<int64_t>(full_bytes / delta_bytes, 1, kDeltasMax);
}

inline v1::Codec ToProto(const codec::Codec& codec) {
  return static_cast<v1::Codec>(codec.id());
}

}  // namespace atl
