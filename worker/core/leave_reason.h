// The reason that an island gives its coordinator when an error makes it leave.
//
// The coordinator is another party. So it gets one of a few fixed texts: an
// error's own message may name this machine's files, their sizes and digests.
// The message stays in the island's log. Pure. Thread-safe.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/core/action.h"

namespace atl::worker {

// Returns why `status`, the error of an action of `kind`, ends the island.
absl::string_view GetLeaveReason(ActionKind kind, const absl::Status& status);

}  // namespace atl::worker
