// Checks that a device reports the CPU's faults for damaged bytes. Pure.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "base/codec/codec.h"

namespace atl::engine::check {

// Consecutive blocks of `n` elements.
struct FaultyBlocks {
  size_t n = 0;
  float weight = 0;
  std::vector<uint8_t> encoded;
  std::vector<float> sums;
  // One per block; the decoder sets it.
  std::vector<codec::BlockFault> faults;
};

// sums = sums + weight Dec(encoded), block by block, and each block's fault.
// Sums of a faulty block are undefined.
using Accumulate = std::function<absl::Status(FaultyBlocks& blocks)>;

// Blocks of `n` elements, encoded by `codec`. A block is intact, or has a few
// flipped bits, some bytes of ones or zeros, or random bytes.
FaultyBlocks MakeFaultyBlocks(const codec::Codec& codec, size_t n,
                              uint64_t seed);

// Compares `accumulate` with `codec` on such blocks: the faults of all blocks,
// and the sums of blocks without a fault.
//
// INTERNAL: they differ.
absl::Status CheckFaults(const codec::Codec& codec, size_t n, uint64_t seed,
                         const Accumulate& accumulate);

}  // namespace atl::engine::check
