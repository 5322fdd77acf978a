// The status that ends a stream whose contribution the run has decided.
//
// Thread-safe.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/plan.pb.h"
#include "base/status/refusal.h"
#include "server/core/contribution_key.h"

namespace atl::server {

// The contribution was not merged: ABORTED, ALREADY_DECIDED.
inline absl::Status DroppedStatus(const ContributionKey& key) {
  return Refuse(absl::StatusCode::kAborted, "ALREADY_DECIDED",
                absl::StrCat(key.ToString(), " is decided; fetch the plan"));
}

// OK if the COMMIT merged the contribution; otherwise DroppedStatus.
inline absl::Status DecidedStatus(const v1::ContributionOutcome& outcome) {
  return outcome.outcome() == v1::OUTCOME_MERGED
             ? absl::OkStatus()
             : DroppedStatus(ContributionKey::FromProto(outcome.key()));
}

}  // namespace atl::server
