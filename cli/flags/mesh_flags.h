// The flags that say how an island's ranks share a model.

#pragma once

#include "CLI/App.hpp"
#include "worker/api/run_island.h"

namespace atl::cli {

// Adds --sharding, --pipeline, --chunks, --micro-batches, --checkpointing,
// --optimizer-dir and --optimizer-host. `place` must outlive the parse.
void AddMeshFlags(CLI::App& command, worker::IslandPlace& place);

}  // namespace atl::cli
