// The JSON of a mirror's objects. Thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/object_store/object_store.h"
#include "google/protobuf/message.h"

namespace atl::mirror {

// For readers and people, with the names of the fields.
std::string ToJson(const google::protobuf::Message& message);

// True if `json` is an object whose `format` is above `format`: a newer program
// wrote it, and this one does not know what it names.
bool HasNewerFormat(absl::string_view json, int format);

// Reads the object `name` to find HasNewerFormat. True also if it has more than
// `bytes_max` bytes, or the disk cannot read it. False if it does not exist.
// Other errors as GetObject's.
absl::StatusOr<bool> IsOfNewerFormat(ObjectStore& store,
                                     absl::string_view name, int format,
                                     int64_t bytes_max);

}  // namespace atl::mirror
