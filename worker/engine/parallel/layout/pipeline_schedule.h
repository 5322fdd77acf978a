// What each rank of a pipeline does, in which order.
//
// Pure. Thread-safe.
//
//   p  ranks of the pipeline
//   v  chunks a rank (virtual stages); 1 but for kInterleaved
//   m  micro-batches a step
//   stage s = chunk * p + rank, in [0, v p): consecutive layers
//
//   kGpipe        all forwards, then all backwards (arXiv 1811.06965)
//   kOneForwardOneBackward  warm-up of p - 1 - rank forwards, then forward and
//                 backward in turns: at most min(m, p - rank) micro-batches are
//                 alive (arXiv 2006.09503, PipeDream-Flush)
//   kInterleaved  the same with v chunks a rank, taken p micro-batches at a
//                 time (arXiv 2104.04473, section 2.2); p divides m
//
// With equal stages and free transfers the share of time that a rank waits is
// (p - 1) / (v m + p - 1) in all three.
//
// In every schedule the backwards of a chunk come in the order of
// micro-batches, so that a gradient is the same sum, bit for bit, whatever the
// schedule.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace atl::engine {

enum class PipelineKind { kGpipe, kOneForwardOneBackward, kInterleaved };

struct PipelineShape {
  PipelineKind kind = PipelineKind::kOneForwardOneBackward;
  int rank_count = 1;         // p
  int chunk_count = 1;        // v
  int micro_batch_count = 1;  // m

  int stage_count() const { return rank_count * chunk_count; }
};

enum class PipelineActionKind {
  // From the rank of the stage before. Not for stage 0.
  kReceiveActivation,
  kForward,
  // To the rank of the stage after. Not for the last stage.
  kSendActivation,
  // From the rank of the stage after. Not for the last stage.
  kReceiveGradient,
  kBackward,
  // To the rank of the stage before. Not for stage 0.
  kSendGradient,
};

struct PipelineAction {
  PipelineActionKind kind = PipelineActionKind::kForward;
  int micro_batch = 0;
  int chunk = 0;  // Of the rank that acts.

  bool operator==(const PipelineAction& other) const {
    return kind == other.kind && micro_batch == other.micro_batch &&
           chunk == other.chunk;
  }
};

// "F2.0": micro-batch 2 of chunk 0. R, F, S are the forward's receive, pass and
// send; r, B, s the backward's.
std::string ToString(const PipelineAction& action);

// INVALID_ARGUMENT: a count below 1; chunks without kInterleaved; kInterleaved
// where p does not divide m.
absl::Status ValidatePipeline(const PipelineShape& shape);

// What `rank` does in one step, in order. A send hands its buffer over and ends
// once what was sent before it on the same way has been received; a receive
// waits. `shape` passes ValidatePipeline.
std::vector<PipelineAction> MakePipelineSchedule(const PipelineShape& shape,
                                                 int rank);

// Cuts layers into `stage_count` runs so that the costliest run costs as little
// as it can; of these, the one with the least sum of squares. Returns
// stage_count + 1 boundaries, from 0 to costs.size().
//
// INVALID_ARGUMENT: fewer layers than stages, or none; a cost that is negative
// or not finite.
absl::StatusOr<std::vector<int>> SplitLayers(absl::Span<const double> costs,
                                             int stage_count);

}  // namespace atl::engine
