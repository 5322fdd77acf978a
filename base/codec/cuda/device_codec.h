// The codecs on a CUDA device: plain kernels, a thread a block of the grid.
//
// They give the bits of every other path. Launches are queued; pointers are the
// device's. This header needs no CUDA.

#ifndef BASE_CODEC_CUDA_DEVICE_CODEC_H_
#define BASE_CODEC_CUDA_DEVICE_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "base/codec/codec.h"
#include "base/codec/subset_model.h"

namespace atl::codec::cuda {

// The blocks that a launch works on, all of `n` elements: values [count, n] and
// encoded [count, bytes], `bytes` being Codec::EncodedBytes(n); a fault a
// block. Block b is that of first element b n.
struct Blocks {
  int64_t count = 0;
  size_t n = 0;
  size_t bytes = 0;
  float* values = nullptr;
  uint8_t* encoded = nullptr;
  BlockFault* faults = nullptr;
};

// encoded = Enc(values), then values = values - Dec(encoded). `model` is a copy
// of TheSubsetModel on the device, for kTopK alone. `stream` is a cudaStream_t.
// Returns the number of the launch's error, 0 for none.
int EncodeBlocks(CodecId id, const Blocks& blocks, uint64_t seed,
                 const SubsetModel* model, void* stream);

// values = values + weight Dec(encoded).
int AccumulateBlocks(CodecId id, const Blocks& blocks, float weight,
                     const SubsetModel* model, void* stream);

}  // namespace atl::codec::cuda

#endif  // BASE_CODEC_CUDA_DEVICE_CODEC_H_
