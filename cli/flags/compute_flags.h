// The flags that say how an island or a command computes: --threads, --device,
// and how the ranks of an island share a model.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/flags/flags.h"
#include "worker/api/run_island.h"

namespace atl::cli {

// Adds --threads to `command`: 0 to 256.
void AddThreadsFlag(flags::Command& command, int& threads);

// The thread count for the flag's value; 0: ProcessorCount().
int ChooseThreadCount(int threads);

// Adds --device to `command`. The help names `what` ("this island") computes.
// Default: "cpu".
void AddDeviceFlag(flags::Command& command, const std::string& what,
                   std::string& device);

// Checks that this program can compute on `device` on this machine. Errors have
// a hint.
//
// A usage error (exit code 2): not a device. Exit code 10 (NO_DEVICE): this
// build or machine lacks it.
absl::Status CheckDeviceFlag(const std::string& device);

// Adds --sharding, --pipeline, --chunks, --micro-batches, --checkpointing,
// --optimizer-dir and --optimizer-host. `place` must outlive the parse.
void AddMeshFlags(flags::Command& command, worker::IslandPlace& place);

}  // namespace atl::cli
