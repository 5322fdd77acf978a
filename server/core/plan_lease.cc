#include "server/core/plan_lease.h"

#include <cstddef>

namespace atl::server {
namespace {

constexpr size_t kWaitingMax = 2;

}  // namespace

void PlanLease::TakePlan(int64_t revision) {
  revision_ = revision;
  std::erase_if(waiting_, [&](const Answer& answer) {
    if (answer.revision > revision_) return false;
    Extend(answer.end);
    return true;
  });
}

void PlanLease::NoteAnswer(int64_t revision, absl::Time end) {
  if (revision <= revision_) {
    Extend(end);
    return;
  }
  if (waiting_.size() == kWaitingMax) waiting_.pop_back();
  waiting_.push_back({revision, end});
}

bool PlanLease::TakeOverdue(absl::Time now) {
  if (!IsOverdue(now)) return false;
  waiting_.clear();
  was_overdue_ = true;
  return true;
}

bool PlanLease::AllowsBegun(absl::Time now, absl::Duration away_max) const {
  if (now < end_) return true;
  return !was_overdue_ && !IsOverdue(now) && now < end_ + away_max;
}

void PlanLease::Extend(absl::Time end) {
  if (end <= end_) return;
  end_ = end;
  was_overdue_ = false;
}

}  // namespace atl::server
