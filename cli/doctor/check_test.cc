#include "cli/doctor/check.h"

#include "absl/strings/str_split.h"
#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

TEST(CheckTest, ALineSaysWhatWasFoundAndTheNextWhatToDo) {
  EXPECT_EQ(ToText(Passed("cores", "8 cores")),
            "PASSED  cores        8 cores\n");
  EXPECT_EQ(ToText(Warn("clock", "40 s behind", "Set it.")),
            "WARN    clock        40 s behind\n"
            "                     -> Set it.\n");
}

TEST(CheckTest, LongSentencesStayWithin80Columns) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word ";
  const std::string text = ToText(Failed("disk_space", words, words));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 80) << line;
  }
}

TEST(CheckTest, OnlyAFailureIsAnError) {
  Checks checks;
  checks.Add(Passed("a", "x"));
  checks.Add(Warn("b", "x", "y"));
  EXPECT_TRUE(checks.ToStatus().ok());
  checks.Add(Failed("c", "x", "y"));
  checks.Add(Failed("d", "x", "y"));
  EXPECT_EQ(ToExitCode(checks.ToStatus()), ExitCode::kPreflightFailed);
  EXPECT_THAT(std::string(checks.ToStatus().message()), HasSubstr("c, d"));
  EXPECT_TRUE(checks.HasFailed("c"));
  EXPECT_FALSE(checks.HasFailed("b"));
}

TEST(CheckTest, ACheckThatCannotBeMadeIsNoSecondFailure) {
  Checks checks;
  checks.Skip({"tcp", "tls"}, "dns failed");
  EXPECT_TRUE(checks.ToStatus().ok());
  EXPECT_EQ(checks.ToData()[1]["id"], "tls");
  EXPECT_EQ(checks.ToData()[1]["result"], "WARN");
  EXPECT_EQ(checks.ToData()[1]["message"], "not checked: dns failed");
  EXPECT_EQ(checks.ToData()[1]["action"], "");
}

TEST(CheckTest, EachCheckIsSeenWhenItIsMade) {
  std::string seen;
  Checks checks([&seen](const Check& check) { seen += check.id + " "; });
  checks.Add(Passed("a", ""));
  checks.Add(Passed("b", ""));
  EXPECT_EQ(seen, "a b ");
}

}  // namespace
}  // namespace atl::cli
