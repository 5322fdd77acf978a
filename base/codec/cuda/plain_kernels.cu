// The plain definitions as CUDA kernels, one block of the grid a thread: that
// they compile for a device is what this file shows. Fast kernels come with the
// engine's CUDA operations and are held to these.
//
// Compile with --fmad=false and without --use_fast_math: the bits are the
// CPU's.

#include <cstddef>
#include <cstdint>

#include "base/codec/bf16.h"
#include "base/codec/e3m0.h"
#include "base/codec/f32.h"
#include "base/codec/int8.h"
#include "base/codec/top_k.h"
#include "base/codec/two_bit.h"

namespace atl::codec::cuda {

// The blocks that a launch works on, all of `n` elements: values [blocks, n]
// and encoded [blocks, bytes], in device memory; a fault a block.
struct Blocks {
  int64_t count;
  size_t n;
  size_t bytes;
  float* values;
  uint8_t* encoded;
  BlockFault* faults;
};

__device__ inline int64_t ThisBlock() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// encoded = Enc(values), values = values - Dec(encoded).
template <typename Format>
__global__ void EncodeKernel(Blocks blocks, uint64_t seed) {
  const int64_t b = ThisBlock();
  if (b >= blocks.count) return;
  const BlockKey key{seed, static_cast<uint64_t>(b) * blocks.n};
  blocks.faults[b] =
      Format::template Encode<true>(key, blocks.n, blocks.values + b * blocks.n,
                                    blocks.encoded + b * blocks.bytes);
}

// values = values + weight * Dec(encoded).
template <typename Format>
__global__ void AccumulateKernel(Blocks blocks, float weight) {
  const int64_t b = ThisBlock();
  if (b >= blocks.count) return;
  blocks.faults[b] = Format::template Decode<Into::kAdd>(
      blocks.n, blocks.encoded + b * blocks.bytes, weight,
      blocks.values + b * blocks.n);
}

// The same for top-k, whose table lies in device memory.
__global__ void EncodeTopKKernel(Blocks blocks, const SubsetModel* model) {
  const int64_t b = ThisBlock();
  if (b >= blocks.count) return;
  const size_t k = SubsetCount(blocks.n);
  float* values = blocks.values + b * blocks.n;
  for (size_t i = 0; i < blocks.n; ++i) {
    if (!IsFinite(values[i])) {
      blocks.faults[b] = BlockFault::kNotFinite;
      return;
    }
  }
  uint16_t places[kSubsetCountMax];
  TopKPlain::Choose(blocks.n, k, values, places);
  TopKBytes::Write<true>(*model, k, places, values,
                         blocks.encoded + b * blocks.bytes);
  blocks.faults[b] = BlockFault::kNone;
}

__global__ void AccumulateTopKKernel(Blocks blocks, const SubsetModel* model,
                                     float weight) {
  const int64_t b = ThisBlock();
  if (b >= blocks.count) return;
  uint16_t places[kSubsetCountMax];
  float sent[kSubsetCountMax];
  blocks.faults[b] = TopKBytes::Read(
      *model, blocks.n, blocks.encoded + b * blocks.bytes, places, sent);
  if (blocks.faults[b] != BlockFault::kNone) return;
  float* values = blocks.values + b * blocks.n;
  size_t next = 0;
  for (size_t i = 0; i < blocks.n; ++i) {
    const bool is_sent = next < SubsetCount(blocks.n) && places[next] == i;
    Deliver<Into::kAdd>(is_sent ? sent[next++] : 0.0f, weight, values + i);
  }
}

template __global__ void EncodeKernel<F32Plain>(Blocks, uint64_t);
template __global__ void EncodeKernel<Bf16Plain<false>>(Blocks, uint64_t);
template __global__ void EncodeKernel<Bf16Plain<true>>(Blocks, uint64_t);
template __global__ void EncodeKernel<SubBlocked<PlainSub<Int8Plain>>>(
    Blocks, uint64_t);
template __global__ void EncodeKernel<SubBlocked<PlainSub<E3m0Plain>>>(
    Blocks, uint64_t);
template __global__ void EncodeKernel<SubBlocked<PlainSub<TwoBitPlain>>>(
    Blocks, uint64_t);
template __global__ void AccumulateKernel<F32Plain>(Blocks, float);
template __global__ void AccumulateKernel<Bf16Plain<false>>(Blocks, float);
template __global__ void AccumulateKernel<SubBlocked<PlainSub<Int8Plain>>>(
    Blocks, float);
template __global__ void AccumulateKernel<SubBlocked<PlainSub<E3m0Plain>>>(
    Blocks, float);
template __global__ void AccumulateKernel<SubBlocked<PlainSub<TwoBitPlain>>>(
    Blocks, float);

}  // namespace atl::codec::cuda
