#include "server/merge/merge_tile.h"

#include <algorithm>

#include "base/codec/block_grid.h"
#include "base/status/status_macros.h"
#include "server/kernels/loop_table.h"
#include "server/kernels/merge_kernels.h"

namespace atl::server {
namespace {

constexpr int64_t kTileElements = kTileBlocks * codec::kBlockElements;

// Sets where old arrays are read and new ones are made. Arrays that the new
// version took over are updated in place; the others are made in `buffers`,
// from the old version's images or files. `keep` has one entry for each array.
absl::Status LoadTile(const OuterStep& step, IndexRange blocks,
                      TileBuffers& buffers, OuterTile& tile,
                      VersionImage* keep) {
  for (int array = 0; array <= step.optimizer.state_count(); ++array) {
    float*& made = array == 0 ? tile.theta : tile.state[array - 1];
    const float*& old = array == 0 ? tile.old_theta : tile.old_state[array - 1];
    if (step.to.carries(array)) {
      made = step.to.Map(array, blocks, &keep[array]);
      continue;
    }
    made = array == 0 ? buffers.theta.data() : buffers.state[array - 1].data();
    old = step.from.Map(array, blocks, &keep[array]);
    if (old == nullptr) {
      RETURN_IF_ERROR(step.from.Read(array, blocks, made));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t TileCount(const ShardRange& range) {
  return (range.block_count() + kTileBlocks - 1) / kTileBlocks;
}

IndexRange TileBlocks(const ShardRange& range, int64_t tile) {
  const int64_t begin = range.blocks().begin + tile * kTileBlocks;
  return {begin, std::min(begin + kTileBlocks, range.blocks().end)};
}

TileBuffers::TileBuffers()
    : theta(kTileElements),
      gradient(kTileElements),
      contributions(kTileElements) {
  for (auto& array : state) array.resize(kTileElements);
}

TileResult StepTile(const OuterStep& step, IndexRange blocks,
                    TileBuffers& buffers) {
  TileResult result;
  const int64_t count = step.range.ElementCount(blocks);
  const kernels::NormResult merged =
      kernels::BestLoops().check_and_norm(count, buffers.gradient.data());
  result.norm_squared = merged.sum_of_squares;
  result.finite = merged.finite;
  OuterTile tile;
  tile.count = count;
  tile.version = step.version;
  tile.gradient = buffers.gradient.data();
  VersionImage keep[1 + OuterOptimizer::kMaxStateCount];
  result.status = LoadTile(step, blocks, buffers, tile, keep);
  if (!result.status.ok()) return result;
  StepBlocks(step.optimizer, step.range.layout(), step.range.fragment(), blocks,
             tile);
  result.finite &= kernels::BestLoops().all_finite(count, tile.theta);
  result.digest = RangeDigest(step.range.layout(), step.range.fragment(),
                              blocks, absl::MakeConstSpan(tile.theta, count));
  if (step.replica != nullptr && result.finite) {
    result.status =
        step.replica->MakeTile(blocks, tile.theta, buffers.replica,
                               result.replica_digest, result.finite);
    if (!result.status.ok()) return result;
  }
  result.status = step.to.Write(0, blocks, tile.theta);
  for (int i = 0; i < step.optimizer.state_count() && result.status.ok(); ++i) {
    result.finite &= kernels::BestLoops().all_finite(count, tile.state[i]);
    result.status = step.to.Write(1 + i, blocks, tile.state[i]);
  }
  return result;
}

absl::Status AddUp(absl::Span<const TileResult> results, PreparedFact& fact) {
  for (const TileResult& result : results) {
    RETURN_IF_ERROR(result.status);
    fact.digest += result.digest;
    fact.finite &= result.finite;
    fact.norm_squared += result.norm_squared;
    fact.replica_digest += result.replica_digest;
  }
  return absl::OkStatus();
}

}  // namespace atl::server
