#include "base/status/refusal.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/message_lite.h"
#include "google/rpc/error_details.pb.h"

namespace atl {
namespace {

constexpr char kErrorInfo[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";

absl::Status With(absl::Status status, absl::string_view url,
                  const google::protobuf::MessageLite& detail) {
  status.SetPayload(url, absl::Cord(detail.SerializeAsString()));
  return status;
}

}  // namespace

absl::Status Refuse(absl::StatusCode code, absl::string_view reason,
                    absl::string_view message) {
  return WithReasonIfNone(absl::Status(code, message), reason);
}

absl::Status RefuseForNow(absl::StatusCode code, absl::string_view reason,
                          absl::string_view message, absl::Duration delay) {
  google::rpc::RetryInfo retry;
  absl::Duration rest;
  retry.mutable_retry_delay()->set_seconds(
      absl::IDivDuration(delay, absl::Seconds(1), &rest));
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return With(Refuse(code, reason, message), kRetryInfo, retry);
}

absl::Status WithReasonIfNone(absl::Status status, absl::string_view reason) {
  if (status.ok() || status.GetPayload(kErrorInfo).has_value()) return status;
  google::rpc::ErrorInfo info;
  info.set_domain("atoll.v1");
  info.set_reason(std::string(reason));
  return With(std::move(status), kErrorInfo, info);
}

}  // namespace atl
