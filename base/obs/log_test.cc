#include "base/obs/log.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::IsEmpty;
using ::testing::MatchesRegex;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override {
    SetMinimumLogSeverity(LogSeverity::kInfo);
    SetLogProgramName("");
  }

  // What `log` writes to stderr.
  template <typename Log>
  static std::string Written(Log&& log) {
    ::testing::internal::CaptureStderr();
    log();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, WritesOneLineWithLevelTimeFileAndText) {
  EXPECT_THAT(Written([] { LOG(INFO) << "round " << 3; }),
              MatchesRegex("I[0-9]{4} [0-9:]{8}\\.[0-9]{6} "
                           "log_test\\.cc:[0-9]+\\] round 3\n"));
}

TEST_F(LogTest, NamesTheProgramWhenItWasSet) {
  SetLogProgramName("server-1");
  EXPECT_THAT(Written([] { LOG(ERROR) << "x"; }),
              MatchesRegex("E.* server-1 log_test\\.cc:[0-9]+\\] x\n"));
}

TEST_F(LogTest, DropsWhatIsBelowTheMinimumWithoutEvaluatingIt) {
  ASSERT_TRUE(SetMinimumLogSeverity("warning").ok());
  int calls = 0;
  EXPECT_THAT(Written([&] { LOG(INFO) << ++calls; }), IsEmpty());
  EXPECT_EQ(calls, 0);
  EXPECT_THAT(Written([&] { LOG(WARNING) << ++calls; }),
              MatchesRegex("W.*\\] 1\n"));
}

TEST_F(LogTest, RefusesAnUnknownLevel) {
  EXPECT_EQ(SetMinimumLogSeverity("loud").code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(LogTest, StopsTheProgramOnFatal) {
  EXPECT_DEATH(LOG(FATAL) << "the end", "F.*the end");
}

}  // namespace
}  // namespace atl
