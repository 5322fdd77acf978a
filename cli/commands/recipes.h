// The presets as recipes that a link is planned for: what the planner knows of
// each, and the run file that its name stands for.
//
// Pure. Thread-safe.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/api/planner.h"

namespace atl::cli {

// All of them, in the planner's order.
//
// INTERNAL: a preset has no built-in run file, or one that cannot be read.
absl::StatusOr<std::vector<worker::Recipe>> ReadRecipes();

}  // namespace atl::cli
