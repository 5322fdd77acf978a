#include "worker/data/by_file_data_set.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/core/data_awaited.h"
#include "worker/data/batch_reader.h"

namespace atl::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Files of a directory, and what was asked for.
struct Asked {
  std::vector<int32_t> opened;
  std::vector<int32_t> prefetched;
  std::set<int32_t> missing;
};

class RecordingSource : public FileSource {
 public:
  RecordingSource(std::vector<std::string> paths, Asked* asked)
      : paths_(std::move(paths)), asked_(*asked) {}

  absl::StatusOr<std::shared_ptr<const DataFileReader>> Open(
      int32_t index) override {
    asked_.opened.push_back(index);
    absl::StatusOr<DataFileReader> reader =
        DataFileReader::Open(paths_.at(index));
    if (!reader.ok()) return reader.status();
    return std::make_shared<const DataFileReader>(*std::move(reader));
  }
  void Prefetch(int32_t index) override { asked_.prefetched.push_back(index); }
  absl::Status Ready(absl::Span<const int32_t> files) override {
    for (const int32_t index : files) {
      if (asked_.missing.contains(index)) return DataAwaited("test");
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<std::string> paths_;
  Asked& asked_;
};

class ByFileDataSetTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) /
            absl::StrCat(
                "by_file_", ::getpid(), "_",
                testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(root_);
    manifest_.format = v1::DATA_FORMAT_UINT16;
    spec_.set_format(v1::DATA_FORMAT_UINT16);
    spec_.set_order(v1::DATA_ORDER_BY_FILE);
    spec_.set_data_shard_count(1);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // Adds a file with the next `count` numbers.
  void Add(int64_t count, bool is_held_out = false) {
    std::string bytes(2 * count, '\0');
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t token = static_cast<uint16_t>(next_++);
      std::memcpy(&bytes[2 * i], &token, 2);
    }
    const std::string name = absl::StrCat("f", manifest_.files.size());
    paths_.push_back((root_ / name).string());
    std::ofstream(paths_.back(), std::ios::binary) << bytes;
    manifest_.files.push_back({name, 2 * count,
                               codec::ToHex(codec::ComputeSha256(bytes)), count,
                               is_held_out});
  }

  absl::StatusOr<std::unique_ptr<DataSet>> Make() {
    return MakeByFileDataSet(
        spec_, manifest_, std::make_unique<RecordingSource>(paths_, &asked_));
  }

  v1::RunSpec RunSpec() {
    v1::RunSpec run;
    *run.mutable_data() = spec_;
    run.mutable_inner()->set_batch_size(1);
    run.mutable_inner()->set_seed(11);
    run.mutable_model()->set_sequence_length(4);
    run.mutable_model()->set_vocab_size(65536);
    run.mutable_evaluation()->set_batch_count(100);
    return run;
  }

  std::filesystem::path root_;
  v1::DataSpec spec_;
  Manifest manifest_;
  std::vector<std::string> paths_;
  Asked asked_;
  int64_t next_ = 0;
};

