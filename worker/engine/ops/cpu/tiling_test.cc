#include "worker/engine/ops/cpu/tiling.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace atl::engine {
namespace {

TEST(TilingTest, TilesCoverTheRangeOnceAndNoneIsEmpty) {
  for (int64_t n = 1; n < 1500; ++n) {
    for (int64_t size_max : {32, 128, 256, 352}) {
      const Tiles tiles = CutEvenly(n, size_max);
      int64_t next = 0;
      for (int64_t tile = 0; tile < tiles.count; ++tile) {
        ASSERT_EQ(tiles.begin(tile), next);
        ASSERT_GT(tiles.length(tile), 0) << n << " by " << size_max;
        next += tiles.length(tile);
      }
      ASSERT_EQ(next, n) << n << " by " << size_max;
      ASSERT_LE(tiles.size, size_max + 15);
    }
  }
}

TEST(TilingTest, SharesOfTwoAndFourThreadsAreEqualWhereTheyCanBe) {
  EXPECT_EQ(CutEvenly(1024, 256).count, 4);
  EXPECT_EQ(CutEvenly(2048, 256).count, 8);
  EXPECT_EQ(CutEvenly(688, 172).count, 4);
  EXPECT_EQ(CutEvenly(700, 256).count, 4);  // Not 3.
}

TEST(TilingTest, FewRowsAreCutByColumnsToo) {
  EXPECT_EQ(CutOutput(1024, 384, 256, 128).count(), 4);
  EXPECT_EQ(CutOutput(32, 4096, 256, 128).count(), 4);
  EXPECT_EQ(CutOutput(1, 100, 256, 128).count(), 1);
}

TEST(TilingTest, AWeightIsCutAlongItsLongerSide) {
  const OutputTiles wide = CutWeight(128, 344, 32, 352);
  EXPECT_EQ(wide.rows.count, 1);
  EXPECT_EQ(wide.columns.count, 4);
  const OutputTiles tall = CutWeight(4096, 256, 32, 352);
  EXPECT_EQ(tall.columns.count, 1);
  EXPECT_EQ(tall.rows.count, 12);
  EXPECT_EQ(CutWeight(8, 8, 32, 352).count(), 1);
}

}  // namespace
}  // namespace atl::engine
