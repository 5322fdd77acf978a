#include "cli/commands/island_reporter.h"

#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class IslandReporterTest : public ::testing::Test {
 protected:
  static Progress::Options Options(bool live) {
    Progress::Options options;
    options.live = live;
    options.columns = 200;
    return options;
  }

  std::ostringstream stream_;
  const absl::Time begin_ = absl::FromUnixSeconds(1000);
};

TEST_F(IslandReporterTest, TellsTheTimeLeftOfStepsTrainedInThisLife) {
  IslandReporter reporter(Options(false), stream_);
  worker::IslandProgress at;
  at.step_count = 1000;
  reporter.Report(at, begin_);
  EXPECT_THAT(stream_.str(), HasSubstr("loss -  left -"));
  // The island joins a run at step 400. No report shows "train": a step may be
  // shorter than the time between reports.
  at.step = 400;
  at.tokens_per_second = 5;
  at.activity = "push";
  at.reason = "the contribution is saved";
  at.sent_bytes = 1500;
  reporter.Report(at, begin_ + absl::Seconds(1));
  at.step = 500;
  reporter.Report(at, begin_ + absl::Seconds(11));
  EXPECT_THAT(stream_.str(), HasSubstr("left 50s  push: the contribution is "
                                       "saved  up 1.5 kB  down 0 B\n"));
}

TEST_F(IslandReporterTest, ALogLineStandsAboveTheLiveLine) {
  IslandReporter reporter(Options(true), stream_);
  const LogToReporter log(reporter);
  reporter.Report({}, begin_);
  LOG(WARNING) << "the coordinator is away";
  LOG(INFO) << "gRPC: a tree of causes";
  EXPECT_EQ(reporter.last_warning(), "the coordinator is away");
  EXPECT_THAT(stream_.str(),
              HasSubstr("\r\x1b[2Kwarning: the coordinator is away\n"
                        "\r\x1b[2Kround 0"));
  EXPECT_THAT(stream_.str(), Not(HasSubstr("gRPC")));
}

TEST_F(IslandReporterTest, InAPipeALogLineKeepsItsTime) {
  IslandReporter reporter(Options(false), stream_);
  {
    const LogToReporter log(reporter);
    LOG(INFO) << "contribution 3";
  }
  EXPECT_THAT(stream_.str(), HasSubstr("island_reporter_test.cc:"));
  EXPECT_THAT(stream_.str(), EndsWith("] contribution 3\n"));
}

TEST(JoinResultTest, TellsWhatBecameOfTheWork) {
  worker::IslandProgress at;
  at.version = 3;
  at.round_count = 30;
  at.contributions.merged_count = 2;
  at.contributions.late_count = 1;
  at.contributions.merged_tokens = 1234;
  const Json data = ToData(at, "spring", "kitchen");
  EXPECT_EQ(data["contributions"].dump(),
            R"({"merged":2,"late":1,"stale":0,"rejected":0,"dropped":0})");
  EXPECT_EQ(data["merged_tokens"], 1234);
  EXPECT_EQ(data["island_id"], "kitchen");
  EXPECT_TRUE(data["training_begin_time"].is_null()) << "no step was taken";
  EXPECT_TRUE(absl::StrContains(ToText(at, "spring", "kitchen"),
                                "2 merged with 1,234 tokens, 1 late"));
}

}  // namespace
}  // namespace atl::cli
