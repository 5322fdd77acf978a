#include "worker/api/run_data.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/api/publish_data.h"
#include "worker/data/data_set.h"

namespace atl::worker {
namespace {

using ::testing::HasSubstr;

class RunDataTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(
        testing::TempDir(), "/run_data_", ::getpid(), "_",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(root_);
    for (int i = 0; i < 4; ++i) {
      std::ofstream(absl::StrCat(root_, "/f", i)) << std::string(50 + i, 'x');
    }
    PublishOptions options;
    options.input = root_;
    options.to = absl::StrCat("file://", root_);
    const auto published = PublishData(options);
    ASSERT_TRUE(published.ok()) << published.status();
    published_ = *published;
    spec_.mutable_inner()->set_batch_size(1);
    spec_.mutable_model()->set_sequence_length(8);
    spec_.mutable_evaluation()->set_every_round_count(1);
    spec_.mutable_data()->set_url(published_.url);
    spec_.mutable_data()->set_order(v1::DATA_ORDER_BY_FILE);
    spec_.mutable_data()->set_data_shard_count(3);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Fault() {
    return std::string(CompleteDataByUrl(spec_).message());
  }

  std::string root_;
  PublishResult published_;
  v1::RunSpec spec_;
};

TEST_F(RunDataTest, FillsInFormatAndFingerprint) {
  const absl::Status status = CompleteDataByUrl(spec_);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(spec_.data().format(), v1::DATA_FORMAT_BYTES);
  EXPECT_EQ(spec_.data().fingerprint(), published_.fingerprint);
  EXPECT_TRUE(CompleteDataByUrl(spec_).ok());
}

TEST_F(RunDataTest, SaysWhatDoesNotFitTheManifest) {
  spec_.mutable_data()->set_data_shard_count(4);
  EXPECT_THAT(Fault(), HasSubstr("4 data shards and 3 files"));
  spec_.mutable_data()->set_data_shard_count(3);
  spec_.mutable_data()->set_format(v1::DATA_FORMAT_UINT16);
  EXPECT_THAT(Fault(), HasSubstr("the format of the data is bytes"));
  spec_.mutable_data()->clear_format();
  spec_.mutable_model()->set_sequence_length(50);
  EXPECT_THAT(Fault(), HasSubstr("file f0: there are 50 tokens"));
  spec_.mutable_model()->set_sequence_length(8);
  spec_.mutable_data()->set_fingerprint(std::string(64, '0'));
  EXPECT_THAT(Fault(), HasSubstr("the data is not the run's"));
  spec_.mutable_data()->clear_fingerprint();
  spec_.mutable_data()->set_url(absl::StrCat("file://", root_, "/none.json"));
  EXPECT_EQ(CompleteDataByUrl(spec_).code(), absl::StatusCode::kNotFound);
}

TEST_F(RunDataTest, AnEvaluationNeedsHeldOutTokens) {
  std::filesystem::remove(root_ + "/manifest.json");
  PublishOptions options;
  options.input = root_;
  options.to = absl::StrCat("file://", root_);
  options.held_out_fraction = 0;
  ASSERT_TRUE(PublishData(options).ok());
  EXPECT_THAT(Fault(), HasSubstr("--held-out"));
  spec_.mutable_data()->clear_fingerprint();
  spec_.mutable_evaluation()->set_every_round_count(0);
  EXPECT_EQ(Fault(), "");
}

TEST_F(RunDataTest, LocalDataIsTheRunsOrSaysWhatItIs) {
  v1::DataSpec data;
  data.set_format(v1::DATA_FORMAT_BYTES);
  const std::string file = root_ + "/f0";
  const auto own = LookAtLocalData(data, file);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->token_count, 50);
  EXPECT_FALSE(own->is_compared);
  data.set_data_shard_count(1);
  data.set_fingerprint(*(*DataSet::Open(data, file))->Fingerprint());
  EXPECT_TRUE(LookAtLocalData(data, file)->is_compared);
  const absl::Status other = LookAtLocalData(data, root_ + "/f1").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.message(), HasSubstr("/f1\" is not the run's"));
  const absl::Status missing = LookAtLocalData(data, root_ + "/none").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("no data at"));
  std::filesystem::create_directory(root_ + "/empty");
  EXPECT_THAT(LookAtLocalData(data, root_ + "/empty").status().message(),
              HasSubstr("has no file"));
}

TEST_F(RunDataTest, ACopyOfDataByUrlIsTheRunsOrNot) {
  ASSERT_TRUE(CompleteDataByUrl(spec_).ok());
  const auto copy = LookAtLocalData(spec_.data(), root_);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_TRUE(copy->is_compared);
  spec_.mutable_data()->set_fingerprint(std::string(64, '0'));
  EXPECT_EQ(LookAtLocalData(spec_.data(), root_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(LookAtLocalData(spec_.data(), root_ + "/none").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace atl::worker
