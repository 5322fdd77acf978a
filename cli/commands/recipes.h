// The presets as recipes for the planner: the planner's entry of each preset
// with the run file of that name.
//
// Pure. Thread-safe.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "worker/api/planner.h"

namespace atl::cli {

// All recipes, in the planner's order.
//
// INTERNAL: a preset has no built-in run file, or a faulty one.
absl::StatusOr<std::vector<worker::Recipe>> ReadRecipes();

}  // namespace atl::cli
