// Plays pipeline schedules against each other: the proof that they neither
// deadlock nor mix up messages, and what they cost.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/parallel/layout/pipeline_schedule.h"

namespace atl::engine {

struct PipelineCosts {
  int64_t forward = 1;   // Of one chunk and micro-batch, any unit.
  int64_t backward = 2;  // The same.
  // Messages that one way between two stages, in one direction, can hold.
  int way_capacity = 1;
};

struct PipelineReport {
  int64_t makespan = 0;
  // Of all ranks' time, what is spent waiting.
  double bubble_share = 0;
  // By rank: chunks times micro-batches that are between forward and backward.
  std::vector<int> live_activations_max;
};

// Plays the schedules of all ranks, one each, against each other.
//
// INTERNAL: they deadlock; a message is not the one that its receiver expects;
// an action lacks what it needs (a forward its input, a backward its forward
// and gradient), comes twice or is missing; the gradients of a chunk are not
// added in the order of micro-batches. The message names the rank and action.
absl::StatusOr<PipelineReport> SimulatePipeline(
    const PipelineShape& shape,
    const std::vector<std::vector<PipelineAction>>& schedules,
    const PipelineCosts& costs = {});

}  // namespace atl::engine
