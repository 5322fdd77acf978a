// The units that each pass of a schedule needs, in order. They decide which
// units are gathered ahead and how many activations are kept. Pure.

#pragma once

#include <vector>

#include "absl/types/span.h"
#include "worker/engine/parallel/layout/pipeline_schedule.h"
#include "worker/engine/parallel/layout/rank_layout.h"

namespace atl::engine {

// The parameters that one pass reads: the unit's own, and a tied head's table
// if the pass makes logits.
struct UnitVisit {
  int unit = 0;    // In RankLayout::units.
  int table = -1;  // The same; -1: none.

  bool Needs(int of) const { return of == unit || of == table; }
};

// All unit passes of `actions`. `loss_forward`: there are no backward passes,
// and the head makes logits in the forward pass.
std::vector<UnitVisit> ListUnitVisits(const RankLayout& layout,
                                      absl::Span<const PipelineAction> actions,
                                      bool loss_forward);

// By chunk, the most micro-batches in progress at a time.
std::vector<int> CountFlights(const RankLayout& layout,
                              absl::Span<const PipelineAction> actions);

// One forward pass through all chunks, for evaluation.
std::vector<PipelineAction> ForwardActions(const RankLayout& layout);

}  // namespace atl::engine
