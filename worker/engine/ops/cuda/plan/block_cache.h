// Chooses freed blocks of device memory to use again.
//
// Pure: addresses, not memory. Rounded sizes let buffers of similar size share
// blocks. Thread-compatible.

#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace atl::engine::cuda {

// The block's size: a multiple of 512 B below 1 MiB, else of 2 MiB.
size_t BlockBytes(size_t bytes);

class BlockCache {
 public:
  // Returns the last block put back with this BlockBytes; null without one.
  void* Take(size_t bytes);
  void Put(void* block, size_t bytes);
  // Empties the cache and returns its blocks.
  std::vector<void*> TakeAll();

  size_t cached_bytes() const { return cached_bytes_; }

 private:
  std::map<size_t, std::vector<void*>> blocks_;  // By BlockBytes.
  size_t cached_bytes_ = 0;
};

}  // namespace atl::engine::cuda
