#include "base/rpc/call_quota.h"

#include <algorithm>

namespace atl::rpc {
namespace {

// Beyond so many certificates those without calls are removed.
constexpr size_t kRememberedMax = 4096;

}  // namespace

CallQuota::Answer CallQuota::Start(absl::string_view certificate,
                                   absl::Time now) {
  MutexLock lock(&mutex_);
  if (uses_.size() >= kRememberedMax) RemoveIdle(now);
  Use& use = uses_[certificate];
  Forget(use, now);
  if (use.in_handlers + use.before_handlers >= kOpenMax) {
    return ++use.refused_count % kRefusedMax == 0 ? Answer::kAbusive
                                                  : Answer::kRefused;
  }
  ++use.before_handlers;
  // While lost calls are forgotten, a flood is admitted one by one.
  if (use.in_handlers + use.before_handlers < kOpenMax / 2) {
    use.refused_count = 0;
  }
  return Answer::kAdmitted;
}

void CallQuota::Begin(absl::string_view certificate, absl::Time now) {
  MutexLock lock(&mutex_);
  Use& use = uses_[certificate];
  Forget(use, now);
  use.before_handlers = std::max(0.0, use.before_handlers - 1);
  ++use.in_handlers;
}

void CallQuota::End(absl::string_view certificate, absl::Time now) {
  MutexLock lock(&mutex_);
  Use& use = uses_[certificate];
  Forget(use, now);
  --use.in_handlers;
}

size_t CallQuota::count() const {
  MutexLock lock(&mutex_);
  return uses_.size();
}

void CallQuota::Forget(Use& use, absl::Time now) {
  const double seconds =
      std::max(0.0, absl::ToDoubleSeconds(now - use.time));
  use.before_handlers =
      std::max(0.0, use.before_handlers - kForgottenPerSecond * seconds);
  use.time = now;
}

void CallQuota::RemoveIdle(absl::Time now) {
  absl::erase_if(uses_, [now](auto& entry) {
    Forget(entry.second, now);
    return entry.second.in_handlers == 0 && entry.second.before_handlers == 0;
  });
}

}  // namespace atl::rpc
