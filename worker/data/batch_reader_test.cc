#include "worker/data/batch_reader.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

class CountingDataSet : public DataSet {
 public:
  CountingDataSet(const v1::DataSpec& spec, int64_t count)
      : DataSet(spec), count_(count) {}
  absl::StatusOr<std::string> Fingerprint() const override { return ""; }
  int64_t token_count() const override { return count_; }
  absl::Status Read(int64_t offset,
                    absl::Span<int32_t> tokens) const override {
    EXPECT_GE(offset, 0);
    EXPECT_LE(offset + static_cast<int64_t>(tokens.size()), count_);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>((offset + i) % 251);
    }
    return absl::OkStatus();
  }

 private:
  int64_t count_;
};

v1::RunSpec Spec() {
  v1::RunSpec spec;
  spec.mutable_inner()->set_batch_size(4);
  spec.mutable_inner()->set_seed(3);
  spec.mutable_model()->set_sequence_length(8);
  spec.mutable_model()->set_vocab_size(256);
  spec.mutable_data()->set_data_shard_count(2);
  spec.mutable_data()->set_validation_fraction(0.1);
  spec.mutable_evaluation()->set_batch_count(2);
  return spec;
}

TEST(BatchReaderTest, TargetsFollowInputs) {
  const v1::RunSpec spec = Spec();
  const auto reader = BatchReader::Create(
      std::make_unique<CountingDataSet>(spec.data(), 2000), spec);
  ASSERT_TRUE(reader.ok()) << reader.status();
  Batch batch;
  for (int64_t position : {0, 4, 1001}) {
    ASSERT_TRUE(reader->Read(1, position, batch).ok());
    ASSERT_EQ(batch.inputs.size(), 32);
    for (size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(batch.targets[i], (batch.inputs[i] + 1) % 251);
    }
  }
  EXPECT_FALSE(reader->Read(2, 0, batch).ok());
}

TEST(BatchReaderTest, AStepTakesTheNextWindows) {
  const v1::RunSpec spec = Spec();
  const auto reader = BatchReader::Create(
      std::make_unique<CountingDataSet>(spec.data(), 2000), spec);
  Batch first, shifted;
  ASSERT_TRUE(reader->Read(0, 0, first).ok());
  ASSERT_TRUE(reader->Read(0, 3, shifted).ok());
  EXPECT_TRUE(std::equal(first.inputs.begin() + 24, first.inputs.end(),
                         shifted.inputs.begin()));
}

TEST(BatchReaderTest, EvaluatesHeldOutTokensOnly) {
  const v1::RunSpec spec = Spec();
  const auto reader = BatchReader::Create(
      std::make_unique<CountingDataSet>(spec.data(), 240), spec);
  Batch batch;
  ASSERT_TRUE(reader->ReadEvaluation(batch).ok());
  // 24 tokens held out: two windows of nine tokens that share one.
  ASSERT_EQ(batch.inputs.size(), 16);
  EXPECT_EQ(batch.inputs[0], 216);
  EXPECT_EQ(batch.targets[15], 232);
}

TEST(BatchReaderTest, RefusesTokensPastTheVocabulary) {
  v1::RunSpec spec = Spec();
  spec.mutable_model()->set_vocab_size(100);
  const auto reader = BatchReader::Create(
      std::make_unique<CountingDataSet>(spec.data(), 2000), spec);
  Batch batch;
  absl::Status status;
  for (int i = 0; i < 50 && status.ok(); ++i) {
    status = reader->Read(0, 4 * i, batch);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(BatchReaderTest, RefusesDataShardsThatAreTooShort) {
  const v1::RunSpec spec = Spec();
  EXPECT_EQ(BatchReader::Create(
                std::make_unique<CountingDataSet>(spec.data(), 18), spec)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::worker
