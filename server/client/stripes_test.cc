#include "server/client/stripes.h"

#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;

TEST(StripesTest, ShardsShareTheStreamsAndHaveOneAtLeast) {
  EXPECT_EQ(StreamCountOf(kMany, 1, 4, kMany), 4);
  EXPECT_EQ(StreamCountOf(kMany, 2, 4, kMany), 2);
  EXPECT_EQ(StreamCountOf(kMany, 3, 4, kMany), 2);
  EXPECT_EQ(StreamCountOf(kMany, 9, 4, kMany), 1);
  EXPECT_EQ(StreamCountOf(kMany, 1, 1000, kMany), kStreamCountMax);
}

TEST(StripesTest, LittleGoesOverOneStream) {
  EXPECT_EQ(StreamCountOf(1, 1, 4, kMany), 1);
  EXPECT_EQ(StreamCountOf(2 * kStripeBytesMin, 1, 4, kMany), 2);
}

TEST(StripesTest, ALowCapHasFewStreams) {
  // 5 Mb/s and 20 Mb/s.
  EXPECT_EQ(StreamCountOf(kMany, 1, 4, 62500), 1);
  EXPECT_EQ(StreamCountOf(kMany, 1, 4, 250000), 3);
  EXPECT_EQ(StreamCountOf(kMany, 4, 4, 250000), 1);
}

TEST(StripesTest, ManyStreamsHaveSmallerChunks) {
  EXPECT_EQ(ChunkBytesMax(32 << 20, 1), 1 << 20);
  EXPECT_EQ(ChunkBytesMax(32 << 20, 16), 1 << 20);
  EXPECT_EQ(ChunkBytesMax(32 << 20, 64), 256 << 10);
  EXPECT_EQ(ChunkBytesMax(1 << 20, 1000), 16 << 10);
}

}  // namespace
}  // namespace atl::server
