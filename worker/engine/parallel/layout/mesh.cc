#include "worker/engine/parallel/layout/mesh.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status/check.h"

namespace atl::engine {
namespace {

constexpr int64_t kRankCountMax = 65536;

constexpr absl::string_view kNames[kMeshDimensionCount] = {
    "pp", "dp_replicate", "dp_shard", "ep", "cp", "tp"};

int FindIndex(absl::string_view name) {
  for (int d = 0; d < kMeshDimensionCount; ++d) {
    if (name == kNames[d]) return d;
  }
  return -1;
}

absl::Status Refuse(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

// "tp = 3 does not divide 8 attention heads."
absl::Status MustDivide(absl::string_view name, int64_t size, int64_t whole,
                        absl::string_view what) {
  if (whole == 0 || whole % size == 0) return absl::OkStatus();
  return Refuse(
      absl::StrCat(name, " = ", size, " does not divide ", whole, " ", what));
}

}  // namespace

absl::StatusOr<Mesh> Mesh::Parse(absl::string_view text) {
  Mesh mesh;
  if (text.empty()) return mesh;
  std::array<bool, kMeshDimensionCount> named = {};
  int64_t rank_count = 1;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const int d = FindIndex(pair.first);
    if (d < 0) {
      return Refuse(
          absl::StrCat("a mesh has no dimension \"", pair.first,
                       "\"; it has pp, dp_replicate, dp_shard, ep, cp and tp"));
    }
    if (named[d]) {
      return Refuse(
          absl::StrCat(pair.first, " appears twice in \"", text, "\""));
    }
    named[d] = true;
    int size = 0;
    if (!absl::SimpleAtoi(pair.second, &size) || size < 1) {
      return Refuse(absl::StrCat(
          "\"", part, "\" is not a dimension with its size, for example tp=2"));
    }
    mesh.sizes_[d] = size;
    rank_count *= size;
    if (rank_count > kRankCountMax) {
      return Refuse(absl::StrCat("a mesh has at most ", kRankCountMax,
                                 " ranks; \"", text, "\" has more"));
    }
  }
  return mesh;
}

std::string Mesh::ToString() const {
  std::string text;
  for (int d = 0; d < kMeshDimensionCount; ++d) {
    if (sizes_[d] == 1) continue;
    absl::StrAppend(&text, text.empty() ? "" : ",", kNames[d], "=", sizes_[d]);
  }
  return text;
}

int Mesh::rank_count() const {
  int count = 1;
  for (int size : sizes_) count *= size;
  return count;
}

int Mesh::size(MeshDimensions dimensions) const {
  int count = 1;
  for (int d = 0; d < kMeshDimensionCount; ++d) {
    if (dimensions.Has(d)) count *= sizes_[d];
  }
  return count;
}

MeshVector Mesh::ToCoordinates(int rank) const {
  CHECK(rank >= 0 && rank < rank_count());
  MeshVector coordinates;
  for (int d = kMeshDimensionCount - 1; d >= 0; --d) {
    coordinates[d] = rank % sizes_[d];
    rank /= sizes_[d];
  }
  return coordinates;
}

int Mesh::RankAt(const MeshVector& coordinates) const {
  int rank = 0;
  for (int d = 0; d < kMeshDimensionCount; ++d) {
    CHECK(coordinates[d] >= 0 && coordinates[d] < sizes_[d]);
    rank = rank * sizes_[d] + coordinates[d];
  }
  return rank;
}

std::vector<int> Mesh::FindGroup(int rank, MeshDimensions dimensions) const {
  const int color = ComputeColor(rank, dimensions);
  std::vector<int> group;
  group.reserve(size(dimensions));
  for (int other = 0; other < rank_count(); ++other) {
    if (ComputeColor(other, dimensions) == color) group.push_back(other);
  }
  return group;
}

int Mesh::RankIn(int rank, MeshDimensions dimensions) const {
  const MeshVector coordinates = ToCoordinates(rank);
  int place = 0;
  for (int d = 0; d < kMeshDimensionCount; ++d) {
    if (dimensions.Has(d)) place = place * sizes_[d] + coordinates[d];
  }
  return place;
}

int Mesh::ComputeColor(int rank, MeshDimensions dimensions) const {
  MeshVector coordinates = ToCoordinates(rank);
  for (int d = 0; d < kMeshDimensionCount; ++d) {
    if (dimensions.Has(d)) coordinates[d] = 0;
  }
  return RankAt(coordinates);
}

absl::Status Mesh::Validate(const MeshModel& model) const {
  const int pp = size(MeshDimension::kPp);
  const int ep = size(MeshDimension::kEp);
  const int64_t cp = size(MeshDimension::kCp);
  const int tp = size(MeshDimension::kTp);
  if (model.layer_count > 0 && pp > model.layer_count) {
    return Refuse(absl::StrCat("pp = ", pp, " is more than the ",
                               model.layer_count, " layers"));
  }
  if (ep > 1 && model.expert_count == 0) {
    return Refuse(absl::StrCat("ep = ", ep, ", but the model has no experts"));
  }
  for (const absl::Status& status : {
           MustDivide("tp", tp, model.head_count, "attention heads"),
           MustDivide("tp", tp, model.kv_head_count, "key and value heads"),
           MustDivide("tp", tp, model.feed_forward_size,
                      "columns of the feed-forward layer"),
           MustDivide("ep", ep, model.expert_count, "experts"),
           // Two pieces per rank balance the work of a causal mask.
           MustDivide("2 cp", cp == 1 ? 1 : 2 * cp, model.sequence_length,
                      "positions of a sequence"),
           MustDivide("cp tp", cp * tp, model.sequence_length,
                      "positions of a sequence"),
       }) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace atl::engine
