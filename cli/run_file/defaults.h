// The values of keys that a run file does not give. Pure. Thread-safe.

#pragma once

#include <set>
#include <string>

#include "atoll/v1/run.pb.h"

namespace atl::cli {

// The values of an empty run file.
v1::RunSpec DefaultRunSpec();

// Completes `spec`, which was read over DefaultRunSpec(): clears defaults that
// the chosen optimizers do not read, and sets what follows from other values
// (run_file.h has the list). `given` has the keys of the file and its preset,
// such as "inner.beta1".
void FillInDefaults(const std::set<std::string>& given, v1::RunSpec* spec);

}  // namespace atl::cli
