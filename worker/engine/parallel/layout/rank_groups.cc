#include "worker/engine/parallel/layout/rank_groups.h"

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl::engine {
namespace {

// Makes a group of the two ranks at each boundary of the pipeline, in order.
absl::Status SplitPipeline(const MeshOptions& options,
                           collective::Collective& world, RankGroups& groups) {
  const Mesh& mesh = options.mesh;
  const int pp = mesh.size(MeshDimension::kPp);
  const int stage = mesh.Coordinate(world.rank(), MeshDimension::kPp);
  const int color = mesh.ComputeColor(world.rank(), MeshDimension::kPp);
  // With chunks the last rank sends to the first.
  const int boundary_count = options.chunk_count > 1 ? pp : pp - 1;
  for (int below = 0; below < boundary_count; ++below) {
    const int above = (below + 1) % pp;
    const bool is_in = stage == below || stage == above;
    for (const bool forward : {true, false}) {
      ASSIGN_OR_RETURN(
          RankGroups::Group group,
          world.Split(is_in ? color : -1,
                      absl::StrCat(forward ? "forward" : "backward", below)));
      if (stage == below) {
        (forward ? groups.forward_out : groups.backward_in) = std::move(group);
      } else if (stage == above) {
        (forward ? groups.forward_in : groups.backward_out) = std::move(group);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RankGroups> MakeRankGroups(const MeshOptions& options,
                                          bool tied_table,
                                          collective::Collective& world) {
  const Mesh& mesh = options.mesh;
  const int rank = world.rank();
  const bool replicate = options.sharding == ShardingMode::kReplicate;
  RankGroups groups;
  for (int i = 0; i < 2; ++i) {
    // Without ep both groups are the same.
    if (i == 1 && mesh.size(MeshDimension::kEp) == 1) continue;
    const MeshDimensions shards = i == 0 ? kShardGroup : kExpertShardGroup;
    const char* suffix = i == 0 ? "" : "_experts";
    if (!replicate) {
      ASSIGN_OR_RETURN(groups.gathers[i],
                       world.Split(mesh.ComputeColor(rank, shards),
                                   absl::StrCat("gather", suffix)));
    }
    const MeshDimensions copies =
        replicate ? shards | MeshDimension::kDpReplicate : shards;
    ASSIGN_OR_RETURN(groups.reductions[i],
                     world.Split(mesh.ComputeColor(rank, copies),
                                 absl::StrCat("reduce", suffix)));
  }
  if (!replicate && mesh.size(MeshDimension::kDpReplicate) > 1) {
    ASSIGN_OR_RETURN(
        groups.replicas,
        world.Split(mesh.ComputeColor(rank, MeshDimension::kDpReplicate),
                    "replicas"));
  }
  const auto split = [&](MeshDimensions dimensions, const char* name,
                         RankGroups::Group& group) -> absl::Status {
    if (mesh.size(dimensions) == 1) return absl::OkStatus();
    ASSIGN_OR_RETURN(group,
                     world.Split(mesh.ComputeColor(rank, dimensions), name));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(split(MeshDimension::kTp, "tp", groups.tp));
  RETURN_IF_ERROR(split(MeshDimension::kCp, "cp", groups.cp));
  RETURN_IF_ERROR(split(MeshDimension::kEp, "ep", groups.ep));
  RETURN_IF_ERROR(split(kLossGroup, "loss", groups.loss));
  const int pp = mesh.size(MeshDimension::kPp);
  if (pp == 1) return groups;
  RETURN_IF_ERROR(SplitPipeline(options, world, groups));
  if (tied_table) {
    const int stage = mesh.Coordinate(rank, MeshDimension::kPp);
    const bool is_in = stage == 0 || stage == pp - 1;
    ASSIGN_OR_RETURN(
        groups.table,
        world.Split(is_in ? mesh.ComputeColor(rank, MeshDimension::kPp) : -1,
                    "table"));
  }
  return groups;
}

}  // namespace atl::engine