TEST_F(ByFileDataSetTest, ABatchWaitsForEachOfItsFilesWithoutBlocking) {
  Add(5);
  Add(5);
  Add(5, /*is_held_out=*/true);
  Add(5, /*is_held_out=*/true);
  v1::RunSpec run = RunSpec();
  run.mutable_inner()->set_batch_size(2);
  const auto reader = BatchReader::Create(Make().value(), run);
  ASSERT_TRUE(reader.ok()) << reader.status();
  constexpr auto kNoWait = BatchReader::Wait::kNo;
  Batch whole, pieces;
  ASSERT_TRUE(reader->Read(0, 0, whole).ok());
  asked_.missing = {0, 1, 2, 3};
  // The files of windows 0 and 1, in some order.
  const auto first = static_cast<int32_t>(whole.inputs[0] / 5);
  const auto second = 1 - first;
  EXPECT_TRUE(IsDataAwaited(reader->Read(0, 0, pieces, kNoWait)));
  asked_.missing.erase(first);
  asked_.opened.clear();
  EXPECT_TRUE(IsDataAwaited(reader->Read(0, 0, pieces, kNoWait)));
  EXPECT_TRUE(IsDataAwaited(reader->Read(0, 0, pieces, kNoWait)));
  asked_.missing.erase(second);
  EXPECT_TRUE(reader->Read(0, 0, pieces, kNoWait).ok());
  EXPECT_EQ(pieces.inputs, whole.inputs);
  EXPECT_EQ(pieces.targets, whole.targets);
  // Windows that are read are not read again.
  EXPECT_EQ(asked_.opened, (std::vector<int32_t>{first, second}));
  EXPECT_TRUE(reader->Read(0, 0, pieces, kNoWait).ok());
  EXPECT_EQ(pieces.inputs, whole.inputs);

  Batch held_out, waited;
  EXPECT_TRUE(IsDataAwaited(reader->ReadEvaluation(held_out, kNoWait)));
  asked_.missing.erase(2);
  EXPECT_TRUE(IsDataAwaited(reader->ReadEvaluation(held_out, kNoWait)));
  asked_.missing.clear();
  EXPECT_TRUE(reader->ReadEvaluation(held_out, kNoWait).ok());
  EXPECT_TRUE(reader->ReadEvaluation(waited).ok());
  EXPECT_EQ(held_out.inputs, waited.inputs);
}

TEST_F(ByFileDataSetTest, TrainingTokensComeFirstThenHeldOutOnes) {
  Add(5);
  Add(3, /*is_held_out=*/true);
  Add(4);
  Add(2, /*is_held_out=*/true);
  const auto data = Make();
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->token_count(), 14);
  EXPECT_EQ((*data)->validation().begin, 9);
  EXPECT_EQ((*data)->validation().end, 14);
  const std::vector<int32_t> all = {0,  1,  2, 3, 4, 8,  9,
                                    10, 11, 5, 6, 7, 12, 13};
  for (int64_t begin = 0; begin < 14; ++begin) {
    std::vector<int32_t> tokens(14 - begin);
    ASSERT_TRUE((*data)->Read(begin, absl::MakeSpan(tokens)).ok());
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin() + begin));
  }
  std::vector<int32_t> tokens(2);
  EXPECT_EQ((*data)->Read(13, absl::MakeSpan(tokens)).code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(ByFileDataSetTest, ADataShardIsEveryKthFile) {
  for (int i = 0; i < 5; ++i) Add(10, /*is_held_out=*/i == 1);
  spec_.set_data_shard_count(3);
  const auto data = Make();
  ASSERT_TRUE(data.ok()) << data.status();
  const std::vector<WindowGroup> first = (*data)->window_groups(0);
  ASSERT_EQ(first.size(), 2);
  EXPECT_EQ(first[0].key, 0);
  EXPECT_EQ(first[1].key, 4);
  EXPECT_EQ(first[1].tokens.begin, 30);
  EXPECT_EQ(first[1].tokens.end, 40);
  EXPECT_EQ((*data)->window_groups(1)[0].key, 2);
  EXPECT_EQ((*data)->window_groups(2)[0].key, 3);
  EXPECT_EQ((*data)->window_groups(2).size(), 1);
}

TEST_F(ByFileDataSetTest, BatchesAreWindowsOfOneFileInTheFilesOwnOrder) {
  for (int i = 0; i < 7; ++i) Add(20 + 3 * i, /*is_held_out=*/i == 2);
  spec_.set_data_shard_count(2);
  const v1::RunSpec run = RunSpec();
  const auto reader = BatchReader::Create(*Make(), run);
  ASSERT_TRUE(reader.ok()) << reader.status();
  // Data shard 1 has the training files 1 and 3 of 0, 1, 3, 4, 5, 6, so files
  // 1, 4 and 6 of the manifest.
  std::vector<int32_t> expected;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (const int32_t file : {1, 4, 6}) {
      const auto order =
          WindowOrder::Create(11, file, manifest_.files[file].token_count, 4);
      int64_t first = 0;
      for (int32_t i = 0; i < file; ++i)
        first += manifest_.files[i].token_count;
      for (int64_t w = 0; w < order->windows_per_epoch(); ++w) {
        expected.push_back(static_cast<int32_t>(
            first + order->Offset(epoch * order->windows_per_epoch() + w)));
      }
    }
  }
  Batch batch;
  for (size_t p = 0; p < expected.size(); ++p) {
    ASSERT_TRUE(reader->Read(1, static_cast<int64_t>(p), batch).ok());
    const int32_t t = expected[p];
    EXPECT_THAT(batch.inputs, ElementsAre(t, t + 1, t + 2, t + 3));
    EXPECT_THAT(batch.targets, ElementsAre(t + 1, t + 2, t + 3, t + 4));
  }
  EXPECT_THAT(asked_.opened, ElementsAre(1, 4, 6, 1, 4, 6));
  EXPECT_THAT(asked_.prefetched, ElementsAre(4, 6, 1, 4, 6, 1));
}

