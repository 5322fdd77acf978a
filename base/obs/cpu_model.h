// The processor's name, for people. Thread-safe.

#ifndef BASE_OBS_CPU_MODEL_H_
#define BASE_OBS_CPU_MODEL_H_

#include <string>

#include "absl/strings/string_view.h"

namespace atl {

// The first "model name" of the text of a /proc/cpuinfo, at most 128 bytes;
// `otherwise` without.
std::string CpuModelName(absl::string_view cpuinfo,
                         absl::string_view otherwise);

// That of this machine.
std::string ThisCpuModelName(absl::string_view otherwise);

}  // namespace atl

#endif  // BASE_OBS_CPU_MODEL_H_
