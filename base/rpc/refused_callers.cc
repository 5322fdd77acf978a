#include "base/rpc/refused_callers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace atl::rpc {
namespace {

// 8192 connections with 8 methods each. Beyond it those that were not refused of
// late are forgotten; all if most were.
constexpr size_t kRememberedMax = 65'536;
// Backoff makes it four times as long after RESOURCE_EXHAUSTED: the first hold
// takes one to two seconds.
constexpr absl::Duration kFirstHold = absl::Milliseconds(500);

}  // namespace

RefusedCallers::Use::Use(uint64_t seed)
    : hold({.initial_delay = kFirstHold, .max_delay = kHoldMax}, seed) {}

absl::Duration RefusedCallers::Note(absl::string_view peer,
                                    absl::string_view method,
                                    const absl::Status& status,
                                    absl::Time now) {
  MutexLock lock(&mutex_);
  if (uses_.size() >= kRememberedMax) {
    absl::erase_if(uses_, [now](const auto& entry) {
      return now > entry.second.period_end + kHoldMax;
    });
    if (uses_.size() > kRememberedMax / 2) uses_.clear();
  }
  Use& use =
      uses_.try_emplace(absl::StrCat(peer, method), ++seed_).first->second;
  if (now >= use.period_end) {
    const bool is_again = use.refused_count > kRefusedMax &&
                          now < use.period_end + kHoldMax;
    if (!is_again) use.hold.Reset();
    use.refused_count = 0;
    use.period_end = now + DelayAsked(absl::ZeroDuration(), status);
  }
  if (++use.refused_count != kRefusedMax + 1) return absl::ZeroDuration();
  const absl::Duration hold = std::min(use.hold.Next(status), kHoldMax);
  use.period_end = now + hold;
  return hold;
}

size_t RefusedCallers::count() const {
  MutexLock lock(&mutex_);
  return uses_.size();
}

}  // namespace atl::rpc
