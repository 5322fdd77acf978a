// The ranks that one process brings to its island, and the group in which it
// hears what to do.
//
// Thread-compatible.

#ifndef WORKER_ISLAND_GROUP_ISLAND_WORLD_H_
#define WORKER_ISLAND_GROUP_ISLAND_WORLD_H_

#include <memory>
#include <optional>
#include <string>
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
  // Meets the other processes of the island, if there are some, by
  // `rendezvous`. `devices`, which outlive it, are those of place.device.
  //
  // INVALID_ARGUMENT: `place` is wrong (MakeMesh). Else as TcpWorld::Join.
  static absl::StatusOr<std::unique_ptr<IslandWorld>> Join(
      const IslandPlace& place, const Rendezvous& rendezvous,
      absl::Duration join_timeout,
      engine::Devices& devices = engine::CpuDevices());

  // The world of `ranks` that were made elsewhere, of a process of several, on
  // CPUs.
  static absl::StatusOr<std::unique_ptr<IslandWorld>> Over(
      const engine::Mesh& mesh,
      std::vector<std::unique_ptr<collective::Collective>> ranks);

  // Null where the island is one process.
  IslandGroup* group() { return group_.get(); }

  // Of the island, the first that this process brings.
  int first_rank() const { return first_rank_; }

  // A trainer over the ranks, which ends before this object. Once.
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
  // Until they are the trainer's.
  std::vector<std::unique_ptr<collective::Collective>> ranks_;
  int first_rank_ = 0;
  std::unique_ptr<IslandGroup> group_;
};

// What keeps an island at `place` from training `spec`, in a sentence.
//
// INVALID_ARGUMENT: the mesh does not fit the model or the batch.
absl::Status CheckRunForPlace(const IslandPlace& place,
                              const v1::RunSpec& spec);

}  // namespace atl::worker

#endif  // WORKER_ISLAND_GROUP_ISLAND_WORLD_H_
