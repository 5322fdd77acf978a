// Which freed blocks of device memory to reuse.
//
// Pure: it handles addresses, not memory. Sizes are rounded so that buffers of
// similar size share blocks. Thread-compatible.

#ifndef WORKER_ENGINE_OPS_CUDA_PLAN_BLOCK_CACHE_H_
#define WORKER_ENGINE_OPS_CUDA_PLAN_BLOCK_CACHE_H_

#include <cstddef>
#include <map>
#include <vector>

namespace atl::engine::cuda {

// The block size for `bytes`: a multiple of 512 B below 1 MiB, else of 2 MiB.
size_t BlockBytes(size_t bytes);

class BlockCache {
 public:
  // Takes the block of exactly BlockBytes(bytes) that was put back last. Null
  // if there is none.
  void* Take(size_t bytes);
  // Puts back a block that was allocated for `bytes`.
  void Put(void* block, size_t bytes);
  // Empties the cache and returns its blocks.
  std::vector<void*> TakeAll();

  size_t cached_bytes() const { return cached_bytes_; }

 private:
  std::map<size_t, std::vector<void*>> blocks_;  // By BlockBytes.
  size_t cached_bytes_ = 0;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_PLAN_BLOCK_CACHE_H_
