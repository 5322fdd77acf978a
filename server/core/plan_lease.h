// The time for which the newest applied plan counts for revocable islands.
//
// A coordinator's answer names the revision of its newest plan. The answer
// counts once that plan, or a newer one, is applied. So a server whose plan
// stream is stuck loses its lease, although its reports are answered.
//
// Why busy plans do not starve it: the coordinator sends a plan before it names
// the plan in an answer, and every later plan satisfies the answer too. The
// first waiting answer is never replaced. So if each plan is applied within D
// of its sending, an answer waits for at most D, and a lease of at least 2 D,
// renewed every third of it, does not lapse.
//
// Pure: no thread, no clock, no I/O. Thread-compatible.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace atl::server {

class PlanLease {
 public:
  // The plan with `revision` is in force.
  void TakePlan(int64_t revision);
  // The coordinator has answered: its newest plan is `revision`, and counts
  // until `end`. 0, from older coordinators: whatever plan is in force counts.
  void NoteAnswer(int64_t revision, absl::Time end);

  // The time until which the plan in force counts.
  absl::Time end() const { return end_; }
  // True if transfers that have begun may continue: until end(), and for at
  // most `away_max` longer while the coordinator is away. It is not away if it
  // has named a plan that has not come by the end of that answer.
  bool AllowsBegun(absl::Time now, absl::Duration away_max) const;
  // True if an answer has waited for its plan until its own end. The answers
  // that wait are then forgotten, so this is true once a lease.
  bool TakeOverdue(absl::Time now);

 private:
  struct Answer {
    int64_t revision = 0;
    absl::Time end;
  };

  void Extend(absl::Time end);
  bool IsOverdue(absl::Time now) const {
    return !waiting_.empty() && now >= waiting_.front().end;
  }

  int64_t revision_ = 0;  // The revision of the plan in force.
  absl::Time end_ = absl::InfinitePast();
  // Answers whose plan is not in force yet: the first one and the newest.
  std::vector<Answer> waiting_;
  bool was_overdue_ = false;  // Since end_ was last set.
};

}  // namespace atl::server
