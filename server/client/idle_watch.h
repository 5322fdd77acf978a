// Tells when nothing has moved for too long. Pure; thread-compatible.

#ifndef SERVER_CLIENT_IDLE_WATCH_H_
#define SERVER_CLIENT_IDLE_WATCH_H_

#include <cstdint>

#include "absl/time/time.h"

namespace atl::server {

class IdleWatch {
 public:
  IdleWatch(absl::Duration idle_max, absl::Time start)
      : idle_max_(idle_max), last_change_(start) {}

  // Takes in how many bytes have moved in all. True if the number is what it
  // was `idle_max` ago.
  bool IsIdle(int64_t byte_count, absl::Time now) {
    if (byte_count != byte_count_) {
      byte_count_ = byte_count;
      last_change_ = now;
    }
    return idle(now) >= idle_max_;
  }

  // How long the number has been what IsIdle was told last.
  absl::Duration idle(absl::Time now) const { return now - last_change_; }

 private:
  const absl::Duration idle_max_;
  int64_t byte_count_ = 0;
  absl::Time last_change_;
};

}  // namespace atl::server

#endif  // SERVER_CLIENT_IDLE_WATCH_H_
