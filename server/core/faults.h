// Faults that servers report, and which run a run_uid names. Pure. Thread-safe.

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::server {

// `code`: as Fault.code. `expected` may be empty.
v1::Fault MakeFault(absl::string_view code, absl::string_view expected,
                    absl::string_view found);

// The code is the status' reason, or else the name of its code.
v1::Fault ToFault(const absl::Status& error);

// One line: "CODE: found" or "CODE: expected E, found F".
std::string ToText(const v1::Fault& fault);

// False for a run_uid that is empty or all zeros: programs of before there was
// one made the run, or sent the message.
bool IsKnownRun(absl::string_view run_uid);

// False only if both are known and differ.
bool MaySameRun(absl::string_view run_uid, absl::string_view other);

// OTHER_RUN if a plan of the run `planned_uid` has come for a shard of the run
// `held_uid`, of the same run_id.
std::optional<v1::Fault> FindOtherRun(absl::string_view held_uid,
                                      absl::string_view planned_uid);

// FAILED_PRECONDITION, OTHER_RUN: a call for the run `called_uid` has come to a
// shard of the run `held_uid`.
absl::Status CheckSameRun(absl::string_view held_uid,
                          absl::string_view called_uid);

}  // namespace atl::server
