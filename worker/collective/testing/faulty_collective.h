// A Collective with injected faults, for tests. Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/collective/collective.h"

namespace atl::collective {

// Faults by call. Calls count from 0, over Run, Start and Split, and over all
// groups that are split from the faulty one.
struct FaultPlan {
  // Leaves at this call; every later call returns UNAVAILABLE. -1: never.
  int64_t die_at_call = -1;
  // Ends the world at this call. Run and Start return OK without a result, as
  // on a device if the call is aborted after it was queued. -1: never.
  int64_t end_late_at_call = -1;
  // Called before each call, on the caller's thread. May be null.
  std::function<void(int64_t call)> before_call;
};

// `inner` with the faults of `plan`. Groups split from it share them.
std::unique_ptr<Collective> MakeFaulty(std::unique_ptr<Collective> inner,
                                       FaultPlan plan);

}  // namespace atl::collective
