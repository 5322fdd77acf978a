// How many calls one stranger may make of a gate, and all together.
//
// Pure: callers pass the time. Thread-compatible. Keys are limit_keys of
// net::BoundedListener, or names.

#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/time/token_bucket.h"

namespace atl::coordinator {

// A rate, with a burst after idle time.
struct GateRate {
  double per_second = 0;  // > 0.
  int burst = 0;          // >= 1.

  // How long after its last call a caller has its whole burst again.
  absl::Duration rest() const { return absl::Seconds(burst / per_second); }
};

// Calls of the coordinator. Keeps nothing of a key that has rested, and a key
// is kept only for an allowed call: so the rate of all bounds the memory.
class CallLimit {
 public:
  CallLimit(GateRate all, GateRate key);

  // Counts a call of `key`. False, and counts none, if it is one too many.
  bool Take(const std::string& key, absl::Time now);

  size_t key_count() const { return keys_.size(); }

 private:
  struct Key {
    TokenBucket calls;
    absl::Time last;  // Its last allowed call.
  };

  void ForgetRested(absl::Time now);

  const GateRate key_rate_;
  const size_t key_count_max_;  // Beyond it those that have rested go.
  TokenBucket all_;
  absl::flat_hash_map<std::string, Key> keys_;
};

}  // namespace atl::coordinator
