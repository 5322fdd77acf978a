// The receiving end of a stream of plans.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace atl::coordinator {

// Receives a stream's plans, from the loop's thread alone. Must not block.
template <typename Plan>
class PlanSink {
 public:
  virtual ~PlanSink() = default;
  // The newest plan. It replaces plans that are not sent yet.
  virtual void Offer(Plan plan) = 0;
  // No plan follows.
  virtual void End(absl::Status status) = 0;
  // True once the receiver is gone.
  virtual bool done() const = 0;
};

// An island's plan in encoded parts (core/outputs/island_parts.h): in this order
// they are one WatchPlanResponse.
struct EncodedIslandPlan {
  std::string head;
  std::shared_ptr<const std::string> shared;  // The same for the run's islands.
  std::string own;
};

}  // namespace atl::coordinator
