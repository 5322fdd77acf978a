// Detects that nothing has moved for too long. Pure; thread-compatible.

#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace atl::server {

class IdleWatch {
 public:
  IdleWatch(absl::Duration idle_max, absl::Time start)
      : idle_max_(idle_max), last_change_(start) {}

  // `byte_count`: bytes moved in total. True if unchanged for `idle_max`.
  bool IsIdle(int64_t byte_count, absl::Time now) {
    if (byte_count != byte_count_) {
      byte_count_ = byte_count;
      last_change_ = now;
    }
    return idle(now) >= idle_max_;
  }

  // How long the last `byte_count` has not changed.
  absl::Duration idle(absl::Time now) const { return now - last_change_; }

 private:
  const absl::Duration idle_max_;
  int64_t byte_count_ = 0;
  absl::Time last_change_;
};

}  // namespace atl::server
