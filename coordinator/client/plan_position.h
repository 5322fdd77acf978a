// Which of two plans is newer.
//
// Pure.

#pragma once

#include <compare>
#include <cstdint>

namespace atl::coordinator {

// Revisions grow while the coordinator runs, epochs with each of its starts.
// The default precedes every plan.
struct PlanPosition {
  int64_t coordinator_epoch = -1;
  int64_t revision = -1;

  friend auto operator<=>(const PlanPosition&, const PlanPosition&) = default;
};

// `Plan` is v1::IslandPlan or v1::ServerPlan.
template <typename Plan>
PlanPosition ToPosition(const Plan& plan) {
  return {plan.coordinator_epoch(), plan.revision()};
}

}  // namespace atl::coordinator
