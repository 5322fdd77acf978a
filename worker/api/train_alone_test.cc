#include "worker/api/train_alone.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/api/publish_data.h"
#include "worker/api/run_data.h"
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

TEST_F(TrainAloneTest, TheBitsDoNotDependOnHowDataCame) {
  PublishOptions publish;
  publish.input = options_.spec.data().path();
  publish.to = absl::StrCat("file://", directory_, "/published");
  publish.shard_bytes = 4096;
  ASSERT_TRUE(PublishData(publish).ok());
  options_.spec.mutable_data()->Clear();
  options_.spec.mutable_data()->set_url(publish.to + "/manifest.json");
  options_.spec.mutable_data()->set_order(v1::DATA_ORDER_BY_FILE);
  options_.spec.mutable_data()->set_data_shard_count(2);
  const absl::Status complete = CompleteDataByUrl(options_.spec);
  ASSERT_TRUE(complete.ok()) << complete;
  const auto local = TrainAlone(options_);
  ASSERT_TRUE(local.ok()) << local.status();

  options_.spec.mutable_data()->set_url("s3://bucket/manifest.json");
  options_.data.cache_directory = directory_ + "/cache";
  bool is_away = false;
  options_.data.open_store =
      [&](const std::string&,
          auto cancelled) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    if (is_away) return absl::UnavailableError("away");
    return OpenStoreOfUrl(publish.to, cancelled);
  };
  const auto fetched = TrainAlone(options_);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->parameters_sha256, local->parameters_sha256);
  EXPECT_EQ(fetched->validation_loss, local->validation_loss);
  is_away = true;
  const auto cached = TrainAlone(options_);
  ASSERT_TRUE(cached.ok()) << cached.status();
  EXPECT_EQ(cached->parameters_sha256, local->parameters_sha256);
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
  EXPECT_EQ(TrainAlone(options_).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(TrainAloneTest, RefusesAnImport) {
  options_.spec.mutable_init()->set_import(true);
  EXPECT_EQ(TrainAlone(options_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::worker
