// The unit of contributions' weights (v1::WeightUnit). Pure. Thread-safe.

#pragma once

#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl {

// The unit that a field means: TOKENS if it is not set.
inline v1::WeightUnit WeightUnitOf(v1::WeightUnit unit) {
  return unit == v1::WEIGHT_UNIT_UNSPECIFIED ? v1::WEIGHT_UNIT_TOKENS : unit;
}

// "tokens", "samples" or "steps"; "another unit" for one of a newer program.
inline absl::string_view WeightUnitName(v1::WeightUnit unit) {
  switch (WeightUnitOf(unit)) {
    case v1::WEIGHT_UNIT_TOKENS:
      return "tokens";
    case v1::WEIGHT_UNIT_SAMPLES:
      return "samples";
    case v1::WEIGHT_UNIT_STEPS:
      return "steps";
    default:
      return "another unit";
  }
}

}  // namespace atl
