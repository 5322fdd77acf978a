// The cost of a run on a link, and what its spec makes of a model.

#pragma once

#include "worker/planner/model_spec.h"    // IWYU pragma: export
#include "worker/planner/planner.h"       // IWYU pragma: export
#include "worker/planner/tensors_file.h"  // IWYU pragma: export
