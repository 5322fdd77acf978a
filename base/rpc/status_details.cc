#include "base/rpc/status_details.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"

namespace atl::rpc {
namespace {

template <typename Message>
std::string TypeUrl() {
  return absl::StrCat("type.googleapis.com/",
                      Message::descriptor()->full_name());
}

template <typename Message>
absl::Status With(absl::Status status, const Message& message) {
  if (!status.ok()) {
    status.SetPayload(TypeUrl<Message>(),
                      absl::Cord(message.SerializeAsString()));
  }
  return status;
}

template <typename Message>
std::optional<Message> FindDetail(const absl::Status& status) {
  const absl::optional<absl::Cord> payload =
      status.GetPayload(TypeUrl<Message>());
  Message message;
  if (!payload.has_value() || !message.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  return message;
}

// A protobuf Duration can be +-10,000 years; a wait is at most a day.
constexpr absl::Duration kDelayMax = absl::Hours(24);

}  // namespace

absl::Status WithReason(absl::Status status, const ErrorReason& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason.reason);
  info.set_domain(std::string(kErrorDomain));
  for (const auto& [name, value] : reason.metadata) {
    (*info.mutable_metadata())[name] = value;
  }
  return With(std::move(status), info);
}

absl::Status WithDefaultReason(absl::Status status) {
  if (status.ok() || status.GetPayload(TypeUrl<google::rpc::ErrorInfo>()) ||
      status.GetPayload(TypeUrl<google::rpc::BadRequest>())) {
    return status;
  }
  const std::string reason = absl::StatusCodeToString(status.code());
  return WithReason(std::move(status), {reason, {}});
}

absl::Status WithRetryDelay(absl::Status status, absl::Duration delay) {
  delay = std::clamp(delay, absl::ZeroDuration(), kDelayMax);
  google::rpc::RetryInfo info;
  const int64_t seconds = absl::ToInt64Seconds(delay);
  info.mutable_retry_delay()->set_seconds(seconds);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(delay - absl::Seconds(seconds))));
  return With(std::move(status), info);
}

absl::Status WithFieldViolations(
    absl::Status status, const std::vector<FieldViolation>& violations) {
  google::rpc::BadRequest bad_request;
  for (const FieldViolation& violation : violations) {
    auto* added = bad_request.add_field_violations();
    added->set_field(violation.field);
    added->set_description(violation.description);
  }
  return With(std::move(status), bad_request);
}

absl::Status InvalidFields(const std::vector<FieldViolation>& violations) {
  std::string message;
  for (const FieldViolation& violation : violations) {
    absl::StrAppend(&message, message.empty() ? "" : "; ", violation.field,
                    ": ", violation.description);
  }
  return WithFieldViolations(absl::InvalidArgumentError(message), violations);
}

std::optional<ErrorReason> GetReason(const absl::Status& status) {
  const auto info = FindDetail<google::rpc::ErrorInfo>(status);
  if (!info.has_value()) return std::nullopt;
  ErrorReason reason;
  reason.reason = info->reason();
  reason.metadata.assign(info->metadata().begin(), info->metadata().end());
  std::sort(reason.metadata.begin(), reason.metadata.end());
  return reason;
}

std::optional<absl::Duration> GetRetryDelay(const absl::Status& status) {
  const auto info = FindDetail<google::rpc::RetryInfo>(status);
  if (!info.has_value()) return std::nullopt;
  return std::clamp(absl::Seconds(info->retry_delay().seconds()) +
                        absl::Nanoseconds(info->retry_delay().nanos()),
                    absl::ZeroDuration(), kDelayMax);
}

std::vector<FieldViolation> GetFieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  const auto bad_request = FindDetail<google::rpc::BadRequest>(status);
  if (!bad_request.has_value()) return violations;
  for (const auto& violation : bad_request->field_violations()) {
    violations.push_back({violation.field(), violation.description()});
  }
  return violations;
}

}  // namespace atl::rpc
