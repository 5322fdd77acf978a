#include "worker/engine/ops/cuda/plan/block_cache.h"

#include <cstddef>

#include "gtest/gtest.h"

namespace atl::engine::cuda {
namespace {

TEST(BlockCacheTest, RoundsSizesUpToWholeBlocks) {
  EXPECT_EQ(BlockBytes(0), 512u);
  EXPECT_EQ(BlockBytes(512), 512u);
  EXPECT_EQ(BlockBytes(513), 1024u);
  EXPECT_EQ(BlockBytes(size_t{1} << 20), size_t{2} << 20);
  EXPECT_EQ(BlockBytes((size_t{2} << 20) + 1), size_t{4} << 20);
}

TEST(BlockCacheTest, GivesABlockToWhoeverNeedsItsSizeAndToNobodyTwice) {
  BlockCache cache;
  char a, b;
  EXPECT_EQ(cache.Take(100), nullptr);
  cache.Put(&a, 100);
  cache.Put(&b, 600);
  EXPECT_EQ(cache.cached_bytes(), 512u + 1024u);
  EXPECT_EQ(cache.Take(2000), nullptr);
  EXPECT_EQ(cache.Take(512), &a);
  EXPECT_EQ(cache.Take(512), nullptr);
  EXPECT_EQ(cache.TakeAll().size(), 1u);
  EXPECT_EQ(cache.cached_bytes(), 0u);
  EXPECT_EQ(cache.Take(600), nullptr);
}

}  // namespace
}  // namespace atl::engine::cuda
