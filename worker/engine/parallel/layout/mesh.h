// Coordinates and groups of the ranks of an island's mesh. Pure. Thread-safe.
//
// Dimensions, named as in torchtitan, slowest first. (torchtitan splits
// dp_shard in two with experts; the inner half is ep here.)
//
//   pp            pipeline stages: each has some of the layers
//   dp_replicate  whole copies, different data
//   dp_shard      one copy in shards, different data
//   ep            experts, different data; the rest is sharded as by dp_shard
//   cp            parts of each sequence
//   tp            parts of each matrix; adjacent ranks, which exchange most
//
// rank = ((((pp R + dp_replicate) S + dp_shard) E + ep) C + cp) T + tp;
// capitals are sizes. A process holds adjacent ranks.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::engine {

enum class MeshDimension {
  kPp = 0,
  kDpReplicate = 1,
  kDpShard = 2,
  kEp = 3,
  kCp = 4,
  kTp = 5,
};
inline constexpr int kMeshDimensionCount = 6;

// A set of dimensions. Ranks that differ only in these form a group.
class MeshDimensions {
 public:
  constexpr MeshDimensions() = default;
  constexpr MeshDimensions(MeshDimension dimension)  // NOLINT: a set of one.
      : bits_(1u << static_cast<int>(dimension)) {}
  constexpr MeshDimensions operator|(MeshDimensions other) const {
    MeshDimensions both;
    both.bits_ = bits_ | other.bits_;
    return both;
  }
  constexpr bool Has(int dimension) const { return (bits_ >> dimension) & 1; }

 private:
  unsigned bits_ = 0;
};

constexpr MeshDimensions operator|(MeshDimension a, MeshDimension b) {
  return MeshDimensions(a) | MeshDimensions(b);
}

// Ranks that read different sequences.
inline constexpr MeshDimensions kBatchGroup =
    MeshDimension::kDpReplicate | MeshDimension::kDpShard | MeshDimension::kEp;
// Ranks over which the loss and its token count are summed.
inline constexpr MeshDimensions kLossGroup = kBatchGroup | MeshDimension::kCp;
// Ranks that share the shards of a parameter that is not an expert's.
inline constexpr MeshDimensions kShardGroup =
    MeshDimension::kDpShard | MeshDimension::kEp | MeshDimension::kCp;
// Ranks that share the shards of an expert's parameter.
inline constexpr MeshDimensions kExpertShardGroup =
    MeshDimension::kDpShard | MeshDimension::kCp;

// Sizes, or a rank's coordinates, in the order of MeshDimension.
using MeshVector = std::array<int, kMeshDimensionCount>;

// Sizes that the mesh must divide. 0: unknown, or nothing to divide.
struct MeshModel {
  int layer_count = 0;
  int head_count = 0;
  int kv_head_count = 0;
  int64_t feed_forward_size = 0;
  int64_t sequence_length = 0;
  int expert_count = 0;  // 0: no experts.
};

class Mesh {
 public:
  // One rank.
  Mesh() { sizes_.fill(1); }

  // Reads "dp_shard=4,tp=2": dimensions in any order, each at most once. A
  // missing dimension is 1; "" is one rank. INVALID_ARGUMENT: an unknown or
  // repeated name, a size that is not a positive number, over 65536 ranks.
  static absl::StatusOr<Mesh> Parse(absl::string_view text);

  // Parse's inverse: the dimensions above 1, in order.
  std::string ToString() const;

  int size(MeshDimension dimension) const {
    return sizes_[static_cast<int>(dimension)];
  }
  int rank_count() const;
  int size(MeshDimensions dimensions) const;

  // Require: rank in [0, rank_count()); coordinates within the sizes.
  MeshVector ToCoordinates(int rank) const;
  int RankAt(const MeshVector& coordinates) const;
  int Coordinate(int rank, MeshDimension dimension) const {
    return ToCoordinates(rank)[static_cast<int>(dimension)];
  }

  // The ranks of `rank`'s group over `dimensions`, rising.
  std::vector<int> FindGroup(int rank, MeshDimensions dimensions) const;
  // Index of `rank` in its group.
  int RankIn(int rank, MeshDimensions dimensions) const;
  // Identifies the group, in [0, rank_count()): Collective::Split's color.
  int ComputeColor(int rank, MeshDimensions dimensions) const;

  // INVALID_ARGUMENT: more stages than layers; heads, feed-forward width,
  // experts or sequence do not divide; ep without experts.
  absl::Status Validate(const MeshModel& model) const;

 private:
  MeshVector sizes_;
};

}  // namespace atl::engine
