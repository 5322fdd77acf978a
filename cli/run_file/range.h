// The ranges of a run file's numbers.
//
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace atl::cli {

// What is wrong with `value` for the key `path` ("inner.beta1"): "must be at
// least 1, is 0"; empty if nothing is. A value that is not finite is wrong for
// every key.
std::string RangeFault(absl::string_view path, double value);

}  // namespace atl::cli
