#include "worker/engine/parallel/layout/reshard_plan.h"

#include <algorithm>

namespace atl::engine {
namespace {

// Consecutive elements that are in a rank's shards and in a holder's part.
struct Crossing {
  int unit = 0;
  int holder = 0;
  int64_t global_begin = 0;
  ReshardPlan::Run shard;
};

// All crossings of `rank`, in the model's order within a unit and holder.
std::vector<Crossing> FindCrossings(const ModelConfig& config,
                                    const MeshOptions& options, int rank,
                                    const std::vector<int64_t>& boundaries) {
  const RankLayout rank_layout = MakeRankLayout(config, options, rank);
  std::vector<Crossing> crossings;
  ForEachShardRun(rank_layout, [&](const ShardRun& run) {
    const int unit =
        rank_layout.units[rank_layout.spans[run.span].rank_unit].unit;
    for (int64_t done = 0; done < run.count;) {
      const int64_t at = run.global_begin + done;
      const auto after =
          std::upper_bound(boundaries.begin(), boundaries.end(), at);
      const int64_t count = std::min(run.count - done, *after - at);
      crossings.push_back(
          {.unit = unit,
           .holder = static_cast<int>(after - boundaries.begin()) - 1,
           .global_begin = at,
           .shard = {.span = run.span,
                     .offset = run.shard_offset + done,
                     .count = count,
                     .is_counted = run.is_counted,
                     .begin = at}});
      done += count;
    }
  });
  // A table's copy may come last. Both ends use the model's order.
  std::stable_sort(crossings.begin(), crossings.end(),
                   [](const Crossing& a, const Crossing& b) {
                     return a.global_begin < b.global_begin;
                   });
  return crossings;
}

int64_t CountElements(
    const std::vector<std::vector<ReshardPlan::Run>>& by_rank) {
  int64_t count = 0;
  for (const auto& runs : by_rank) {
    for (const ReshardPlan::Run& run : runs) count += run.count;
  }
  return count;
}

// The parts of `runs` that are in `elements`, by rank.
std::vector<std::vector<ReshardPlan::Run>> Restrict(
    const std::vector<std::vector<ReshardPlan::Run>>& by_rank,
    absl::Span<const ParameterSpan> elements) {
  std::vector<std::vector<ReshardPlan::Run>> restricted(by_rank.size());
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const ReshardPlan::Run& run : by_rank[rank]) {
      for (const ParameterSpan& span : elements) {
        const int64_t begin = std::max(run.begin, span.begin);
        const int64_t end = std::min(run.begin + run.count, span.end);
        if (begin >= end) continue;
        ReshardPlan::Run part = run;
        part.offset += begin - run.begin;
        part.count = end - begin;
        part.begin = begin;
        restricted[rank].push_back(part);
      }
    }
  }
  return restricted;
}

}  // namespace

std::vector<int64_t> HeldBoundaries(const ParameterLayout& layout,
                                    int rank_count) {
  std::vector<int64_t> boundaries = {0};
  size_t parameter = 0;
  for (int rank = 1; rank < rank_count; ++rank) {
    // Without element_count * rank, which may overflow.
    const int64_t target =
        layout.element_count / rank_count * rank +
        layout.element_count % rank_count * rank / rank_count;
    while (parameter + 1 < layout.parameters.size() &&
           layout.parameters[parameter + 1].offset <= target) {
      ++parameter;
    }
    const int64_t offset = layout.parameters[parameter].offset;
    boundaries.push_back(offset + (target - offset) / kHeldBlockElements *
                                      kHeldBlockElements);
  }
  boundaries.push_back(layout.element_count);
  return boundaries;
}

ReshardPlan::ReshardPlan(const ModelConfig& config,
                         const ParameterLayout& layout,
                         const MeshOptions& options, int rank) {
  const int rank_count = options.mesh.rank_count();
  const std::vector<int64_t> boundaries = HeldBoundaries(layout, rank_count);
  held_ = {.begin = boundaries[rank], .end = boundaries[rank + 1]};
  units_.resize(layout.units.size());
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u].elements = layout.units[u];
    units_[u].shards.resize(rank_count);
    units_[u].held.resize(rank_count);
  }
  for (int other = 0; other < rank_count; ++other) {
    for (const Crossing& crossing :
         FindCrossings(config, options, other, boundaries)) {
      UnitExchange& unit = units_[crossing.unit];
      if (other == rank) unit.shards[crossing.holder].push_back(crossing.shard);
      if (crossing.holder != rank) continue;
      unit.held[other].push_back({.offset = crossing.global_begin - held_.begin,
                                  .count = crossing.shard.count,
                                  .is_counted = crossing.shard.is_counted,
                                  .begin = crossing.global_begin});
    }
  }
  for (const UnitExchange& unit : units_) {
    exchange_count_max_ =
        std::max({exchange_count_max_, CountElements(unit.shards),
                  CountElements(unit.held)});
  }
}

ReshardPlan ReshardPlan::Part(absl::Span<const ParameterSpan> elements) const {
  ReshardPlan part;
  part.held_ = held_;
  part.exchange_count_max_ = exchange_count_max_;
  for (const UnitExchange& unit : units_) {
    if (std::none_of(elements.begin(), elements.end(),
                     [&](const ParameterSpan& span) {
                       return span.begin < unit.elements.end &&
                              unit.elements.begin < span.end;
                     })) {
      continue;
    }
    part.units_.push_back({.elements = unit.elements,
                           .shards = Restrict(unit.shards, elements),
                           .held = Restrict(unit.held, elements)});
  }
  return part;
}

}  // namespace atl::engine
