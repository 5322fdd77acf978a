// Adds up how an island spends its time. Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/planner/planner.h"

namespace atl::worker {

// One kind of activity of the training thread that is not a step.
struct Pause {
  std::string what;  // "contribute", "apply", "wait: pulling fragment".
  int64_t count = 0;
  absl::Duration span;
};

class IslandMeter {
 public:
  // An inner step ran from `begin` to `end`. Steps are added in order.
  void Stepped(absl::Time begin, absl::Time end);

  // The training thread spent `span` on `what`, which is not a step. Drops the
  // digits of `what`, to have few kinds.
  void Paused(absl::string_view what, absl::Duration span);

  // A push or pull moved `bytes` of payload; or `bytes` of f32 outer gradients
  // were encoded and saved. Calls without bytes say nothing and do not count.
  void Pushed(int64_t bytes, absl::Duration span);
  void Pulled(int64_t bytes, absl::Duration span);
  void Contributed(int64_t bytes, absl::Duration span);

  // All measurements, with the caller's `tokens_per_second`.
  IslandMeasurements measurements(double tokens_per_second) const;

  // Time in inner steps; begin of the first, end of the last. Before the first
  // step: 0, infinite future, infinite past.
  absl::Duration computing() const { return stepping_; }
  absl::Time begin_time() const { return first_begin_; }
  absl::Time end_time() const { return last_end_; }

  // Pauses between begin_time() and end_time(), the longest first. The rest of
  // that time goes to reading data, deciding and reporting.
  std::vector<Pause> pauses() const;

  // Share of that time in inner steps, in [0, 1]; 0 before the first step.
  double utilization() const;

 private:
  using Pauses = std::map<std::string, Pause>;  // By Pause::what.

  IslandMeasurements measured_;
  Pauses pauses_;
  Pauses since_step_;  // Since the last step; the next step adds them.
  absl::Duration stepping_;
  absl::Time first_begin_ = absl::InfiniteFuture();
  absl::Time last_end_ = absl::InfinitePast();
};

}  // namespace atl::worker
