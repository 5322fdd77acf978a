#include "cli/volunteer/volunteer_flags.h"

#include "absl/strings/match.h"
#include "base/flags/flags.h"
#include "cli/output/error.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(VolunteerFlagsTest, AreRead) {
  VolunteerFlags flags;
  flags::Command app("app", "");
  AddVolunteerFlags(app, flags);
  ASSERT_EQ(app.Parse({"--hours", "22:00-07:00", "--daily-transfer", "20GB",
                       "--disk", "4GB", "--nice", "19"})
                .error,
            "");
  const auto limits = ReadLimits(flags, 1, false);
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->hours.size(), 1);
  EXPECT_EQ(limits->daily_transfer_bytes, 20'000'000'000);
  EXPECT_EQ(flags.lent.disk, "4GB");
  EXPECT_EQ(flags.nice, 19);
  EXPECT_TRUE(ReadLimits({}, 1, false)->empty());
}

TEST(VolunteerFlagsTest, ErrorsNameTheFlag) {
  for (const VolunteerFlags& flags : {VolunteerFlags{.hours = "9-5"},
                                      VolunteerFlags{.daily_transfer = "x"}}) {
    const absl::Status status = ReadLimits(flags, 1, false).status();
    EXPECT_EQ(ToExitCode(status), ExitCode::kUsage);
    EXPECT_TRUE(absl::StartsWith(status.message(), "--")) << status;
  }
}

TEST(VolunteerFlagsTest, LimitsAreForOneProcessWithItsOwnEngine) {
  EXPECT_FALSE(ReadLimits({.only_idle = true}, 1, true).ok());
  EXPECT_TRUE(ReadLimits({.no_battery = true}, 1, true).ok());
  EXPECT_FALSE(ReadLimits({.no_battery = true}, 2, false).ok());
  EXPECT_TRUE(ReadLimits({}, 2, true).ok());
}

}  // namespace
}  // namespace atl::cli
