// Keeps writers under a rate. Thread-compatible.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/object_store/retrier.h"
#include "base/time/token_bucket.h"

namespace atl {

class Throttle {
 public:
  // Idle time that is credited: the time that a store needs to send a part
  // while nothing is appended.
  static constexpr absl::Duration kCreditMax = absl::Seconds(1);

  // `bytes_per_second` 0: no bound.
  Throttle(int64_t bytes_per_second, Waiting waiting)
      : waiting_(std::move(waiting)) {
    if (bytes_per_second > 0) {
      bucket_.emplace(static_cast<double>(bytes_per_second), kCreditMax);
    }
  }

  // Waits until `bytes` may move. CANCELLED.
  absl::Status Take(int64_t bytes) {
    if (waiting_.cancelled && waiting_.cancelled()) {
      return absl::CancelledError("cancelled");
    }
    if (!bucket_.has_value()) return absl::OkStatus();
    const absl::Time now = waiting_.clock->Now();
    return Sleep(waiting_, bucket_->Take(bytes, now) - now);
  }

  const Waiting& waiting() const { return waiting_; }

 private:
  const Waiting waiting_;
  std::optional<TokenBucket> bucket_;
};

}  // namespace atl
