// An error's note of what was expected, so that a fault can name both sides.
// Pure.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace atl {

inline constexpr char kExpectedPayload[] = "atoll/expected";

// `status`, whose message says what was found, with what was expected.
inline absl::Status WithExpected(absl::Status status,
                                 absl::string_view expected) {
  status.SetPayload(kExpectedPayload, absl::Cord(expected));
  return status;
}

// Returns the expectation that `status` names; `otherwise` if it names none.
inline std::string GetExpected(const absl::Status& status,
                               absl::string_view otherwise) {
  const auto expected = status.GetPayload(kExpectedPayload);
  return expected.has_value() ? std::string(*expected)
                              : std::string(otherwise);
}

}  // namespace atl
