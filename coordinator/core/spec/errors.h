// Errors of the core, with the google.rpc details that callers read.
//
// A detail is a payload of the absl::Status under its type URL; base/rpc puts
// it on the wire. Pure. Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

using atl::Refuse;
using atl::RefuseForNow;

struct FieldViolation {
  std::string field;        // Path from the request: "spec.inner.batch_size".
  std::string description;  // What is wrong and what would be right.
};

// INVALID_ARGUMENT with a BadRequest of all violations. Requires: not empty.
absl::Status InvalidFields(const std::vector<FieldViolation>& violations);

// OK if `id` is valid (base/layout/ids.h). Otherwise INVALID_ARGUMENT with a
// BadRequest that names `field`.
absl::Status CheckId(absl::string_view field, absl::string_view id);

}  // namespace atl::coordinator
