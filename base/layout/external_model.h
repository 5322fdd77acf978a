// Models that only their trainer knows: Atoll has their layout and nothing
// else. Pure. Thread-safe.

#pragma once

#include "atoll/v1/run.pb.h"

namespace atl {

// ModelSpec.architecture of such a model.
inline constexpr char kExternalArchitecture[] = "external";

inline bool IsExternal(const v1::ModelSpec& model) {
  return model.architecture() == kExternalArchitecture;
}

}  // namespace atl
