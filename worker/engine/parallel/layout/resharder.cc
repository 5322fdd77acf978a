#include "worker/engine/parallel/layout/resharder.h"

#include <algorithm>
#include <numeric>

#include "base/status/status_macros.h"

namespace atl::engine {
namespace {

using Runs = std::vector<std::vector<ReshardPlan::Run>>;

std::vector<int64_t> CountByRank(const Runs& by_rank, bool counted_only) {
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
    ReshardPlan plan, collective::Collective& world, BasicOps<T>& ops) {
  std::unique_ptr<Resharder> resharder(
      new Resharder(std::move(plan), world, ops));
  const int64_t count = resharder->plan_.exchange_count_max();
  const auto take = [&](Arena& arena) {
    resharder->sent_ = arena.Take<T>(count);
    resharder->received_ = arena.Take<T>(count);
  };
  ASSIGN_OR_RETURN(resharder->arena_, Arena::CreateFor(take, ops.memory()));
  resharder->host_sent_ = resharder->sent_;
  resharder->host_received_ = resharder->received_;
  if (ops.memory().is_host()) return resharder;
  const auto take_host = [&](Arena& arena) {
    resharder->host_sent_ = arena.Take<T>(count);
    resharder->host_received_ = arena.Take<T>(count);
  };
  ASSIGN_OR_RETURN(resharder->host_arena_, Arena::CreateFor(take_host));
  return resharder;
}

template <typename T>
absl::Status Resharder<T>::Exchange(std::vector<int64_t> send_counts,
                                    std::vector<int64_t> receive_counts) {
  const auto sum = [](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  const int64_t sent = sum(send_counts), received = sum(receive_counts);
  if (host_sent_ != sent_) ops_.WriteValues(sent, host_sent_, sent_);
  RETURN_IF_ERROR(world_.Run(collective::Call::AllToAllUneven(
      collective::kDataTypeOf<T>, sent_, received_, std::move(send_counts),
      std::move(receive_counts))));
  if (host_received_ != received_) {
    ops_.ReadValues(received, received_, host_received_);
  }
  RETURN_IF_ERROR(ops_.status());
  return world_.status();  // On a device the call has ended only now.
}

template <typename T>
ReshardPlan Resharder<T>::PlanFor(const Elements& elements) const {
  return elements.has_value() ? plan_.Part(*elements) : plan_;
}

template <typename T>
absl::Status Resharder<T>::Scatter(const T* held, const Elements& elements,
                                   Write write) {
  const ReshardPlan plan = PlanFor(elements);
  for (const ReshardPlan::UnitExchange& unit : plan.units()) {
    T* to = host_sent_;
    for (const auto& runs : unit.held) {
      for (const ReshardPlan::Run& run : runs) {
        to = std::copy_n(held + run.offset, run.count, to);
      }
    }
    RETURN_IF_ERROR(Exchange(CountByRank(unit.held, false),
                             CountByRank(unit.shards, false)));
    const T* from = host_received_;
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
absl::Status Resharder<T>::Gather(Read read, const Elements& elements,
                                  T* held) {
  const ReshardPlan plan = PlanFor(elements);
  for (const ReshardPlan::UnitExchange& unit : plan.units()) {
    T* to = host_sent_;
    for (const auto& runs : unit.shards) {
      for (const ReshardPlan::Run& run : runs) {
        if (!run.is_counted) continue;
        RETURN_IF_ERROR(read(run, to));
        to += run.count;
      }
    }
    RETURN_IF_ERROR(
        Exchange(CountByRank(unit.shards, true), CountByRank(unit.held, true)));
    const T* from = host_received_;
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
