#include "base/mirror/mirror_json.h"

#include "absl/strings/numbers.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace atl::mirror {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &text, options);
  CHECK(status.ok()) << status.ToString();
  return text;
}

bool HasNewerFormat(absl::string_view json, int format) {
  google::protobuf::Struct fields;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      std::string(json), &fields);
  if (!parsed.ok()) return false;
  const auto found = fields.fields().find("format");
  if (found == fields.fields().end()) return false;
  double number = found->second.number_value();
  // As JSON of messages has 64-bit numbers.
  if (found->second.has_string_value() &&
      !absl::SimpleAtod(found->second.string_value(), &number)) {
    return false;
  }
  return number > format;
}

absl::StatusOr<bool> IsOfNewerFormat(ObjectStore& store,
                                     absl::string_view name, int format,
                                     int64_t bytes_max) {
  const absl::StatusOr<std::string> json = GetObject(store, name, bytes_max);
  if (absl::IsNotFound(json.status())) return false;
  // It cannot be told.
  if (absl::IsResourceExhausted(json.status()) ||
      absl::IsDataLoss(json.status())) {
    return true;
  }
  RETURN_IF_ERROR(json.status());
  return HasNewerFormat(*json, format);
}

}  // namespace atl::mirror
