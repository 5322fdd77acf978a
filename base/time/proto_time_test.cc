#include "base/time/proto_time.h"

#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(ProtoTimeTest, KeepsNanosecondsOnTheWayThereAndBack) {
  const absl::Duration duration = absl::Seconds(90) + absl::Nanoseconds(5);
  EXPECT_EQ(ToProto(duration).seconds(), 90);
  EXPECT_EQ(ToProto(duration).nanos(), 5);
  EXPECT_EQ(FromProto(ToProto(duration)), duration);
  const absl::Time time = absl::FromUnixSeconds(1700000000) + duration;
  EXPECT_EQ(ToProto(time).seconds(), 1700000090);
  EXPECT_EQ(FromProto(ToProto(time)), time);
}

TEST(ProtoTimeTest, RoundsATimeDown) {
  const absl::Time before_1970 = absl::UnixEpoch() - absl::Nanoseconds(1);
  EXPECT_EQ(ToProto(before_1970).seconds(), -1);
  EXPECT_EQ(ToProto(before_1970).nanos(), 999999999);
}

}  // namespace
}  // namespace atl
