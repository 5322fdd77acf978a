// The status of a computation whose result is not finite. Pure. Thread-safe.

#pragma once

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/status/refusal.h"

namespace atl {

enum class NotFiniteOf {
  kStep,   // Loss or gradient of one step, at its first parameters.
  kOther,  // Results of several steps, or later values.
};

inline constexpr char kNotFinite[] = "NOT_FINITE";

// Marks `status`, an error.
inline absl::Status NotFinite(NotFiniteOf of, absl::Status status) {
  return WithReason(
      std::move(status),
      {kNotFinite, {{"of", of == NotFiniteOf::kStep ? "step" : "other"}}});
}

// Returns nullopt for another status. An error that lost its payload is kOther.
inline std::optional<NotFiniteOf> FindNotFinite(const absl::Status& status) {
  const std::optional<ErrorReason> reason = GetReason(status);
  if (!reason.has_value() || reason->reason != kNotFinite) return std::nullopt;
  const absl::string_view of =
      reason->metadata.empty() ? "" : reason->metadata.front().second;
  return of == "step" ? NotFiniteOf::kStep : NotFiniteOf::kOther;
}

}  // namespace atl
