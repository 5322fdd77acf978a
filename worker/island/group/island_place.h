// Where a process stands in its island, and how the island's ranks share the
// work, as the command line says it.
//
// Pure.

#ifndef WORKER_ISLAND_GROUP_ISLAND_PLACE_H_
#define WORKER_ISLAND_GROUP_ISLAND_PLACE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/parallel/layout/mesh.h"
#include "worker/engine/parallel/layout/mesh_options.h"

namespace atl::worker {

struct IslandPlace {
  std::string mesh;  // "dp_shard=4,tp=2"; empty: one rank.
  int process_count = 1;
  int process_index = 0;   // In [0, process_count).
  std::string rendezvous;  // HOST:PORT where process 0 listens; of several.
  // engine/parallel/mesh_options.h. All processes say the same.
  engine::ShardingMode sharding = engine::ShardingMode::kZero3;
  engine::PipelineKind pipeline = engine::PipelineKind::kOneForwardOneBackward;
  int chunk_count = 1;
  int micro_batch_count = 0;  // 0: one, or what keeps a pipeline busy.
  engine::ActivationCheckpointing checkpointing =
      engine::ActivationCheckpointing::kNone;
  // The inner optimizer's state in the host's memory, not a device's; not with
  // a directory.
  bool optimizer_on_host = false;
  // Each process says its own.
  std::string optimizer_directory;
  std::string device;  // "cpu", "cuda", "cuda:N"; empty: "cpu". All one kind.
  // How often in a row an island of several processes starts again without
  // having contributed in between, >= 0.
  int restart_count_max = 10;
};

// The mesh.
//
// INVALID_ARGUMENT: the mesh or the device is none, its ranks do not divide
// among the processes, or a number or the rendezvous is missing or wrong. One
// sentence.
absl::StatusOr<engine::Mesh> MakeMesh(const IslandPlace& place);

// How `mesh`, of `place`, trains batches of `batch_size` sequences. A pipeline
// whose micro-batches are not said has as many as there may be of equal size,
// up to two a stage.
engine::MeshOptions MakeMeshOptions(const IslandPlace& place,
                                    const engine::Mesh& mesh,
                                    int64_t batch_size);

// True if one rank alone trains, and nothing is asked of it that needs a mesh.
bool IsPlainRank(const IslandPlace& place, const engine::Mesh& mesh);

// What all processes have to say alike, in a line.
std::string DescribeAgreement(const IslandPlace& place,
                              const engine::Mesh& mesh);

}  // namespace atl::worker

#endif  // WORKER_ISLAND_GROUP_ISLAND_PLACE_H_
