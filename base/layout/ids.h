// Ids that clients choose: runs, islands, servers, pins. Only [a-z0-9-]{1,63}
// is valid, because ids become file names and metric labels. Pure. Thread-safe.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl {

// INVALID_ARGUMENT: `id` does not match [a-z0-9-]{1,63}. The message names
// `what` ("run_id"; may be empty).
absl::Status ValidateId(absl::string_view what, absl::string_view id);

// The same for a field of a request: base/status/refusal.h's InvalidFields.
absl::Status CheckId(absl::string_view field, absl::string_view id);

}  // namespace atl
