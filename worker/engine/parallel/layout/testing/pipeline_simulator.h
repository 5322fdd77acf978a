// Runs the pipeline schedules of all ranks together: shows that they neither
// deadlock nor mix up messages, and measures their cost.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/parallel/layout/pipeline_schedule.h"

namespace atl::engine {

// "F2.0": micro-batch 2 of chunk 0. R, F, S: receive, pass and send of a
// forward; r, B, s: of a backward.
std::string ToString(const PipelineAction& action);

struct PipelineCosts {
  int64_t forward = 1;   // Of one chunk and micro-batch, in any unit of time.
  int64_t backward = 2;  // The same.
  // Messages that a link between two stages can hold in one direction.
  int way_capacity = 1;
  // A rank starts its calls in order, as on a device: a send starts once the
  // other one has received the rank's earlier ones in that direction, of all
  // chunks.
  bool starts_in_order = false;
};

struct PipelineReport {
  int64_t makespan = 0;
  // Share of all ranks' time that is spent waiting.
  double bubble_share = 0;
  // By rank: the most (chunk, micro-batch) pairs between forward and backward.
  std::vector<int> live_activations_max;
};

// Simulates `schedules`, one per rank.
//
// INTERNAL, naming the rank and action: a deadlock; a message is not the one
// that its receiver expects; an action is repeated, is missing, or lacks what
// it needs (a forward its input, a backward its forward and gradient); the
// gradients of a chunk are not added in the order of micro-batches.
absl::StatusOr<PipelineReport> SimulatePipeline(
    const PipelineShape& shape,
    const std::vector<std::vector<PipelineAction>>& schedules,
    const PipelineCosts& costs = {});

}  // namespace atl::engine
