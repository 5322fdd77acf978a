// Pure. Thread-safe.

#pragma once

#include <algorithm>
#include <vector>

namespace atl::coordinator {

// The median of `values`; of an even count the lower of the two in the middle,
// so that half of the values cannot raise it above the others. 0 if empty.
inline double LowerMedian(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + (values.size() - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace atl::coordinator
