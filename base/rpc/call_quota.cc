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
  if (now - use.second_begin >= absl::Seconds(1)) {
    use.second_begin = now;
    use.begun_count = 0;
  }
  ++use.begun_count;
  // Calls are forgotten in parts, too.
  if (use.open + use.given_up > kOpenMax - 1) {
    return ++use.refused_count % kRefusedMax == 0 ? Answer::kAbusive
                                                  : Answer::kRefused;
  }
  ++use.open;
  // While given-up calls are forgotten, a flood is admitted one by one.
  if (use.open + use.given_up < kOpenMax / 2) use.refused_count = 0;
  return Answer::kAdmitted;
}

void CallQuota::End(absl::string_view certificate, Outcome outcome,
                    absl::Time now) {
  MutexLock lock(&mutex_);
  Use& use = uses_[certificate];
  Forget(use, now);
  --use.open;
  if (outcome == Outcome::kGivenUp) ++use.given_up;
}

template <typename Count>
std::string CallQuota::FindMost(absl::Time now, Count count) const {
  MutexLock lock(&mutex_);
  std::string most;
  double count_max = 0;
  for (const auto& [certificate, use] : uses_) {
    if (now - use.second_begin >= absl::Seconds(1)) continue;
    const double its = count(use);
    if (its < kBusyCount || its <= count_max) continue;
    most = certificate;
    count_max = its;
  }
  return most;
}

std::string CallQuota::FindAbusive(absl::Time now) const {
  return FindMost(now, [now](const Use& use) {
    return GivenUp(use, now) + use.refused_count;
  });
}

std::string CallQuota::FindBusiest(absl::Time now) const {
  return FindMost(now, [](const Use& use) { return use.begun_count; });
}

size_t CallQuota::count() const {
  MutexLock lock(&mutex_);
  return uses_.size();
}

double CallQuota::GivenUp(const Use& use, absl::Time now) {
  const double seconds =
      std::max(0.0, absl::ToDoubleSeconds(now - use.time));
  return std::max(0.0, use.given_up - kForgottenPerSecond * seconds);
}

void CallQuota::Forget(Use& use, absl::Time now) {
  use.given_up = GivenUp(use, now);
  use.time = now;
}

void CallQuota::RemoveIdle(absl::Time now) {
  absl::erase_if(uses_, [now](auto& entry) {
    Forget(entry.second, now);
    return entry.second.open == 0 && entry.second.given_up == 0;
  });
}

}  // namespace atl::rpc
