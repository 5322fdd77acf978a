// Run files of models that only their trainer knows: [model] architecture =
// "external". Pure. Thread-safe.

#pragma once

#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::cli {

// Returns why such a file must not give `key` ("inner.beta1"); empty: it may.
std::string ExternalKeyFault(absl::string_view key);

// Makes `spec`, which was read over its preset and DefaultRunSpec(), one of an
// external model. Clears what only Atoll's own trainer reads. The data becomes
// external, and weights by samples become weights by tokens. sequence_length
// and batch_size that are not in `own`, the keys of the file without its
// preset, become 1048576 and 1.
void MakeExternal(const std::set<std::string>& own, v1::RunSpec* spec);

}  // namespace atl::cli
