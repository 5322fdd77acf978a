// The place of a process in its island, and how the ranks share the work, as on
// the command line. Pure.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/parallel/layout/mesh.h"
#include "worker/engine/parallel/layout/mesh_options.h"

namespace atl::worker {

struct IslandPlace {
  std::string mesh;  // "dp_shard=4,tp=2"; empty: one rank.
  int process_count = 1;
  int process_index = 0;   // In [0, process_count).
  std::string rendezvous;  // HOST:PORT of process 0, if several.
  // engine/parallel/mesh_options.h. The same on all processes.
  engine::ShardingMode sharding = engine::ShardingMode::kZero3;
  engine::PipelineKind pipeline = engine::PipelineKind::kOneForwardOneBackward;
  int chunk_count = 1;
  int micro_batch_count = 0;  // 0: one, or enough for a pipeline.
  engine::ActivationCheckpointing checkpointing =
      engine::ActivationCheckpointing::kNone;
  // Inner optimizer state in host memory; excludes a directory.
  bool optimizer_on_host = false;
  // May differ between processes.
  std::string optimizer_directory;
  std::string device;  // "cpu", "cuda", "cuda:N"; empty: "cpu".
  // Restarts in a row without a contribution, if several processes; >= 0.
  int restart_count_max = 10;
};

// Parses and checks the mesh. INVALID_ARGUMENT: invalid mesh or device, ranks
// that do not divide among the processes, or a missing or wrong number or
// rendezvous. One sentence.
absl::StatusOr<engine::Mesh> MakeMesh(const IslandPlace& place);

// Makes the options with which `mesh`, of `place`, trains batches of
// `batch_size` sequences. By default a pipeline has as many micro-batches of
// equal size as possible, at most two a stage.
engine::MeshOptions MakeMeshOptions(const IslandPlace& place,
                                    const engine::Mesh& mesh,
                                    int64_t batch_size);

// True if one rank trains alone and no option needs a mesh.
bool IsPlainRank(const IslandPlace& place, const engine::Mesh& mesh);

// The options that must be equal on all processes, in a line.
std::string DescribeAgreement(const IslandPlace& place,
                              const engine::Mesh& mesh);

}  // namespace atl::worker
