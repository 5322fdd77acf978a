// Whether a device says of faulty bytes what the CPU says.
//
// Pure.

#ifndef WORKER_ENGINE_CUDA_CHECK_CODEC_FAULTS_H_
#define WORKER_ENGINE_CUDA_CHECK_CODEC_FAULTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/codec/codec.h"

namespace atl::engine::check {

// Blocks of `n` elements each, back to back.
struct FaultyBlocks {
  size_t n = 0;
  float weight = 0;
  std::vector<uint8_t> encoded;
  std::vector<float> sums;
  // One a block, by who decodes.
  std::vector<codec::BlockFault> faults;
};

// sums = sums + weight Dec(encoded), block by block, with the fault of each.
// Sums of a block with a fault may be anything.
using Accumulate = std::function<absl::Status(FaultyBlocks& blocks)>;

// Encodings by `codec` of blocks of `n` elements, of which each is as it should
// be, or has a few bits flipped, bytes of ones or zeros, or any bytes at all.
FaultyBlocks MakeFaultyBlocks(const codec::Codec& codec, size_t n,
                              uint64_t seed);

// Holds `accumulate` to the faults that `codec` finds in such blocks, and to
// the sums of those in which it finds none.
//
// INTERNAL: they differ.
absl::Status CheckFaults(const codec::Codec& codec, size_t n, uint64_t seed,
                         const Accumulate& accumulate);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_CODEC_FAULTS_H_
