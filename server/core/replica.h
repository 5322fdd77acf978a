// How the replica that islands hold follows a shard's parameters theta.
//
//   theta_v  the parameters at version v, f32
//   R_v      the replica at version v, f32: R_0 = theta_0
//   D_v      the encoded delta that islands download:
//            D_v = Enc(theta_v - R_{v-1}),  R_v = R_{v-1} + Dec(D_v)
//
// The error of an encoding stays in theta - R and is part of the next delta:
// error feedback, with one residual a shard. R_v is a function of R_{v-1} and
// theta_v alone, so it depends only on the run's decisions. Recomputing D_v
// gives the same bytes, for any cut into shards and tiles.
// Pure. Immutable, so thread-safe.

#pragma once

#include <cstdint>

#include "atoll/v1/run.pb.h"
#include "base/layout/digest.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/layout.h"

namespace atl::server {

// The seed of a version's delta (codec::BlockKey::seed), for stochastic codecs.
uint64_t ReplicaSeed(uint64_t exchange_seed, int32_t fragment, int64_t version);

class ReplicaStep {
 public:
  // `layout` uses the codec of the run's exchange.down and must outlive this.
  ReplicaStep(const EncodedLayout& layout, const v1::ExchangeSpec& exchange,
              int64_t version)
      : layout_(layout),
        seed_(ReplicaSeed(exchange.seed(), layout.fragment(), version)) {}

  struct Result {
    // False if theta - R_{v-1} or R_v is not finite: the rest is unspecified.
    bool finite = true;
    Digest128 digest;  // Digest of R_v's blocks.
  };

  // Advances `blocks`. In: `theta` = theta_v, `from` = R_{v-1}. Out: `to` =
  // R_v, `encoded` = D_v. Values: [elements of blocks]; `encoded`:
  // layout.ByteCount(blocks) bytes. `to` may equal `from`; no other overlap.
  Result Advance(IndexRange blocks, const float* theta, const float* from,
                 float* to, char* encoded) const;

 private:
  const EncodedLayout& layout_;
  const uint64_t seed_;
};

}  // namespace atl::server
