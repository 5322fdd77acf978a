#include "worker/engine/parallel/unit_visits.h"

#include <algorithm>

namespace atl::engine {

std::vector<UnitVisit> ListUnitVisits(const RankLayout& layout,
                                      absl::Span<const PipelineAction> actions,
                                      bool loss_forward) {
  std::vector<UnitVisit> visits;
  const auto visit = [&](int unit, bool makes_logits) {
    visits.push_back(
        {.unit = unit,
         .table = unit == layout.head && makes_logits ? layout.table : -1});
  };
  for (const PipelineAction& action : actions) {
    const RankLayout::Chunk& chunk = layout.chunks[action.chunk];
    if (action.kind == PipelineActionKind::kForward) {
      for (int u = chunk.begin; u < chunk.end; ++u) visit(u, loss_forward);
    } else if (action.kind == PipelineActionKind::kBackward) {
      for (int u = chunk.end - 1; u >= chunk.begin; --u) visit(u, true);
    }
  }
  return visits;
}

std::vector<int> CountFlights(const RankLayout& layout,
                              absl::Span<const PipelineAction> actions) {
  std::vector<int> now(layout.chunks.size(), 0), most(layout.chunks.size(), 0);
  for (const PipelineAction& action : actions) {
    const bool first = layout.chunks[action.chunk].stage == 0;
    if (action.kind == (first ? PipelineActionKind::kForward
                              : PipelineActionKind::kReceiveActivation)) {
      most[action.chunk] = std::max(most[action.chunk], ++now[action.chunk]);
    } else if (action.kind == (first ? PipelineActionKind::kBackward
                                     : PipelineActionKind::kSendGradient)) {
      --now[action.chunk];
    }
  }
  return most;
}

std::vector<PipelineAction> ForwardActions(const RankLayout& layout) {
  std::vector<PipelineAction> actions;
  for (int c = 0; c < static_cast<int>(layout.chunks.size()); ++c) {
    const int stage = layout.chunks[c].stage;
    if (stage > 0) {
      actions.push_back({PipelineActionKind::kReceiveActivation, 0, c});
    }
    actions.push_back({PipelineActionKind::kForward, 0, c});
    if (stage + 1 < layout.stage_count) {
      actions.push_back({PipelineActionKind::kSendActivation, 0, c});
    }
  }
  return actions;
}

}  // namespace atl::engine
