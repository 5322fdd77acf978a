// Compares the codecs' bits on a device with those of the CPU's fastest path.

#ifndef WORKER_ENGINE_CUDA_CHECK_CODEC_CHECK_H_
#define WORKER_ENGINE_CUDA_CHECK_CODEC_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/codec/codec.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::check {

// Encodes blocks of random values and accumulates the decoded values, on the
// device and the CPU. All bytes of the encoding, the remaining values and the
// sums must be equal. For faulty bytes the device must report the CPU's faults.
//
// INTERNAL: something differs.
absl::Status CheckCodec(codec::CodecId id, uint64_t seed, cuda::CudaOps& ops);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_CODEC_CHECK_H_
