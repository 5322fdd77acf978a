// The codecs' bits on a device against those of the CPU's fastest path.

#ifndef WORKER_ENGINE_CUDA_CHECK_CODEC_CHECK_H_
#define WORKER_ENGINE_CUDA_CHECK_CODEC_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/codec/codec.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine::check {

// Encodes blocks of random values and adds their decoding up, on both. Every
// byte of the encoding, what is left of the values, and the sums must be equal.
// Of bytes that are faulty the device must say what the CPU says.
//
// INTERNAL: they are not.
absl::Status CheckCodec(codec::CodecId id, uint64_t seed, cuda::CudaOps& ops);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_CODEC_CHECK_H_
