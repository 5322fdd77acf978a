// Where a process stands in its island, as the command line says it.
//
// Pure.

#ifndef WORKER_API_ISLAND_PLACE_H_
#define WORKER_API_ISLAND_PLACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/parallel/mesh.h"

namespace atl::worker {

struct IslandPlace {
  std::string mesh;  // "dp_shard=4,tp=2"; empty: one rank.
  int process_count = 1;
  int process_index = 0;   // In [0, process_count).
  std::string rendezvous;  // HOST:PORT where process 0 listens; of several.
  // How often in a row an island of several processes starts again without
  // having contributed in between, >= 0.
  int restart_count_max = 10;
};

// The mesh.
//
// INVALID_ARGUMENT: the mesh is none, its ranks do not divide among the
// processes, or a number or the rendezvous is missing or wrong. One sentence.
absl::StatusOr<engine::Mesh> MeshOf(const IslandPlace& place);

}  // namespace atl::worker

#endif  // WORKER_API_ISLAND_PLACE_H_
