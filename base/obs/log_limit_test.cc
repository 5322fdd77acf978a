#include "base/obs/log_limit.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace atl {
namespace {

constexpr absl::Duration kWindow = LogLimit::kWindow;

class LogLimitTest : public ::testing::Test {
 protected:
  static LogLimit::Kind Kind(int line, std::string subject = "") {
    return {"a.cc", line, 0, std::move(subject)};
  }
  // Logs `count` lines at once, and returns how many of them are written.
  int Log(const LogLimit::Kind& kind, int count) {
    int written = 0;
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(limit_.TakeEnded(now_).empty());
      written += limit_.Admit(kind, /*lines_max=*/10, now_);
    }
    return written;
  }

  LogLimit limit_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(LogLimitTest, AWindowHasALimitAndItsEndTellsTheRest) {
  EXPECT_EQ(Log(Kind(1), 1000), 10);
  now_ += kWindow - absl::Milliseconds(1);
  EXPECT_EQ(Log(Kind(1), 1000), 0);
  now_ += absl::Milliseconds(1);
  const auto ended = limit_.TakeEnded(now_);
  ASSERT_EQ(ended.size(), 1);
  EXPECT_EQ(ended[0].kind, Kind(1));
  EXPECT_EQ(ended[0].count, 1990);
  EXPECT_EQ(Log(Kind(1), 3), 3);
  now_ += kWindow;
  EXPECT_TRUE(limit_.TakeEnded(now_).empty()) << "no line was left out";
}

TEST_F(LogLimitTest, AKindTakesNoLineOfAnother) {
  EXPECT_EQ(Log(Kind(1), 1000), 10);
  EXPECT_EQ(Log(Kind(2), 5), 5);
  EXPECT_EQ(Log(Kind(1, "run b"), 5), 5);
  now_ += kWindow / 2;
  EXPECT_EQ(Log(Kind(3), 11), 10);
  now_ += kWindow / 2;
  EXPECT_EQ(limit_.TakeEnded(now_).size(), 1);
  now_ += kWindow / 2;
  EXPECT_EQ(limit_.TakeEnded(now_).size(), 1);
}

TEST_F(LogLimitTest, AClockThatIsSetBackSilencesNothing) {
  EXPECT_EQ(Log(Kind(1), 11), 10);
  now_ -= absl::Hours(1);
  const auto ended = limit_.TakeEnded(now_);
  ASSERT_EQ(ended.size(), 1);
  EXPECT_EQ(ended[0].count, 1);
  EXPECT_EQ(Log(Kind(1), 10), 10);
}

TEST_F(LogLimitTest, ManySubjectsTakeNoMemory) {
  const int kinds_max = static_cast<int>(LogLimit::kKindsMax);
  for (int i = 0; i < kinds_max; ++i) {
    EXPECT_EQ(Log(Kind(1, std::to_string(i)), 1), 1);
  }
  int written = 0;
  for (int i = 0; i < kinds_max; ++i) {
    written += Log(Kind(1, "more" + std::to_string(i)), 1);
  }
  EXPECT_EQ(written, 10);
}

}  // namespace
}  // namespace atl
