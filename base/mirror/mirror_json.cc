#include "base/mirror/mirror_json.h"

#include "atoll/storage/v1/cluster_object.pb.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"
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
  storage::v1::MirrorObject object;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      std::string(json), &object, options);
  return parsed.ok() && object.format() > format;
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
