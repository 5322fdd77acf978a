#include "base/obs/log.h"

#include <map>
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
  ~LogTest() override { SetMinimumLogSeverity(LogSeverity::kInfo); }

  // Returns what `log` writes to stderr.
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

TEST_F(LogTest, DropsWhatIsBelowTheMinimumWithoutEvaluatingIt) {
  ASSERT_TRUE(SetMinimumLogSeverity("warning").ok());
  int calls = 0;
  EXPECT_THAT(Written([&] { LOG(INFO) << ++calls; }), IsEmpty());
  EXPECT_EQ(calls, 0);
  EXPECT_THAT(Written([&] { LOG(WARNING) << ++calls; }),
              MatchesRegex("W.*\\] 1\n"));
}

// Records the lines that the sink received.
class Kept : public LogSink {
 public:
  void Send(LogSeverity severity, absl::string_view line,
            absl::string_view text) override {
    this->severity = severity;
    this->line = std::string(line);
    this->text = std::string(text);
  }
  LogSeverity severity = LogSeverity::kInfo;
  std::string line, text;
};

TEST_F(LogTest, ASinkTakesLinesInPlaceOfStderr) {
  Kept kept;
  SetLogSink(&kept);
  EXPECT_THAT(Written([] { LOG(WARNING) << "a] b"; }), IsEmpty());
  EXPECT_EQ(kept.severity, LogSeverity::kWarning);
  EXPECT_EQ(kept.text, "a] b");
  EXPECT_THAT(kept.line, MatchesRegex("W.* log_test\\.cc:[0-9]+\\] a\\] b"));
  SetLogSink(nullptr);
  EXPECT_THAT(Written([] { LOG(INFO) << "c"; }), MatchesRegex("I.*\\] c\n"));
  EXPECT_EQ(kept.text, "a] b");
}

// Counts lines by their text.
class Counted : public LogSink {
 public:
  Counted() { SetLogSink(this); }
  ~Counted() override { SetLogSink(nullptr); }
  void Send(LogSeverity severity, absl::string_view line,
            absl::string_view text) override {
    ++counts[std::string(text)];
  }
  std::map<std::string, int> counts;
};

TEST_F(LogTest, AStatementThatRepeatsWithoutEndIsCut) {
  Counted log;
  for (int i = 0; i < 100000; ++i) LOG(INFO) << "flood";
  LOG(INFO) << "another statement";
  // The test may stand still, and a window end meanwhile.
  EXPECT_GE(log.counts["flood"], 100);
  EXPECT_LT(log.counts["flood"], 50000);
  EXPECT_EQ(log.counts["another statement"], 1);
}

TEST_F(LogTest, ASubjectTakesNoLinesOfAnother) {
  Counted log;
  const auto say = [](const std::string& run) { LOG_ABOUT(INFO, run) << run; };
  for (int i = 0; i < 100000; ++i) say("run a");
  say("run b");
  EXPECT_LT(log.counts["run a"], 50000);
  EXPECT_EQ(log.counts["run b"], 1);
}

TEST_F(LogTest, ALibrarysLineHasItsPlaceAndIsOneLine) {
  EXPECT_THAT(Written([] {
                LogFromLibrary(LogSeverity::kInfo, "lib", "/usr/src/lib.cc", 7,
                               "text\nI0101 forged");
              }),
              MatchesRegex("I.* lib\\.cc:7\\] lib: text\n"));
}

TEST_F(LogTest, ALibrarysLinesAreCut) {
  Counted log;
  for (int i = 0; i < 100000; ++i) {
    LogFromLibrary(LogSeverity::kInfo, "lib", "lib.cc", 8, "flood");
  }
  EXPECT_GE(log.counts["lib: flood"], 10);
  EXPECT_LT(log.counts["lib: flood"], 5000);
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
