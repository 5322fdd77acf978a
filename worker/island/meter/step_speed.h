// Tokens a second of inner steps: the median over the newest spans of steps, with
// the one that is not full yet. A span has at least a second, or one step. In a
// span a slow step counts with its full time, so steps that are slow now and then
// count. One long pause is one span. The median ignores it as soon as there is
// another, even if that is short: an island that seems slow is asked for few
// steps, and would need many rounds for a second of them.
// Pure. Thread-compatible.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace atl::worker {

class StepSpeed {
 public:
  // A step of `token_count` tokens took `seconds` (>= 0).
  void Add(int64_t token_count, double seconds) {
    tokens_ += static_cast<double>(token_count);
    seconds_ += std::max(1e-9, seconds);
    if (seconds_ < kSpanSeconds) return;
    spans_.push_back(tokens_ / seconds_);
    if (spans_.size() > kSpansKept) spans_.pop_front();
    tokens_ = seconds_ = 0;
  }

  // 0 before the first step.
  double tokens_per_second() const {
    std::vector<double> sorted(spans_.begin(), spans_.end());
    if (seconds_ > 0) sorted.push_back(tokens_ / seconds_);
    if (sorted.empty()) return 0;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

 private:
  static constexpr double kSpanSeconds = 1;
  static constexpr size_t kSpansKept = 5;

  double tokens_ = 0;  // In the span that is not full yet.
  double seconds_ = 0;
  std::deque<double> spans_;  // Tokens a second, newest last.
};

}  // namespace atl::worker
