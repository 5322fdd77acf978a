// The arithmetic of a merge on one tile: a few blocks with their arrays in
// cache. Pure except for version files. Thread-safe for different tiles and
// buffers.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "server/core/outer_optimizer/outer_optimizer.h"
#include "server/core/shard_machine.h"
#include "server/merge/replica_maker.h"
#include "server/store/shard_range.h"
#include "server/store/version_file.h"

namespace atl::server {

// Blocks of a tile: 64 KiB an array.
inline constexpr int64_t kTileBlocks = 4;

int64_t TileCount(const ShardRange& range);
// Tiles are counted from the range's first block.
IndexRange TileBlocks(const ShardRange& range, int64_t tile);

// One thread's buffers, each of a tile.
struct TileBuffers {
  TileBuffers();
  std::vector<float> theta;
  std::vector<float> state[OuterOptimizer::kMaxStateCount];
  std::vector<float> gradient;
  std::vector<float> contributions;  // A tile of one, or a block of each.
  ReplicaBuffers replica;
};

struct TileResult {
  absl::Status status;
  Digest128 digest;  // Digest of theta's blocks.
  bool finite = true;
  double norm_squared = 0;   // The merged gradient's, or version 0's.
  Digest128 replica_digest;  // The replica's blocks, if the run has one.
};

struct OuterStep {
  const ShardRange& range;
  const OuterOptimizer& optimizer;
  VersionFile& from;
  VersionFile& to;
  int64_t version = 0;                    // The version of `from`.
  const ReplicaMaker* replica = nullptr;  // Null if the run has none.
};

// Steps `blocks` with `buffers.gradient`, and advances the replica.
TileResult StepTile(const OuterStep& step, IndexRange blocks,
                    TileBuffers& buffers);

// Adds up the results of all tiles, in order; or returns the first error.
absl::Status AddUp(absl::Span<const TileResult> results, PreparedFact& fact);

}  // namespace atl::server
