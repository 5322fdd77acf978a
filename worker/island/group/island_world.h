// The ranks of one process of an island, and its group. Thread-compatible.

#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "worker/collective/collective.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/tcp/tcp_world.h"
#include "worker/engine/device/cpu_devices.h"
#include "worker/engine/device/devices.h"
#include "worker/engine/trainer.h"
#include "worker/island/group/island_group.h"
#include "worker/island/group/island_place.h"
#include "worker/island/group/rendezvous.h"

namespace atl::worker {

class IslandWorld {
 public:
  // Joins the other processes of the island, if any, with `rendezvous`.
  // `devices`, which must outlive the result, are those of place.device.
  // INVALID_ARGUMENT: `place` is wrong (MakeMesh). Others as TcpWorld::Join.
  static absl::StatusOr<std::unique_ptr<IslandWorld>> Join(
      const IslandPlace& place, const Rendezvous& rendezvous,
      absl::Duration join_timeout,
      engine::Devices& devices = engine::CpuDevices());

  // A world of existing `ranks`, on CPUs, for one process of several.
  static absl::StatusOr<std::unique_ptr<IslandWorld>> Over(
      const engine::Mesh& mesh,
      std::vector<std::unique_ptr<collective::Collective>> ranks);

  // Null if the island has one process.
  IslandGroup* group() { return group_.get(); }

  // The first rank of this process, in the island.
  int first_rank() const { return first_rank_; }

  // A trainer over the ranks, which must end before this object. Call once.
  absl::StatusOr<std::unique_ptr<engine::Trainer>> MakeTrainer(
      const engine::TrainerOptions& options);

 private:
  IslandWorld(const IslandPlace& place, const engine::Mesh& mesh,
              engine::Devices& devices)
      : place_(place), mesh_(mesh), devices_(devices) {}
  absl::Status SplitGroup();

  const IslandPlace place_;
  const engine::Mesh mesh_;
  engine::Devices& devices_;
  std::unique_ptr<collective::LocalWorld> local_;
  std::unique_ptr<collective::TcpWorld> tcp_;
  // Moved to the trainer.
  std::vector<std::unique_ptr<collective::Collective>> ranks_;
  int first_rank_ = 0;
  std::unique_ptr<IslandGroup> group_;
};

// Checks that an island at `place` can train `spec`. INVALID_ARGUMENT: the mesh
// does not fit the model or the batch. One sentence.
absl::Status CheckRunForPlace(const IslandPlace& place,
                              const v1::RunSpec& spec);

}  // namespace atl::worker
