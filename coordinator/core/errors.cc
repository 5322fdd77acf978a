#include "coordinator/core/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "google/protobuf/message_lite.h"
#include "google/rpc/error_details.pb.h"

namespace atl::coordinator {
namespace {

void AddDetail(absl::Status& status, absl::string_view type,
               const google::protobuf::MessageLite& detail) {
  status.SetPayload(absl::StrCat("type.googleapis.com/google.rpc.", type),
                    absl::Cord(detail.SerializeAsString()));
}

}  // namespace

absl::Status Refuse(absl::StatusCode code, absl::string_view reason,
                    absl::string_view message) {
  absl::Status status(code, message);
  google::rpc::ErrorInfo info;
  info.set_domain("atoll.v1");
  info.set_reason(std::string(reason));
  AddDetail(status, "ErrorInfo", info);
  return status;
}

absl::Status RefuseForNow(absl::StatusCode code, absl::string_view reason,
                          absl::string_view message, absl::Duration delay) {
  absl::Status status = Refuse(code, reason, message);
  google::rpc::RetryInfo retry;
  absl::Duration rest;
  retry.mutable_retry_delay()->set_seconds(
      absl::IDivDuration(delay, absl::Seconds(1), &rest));
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  AddDetail(status, "RetryInfo", retry);
  return status;
}

absl::Status InvalidFields(const std::vector<FieldViolation>& violations) {
  CHECK(!violations.empty());
  std::string message;
  google::rpc::BadRequest details;
  for (const FieldViolation& violation : violations) {
    absl::StrAppend(&message, message.empty() ? "" : "; ", violation.field,
                    ": ", violation.description);
    auto* added = details.add_field_violations();
    added->set_field(violation.field);
    added->set_description(violation.description);
  }
  absl::Status status =
      Refuse(absl::StatusCode::kInvalidArgument, "INVALID_FIELDS", message);
  AddDetail(status, "BadRequest", details);
  return status;
}

}  // namespace atl::coordinator
