// The status of an action that found its data not here yet. Pure. Thread-safe.
//
// The action has changed nothing. IslandLoop waits and asks for it again, so a
// plan, a stop or a pause ends the wait as it ends any other.

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status/refusal.h"

namespace atl::worker {

inline constexpr char kDataAwaited[] = "DATA_AWAITED";

// UNAVAILABLE with the reason kDataAwaited. `message` names the file and what
// is known about it, for this island's person. `file`: its name in the manifest
// of the run's data, which the coordinator may know.
inline absl::Status DataAwaited(absl::string_view message,
                                absl::string_view file = "") {
  return WithReason(absl::UnavailableError(message),
                    {kDataAwaited, {{"file", std::string(file)}}});
}

inline bool IsDataAwaited(const absl::Status& status) {
  return absl::IsUnavailable(status) && HasReason(status, kDataAwaited);
}

// The `file` of a status of DataAwaited; empty if it is not known.
inline std::string AwaitedFile(const absl::Status& status) {
  const std::optional<ErrorReason> reason = GetReason(status);
  return reason.has_value() && !reason->metadata.empty()
             ? reason->metadata.front().second
             : "";
}

}  // namespace atl::worker
