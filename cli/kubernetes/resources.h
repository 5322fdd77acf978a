// Computes the memory and disk of each program of a run, and formats them for
// `atoll plan --kubernetes`: as a table, as data, and as values of
// deploy/kubernetes/atoll. Pure.
//
// Notation: N elements; s bytes of a server's share in f32, 4 N / servers,
// rounded up to blocks; a state arrays of the outer optimizer; r = 1 if
// exchange.down is not F32 (servers keep a replica), else 0; u and d bytes of
// the share in the codecs up and down; k islands.
//
// Derived (server/store/DESIGN.md, Memory and Disk; worker/save/DESIGN.md):
//   server, images    (1 + a + r) s, and s more, or 2 d with a replica, each
//                     array rounded up to huge pages: --memory-mib
//   server, disk      versions: the newest, the one before, one that is made,
//                     two spare files, four with readers, and with a replica
//                     two to make replicas from, and at most 32 checkpoints
//                     if the run makes any, (1 + a + r) s each; 2 s of sums at
//                     durability `island`; k u of open rounds, twice (four
//                     times in async runs); an import, s; deltas, r s
//   island, memory    parameters, gradients, moments (AdamW), anchors,
//                     transfers, and what codecs, overlap and eager add
//   island, disk      two local checkpoints
// Measured on x86-64, for one run: the coordinator
// (coordinator/client/coordinator_cost.h), each program's own memory, and the
// activations' bytes per token and layer (CPU engine, f32).

#pragma once

#include <cstdint>
#include <string>

#include "atoll/v1/run.pb.h"
#include "cli/output/output.h"
#include "coordinator/client/coordinator_cost.h"
#include "worker/api/planner.h"

namespace atl::cli {

struct ResourceInput {
  worker::PlannedModel model;
  v1::RunSpec
      run;  // Its outer, inner, exchange, schedule, durability, history.
  // The codecs and fragments; they replace those of `run`.
  worker::planner::Exchange exchange;
  int64_t tokens_a_step = 0;
  int server_count = 1;
  int island_count = 1;
};

// Bytes, without margins.
struct ServerResources {
  int64_t image_bytes = 0;  // --memory-mib.
  int64_t other_bytes = 0;  // Checksums, buffers, blocks that wait.
  int64_t own_bytes = 0;    // Measured.
  int64_t disk_bytes = 0;

  int64_t memory_bytes() const { return image_bytes + other_bytes + own_bytes; }
};

struct IslandResources {
  // All fields are those of one process that trains on a CPU.
  int64_t model_bytes = 0;       // Parameters, gradients, moments.
  int64_t activation_bytes = 0;  // Measured per token and layer.
  int64_t exchange_bytes = 0;    // Anchors, contributions, transfers.
  int64_t own_bytes = 0;         // Measured.
  int64_t disk_bytes = 0;

  int64_t memory_bytes() const {
    return model_bytes + activation_bytes + exchange_bytes + own_bytes;
  }
};

struct Resources {
  coordinator::CoordinatorCost coordinator;
  ServerResources server;
  IslandResources island;
};

// Requires: element_count, tokens_a_step, server_count, island_count >= 1.
Resources PlanResources(const ResourceInput& input);

// The value for both the request and the limit, in whole MiB: a quarter more.
// So a fifth of a disk stays free, and the alert at 10 % is silent.
int64_t WithMarginMib(int64_t bytes);

// The same for a server's memory. At least twice the images: with
// --memory-mib 0 they get half of the limit.
int64_t ServerMemoryMib(const ServerResources& server);

// A row for each program, the parts of its memory, and the values.
std::string ResourcesText(const ResourceInput& input);

// The values alone: YAML for `helm install -f`.
std::string ResourcesValues(const ResourceInput& input);

// An item for each program: "program", "replicas", "memory_mib", "disk_mib"
// (with margins), and the bytes without: each part, and "disk_bytes".
Json ResourcesData(const ResourceInput& input);

}  // namespace atl::cli
