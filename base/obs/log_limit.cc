#include "base/obs/log_limit.h"

#include <algorithm>
#include <utility>

namespace atl {

bool LogLimit::Admit(Kind kind, int lines_max, absl::Time now) {
  if (windows_.size() >= kKindsMax && !windows_.contains(kind)) {
    kind.subject.clear();
  }
  const auto [at, is_new] = windows_.try_emplace(std::move(kind));
  Window& window = at->second;
  if (is_new) {
    window.begin = now;
    first_end_ = std::min(first_end_, now + kWindow);
  }
  if (window.line_count < lines_max) {
    ++window.line_count;
    return true;
  }
  ++window.left_out_count;
  return false;
}

std::vector<LogLimit::LeftOut> LogLimit::TakeEnded(absl::Time now) {
  const bool was_set_back = now < newest_;
  newest_ = now;
  std::vector<LeftOut> ended;
  if (now < first_end_ && !was_set_back) return ended;
  first_end_ = absl::InfiniteFuture();
  for (auto at = windows_.begin(); at != windows_.end();) {
    const absl::Time end = at->second.begin + kWindow;
    if (now < end && !was_set_back) {
      first_end_ = std::min(first_end_, end);
      ++at;
      continue;
    }
    if (at->second.left_out_count > 0) {
      ended.push_back({at->first, at->second.left_out_count});
    }
    at = windows_.erase(at);
  }
  return ended;
}

}  // namespace atl
