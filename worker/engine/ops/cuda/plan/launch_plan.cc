#include "worker/engine/ops/cuda/plan/launch_plan.h"

#include <algorithm>

namespace atl::engine::cuda {
namespace {

constexpr int64_t kRowBlocksMax = 1 << 20;
constexpr int64_t kElementBlocksMax = 8192;
constexpr int64_t kTileRowsMin = 32;
constexpr int64_t kSumElementsMin = 8192;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int RowThreads(int64_t channels) {
  if (channels <= 128) return 32;
  if (channels <= 512) return 128;
  return channels <= 4096 ? 256 : 512;
}

unsigned RowBlocks(int64_t rows) {
  return static_cast<unsigned>(std::min(rows, kRowBlocksMax));
}

unsigned ElementBlocks(int64_t count) {
  return static_cast<unsigned>(std::clamp<int64_t>(
      DivideUp(count, kBlockThreads), 1, kElementBlocksMax));
}

RowTiles PlanRowTiles(int64_t rows) {
  const int64_t each = std::max(kTileRowsMin, DivideUp(rows, kRowTilesMax));
  return {each, std::max<int64_t>(1, DivideUp(rows, each))};
}

SumBlocks PlanSum(int64_t count) {
  const int64_t each =
      std::max(kSumElementsMin, DivideUp(count, kSumBlocksMax));
  return {each, std::max<int64_t>(1, DivideUp(count, each))};
}

AttentionTiles PlanAttention(int64_t head_dim) {
  if (head_dim <= 32) return {32, 64, 64};
  if (head_dim <= 64) return {64, 64, 64};
  if (head_dim <= 128) return {128, 64, 32};
  if (head_dim <= kHeadDimMax) return {256, 32, 16};
  return {};
}

AttentionTiles PlanAttentionBackward(int64_t head_dim) {
  if (head_dim <= 32) return {32, 64, 64};
  if (head_dim <= 64) return {64, 64, 64};
  if (head_dim <= 128) return {128, 32, 32};
  if (head_dim <= kHeadDimMax) return {256, 16, 16};
  return {};
}

size_t AttentionSharedBytes(const AttentionTiles& tiles) {
  const int64_t wide = tiles.rows + 2 * tiles.columns;
  return sizeof(float) * static_cast<size_t>(wide * (tiles.width + 1) +
                                             tiles.rows * (tiles.columns + 1));
}

size_t AttentionBackwardSharedBytes(const AttentionTiles& tiles) {
  const int64_t wide = 2 * tiles.rows + 2 * tiles.columns;
  return sizeof(float) *
         static_cast<size_t>(wide * (tiles.width + 1) +
                             2 * tiles.rows * (tiles.columns + 1));
}

SortPlan PlanSort(int64_t count, int64_t key_count) {
  SortPlan plan;
  plan.tiles = std::max<int64_t>(1, DivideUp(count, kSortTile));
  for (int64_t span = 1; span < key_count; span *= kDigits) ++plan.passes;
  plan.passes = std::max(plan.passes, 1);
  return plan;
}

}  // namespace atl::engine::cuda
