// Compares a device's codecs with the CPU's fastest path, bit by bit.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/codec/codec.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::check {

// Encodes and accumulates blocks of random values on both. Encoded bytes,
// remaining values, sums, and the faults of faulty bytes must be equal.
//
// INTERNAL: something differs.
absl::Status CheckCodec(codec::CodecId id, uint64_t seed, cuda::CudaOps& ops);

}  // namespace atl::engine::check
