#include "base/time/proto_time.h"

#include <cstdint>

namespace atl {

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp proto;
  const int64_t seconds = absl::ToUnixSeconds(time);
  proto.set_seconds(seconds);
  proto.set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return proto;
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  absl::Duration rest;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

absl::Time FromProto(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) +
         absl::Nanoseconds(time.nanos());
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) +
         absl::Nanoseconds(duration.nanos());
}

}  // namespace atl
