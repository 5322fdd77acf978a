#include "worker/engine/ops/cuda/plan/block_cache.h"

namespace atl::engine::cuda {

size_t BlockBytes(size_t bytes) {
  const size_t unit = bytes < (size_t{1} << 20) ? 512 : size_t{2} << 20;
  return (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit;
}

void* BlockCache::Take(size_t bytes) {
  const auto found = blocks_.find(BlockBytes(bytes));
  if (found == blocks_.end() || found->second.empty()) return nullptr;
  void* const block = found->second.back();
  found->second.pop_back();
  cached_bytes_ -= found->first;
  return block;
}

void BlockCache::Put(void* block, size_t bytes) {
  blocks_[BlockBytes(bytes)].push_back(block);
  cached_bytes_ += BlockBytes(bytes);
}

std::vector<void*> BlockCache::TakeAll() {
  std::vector<void*> all;
  for (auto& [size, blocks] : blocks_) {
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
  blocks_.clear();
  cached_bytes_ = 0;
  return all;
}

}  // namespace atl::engine::cuda
