// Warnings about an island that trains: for its person, in its plan, and for
// the operator.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// Warns if the island of `slot` reads the samples of another one: both are
// present, and their reports have one index_digest. Empty: no warning. At most
// 512 bytes. Requires: `slot` is a member's.
std::string WarnOfIsland(const RunState& state, const Observations& observed,
                         int32_t slot);

}  // namespace atl::coordinator
