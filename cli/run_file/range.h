// The ranges of a run file's numbers.
//
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace atl::cli {

// The fault of `value` for the key `path` ("inner.beta1"): "must be at least 1,
// is 0". Empty: no fault. A value that is not finite is a fault for every key.
std::string RangeFault(absl::string_view path, double value);

}  // namespace atl::cli
