#include "server/core/replica.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/codec/bits.h"
#include "base/codec/block_grid.h"
#include "base/codec/codec.h"
#include "base/codec/f32_values.h"
#include "base/codec/stream_copy.h"

namespace atl::server {

using codec::SplitMix64;

uint64_t ReplicaSeed(uint64_t exchange_seed, int32_t fragment,
                     int64_t version) {
  const uint64_t of_fragment =
      SplitMix64(SplitMix64(exchange_seed) ^ static_cast<uint64_t>(fragment));
  return SplitMix64(of_fragment ^ static_cast<uint64_t>(version));
}

ReplicaStep::Result ReplicaStep::Advance(IndexRange blocks, const float* theta,
                                         const float* from, float* to,
                                         char* encoded) const {
  Result result;
  const codec::Codec& codec = layout_.codec();
  const RunLayout& layout = layout_.layout();
  alignas(64) float residual[codec::kBlockElements];
  alignas(64) float next[codec::kBlockElements];
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t n = layout_.ElementCount(b);
    codec::Subtract(n, theta, from, residual);
    const codec::BlockKey key = {
        seed_,
        static_cast<uint64_t>(layout.BlockOffset(layout_.fragment(), b))};
    const size_t bytes = codec.EncodedBytes(n);
    // In place, R stays in the cache. Otherwise it is written past the caches.
    float* const made = to == from ? to : next;
    if (made != from) std::copy_n(from, n, made);
    const absl::Span<float> replica = absl::MakeSpan(made, n);
    if (codec.Encode(key, absl::MakeConstSpan(residual, n),
                     absl::MakeSpan(encoded, bytes)) !=
            codec::BlockFault::kNone ||
        codec.DecodeAccumulate(absl::string_view(encoded, bytes), 1.0f,
                               replica) != codec::BlockFault::kNone ||
        !codec::AllFinite(replica)) {
      result.finite = false;
      return result;
    }
    result.digest += BlockDigest(b, replica);
    if (made != to) {
      codec::StreamCopy(n * sizeof(float), reinterpret_cast<const char*>(made),
                        reinterpret_cast<char*>(to));
    }
    theta += n;
    from += n;
    to += n;
    encoded += bytes;
  }
  return result;
}

}  // namespace atl::server
