// Adds up what an island does with its time, for its forecast.
//
// Pure: times are handed in. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/planner/planner.h"

namespace atl::worker {

// What the computing thread did or waited for beside its steps.
struct Pause {
  std::string what;   // "contribute", "apply", "wait: pulling fragment".
  int64_t count = 0;  // Times.
  absl::Duration span;
};

class IslandMeter {
 public:
  // An inner step took from `begin` to `end`; steps come in order.
  void Stepped(absl::Time begin, absl::Time end);

  // The computing thread spent `span` on `what` that is no step, since the last
  // of these calls. Numbers in it are left out: there are few of them.
  void Paused(absl::string_view what, absl::Duration span);

  // A call moved `bytes` of payload, or made outer gradients of so many f32
  // bytes and saved them. One that moved nothing says nothing of the link and
  // is not counted.
  void Pushed(int64_t bytes, absl::Duration span);
  void Pulled(int64_t bytes, absl::Duration span);
  void Contributed(int64_t bytes, absl::Duration span);

  // All of it; `tokens_per_second` is the caller's.
  IslandMeasurements measurements(double tokens_per_second) const;

  // Time in inner steps, and all of it, from the first one's begin to the last
  // one's end: infinite future and past before there is one.
  absl::Duration computing() const { return stepping_; }
  absl::Time begin_time() const { return first_begin_; }
  absl::Time end_time() const { return last_end_; }

  // What of the time between these two was no step, by what, the longest first.
  // The rest is what lies between actions: reading data, deciding, reporting.
  std::vector<Pause> pauses() const;

  // The share of the one in the other, in [0, 1]; 0 before.
  double utilization() const;

 private:
  // By `what`; and those that no step has followed yet, which count if one
  // does.
  using Pauses = std::map<std::string, Pause>;

  IslandMeasurements measured_;
  Pauses pauses_;
  Pauses since_step_;
  absl::Duration stepping_;
  absl::Time first_begin_ = absl::InfiniteFuture();
  absl::Time last_end_ = absl::InfinitePast();
};

}  // namespace atl::worker
