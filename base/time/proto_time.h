// Converts times and durations between protobuf and Abseil. Pure. Thread-safe.

#pragma once

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace atl {

// Rounded down to nanoseconds.
google::protobuf::Timestamp ToProto(absl::Time time);
google::protobuf::Duration ToProto(absl::Duration duration);

absl::Time FromProto(const google::protobuf::Timestamp& time);
absl::Duration FromProto(const google::protobuf::Duration& duration);

}  // namespace atl
