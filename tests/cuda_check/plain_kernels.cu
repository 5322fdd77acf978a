// The plain definitions as CUDA kernels, one thread a block of the grid.
//
// Compile with --fmad=false and without --use_fast_math, so that the bits equal
// the CPU's.

#include <cstddef>
#include <cstdint>

#include "base/codec/bf16.h"
#include "base/codec/e3m0.h"
#include "base/codec/f32.h"
#include "base/codec/int8.h"
#include "base/codec/top_k.h"
#include "base/codec/two_bit.h"
#include "tests/cuda_check/device_codec.h"

namespace atl::codec::cuda {

namespace {

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

// The same for top-k, whose model is in device memory.
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

constexpr int kThreads = 128;

unsigned Grid(const Blocks& blocks) {
  return static_cast<unsigned>((blocks.count + kThreads - 1) / kThreads);
}

template <typename Format>
void Encode(const Blocks& blocks, uint64_t seed, cudaStream_t stream) {
  EncodeKernel<Format><<<Grid(blocks), kThreads, 0, stream>>>(blocks, seed);
}

template <typename Format>
void Accumulate(const Blocks& blocks, float weight, cudaStream_t stream) {
  AccumulateKernel<Format>
      <<<Grid(blocks), kThreads, 0, stream>>>(blocks, weight);
}

using Int8 = SubBlocked<PlainSub<Int8Plain>>;
using E3m0 = SubBlocked<PlainSub<E3m0Plain>>;
using TwoBit = SubBlocked<PlainSub<TwoBitPlain>>;

}  // namespace

int EncodeBlocks(CodecId id, const Blocks& blocks, uint64_t seed,
                 const SubsetModel* model, void* stream) {
  if (blocks.count <= 0) return 0;
  auto* const on = static_cast<cudaStream_t>(stream);
  switch (id) {
    case CodecId::kF32:
      Encode<F32Plain>(blocks, seed, on);
      break;
    case CodecId::kBf16:
      Encode<Bf16Plain<false>>(blocks, seed, on);
      break;
    case CodecId::kBf16Stochastic:
      Encode<Bf16Plain<true>>(blocks, seed, on);
      break;
    case CodecId::kInt8:
      Encode<Int8>(blocks, seed, on);
      break;
    case CodecId::kE3m0:
      Encode<E3m0>(blocks, seed, on);
      break;
    case CodecId::kTwoBit:
      Encode<TwoBit>(blocks, seed, on);
      break;
    case CodecId::kTopK:
      EncodeTopKKernel<<<Grid(blocks), kThreads, 0, on>>>(blocks, model);
      break;
  }
  return static_cast<int>(cudaGetLastError());
}

int AccumulateBlocks(CodecId id, const Blocks& blocks, float weight,
                     const SubsetModel* model, void* stream) {
  if (blocks.count <= 0) return 0;
  auto* const on = static_cast<cudaStream_t>(stream);
  switch (id) {
    case CodecId::kF32:
      Accumulate<F32Plain>(blocks, weight, on);
      break;
    case CodecId::kBf16:
    case CodecId::kBf16Stochastic:  // The same wire format.
      Accumulate<Bf16Plain<false>>(blocks, weight, on);
      break;
    case CodecId::kInt8:
      Accumulate<Int8>(blocks, weight, on);
      break;
    case CodecId::kE3m0:
      Accumulate<E3m0>(blocks, weight, on);
      break;
    case CodecId::kTwoBit:
      Accumulate<TwoBit>(blocks, weight, on);
      break;
    case CodecId::kTopK:
      AccumulateTopKKernel<<<Grid(blocks), kThreads, 0, on>>>(blocks, model,
                                                              weight);
      break;
  }
  return static_cast<int>(cudaGetLastError());
}

}  // namespace atl::codec::cuda
