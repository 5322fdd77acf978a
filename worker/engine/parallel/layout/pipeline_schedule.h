// The actions of each rank of a pipeline, in order. Pure. Thread-safe.
//
//   p  ranks of the pipeline
//   v  chunks per rank (virtual stages); 1 except for kInterleaved
//   m  micro-batches per step
//   stage s = chunk * p + rank, in [0, v p): consecutive layers
//
//   kGpipe        all forwards, then all backwards (arXiv 1811.06965)
//   kOneForwardOneBackward  p - 1 - rank warm-up forwards, then forward and
//                 backward in turns: at most min(m, p - rank) micro-batches are
//                 alive (arXiv 2006.09503, PipeDream-Flush)
//   kInterleaved  the same with v chunks per rank, taken p micro-batches at a
//                 time (arXiv 2104.04473, section 2.2); p divides m
//
// With equal stages and free transfers, a rank waits for (p - 1) / (v m + p -
// 1) of the time in all three.
//
// Every schedule runs the backwards of a chunk in the order of micro-batches.
// So a gradient is the same sum, bit for bit, for all schedules.

#pragma once

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
  // From the previous stage's rank. Not for stage 0.
  kReceiveActivation,
  kForward,
  // To the next stage's rank. Not for the last stage.
  kSendActivation,
  // From the next stage's rank. Not for the last stage.
  kReceiveGradient,
  kBackward,
  // To the previous stage's rank. Not for stage 0.
  kSendGradient,
};

struct PipelineAction {
  PipelineActionKind kind = PipelineActionKind::kForward;
  int micro_batch = 0;
  int chunk = 0;  // Chunk of the acting rank.

  bool operator==(const PipelineAction& other) const {
    return kind == other.kind && micro_batch == other.micro_batch &&
           chunk == other.chunk;
  }
};

// INVALID_ARGUMENT: a count below 1; several chunks without kInterleaved;
// kInterleaved with an m that p does not divide.
absl::Status ValidatePipeline(const PipelineShape& shape);

// The actions of `rank` in one step, in order. A send hands over its buffer and
// ends when earlier sends on its link have been received. A receive waits.
// Requires that `shape` passes ValidatePipeline.
std::vector<PipelineAction> MakePipelineSchedule(const PipelineShape& shape,
                                                 int rank);

// Cuts layers into `stage_count` runs that minimize the largest cost of a run,
// then the sum of squared costs. Returns stage_count + 1 boundaries, from 0 to
// costs.size(). INVALID_ARGUMENT: fewer layers than stages, or no stage; a cost
// is negative or not finite.
absl::StatusOr<std::vector<int>> SplitLayers(absl::Span<const double> costs,
                                             int stage_count);

}  // namespace atl::engine
