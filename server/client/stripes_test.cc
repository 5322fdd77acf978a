#include "server/client/stripes.h"

#include <algorithm>

#include "base/codec/block_grid.h"
#include "base/layout/layout.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;

TEST(StripesTest, ShardsShareTheStreamsAndHaveOneAtLeast) {
  EXPECT_EQ(ChooseStreamCount(kMany, 1, 4, kMany), 4);
  EXPECT_EQ(ChooseStreamCount(kMany, 2, 4, kMany), 2);
  EXPECT_EQ(ChooseStreamCount(kMany, 3, 4, kMany), 2);
  EXPECT_EQ(ChooseStreamCount(kMany, 9, 4, kMany), 1);
  EXPECT_EQ(ChooseStreamCount(kMany, 1, 1000, kMany), kStreamCountMax);
}

TEST(StripesTest, LittleGoesOverOneStream) {
  EXPECT_EQ(ChooseStreamCount(1, 1, 4, kMany), 1);
  EXPECT_EQ(ChooseStreamCount(2 * kStripeBytesMin, 1, 4, kMany), 2);
}

TEST(StripesTest, ALowCapHasFewStreams) {
  // 5 Mb/s and 20 Mb/s.
  EXPECT_EQ(ChooseStreamCount(kMany, 1, 4, 62500), 1);
  EXPECT_EQ(ChooseStreamCount(kMany, 1, 4, 250000), 3);
  EXPECT_EQ(ChooseStreamCount(kMany, 4, 4, 250000), 1);
}

TEST(StripesTest, StripesAreThePartInOrderAndNoneIsEmpty) {
  for (const IndexRange part :
       {IndexRange{3, 4}, IndexRange{7, 17}, IndexRange{5, 261},
        IndexRange{100, 1417}}) {
    for (int count = 1; count <= std::min<int64_t>(6, part.size()); ++count) {
      int64_t at = part.begin;
      for (int i = 0; i < count; ++i) {
        const IndexRange stripe = TakeStripe(part, count, i);
        EXPECT_EQ(stripe.begin, at);
        EXPECT_FALSE(stripe.empty());
        at = stripe.end;
        // Only the last chunk may be shorter than the largest.
        if (part.size() >= 1000 && i + 1 < count) {
          EXPECT_EQ(stripe.size() % codec::kChunkBlocksUnit, 0);
        }
      }
      EXPECT_EQ(at, part.end);
    }
  }
}

TEST(StripesTest, ManyStreamsHaveSmallerChunks) {
  EXPECT_EQ(ChunkBytesMax(1), 1 << 20);
  EXPECT_EQ(ChunkBytesMax(16), 1 << 20);
  EXPECT_EQ(ChunkBytesMax(64), 256 << 10);
  EXPECT_EQ(ChunkBytesMax(32000), 16 << 10);
}

}  // namespace
}  // namespace atl::server
