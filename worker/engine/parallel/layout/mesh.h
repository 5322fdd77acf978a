// The mesh of an island: which rank sits where, and with whom it does what.
//
// Pure. Thread-safe.
//
// Dimensions, as torchtitan names them, the slowest first (torchtitan splits
// dp_shard in two where there are experts; the inner half is ep here):
//
//   pp            pipeline stages: each has some of the layers
//   dp_replicate  whole copies, different data
//   dp_shard      one copy in shards, different data
//   ep            experts, different data; all else is sharded as by dp_shard
//   cp            parts of each sequence
//   tp            parts of each matrix; neighbours, for they talk most
//
// rank = ((((pp R + dp_replicate) S + dp_shard) E + ep) C + cp) T + tp, where
// the capitals are the sizes. Processes hold ranks in this order, so that
// neighbours share one.

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

// "dp_shard".
absl::string_view MeshDimensionName(MeshDimension dimension);

// A set of dimensions: the ranks that differ in these alone form a group.
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

// Who reads different sequences.
inline constexpr MeshDimensions kBatchGroup =
    MeshDimension::kDpReplicate | MeshDimension::kDpShard | MeshDimension::kEp;
// Over whom the loss and its token count are summed.
inline constexpr MeshDimensions kLossGroup = kBatchGroup | MeshDimension::kCp;
// Who shares the shards of a parameter that is not an expert's.
inline constexpr MeshDimensions kShardGroup =
    MeshDimension::kDpShard | MeshDimension::kEp | MeshDimension::kCp;
// Who shares the shards of an expert's parameter.
inline constexpr MeshDimensions kExpertShardGroup =
    MeshDimension::kDpShard | MeshDimension::kCp;
// Who together holds one copy of the model: over whom a norm is summed, where
// each rank counts what it owns (kShardGroup and these are all but
// dp_replicate).
inline constexpr MeshDimensions kReplicaGroup =
    kShardGroup | MeshDimension::kPp | MeshDimension::kTp;

// Sizes, or a rank's coordinates, in the order of MeshDimension.
using MeshVector = std::array<int, kMeshDimensionCount>;

// What a model allows. 0: not known, or nothing to divide.
struct MeshModel {
  int layer_count = 0;
  int head_count = 0;
  int kv_head_count = 0;
  int64_t feed_forward_size = 0;
  int64_t sequence_length = 0;
  int expert_count = 0;  // 0: there are no experts.
};

class Mesh {
 public:
  // One rank.
  Mesh() { sizes_.fill(1); }

  // Reads "dp_shard=4,tp=2": dimensions in any order, each once; what is not
  // named is 1. "" is one rank.
  //
  // INVALID_ARGUMENT: an unknown or repeated name, a size that is not a
  // positive number, more than 65536 ranks in all.
  static absl::StatusOr<Mesh> Parse(absl::string_view text);

  // Parse's inverse: the dimensions above 1, in order.
  std::string ToString() const;

  int size(MeshDimension dimension) const {
    return sizes_[static_cast<int>(dimension)];
  }
  int rank_count() const;
  // Ranks of a group.
  int size(MeshDimensions dimensions) const;

  // Require: rank in [0, rank_count()); coordinates within the sizes.
  MeshVector ToCoordinates(int rank) const;
  int RankAt(const MeshVector& coordinates) const;
  int Coordinate(int rank, MeshDimension dimension) const {
    return ToCoordinates(rank)[static_cast<int>(dimension)];
  }

  // The group of `rank` over `dimensions`, in the order of ranks.
  std::vector<int> FindGroup(int rank, MeshDimensions dimensions) const;
  // The place of `rank` in its group.
  int RankIn(int rank, MeshDimensions dimensions) const;
  // The same for all of a group and for nobody else, in [0, rank_count()): what
  // Collective::Split takes.
  int ComputeColor(int rank, MeshDimensions dimensions) const;

  // What keeps `model` from running on this mesh, one sentence.
  //
  // INVALID_ARGUMENT: more stages than layers; heads, feed-forward width,
  // experts or sequence that do not divide; ep without experts.
  absl::Status Validate(const MeshModel& model) const;

 private:
  MeshVector sizes_;
};

}  // namespace atl::engine
