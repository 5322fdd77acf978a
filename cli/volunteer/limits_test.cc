#include "cli/volunteer/limits.h"

#include "cli/output/error.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() { EXPECT_TRUE(absl::LoadTimeZone("Europe/Berlin", &zone_)); }

  absl::Time At(int month, int day, int hour, int minute) const {
    return absl::FromCivil(absl::CivilSecond(2026, month, day, hour, minute, 0),
                           zone_);
  }
  Decision DecideAt(absl::Time now, bool trains = true) const {
    return Decide(limits_, facts_, now, zone_, trains);
  }
  void SetHours(const std::string& text) {
    limits_.hours_text = text;
    limits_.hours = ParseHours(text).value();
  }

  absl::TimeZone zone_;
  Limits limits_;
  Facts facts_;
};

TEST_F(LimitsTest, HoursMayGoOverMidnight) {
  SetHours("22:00-07:00");
  EXPECT_FALSE(DecideAt(At(1, 5, 21, 59)).may_train);
  EXPECT_TRUE(DecideAt(At(1, 5, 22, 0)).may_train);
  EXPECT_TRUE(DecideAt(At(1, 6, 6, 59)).may_train);
  const Decision day = DecideAt(At(1, 6, 7, 0));
  EXPECT_FALSE(day.may_train);
  EXPECT_EQ(day.until, At(1, 6, 22, 0));
  EXPECT_EQ(day.reason, "outside of --hours 22:00-07:00");
}

TEST_F(LimitsTest, ThereMayBeSeveralPartsOfADay) {
  SetHours("12:00-13:30,22:00-24:00");
  EXPECT_EQ(DecideAt(At(1, 5, 11, 0)).until, At(1, 5, 12, 0));
  EXPECT_TRUE(DecideAt(At(1, 5, 13, 29)).may_train);
  EXPECT_EQ(DecideAt(At(1, 5, 13, 30)).until, At(1, 5, 22, 0));
  EXPECT_TRUE(DecideAt(At(1, 5, 23, 59)).may_train);
  EXPECT_EQ(DecideAt(At(1, 6, 0, 0)).until, At(1, 6, 12, 0));
}

// On 29 March 2026 the clock jumps from 2:00 to 3:00, on 25 October back.
TEST_F(LimitsTest, HoursAreLocalOnDaysWhenTheClockChanges) {
  SetHours("02:30-04:00");
  const Decision spring = DecideAt(At(3, 29, 1, 0));
  EXPECT_EQ(spring.until, At(3, 29, 3, 0));
  EXPECT_TRUE(DecideAt(spring.until).may_train);
  SetHours("22:00-07:00");
  EXPECT_EQ(DecideAt(At(3, 28, 12, 0)).until, At(3, 28, 22, 0));
  EXPECT_TRUE(DecideAt(At(10, 25, 1, 30) + absl::Hours(1)).may_train);
  EXPECT_EQ(DecideAt(At(10, 25, 7, 0)).until, At(10, 25, 22, 0));
}

TEST_F(LimitsTest, AMalformedPartOfADayIsAUsageError) {
  for (const char* text : {"", "22-07", "22:00", "22:00-22:00", "25:00-07:00",
                           "22:60-07:00", "22:00-07:00,", "-1:00-07:00"}) {
    const auto hours = ParseHours(text);
    EXPECT_FALSE(hours.ok()) << text;
    EXPECT_EQ(ToExitCode(hours.status()), ExitCode::kUsage) << text;
  }
}

TEST_F(LimitsTest, TheDaysTransferIsAllowedAgainAtLocalMidnight) {
  limits_.daily_transfer_bytes = 20'000'000'000;
  facts_.transfer_day = absl::CivilDay(2026, 1, 5);
  facts_.transferred_bytes = 19'999'999'999;
  EXPECT_TRUE(DecideAt(At(1, 5, 23, 0)).may_train);
  facts_.transferred_bytes = 20'000'000'000;
  const Decision full = DecideAt(At(1, 5, 23, 0));
  EXPECT_FALSE(full.may_train);
  EXPECT_EQ(full.reason, "--daily-transfer: the day's 20.0 GB are used");
  EXPECT_EQ(full.until, At(1, 6, 0, 0));
  EXPECT_TRUE(DecideAt(At(1, 6, 0, 0)).may_train);
  EXPECT_FALSE(DecideAt(At(1, 4, 12, 0)).may_train) << "the clock went back";
}

TEST_F(LimitsTest, WaitsWhileTheMachineRunsOnItsBattery) {
  facts_.on_battery = true;
  EXPECT_TRUE(DecideAt(At(1, 5, 12, 0)).may_train);
  limits_.no_battery = true;
  EXPECT_FALSE(DecideAt(At(1, 5, 12, 0)).may_train);
  facts_.on_battery = false;
  EXPECT_TRUE(DecideAt(At(1, 5, 12, 0)).may_train);
}

TEST_F(LimitsTest, AMachineIsIdleFiveMinutesAfterTheLastTouch) {
  limits_.only_idle = true;
  EXPECT_TRUE(DecideAt(At(1, 5, 12, 0)).may_train);
  facts_.untouched = absl::Minutes(4);
  EXPECT_FALSE(DecideAt(At(1, 5, 12, 0)).may_train);
  facts_.untouched = absl::Minutes(5);
  EXPECT_TRUE(DecideAt(At(1, 5, 12, 1), /*trains=*/false).may_train);
}

TEST_F(LimitsTest, OtherProgramsPauseItAboveAFifthUntilTheyTakeATenth) {
  limits_.only_idle = true;
  facts_.others_share = 0.15;
  EXPECT_TRUE(DecideAt(At(1, 5, 12, 0), /*trains=*/true).may_train);
  EXPECT_FALSE(DecideAt(At(1, 5, 12, 0), /*trains=*/false).may_train);
  facts_.others_share = 0.25;
  EXPECT_FALSE(DecideAt(At(1, 5, 12, 0), /*trains=*/true).may_train);
  facts_.others_share = 0.05;
  EXPECT_TRUE(DecideAt(At(1, 5, 12, 0), /*trains=*/false).may_train);
}

TEST_F(LimitsTest, AStrictRunRefusesEachLimitWithTheReason) {
  EXPECT_TRUE(CheckLimitsFit(limits_, /*is_strict=*/true).ok());
  SetHours("22:00-07:00");
  EXPECT_TRUE(CheckLimitsFit(limits_, /*is_strict=*/false).ok());
  const absl::Status refused = CheckLimitsFit(limits_, /*is_strict=*/true);
  EXPECT_EQ(refused.message(),
            "this run is strict: each round waits for all islands, so with "
            "--hours all of them would wait for this machine");
  EXPECT_EQ(GetReason(refused), "STRICT_RUN");
  for (Limits limits : {Limits{.only_idle = true}, Limits{.no_battery = true},
                        Limits{.daily_transfer_bytes = 1}}) {
    EXPECT_FALSE(CheckLimitsFit(limits, /*is_strict=*/true).ok());
  }
}

}  // namespace
}  // namespace atl::cli
