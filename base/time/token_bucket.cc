#include "base/time/token_bucket.h"

#include <algorithm>

namespace atl {

absl::Time TokenBucket::Take(int64_t bytes, absl::Time now) {
  const absl::Time begin = std::max(due_, now - credit_max_);
  due_ = begin + ToSpan(bytes);
  return std::max(begin, now);
}

}  // namespace atl