TEST_F(ByFileDataSetTest, EvaluatesHeldOutFilesInOrder) {
  Add(10);
  Add(6, /*is_held_out=*/true);
  Add(7, /*is_held_out=*/true);
  const v1::RunSpec run = RunSpec();
  const auto reader = BatchReader::Create(*Make(), run);
  ASSERT_TRUE(reader.ok()) << reader.status();
  Batch batch;
  const absl::Status read = reader->ReadEvaluation(batch);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_THAT(batch.inputs,
              ElementsAre(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21));
  EXPECT_THAT(asked_.opened, ElementsAre(1, 2));
  EXPECT_THAT(asked_.prefetched, ElementsAre(2));
}

TEST_F(ByFileDataSetTest, OneFileADataShardNeedsNoOther) {
  Add(20);
  const auto reader = BatchReader::Create(*Make(), RunSpec());
  Batch batch;
  for (int64_t p = 0; p < 20; ++p) ASSERT_TRUE(reader->Read(0, p, batch).ok());
  EXPECT_THAT(asked_.opened, ElementsAre(0));
  EXPECT_TRUE(asked_.prefetched.empty());
}

TEST_F(ByFileDataSetTest, RefusesAFileThatIsShorterThanAWindow) {
  Add(20);
  Add(4);
  const absl::Status status = BatchReader::Create(*Make(), RunSpec()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("file f1: there are 4"));
}

TEST_F(ByFileDataSetTest, RefusesSpecsThatDoNotFitTheManifest) {
  Add(20);
  Add(20, /*is_held_out=*/true);
  spec_.set_data_shard_count(2);
  EXPECT_THAT(std::string(Make().status().message()),
              HasSubstr("2 data shards and 1 files"));
  spec_.set_data_shard_count(1);
  spec_.set_fingerprint(std::string(64, '0'));
  EXPECT_EQ(Make().status().code(), absl::StatusCode::kFailedPrecondition);
  spec_.set_fingerprint(ComputeFingerprint(manifest_));
  EXPECT_EQ(*(*Make())->Fingerprint(), spec_.fingerprint());
  spec_.set_format(v1::DATA_FORMAT_LLMC);
  EXPECT_THAT(std::string(Make().status().message()),
              HasSubstr("the format of the data is uint16"));
  spec_.set_format(v1::DATA_FORMAT_UINT16);
  spec_.clear_order();
  EXPECT_THAT(std::string(Make().status().message()), HasSubstr("by_file"));
}

TEST_F(ByFileDataSetTest, RefusesAFileWhoseHeaderContradictsTheManifest) {
  manifest_.format = v1::DATA_FORMAT_LLMC;
  spec_.set_format(v1::DATA_FORMAT_LLMC);
  Add(600);  // 1200 bytes: no header.
  manifest_.files[0].token_count = (1200 - 1024) / 2;
  const auto data = Make();
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<int32_t> tokens(2);
  EXPECT_EQ((*data)->Read(0, absl::MakeSpan(tokens)).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::worker
