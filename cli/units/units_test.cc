#include "cli/units/units.h"

#include "absl/time/time.h"
#include "cli/output/error.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(UnitsTest, BandwidthIsBitsOrBytesASecond) {
  EXPECT_DOUBLE_EQ(*ParseBandwidth("20Mb/s"), 2.5e6);
  EXPECT_DOUBLE_EQ(*ParseBandwidth("5MB/s"), 5e6);
  EXPECT_DOUBLE_EQ(*ParseBandwidth("1.5Gb/s"), 1.5e9 / 8);
  EXPECT_DOUBLE_EQ(*ParseBandwidth("8b/s"), 1);
  EXPECT_DOUBLE_EQ(*ParseBandwidth("7B/s"), 7);
  EXPECT_DOUBLE_EQ(*ParseBandwidth("2kb/s"), 250);
  EXPECT_DOUBLE_EQ(*ParseBandwidth("1Tb/s"), 1.25e11);
}

TEST(UnitsTest, RefusesABandwidthThatMayMeanAnother) {
  for (const char* text :
       {"", "20", "20Mb", "20M", "20mb/s", "20Mbit/s", "20 Mb/s", "Mb/s",
        "-20Mb/s", "0Mb/s", "2e3Mb/s", "20Mb/s ", "nanMb/s", "infMb/s",
        "1.2.3Mb/s", ".Mb/s", "20MB", "20Kb/s", "0x10Mb/s"}) {
    const absl::Status status = ParseBandwidth(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_EQ(ToExitCode(status), ExitCode::kUsage) << text;
    EXPECT_FALSE(GetHint(status).empty());
  }
}

TEST(UnitsTest, DurationsHaveAUnit) {
  EXPECT_DOUBLE_EQ(*ParseSeconds("40ms"), 0.04);
  EXPECT_DOUBLE_EQ(*ParseSeconds("1.5s"), 1.5);
  EXPECT_DOUBLE_EQ(*ParseSeconds("0s"), 0);
  EXPECT_DOUBLE_EQ(*ParseSeconds("1m30s"), 90);
  for (const char* text : {"", "40", "0", "-40ms", "inf", "soon", "40 ms"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseSeconds(text).status())) << text;
  }
}

TEST(UnitsTest, PatienceIsMoreThanNoTime) {
  EXPECT_EQ(*ParsePatience("30s"), absl::Seconds(30));
  EXPECT_EQ(*ParsePatience("5m"), absl::Minutes(5));
  for (const char* text : {"", "60", "0s", "-1s", "soon"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParsePatience(text).status())) << text;
  }
}

TEST(UnitsTest, SizesAreBytes) {
  EXPECT_EQ(*ParseBytes("20GB"), 20000000000);
  EXPECT_EQ(*ParseBytes("1.5MB"), 1500000);
  EXPECT_EQ(*ParseBytes("4096B"), 4096);
  for (const char* text : {"", "0B", "20", "20G", "20Gb", "20gB", "20 GB",
                           "-1B", "9999999TB", "1e9B", "20GB/s"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseBytes(text).status())) << text;
  }
}

TEST(UnitsTest, CountsMayHaveAPower) {
  EXPECT_EQ(*ParseCount("1.2B"), 1200000000);
  EXPECT_EQ(*ParseCount("350M"), 350000000);
  EXPECT_EQ(*ParseCount("70k"), 70000);
  EXPECT_EQ(*ParseCount("857216"), 857216);
  EXPECT_EQ(*ParseCount("1T"), 1000000000000);
  for (const char* text : {"", "0", "0.1", "-1", "B", "1.2b", "1G", "1 B",
                           "9999999T", "1e9", "1.2BB"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCount(text).status())) << text;
  }
}

TEST(UnitsTest, TellsACountFromAPath) {
  EXPECT_TRUE(LooksLikeCount("1.2B"));
  EXPECT_TRUE(LooksLikeCount("12x"));
  EXPECT_TRUE(LooksLikeCount("-1B"));
  EXPECT_FALSE(LooksLikeCount("laptop"));
  EXPECT_FALSE(LooksLikeCount("./1B"));
  EXPECT_FALSE(LooksLikeCount("7b/model"));
}

TEST(UnitsTest, WritesThreeDigitsAndAUnit) {
  EXPECT_EQ(FormatBandwidth(2.5e6), "20 Mb/s");
  EXPECT_EQ(FormatBandwidth(1.25e8), "1 Gb/s");
  EXPECT_EQ(FormatBandwidth(1), "8 b/s");
  EXPECT_EQ(FormatBandwidth(1234567), "9.88 Mb/s");
  EXPECT_EQ(FormatBandwidth(124999999), "1 Gb/s");
  EXPECT_EQ(FormatSize(1200000000), "1.2B");
  EXPECT_EQ(FormatSize(857216), "857k");
  EXPECT_EQ(FormatSize(12), "12");
}

}  // namespace
}  // namespace atl::cli
