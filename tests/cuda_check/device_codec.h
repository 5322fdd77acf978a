// The codecs on a CUDA device: plain kernels, one thread a block of the grid.
//
// They give the same bits as every other path. Launches are asynchronous.
// Pointers are device pointers. This header needs no CUDA.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/codec.h"
#include "base/codec/subset_model.h"

namespace atl::codec::cuda {

// The blocks of a launch, each of `n` elements: values [count, n], encoded
// [count, bytes] with bytes = Codec::EncodedBytes(n), and one fault a block.
// The first element of block b is number b n.
struct Blocks {
  int64_t count = 0;
  size_t n = 0;
  size_t bytes = 0;
  float* values = nullptr;
  uint8_t* encoded = nullptr;
  BlockFault* faults = nullptr;
};

// encoded = Enc(values), then values = values - Dec(encoded). `model` is a
// device copy of TheSubsetModel, for kTopK only. `stream` is a cudaStream_t.
// Returns the launch's cudaError_t as a number, 0 for success.
int EncodeBlocks(CodecId id, const Blocks& blocks, uint64_t seed,
                 const SubsetModel* model, void* stream);

// values = values + weight * Dec(encoded).
int AccumulateBlocks(CodecId id, const Blocks& blocks, float weight,
                     const SubsetModel* model, void* stream);

}  // namespace atl::codec::cuda
