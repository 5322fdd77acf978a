#include "worker/engine/parallel/resharder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status/status_macros.h"
#include "worker/engine/parallel/rank_groups.h"

namespace atl::engine {
namespace {

using Runs = std::vector<std::vector<ReshardPlan::Run>>;

// Elements for each rank.
std::vector<int64_t> CountsOf(const Runs& by_rank, bool counted_only) {
  std::vector<int64_t> counts;
  for (const auto& runs : by_rank) {
    int64_t count = 0;
    for (const ReshardPlan::Run& run : runs) {
      if (run.is_counted || !counted_only) count += run.count;
    }
    counts.push_back(count);
  }
  return counts;
}

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<Resharder<T>>> Resharder<T>::Create(
    ReshardPlan plan, collective::Collective& world) {
  std::unique_ptr<Resharder> resharder(new Resharder(std::move(plan), world));
  const int64_t count = resharder->plan_.exchange_count_max();
  const auto take = [&](Arena& arena) {
    resharder->sent_ = arena.Take<T>(count);
    resharder->received_ = arena.Take<T>(count);
  };
  ASSIGN_OR_RETURN(resharder->arena_, Arena::CreateFor(take));
  return resharder;
}

template <typename T>
absl::Status Resharder<T>::Scatter(const T* held, Write write) {
  for (const ReshardPlan::UnitExchange& unit : plan_.units()) {
    T* to = sent_;
    for (const auto& runs : unit.held) {
      for (const ReshardPlan::Run& run : runs) {
        to = std::copy_n(held + run.offset, run.count, to);
      }
    }
    RETURN_IF_ERROR(world_.Run(collective::Call::AllToAllUneven(
        kDataTypeOf<T>, sent_, received_, CountsOf(unit.held, false),
        CountsOf(unit.shards, false))));
    const T* from = received_;
    for (const auto& runs : unit.shards) {
      for (const ReshardPlan::Run& run : runs) {
        RETURN_IF_ERROR(write(run, from));
        from += run.count;
      }
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Resharder<T>::Gather(Read read, T* held) {
  for (const ReshardPlan::UnitExchange& unit : plan_.units()) {
    T* to = sent_;
    for (const auto& runs : unit.shards) {
      for (const ReshardPlan::Run& run : runs) {
        if (!run.is_counted) continue;
        RETURN_IF_ERROR(read(run, to));
        to += run.count;
      }
    }
    RETURN_IF_ERROR(world_.Run(collective::Call::AllToAllUneven(
        kDataTypeOf<T>, sent_, received_, CountsOf(unit.shards, true),
        CountsOf(unit.held, true))));
    const T* from = received_;
    for (const auto& runs : unit.held) {
      for (const ReshardPlan::Run& run : runs) {
        if (!run.is_counted) continue;
        std::copy_n(from, run.count, held + run.offset);
        from += run.count;
      }
    }
  }
  return absl::OkStatus();
}

template class Resharder<float>;
template class Resharder<double>;

}  // namespace atl::engine
