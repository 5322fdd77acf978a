// Finds connections whose calls come again and again although they are refused.
//
// To refuse a call costs about as much as to answer it, so callers that ignore
// RetryInfo could take a whole core. The connection of such a caller is not read
// for the time that a patient caller would wait: what it sends meanwhile stays
// in the kernel's buffer, and costs nothing.
//
// Pure. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/rpc/retry.h"
#include "base/sync/mutex.h"

namespace atl::rpc {

class RefusedCallers {
 public:
  // Calls of one connection and method that may be refused before the first
  // refusal's RetryInfo is over: one caller may have several under way.
  static constexpr int kRefusedMax = 8;
  // Below the 10 s in which our clients want the answer to a ping.
  static constexpr absl::Duration kHoldMax = absl::Seconds(8);

  // `seed`: see rpc::RandomSeed.
  explicit RefusedCallers(uint64_t seed) : seed_(seed) {}

  // A call of `method` on the connection of `peer` is refused with `status`,
  // which has a RetryInfo. Returns how long the connection must not be read; as
  // a rule zero. The next hold is twice as long if the connection makes too many
  // calls again right after this one.
  absl::Duration Note(absl::string_view peer, absl::string_view method,
                      const absl::Status& status, absl::Time now);

  // Connections and methods that are remembered.
  size_t count() const;

 private:
  struct Use {
    explicit Use(uint64_t seed);

    // When the RetryInfo of the period's first refusal is over, or the hold.
    absl::Time period_end = absl::InfinitePast();
    int refused_count = 0;  // In the period.
    Backoff hold;
  };

  mutable Mutex mutex_;
  uint64_t seed_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Use> uses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::rpc
