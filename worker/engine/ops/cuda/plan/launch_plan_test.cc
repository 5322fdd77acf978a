#include "worker/engine/ops/cuda/plan/launch_plan.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace atl::engine::cuda {
namespace {

constexpr int64_t kHuge = int64_t{1} << 42;

TEST(LaunchPlanTest, RowsHaveWholeWarps) {
  for (int64_t channels : {1, 31, 128, 129, 768, 4096, 50304, 1 << 24}) {
    const int threads = RowThreads(channels);
    EXPECT_EQ(threads % 32, 0) << channels;
    EXPECT_GE(threads, 32) << channels;
    EXPECT_LE(threads, 1024) << channels;
  }
}

TEST(LaunchPlanTest, GridsStayWithinADevicesLimits) {
  EXPECT_EQ(ElementBlocks(0), 1u);
  EXPECT_EQ(ElementBlocks(1), 1u);
  EXPECT_EQ(ElementBlocks(257), 2u);
  EXPECT_LE(ElementBlocks(kHuge), 8192u);
}

TEST(LaunchPlanTest, TilesCoverAllRowsAndAreNotMoreThanThereIsRoomFor) {
  for (int64_t rows : {int64_t{0}, int64_t{1}, int64_t{31}, int64_t{32},
                       int64_t{4097}, int64_t{16384}, kHuge}) {
    const RowTiles tiles = PlanRowTiles(rows);
    EXPECT_GE(tiles.rows * tiles.tiles, rows);
    EXPECT_TRUE(rows == 0 || tiles.rows * (tiles.tiles - 1) < rows) << rows;
    EXPECT_LE(tiles.tiles, kRowTilesMax) << rows;
    const SumBlocks sums = PlanSum(rows);
    EXPECT_GE(sums.elements * sums.blocks, rows);
    EXPECT_TRUE(rows == 0 || sums.elements * (sums.blocks - 1) < rows) << rows;
    EXPECT_LE(sums.blocks, kSumBlocksMax) << rows;
  }
}

TEST(LaunchPlanTest, AttentionFitsIntoTheSharedMemoryOfEveryDevice) {
  for (int64_t d = 1; d <= kHeadDimMax; ++d) {
    for (const AttentionTiles& tiles :
         {PlanAttention(d), PlanAttentionBackward(d)}) {
      EXPECT_GE(tiles.width, d);
      // 16 x 16 threads share tiles and channels evenly.
      EXPECT_EQ(tiles.rows % 16, 0);
      EXPECT_EQ(tiles.columns % 16, 0);
      EXPECT_EQ(tiles.width % 16, 0);
    }
    EXPECT_LE(AttentionSharedBytes(PlanAttention(d)), kSharedBytesMax) << d;
    EXPECT_LE(AttentionBackwardSharedBytes(PlanAttentionBackward(d)),
              kSharedBytesMax)
        << d;
  }
  EXPECT_EQ(PlanAttention(kHeadDimMax + 1).width, 0);
  EXPECT_EQ(PlanAttentionBackward(kHeadDimMax + 1).width, 0);
}

TEST(LaunchPlanTest, ASortHasAsManyPassesAsItsKeysHaveDigits) {
  EXPECT_EQ(PlanSort(10, 1).passes, 1);
  EXPECT_EQ(PlanSort(10, 256).passes, 1);
  EXPECT_EQ(PlanSort(10, 257).passes, 2);
  EXPECT_EQ(PlanSort(10, 50304).passes, 2);
  EXPECT_EQ(PlanSort(10, 1 << 24).passes, 3);
  EXPECT_EQ(PlanSort(0, 2).tiles, 1);
  EXPECT_EQ(PlanSort(256, 2).tiles, 1);
  EXPECT_EQ(PlanSort(257, 2).tiles, 2);
}

}  // namespace
}  // namespace atl::engine::cuda
