#include "base/status/refusal.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "base/status/valid_utf8.h"
#include "base/time/proto_time.h"
#include "google/protobuf/message_lite.h"
#include "google/rpc/error_details.pb.h"

namespace atl {
namespace {

constexpr char kErrorInfo[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr char kBadRequest[] = "type.googleapis.com/google.rpc.BadRequest";

absl::Status With(absl::Status status, absl::string_view url,
                  const google::protobuf::MessageLite& detail) {
  if (!status.ok()) {
    status.SetPayload(url, absl::Cord(detail.SerializeAsString()));
  }
  return status;
}

template <typename Message>
std::optional<Message> FindDetail(const absl::Status& status,
                                  absl::string_view url) {
  const absl::optional<absl::Cord> payload = status.GetPayload(url);
  Message message;
  if (!payload.has_value() || !message.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  return message;
}

}  // namespace

absl::Status Refuse(absl::StatusCode code, absl::string_view reason,
                    absl::string_view message) {
  return WithReasonIfNone(absl::Status(code, message), reason);
}

absl::Status RefuseForNow(absl::StatusCode code, absl::string_view reason,
                          absl::string_view message, absl::Duration delay) {
  return WithRetryDelay(Refuse(code, reason, message), delay);
}

absl::Status InvalidFields(const std::vector<FieldViolation>& violations) {
  CHECK(!violations.empty());
  std::string message;
  google::rpc::BadRequest details;
  for (const FieldViolation& violation : violations) {
    const std::string description = ToValidUtf8(violation.description);
    absl::StrAppend(&message, message.empty() ? "" : "; ", violation.field,
                    ": ", description);
    auto* added = details.add_field_violations();
    added->set_field(violation.field);
    added->set_description(description);
  }
  return With(
      Refuse(absl::StatusCode::kInvalidArgument, "INVALID_FIELDS", message),
      kBadRequest, details);
}

absl::Status WithReason(absl::Status status, const ErrorReason& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason.reason);
  info.set_domain("atoll.v1");
  info.mutable_metadata()->insert(reason.metadata.begin(),
                                  reason.metadata.end());
  return With(std::move(status), kErrorInfo, info);
}

absl::Status WithReasonIfNone(absl::Status status, absl::string_view reason) {
  if (status.GetPayload(kErrorInfo).has_value()) return status;
  return WithReason(std::move(status), {std::string(reason), {}});
}

absl::Status WithDefaultReason(absl::Status status) {
  const std::string reason = absl::StatusCodeToString(status.code());
  return WithReasonIfNone(std::move(status), reason);
}

bool HasReason(const absl::Status& status, absl::string_view reason) {
  const std::optional<ErrorReason> own = GetReason(status);
  return own.has_value() && own->reason == reason;
}

bool IsLogFault(const absl::Status& status) {
  return HasReason(status, "LOG_BEHIND") || HasReason(status, "LOG_DAMAGED");
}

bool IsOtherCluster(const absl::Status& status) {
  return HasReason(status, "OTHER_CLUSTER");
}

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         (absl::IsResourceExhausted(status) &&
          GetRetryDelay(status).has_value());
}

absl::Status WithRetryDelay(absl::Status status, absl::Duration delay) {
  google::rpc::RetryInfo info;
  *info.mutable_retry_delay() = ToProto(delay);
  return With(std::move(status), kRetryInfo, info);
}

std::optional<ErrorReason> GetReason(const absl::Status& status) {
  const auto info = FindDetail<google::rpc::ErrorInfo>(status, kErrorInfo);
  if (!info.has_value()) return std::nullopt;
  ErrorReason reason;
  reason.reason = info->reason();
  reason.metadata.assign(info->metadata().begin(), info->metadata().end());
  std::sort(reason.metadata.begin(), reason.metadata.end());
  return reason;
}

std::optional<absl::Duration> GetRetryDelay(const absl::Status& status) {
  const auto info = FindDetail<google::rpc::RetryInfo>(status, kRetryInfo);
  if (!info.has_value()) return std::nullopt;
  return std::clamp(FromProto(info->retry_delay()), absl::ZeroDuration(),
                    absl::Hours(24));
}

std::vector<FieldViolation> GetFieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  const auto bad_request =
      FindDetail<google::rpc::BadRequest>(status, kBadRequest);
  if (!bad_request.has_value()) return violations;
  for (const auto& violation : bad_request->field_violations()) {
    violations.push_back({violation.field(), violation.description()});
  }
  return violations;
}

}  // namespace atl
