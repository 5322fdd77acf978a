// Which of a rank's units each pass of a schedule needs, in order: what is
// gathered ahead, and how many activations are kept.
//
// Pure.

#pragma once

#include <vector>

#include "absl/types/span.h"
#include "worker/engine/parallel/layout/pipeline_schedule.h"
#include "worker/engine/parallel/layout/rank_layout.h"

namespace atl::engine {

// The parameters that one pass of a unit reads: its own, and a tied head's
// table where it makes logits.
struct UnitVisit {
  int unit = 0;    // Of RankLayout::units.
  int table = -1;  // The same; -1: none.

  bool Needs(int of) const { return of == unit || of == table; }
};

// All passes of units of `actions`. `loss_forward`: there are no backward
// passes, and the head makes logits in the forward one.
std::vector<UnitVisit> ListUnitVisits(const RankLayout& layout,
                                      absl::Span<const PipelineAction> actions,
                                      bool loss_forward);

// By chunk, the micro-batches that are under way at a time at most.
std::vector<int> CountFlights(const RankLayout& layout,
                              absl::Span<const PipelineAction> actions);

// One forward pass through all chunks, for evaluation.
std::vector<PipelineAction> ForwardActions(const RankLayout& layout);

}  // namespace atl::engine
