// How the view V that islands hold follows a shard's parameters theta.
//
//   D_v = Enc(theta_v - V_{v-1})   V_v = V_{v-1} + Dec(D_v)   V_0 = theta_0
//
// What an encoding leaves unsaid stays in theta - V and is part of the next D:
// error feedback by construction, one residual a shard. V_v is a function of
// V_{v-1} and theta_v alone, hence of the run's decisions: whoever makes D_v
// again gets the same bytes, however the fragment is cut into shards and tiles.
//
// Pure. Immutable, so thread-safe.

#ifndef SERVER_CORE_REPLICA_H_
#define SERVER_CORE_REPLICA_H_

#include <cstdint>

#include "atoll/v1/run.pb.h"
#include "base/layout/digest.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/layout.h"

namespace atl::server {

// The seed of a version's D (codec::BlockKey::seed); only the stochastic codec
// reads it.
uint64_t ReplicaSeed(uint64_t exchange_seed, int32_t fragment, int64_t version);

// The step from V_{v-1} to V_v of one fragment.
class ReplicaStep {
 public:
  // `layout` is of the run's exchange.down and must outlive it.
  ReplicaStep(const EncodedLayout& layout, const v1::ExchangeSpec& exchange,
              int64_t version)
      : layout_(layout),
        seed_(ReplicaSeed(exchange.seed(), layout.fragment(), version)) {}

  struct Result {
    // False if theta - V_{v-1} or V_v has a value that is not finite; the rest
    // is unspecified then.
    bool finite = true;
    Digest128 digest;  // Of V_v's blocks.
  };

  // Takes `blocks` a step: theta = theta_v and from = V_{v-1} in, to = V_v and
  // encoded = D_v out. Values have shape [elements of blocks], `encoded`
  // layout.ByteCount(blocks) bytes. `to` may be `from`, and overlaps nothing
  // else.
  Result Advance(IndexRange blocks, const float* theta, const float* from,
                 float* to, char* encoded) const;

 private:
  const EncodedLayout& layout_;
  const uint64_t seed_;
};

}  // namespace atl::server

#endif  // SERVER_CORE_REPLICA_H_
