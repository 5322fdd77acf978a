// The cost of a run on a link, and what its spec makes of a model.

#ifndef WORKER_API_PLANNER_H_
#define WORKER_API_PLANNER_H_

#include "worker/planner/model_spec.h"  // IWYU pragma: export
#include "worker/planner/planner.h"     // IWYU pragma: export

#endif  // WORKER_API_PLANNER_H_
