// Tokens a second of inner steps, over about the last five seconds. A ratio of
// decayed sums, not a mean of speeds: a slow step counts with its full time.
// Pure. Thread-compatible.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace atl::worker {

class StepSpeed {
 public:
  // A step of `token_count` tokens took `seconds` (>= 0).
  void Add(int64_t token_count, double seconds) {
    seconds = std::max(1e-9, seconds);
    const double kept = std::exp(-seconds / kMemorySeconds);
    tokens_ = kept * tokens_ + static_cast<double>(token_count);
    seconds_ = kept * seconds_ + seconds;
  }

  // 0 before the first step.
  double tokens_per_second() const {
    return seconds_ > 0 ? tokens_ / seconds_ : 0;
  }

 private:
  static constexpr double kMemorySeconds = 5;

  double tokens_ = 0;  // Decayed sums.
  double seconds_ = 0;
};

}  // namespace atl::worker
