#include "worker/island/group/island_world.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/parallel/mesh_trainer.h"
#include "worker/island/group/device.h"
#include "worker/planner/model_spec.h"

namespace atl::worker {

absl::StatusOr<std::unique_ptr<IslandWorld>> IslandWorld::Join(
    const IslandPlace& place, const Rendezvous& rendezvous,
    absl::Duration join_timeout, engine::Devices& devices) {
  ASSIGN_OR_RETURN(const engine::Mesh mesh, MakeMesh(place));
  auto world =
      std::unique_ptr<IslandWorld>(new IslandWorld(place, mesh, devices));
  if (place.process_count == 1) {
    if (IsPlainRank(place, mesh)) return world;
    world->local_ = std::make_unique<collective::LocalWorld>(mesh.rank_count());
    world->ranks_ = world->local_->TakeRanks();
    return world;
  }
  collective::TcpWorldOptions options;
  options.rendezvous = place.rendezvous;
  options.process_index = place.process_index;
  options.process_count = place.process_count;
  options.rank_count = mesh.rank_count() / place.process_count;
  options.layout = DescribeAgreement(place, mesh);
  options.secret = rendezvous.secret;
  options.calls_in_the_clear = rendezvous.in_the_clear;
  options.join_timeout = join_timeout;
  ASSIGN_OR_RETURN(world->tcp_, collective::TcpWorld::Join(std::move(options)));
  world->ranks_ = world->tcp_->TakeRanks();
  world->first_rank_ = world->ranks_.front()->rank();
  RETURN_IF_ERROR(world->SplitGroup());
  return world;
}

absl::StatusOr<std::unique_ptr<IslandWorld>> IslandWorld::Over(
    const engine::Mesh& mesh,
    std::vector<std::unique_ptr<collective::Collective>> ranks) {
  auto world = std::unique_ptr<IslandWorld>(
      new IslandWorld({}, mesh, engine::CpuDevices()));
  world->ranks_ = std::move(ranks);
  world->first_rank_ = world->ranks_.front()->rank();
  RETURN_IF_ERROR(world->SplitGroup());
  return world;
}

// The first rank of each process joins the groups; all ranks must call Split.
absl::Status IslandWorld::SplitGroup() {
  const int first = ranks_.front()->rank();
  IslandGroup::Lanes lanes;
  std::vector<absl::Status> statuses(ranks_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int lane = 0; lane < kLaneCount; ++lane) {
        auto group = ranks_[i]->Split(ranks_[i]->rank() == first ? 0 : -1,
                                      absl::StrCat("lane", lane));
        statuses[i].Update(group.status());
        if (group.ok() && i == 0) lanes[lane] = *std::move(group);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  group_ = std::make_unique<IslandGroup>(std::move(lanes));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<engine::Trainer>> IslandWorld::MakeTrainer(
    const engine::TrainerOptions& options) {
  if (ranks_.empty()) return MakeTrainerOn(devices_, options);
  return engine::MakeMeshTrainer(
      options, MakeMeshOptions(place_, mesh_, options.batch_size),
      absl::MakeSpan(ranks_), devices_);
}

absl::Status CheckRunForPlace(const IslandPlace& place,
                              const v1::RunSpec& spec) {
  ASSIGN_OR_RETURN(const engine::Mesh mesh, MakeMesh(place));
  if (IsPlainRank(place, mesh)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const engine::TrainerOptions options,
                   MakeTrainerOptions(spec, /*thread_count=*/1));
  return engine::ValidateMeshTrainer(
      options, MakeMeshOptions(place, mesh, options.batch_size));
}

}  // namespace atl::worker
