#include "cli/flags/lent_flags.h"

#include "absl/strings/match.h"
#include "base/flags/flags.h"
#include "cli/output/error.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(LentFlagsTest, AreRead) {
  LentFlags flags;
  flags::Command app("app", "");
  AddLentFlags(app, flags);
  ASSERT_EQ(app.Parse({"--memory", "4GB", "--disk", "20GB"}).error, "");
  const auto lent = ReadLent(flags);
  ASSERT_TRUE(lent.ok()) << lent.status();
  EXPECT_EQ(lent->memory_bytes, 4'000'000'000);
  EXPECT_EQ(lent->disk_bytes, 20'000'000'000);
  EXPECT_EQ(ReadLent({})->memory_bytes, 0);
}

TEST(LentFlagsTest, ErrorsNameTheFlag) {
  const absl::Status memory = ReadLent({.memory = "4"}).status();
  EXPECT_EQ(ToExitCode(memory), ExitCode::kUsage);
  EXPECT_TRUE(absl::StartsWith(memory.message(), "--memory")) << memory;
  const absl::Status disk = ReadLent({.disk = "x"}).status();
  EXPECT_TRUE(absl::StartsWith(disk.message(), "--disk")) << disk;
}

TEST(CapFlagsTest, QuantitiesAreThoseOfAPlan) {
  const auto caps = ReadCaps({"5Mb/s", "2.5MB/s"});
  ASSERT_TRUE(caps.ok()) << caps.status();
  EXPECT_EQ(caps->up_bytes_per_second, 625000);
  EXPECT_EQ(caps->down_bytes_per_second, 2500000);
}

TEST(CapFlagsTest, NoFlagIsNoCap) {
  const auto caps = ReadCaps({"", "100kb/s"});
  ASSERT_TRUE(caps.ok()) << caps.status();
  EXPECT_EQ(caps->up_bytes_per_second, 0);
  EXPECT_EQ(caps->down_bytes_per_second, 12500);
}

TEST(CapFlagsTest, WhatIsWrongIsAUsageErrorThatNamesItsFlag) {
  for (const char* text :
       {"5", "5Mb", "5mb/s", "0Mb/s", "-1Mb/s", "fast", "99kb/s", "1b/s"}) {
    const auto up = ReadCaps({text, ""});
    ASSERT_FALSE(up.ok()) << text;
    EXPECT_EQ(up.status().message().substr(0, 4), "--up") << up.status();
    EXPECT_EQ(ToExitCode(up.status()), ExitCode::kUsage) << text;
    const auto down = ReadCaps({"", text});
    ASSERT_FALSE(down.ok()) << text;
    EXPECT_EQ(down.status().message().substr(0, 6), "--down") << down.status();
  }
}

TEST(CapFlagsTest, AnIslandsProcessesNeedEnoughEach) {
  const auto caps = ReadCaps({"5Mb/s", ""}, 4);
  ASSERT_TRUE(caps.ok()) << caps.status();
  EXPECT_EQ(caps->up_bytes_per_second, 625000);  // Of all four.
  EXPECT_TRUE(ReadCaps({"200kb/s", ""}, 2).ok());
  const auto narrow = ReadCaps({"", "199kb/s"}, 2);
  ASSERT_FALSE(narrow.ok());
  EXPECT_EQ(ToExitCode(narrow.status()), ExitCode::kUsage);
  EXPECT_EQ(narrow.status().message(),
            "--down 199kb/s is less than 100 kb/s for each of the island's 2 "
            "processes");
}

TEST(CapFlagsTest, ArgumentsSayWhatTheFlagsSay) {
  EXPECT_TRUE(CapArguments({}).empty());
  EXPECT_EQ(CapArguments({"5Mb/s", "1MB/s"}),
            (std::vector<std::string>{"--up=5Mb/s", "--down=1MB/s"}));
}

}  // namespace
}  // namespace atl::cli
