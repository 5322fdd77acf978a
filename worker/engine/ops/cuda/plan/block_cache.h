// Blocks of device memory that were given back and may be given out again.
//
// Pure: which block, not the memory. Sizes are rounded so that buffers of
// nearly one size share blocks. Thread-compatible.

#ifndef WORKER_ENGINE_OPS_CUDA_PLAN_BLOCK_CACHE_H_
#define WORKER_ENGINE_OPS_CUDA_PLAN_BLOCK_CACHE_H_

#include <cstddef>
#include <map>
#include <vector>

namespace atl::engine::cuda {

// What a block for `bytes` has: a multiple of 512 B below 1 MiB, else of 2 MiB.
size_t BlockBytes(size_t bytes);

class BlockCache {
 public:
  // A block of exactly BlockBytes(bytes) that was put back, the last first;
  // null if there is none.
  void* Take(size_t bytes);
  // Puts back a block that was made for `bytes`.
  void Put(void* block, size_t bytes);
  // All blocks, which the cache forgets.
  std::vector<void*> TakeAll();

  size_t cached_bytes() const { return cached_bytes_; }

 private:
  std::map<size_t, std::vector<void*>> blocks_;  // By BlockBytes.
  size_t cached_bytes_ = 0;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_PLAN_BLOCK_CACHE_H_
