#include "worker/api/train_alone.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/island/testing/tiny_run.h"

namespace atl::worker {
namespace {

class TrainAloneTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(testing::TempDir(), "/train_alone_", ::getpid());
    std::filesystem::create_directories(directory_);
    TinyRunOptions tiny;
    tiny.data_path = WriteTinyText(directory_, 3, 20000);
    tiny.inner_step_count = 5;
    tiny.round_count = 8;
    options_.spec = TinyRun(tiny);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  TrainAloneOptions options_;
};

TEST_F(TrainAloneTest, Learns) {
  int evaluation_count = 0;
  double first = 0, last = 0;
  options_.on_progress = [&](const TrainAloneProgress& progress) {
    if (!progress.validation_loss.has_value()) return;
    if (evaluation_count++ == 0) first = *progress.validation_loss;
    last = *progress.validation_loss;
  };
  const auto result = TrainAlone(options_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(evaluation_count, 8);
  EXPECT_EQ(result->step_count, 40);
  EXPECT_EQ(result->validation_loss, last);
  EXPECT_LT(last, first - 0.3);
}

TEST_F(TrainAloneTest, GivesTheSameBitsForAnyThreadCount) {
  const auto one = TrainAlone(options_);
  options_.thread_count = 2;
  const auto two = TrainAlone(options_);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->parameters_sha256, two->parameters_sha256);
}

TEST_F(TrainAloneTest, TheOuterRoundTripChangesRoundingOnly) {
  const auto plain = TrainAlone(options_);
  options_.outer_round_trip = true;
  const auto tripped = TrainAlone(options_);
  ASSERT_TRUE(plain.ok() && tripped.ok());
  EXPECT_NEAR(plain->validation_loss, tripped->validation_loss, 1e-3);
}

TEST_F(TrainAloneTest, Stops) {
  std::stop_source stop;
  stop.request_stop();
  options_.stop = stop.get_token();
  EXPECT_EQ(TrainAlone(options_).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(TrainAloneTest, RefusesAnImport) {
  options_.spec.mutable_init()->set_import(true);
  EXPECT_EQ(TrainAlone(options_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::worker
