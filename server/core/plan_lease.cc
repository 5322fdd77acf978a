#include "server/core/plan_lease.h"

#include <algorithm>
#include <cstddef>

namespace atl::server {
namespace {

constexpr size_t kWaitingMax = 2;

}  // namespace

void PlanLease::TakePlan(int64_t revision) {
  revision_ = revision;
  std::erase_if(waiting_, [&](const Answer& answer) {
    if (answer.revision > revision_) return false;
    end_ = std::max(end_, answer.end);
    return true;
  });
}

void PlanLease::NoteAnswer(int64_t revision, absl::Time end) {
  if (revision <= revision_) {
    end_ = std::max(end_, end);
    return;
  }
  if (waiting_.size() == kWaitingMax) waiting_.pop_back();
  waiting_.push_back({revision, end});
}

bool PlanLease::TakeOverdue(absl::Time now) {
  if (waiting_.empty() || now < waiting_.front().end) return false;
  waiting_.clear();
  return true;
}

}  // namespace atl::server
