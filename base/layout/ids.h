// Ids that clients choose: runs, islands, servers, pins. Only [a-z0-9-]{1,63}
// is valid, because ids become file names and metric labels. Pure. Thread-safe.

#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl {

// INVALID_ARGUMENT: `id` does not match [a-z0-9-]{1,63}. The message names
// `what` ("run_id"; may be empty).
absl::Status ValidateId(absl::string_view what, absl::string_view id);

// The same for a field of a request: base/status/refusal.h's InvalidFields.
absl::Status CheckId(absl::string_view field, absl::string_view id);

// True for `count` digits of lower-case hex; 64 are a SHA-256.
inline bool IsLowerHex(absl::string_view text, size_t count) {
  return text.size() == count &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace atl
