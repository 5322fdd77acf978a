#include "server/core/faults.h"

#include "absl/strings/str_cat.h"
#include "base/status/expected.h"
#include "base/status/refusal.h"

namespace atl::server {

v1::Fault MakeFault(absl::string_view code, absl::string_view expected,
                    absl::string_view found) {
  v1::Fault fault;
  fault.set_code(std::string(code));
  fault.set_expected(std::string(expected));
  fault.set_found(std::string(found));
  return fault;
}

v1::Fault ToFault(const absl::Status& error) {
  const std::optional<ErrorReason> reason = GetReason(error);
  return MakeFault(reason.has_value()
                       ? reason->reason
                       : absl::StatusCodeToString(error.code()),
                   GetExpected(error, ""), error.message());
}

std::string ToText(const v1::Fault& fault) {
  if (fault.expected().empty()) {
    return absl::StrCat(fault.code(), ": ", fault.found());
  }
  return absl::StrCat(fault.code(), ": expected ", fault.expected(), ", found ",
                      fault.found());
}

bool IsKnownRun(absl::string_view run_uid) {
  return run_uid.find_first_not_of('0') != absl::string_view::npos;
}

bool MaySameRun(absl::string_view run_uid, absl::string_view other) {
  return !IsKnownRun(run_uid) || !IsKnownRun(other) || run_uid == other;
}

std::optional<v1::Fault> FindOtherRun(absl::string_view held_uid,
                                      absl::string_view planned_uid) {
  if (MaySameRun(held_uid, planned_uid)) return std::nullopt;
  return MakeFault("OTHER_RUN",
                   absl::StrCat("run_uid ", held_uid, ", which is held here"),
                   absl::StrCat("run_uid ", planned_uid, " in the plan"));
}

absl::Status CheckSameRun(absl::string_view held_uid,
                          absl::string_view called_uid) {
  if (MaySameRun(held_uid, called_uid)) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_RUN",
                absl::StrCat("the call is for the run with run_uid ",
                             called_uid, ", and this server holds run_uid ",
                             held_uid, " under this run_id; fetch the plan"));
}

}  // namespace atl::server
