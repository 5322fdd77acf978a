// The paths that an island may use, from the command line of `atoll join`.
//
// Thread-compatible.

#pragma once

#include <string>

#include "cli/context.h"
#include "cli/volunteer/island_sandbox.h"
#include "worker/api/run_island.h"

namespace atl::cli {

// True if the island of `island` belongs into the sandbox: all but those that
// talk to this machine's coordinator without TLS, as `atoll dev up` makes them.
bool NeedsSandbox(const worker::RunIslandOptions& island);

// `enrolment_directory` empty: the island is not enrolled. `port_file`: of the
// metrics; may be empty.
SandboxRequest MakeSandboxRequest(const Context& context,
                                  const worker::RunIslandOptions& island,
                                  const std::string& enrolment_directory,
                                  const std::string& port_file);

}  // namespace atl::cli
