// The processor's name. Thread-safe.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace atl {

// The first "model name" in the text of /proc/cpuinfo, at most 128 bytes;
// `otherwise` if the text has none.
std::string CpuModelName(absl::string_view cpuinfo,
                         absl::string_view otherwise);

// The same for this machine.
std::string ThisCpuModelName(absl::string_view otherwise);

}  // namespace atl
