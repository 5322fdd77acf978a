// Ids that clients choose: runs, islands, servers, pins. They become file
// names and metric labels, so nothing but [a-z0-9-]{1,63} is let in.
//
// Pure. Thread-safe.

#ifndef BASE_LAYOUT_IDS_H_
#define BASE_LAYOUT_IDS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace atl {

// OK if `id` matches [a-z0-9-]{1,63}.
//
// INVALID_ARGUMENT: it does not; the message names `what` ("run_id"; may be
// empty).
absl::Status ValidateId(absl::string_view what, absl::string_view id);

}  // namespace atl

#endif  // BASE_LAYOUT_IDS_H_
