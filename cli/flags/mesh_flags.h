// The flags that say how an island's ranks share a model.

#pragma once

#include "base/flags/flags.h"
#include "worker/api/run_island.h"

namespace atl::cli {

// Adds --sharding, --pipeline, --chunks, --micro-batches, --checkpointing,
// --optimizer-dir and --optimizer-host. `place` must outlive the parse.
void AddMeshFlags(flags::Command& command, worker::IslandPlace& place);

}  // namespace atl::cli
