#include "coordinator/core/spec/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/layout/ids.h"
#include "base/status/check.h"
#include "google/rpc/error_details.pb.h"

namespace atl::coordinator {

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
  status.SetPayload("type.googleapis.com/google.rpc.BadRequest",
                    absl::Cord(details.SerializeAsString()));
  return status;
}

absl::Status CheckId(absl::string_view field, absl::string_view id) {
  const absl::Status status = ValidateId("", id);
  if (status.ok()) return status;
  return InvalidFields({{std::string(field), std::string(status.message())}});
}

}  // namespace atl::coordinator
