#include "base/obs/log_pace.h"

namespace atl {

bool LogPace::IsDue(absl::string_view text, absl::Time now) {
  if (text == text_ && now < next_) return false;
  text_ = std::string(text);
  next_ = now + kInterval;
  return true;
}

}  // namespace atl
