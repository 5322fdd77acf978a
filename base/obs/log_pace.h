// Decides when to log a line that may repeat without an end.
//
// Pure. Thread-compatible.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace atl {

class LogPace {
 public:
  // The same text is logged again after this long.
  static constexpr absl::Duration kInterval = absl::Minutes(1);

  // True if the caller must log `text` at `now`: it is new, or was logged
  // kInterval ago. `now` is SystemClock's.
  bool IsDue(absl::string_view text, absl::Time now) {
    if (text == text_ && now < next_) return false;
    text_ = std::string(text);
    next_ = now + kInterval;
    return true;
  }

 private:
  std::string text_;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace atl
