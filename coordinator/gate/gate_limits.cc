#include "coordinator/gate/gate_limits.h"

#include <utility>

namespace atl::coordinator {
namespace {

TokenBucket MakeBucket(GateRate rate) {
  // A bucket lets one more pass than its credit.
  return TokenBucket(rate.per_second,
                     absl::Seconds((rate.burst - 1) / rate.per_second));
}

bool TakeOne(TokenBucket& bucket, absl::Time now) {
  if (bucket.Take(1, now) <= now) return true;
  bucket.GiveBack(1);
  return false;
}

}  // namespace

CallLimit::CallLimit(GateRate all, GateRate key)
    : key_rate_(key),
      // Twice as many as can have called within the time that a key rests.
      key_count_max_(static_cast<size_t>(
          2 *
          (all.burst + all.per_second * absl::ToDoubleSeconds(key.rest())))),
      all_(MakeBucket(all)) {}

bool CallLimit::Take(const std::string& key, absl::Time now) {
  const auto found = keys_.find(key);
  if (found != keys_.end() && !TakeOne(found->second.calls, now)) return false;
  if (!TakeOne(all_, now)) {
    if (found != keys_.end()) found->second.calls.GiveBack(1);
    return false;
  }
  if (found != keys_.end()) {
    found->second.last = now;
    return true;
  }
  if (keys_.size() >= key_count_max_) ForgetRested(now);
  Key added{MakeBucket(key_rate_), now};
  TakeOne(added.calls, now);
  keys_.emplace(key, std::move(added));
  return true;
}

void CallLimit::ForgetRested(absl::Time now) {
  absl::erase_if(keys_, [&](const auto& entry) {
    return entry.second.last + key_rate_.rest() <= now;
  });
}

}  // namespace atl::coordinator
