#include "worker/save/save_file.h"

#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

constexpr char kPath[] = "/save/run.island.save";

class SaveFileTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(files_.CreateDirectories("/save").ok());
    header_.summary.run_id = "run";
    header_.summary.run_epoch = 2;
    header_.summary.slot = 3;
    header_.summary.seq = 1'000'000'000'007;
    header_.step = 40;
    header_.summary.data_shard = 1;
    header_.summary.data_position = 320;
    header_.optimizer_step_count = 40;
    header_.restart_step_count = 4;
    header_.trainer_save_id = "1-0-7";
    header_.token_counts = {5, 0};
    header_.losses = {{0.1 + 0.2, 3}, {}};
    header_.summary.evaluator_version = 5;
    header_.summary.evaluator_index = 1;
    header_.summary.evaluator_count = 3;
    for (int f = 0; f < 2; ++f) {
      v1::ContributionInfo info;
      info.mutable_key()->set_fragment(f);
      info.mutable_key()->set_seq(7);
      info.mutable_digest()->set_high(~uint64_t{0});
      contributions_.push_back({info, std::vector<char>(3 + f, 'a')});
    }
    first_ = {1.0f, -2.0f, 3e-42f};
    second_ = {4.0f, 5.0f, 6.0f};
    before_ = {1.5f, -0.0f};
    after_ = {2.5f, 1e-40f};
    FeedbackView feedback;
    feedback.key = contributions_[0].info.key();
    feedback.before = before_;
    feedback.after = after_;
    feedback_.push_back(feedback);
    feedback.key.set_fragment(1);
    feedback.after = {};
    feedback_.push_back(feedback);
  }

  absl::Status Write() {
    SaveView view;
    view.arrays.first_moment = first_;
    view.arrays.second_moment = second_;
    view.arrays.local = local_;
    view.arrays.eager_foreseen = foreseen_;
    for (const EncodedContribution& contribution : contributions_) {
      view.contributions.push_back(&contribution);
    }
    view.feedback = feedback_;
    return WriteSave(files_, kPath, header_, view).status();
  }
  std::string Bytes() {
    const auto file = *files_.OpenForRead(kPath);
    std::string bytes(*file->Size(), '\0');
    EXPECT_TRUE(file->ReadAt(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }
  void Overwrite(const std::string& bytes) {
    ASSERT_TRUE(files_.Remove(kPath).ok());
    const auto file = *files_.OpenForWrite(kPath);
    ASSERT_TRUE(file->WriteAt(0, bytes).ok());
  }

  FakeFileSystem files_;
  SaveHeader header_;
  std::vector<float> first_, second_, local_, foreseen_;
  std::vector<EncodedContribution> contributions_;
  std::vector<float> before_, after_;
  std::vector<FeedbackView> feedback_;
};

TEST_F(SaveFileTest, GivesBackWhatWasWritten) {
  ASSERT_TRUE(Write().ok());
  const auto save = ReadSave(files_, kPath);
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_EQ(save->header.summary.run_id, "run");
  EXPECT_EQ(save->header.summary.seq, header_.summary.seq);
  EXPECT_EQ(save->header.summary.data_position, 320);
  EXPECT_EQ(save->header.restart_step_count, 4);
  EXPECT_EQ(save->header.trainer_save_id, "1-0-7");
  EXPECT_EQ(save->header.token_counts, (std::vector<int64_t>{5, 0}));
  EXPECT_EQ(save->header.losses, header_.losses);
  EXPECT_EQ(save->header.summary.evaluator_count, 3);
  EXPECT_EQ(save->arrays.first_moment, first_);
  EXPECT_EQ(save->arrays.second_moment, second_);
  ASSERT_EQ(save->contributions.size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(save->contributions[i].bytes, contributions_[i].bytes);
    EXPECT_EQ(save->contributions[i].info.SerializeAsString(),
              contributions_[i].info.SerializeAsString());
  }
  ASSERT_EQ(save->feedback.size(), 2);
  EXPECT_EQ(save->feedback[0].key.SerializeAsString(),
            feedback_[0].key.SerializeAsString());
  EXPECT_EQ(save->feedback[0].before, before_);
  EXPECT_EQ(save->feedback[0].after, after_);
  EXPECT_EQ(save->feedback[1].key.fragment(), 1);
  EXPECT_EQ(save->feedback[1].before, before_);
  EXPECT_TRUE(save->feedback[1].after.empty());
}

TEST_F(SaveFileTest, GivesBackWhatAStreamingRunNeeds) {
  local_ = {7.0f, 8.0f, -0.0f};
  foreseen_ = {9.0f};
  header_.summary.clock = 123;
  header_.summary.rate_offset = 4;
  header_.summary.island_epoch = 3;
  header_.summary.unpushed.emplace_back().set_step_count(9);
  header_.summary.tracks = {{0, 5, 100, 1000, 0, 0},
                            {1, 6, 110, 1100, 42, 120, 10, 320, 416}};
  ASSERT_TRUE(Write().ok());
  const auto save = ReadSave(files_, kPath);
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_EQ(save->arrays.first_moment, first_);
  EXPECT_EQ(save->arrays.local, local_);
  EXPECT_EQ(save->arrays.eager_foreseen, foreseen_);
  EXPECT_TRUE(save->arrays.eager_momentum.empty());
  EXPECT_EQ(save->contributions.size(), 2);
  EXPECT_EQ(save->header.summary.clock, 123);
  EXPECT_EQ(save->header.summary.rate_offset, 4);
  ASSERT_EQ(save->header.summary.tracks.size(), 2);
  EXPECT_EQ(save->header.summary.tracks[0].data_begin, 1000);
  EXPECT_EQ(save->header.summary.tracks[1].fragment, 1);
  EXPECT_EQ(save->header.summary.tracks[1].local_version, 6);
  EXPECT_EQ(save->header.summary.tracks[1].since_step, 110);
  EXPECT_EQ(save->header.summary.tracks[1].seq, 42);
  EXPECT_EQ(save->header.summary.tracks[1].push_step, 120);
  EXPECT_EQ(save->header.summary.tracks[1].pushed_step_count, 10);
  EXPECT_EQ(save->header.summary.tracks[1].pushed_token_count, 320);
  EXPECT_EQ(save->header.summary.tracks[1].token_count, 416);
  EXPECT_EQ(save->header.summary.island_epoch, 3);
  ASSERT_EQ(save->header.summary.unpushed.size(), 1);
  EXPECT_EQ(save->header.summary.unpushed[0].step_count(), 9);
}

TEST_F(SaveFileTest, GivesBackTheRunAndThePlaceInTheLog) {
  header_.run_uid = std::string(32, 'a');
  header_.log.set_cluster_id("cluster");
  header_.log.set_start_id("start");
  header_.log.set_index(77);
  ASSERT_TRUE(Write().ok());
  const auto save = ReadSave(files_, kPath);
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_EQ(save->header.run_uid, header_.run_uid);
  EXPECT_EQ(save->header.log.SerializeAsString(),
            header_.log.SerializeAsString());
}

TEST_F(SaveFileTest, AFileOfAnOlderProgramHasNeitherRunNorPlace) {
  // Its header lacks both.
  EXPECT_EQ(SaveHeaderText(header_).find("run_uid"), std::string::npos);
  EXPECT_EQ(SaveHeaderText(header_).find("log"), std::string::npos);
  ASSERT_TRUE(Write().ok());
  const auto save = ReadSave(files_, kPath);
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_EQ(save->header.run_uid, "");
  EXPECT_EQ(save->header.log.cluster_id(), "");
}

TEST_F(SaveFileTest, SurvivesACrashOnceWritten) {
  ASSERT_TRUE(Write().ok());
  files_.Crash();
  EXPECT_TRUE(ReadSave(files_, kPath).ok());
}

TEST_F(SaveFileTest, AFullDiskLeavesTheOldSave) {
  ASSERT_TRUE(Write().ok());
  header_.summary.seq = 8;
  files_.SetCapacity(static_cast<int64_t>(Bytes().size()) + 30);
  EXPECT_EQ(Write().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadSave(files_, kPath)->header.summary.seq, 1'000'000'000'007);
  files_.SetCapacity(int64_t{1} << 30);
  EXPECT_TRUE(Write().ok());
  EXPECT_EQ(ReadSave(files_, kPath)->header.summary.seq, 8);
}

TEST_F(SaveFileTest, OnlyTheLeftoverOfACrashIsRemoved) {
  const std::string path = kPath;
  for (const std::string& name :
       {path + ".tmp", path + "." + std::string(32, 'a') + ".tmp"}) {
    const auto file = *files_.OpenForWrite(name);
    ASSERT_TRUE(file->WriteAt(0, "a person's, or half a save").ok());
  }
  ASSERT_TRUE(Write().ok());
  EXPECT_TRUE(ReadSave(files_, kPath).ok());
  EXPECT_EQ(
      *files_.List("/save"),
      (std::vector<std::string>{"run.island.save", "run.island.save.tmp"}));
}

TEST_F(SaveFileTest, SaysThatThereIsNone) {
  EXPECT_EQ(ReadSave(files_, kPath).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(SaveFileTest, EveryDamagedByteIsNoticed) {
  ASSERT_TRUE(Write().ok());
  const std::string good = Bytes();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x10;
    Overwrite(bad);
    EXPECT_EQ(ReadSave(files_, kPath).status().code(),
              absl::StatusCode::kDataLoss)
        << "byte " << i;
  }
}

TEST_F(SaveFileTest, EveryTruncationIsNoticed) {
  ASSERT_TRUE(Write().ok());
  const std::string good = Bytes();
  for (size_t size = 0; size < good.size(); ++size) {
    Overwrite(good.substr(0, size));
    EXPECT_EQ(ReadSave(files_, kPath).status().code(),
              absl::StatusCode::kDataLoss);
  }
  Overwrite(good + "x");
  EXPECT_FALSE(ReadSave(files_, kPath).ok());
}

TEST_F(SaveFileTest, SurvivesRandomBytes) {
  std::random_device device;
  const uint64_t seed = device();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  ASSERT_TRUE(Write().ok());
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 2 == 0) bytes.insert(0, "ATOLLSAV");
    Overwrite(bytes);
    EXPECT_FALSE(ReadSave(files_, kPath).ok());
  }
}

class RecordFileTest : public SaveFileTest {
 protected:
  static constexpr char kRecords[] = "/save/run.island.records";

  void SetUp() override {
    SaveFileTest::SetUp();
    header_.base = "base";
  }

  // Appends a record at `offset`; returns the bytes written.
  int64_t Append(int64_t index, int64_t offset) {
    header_.record_index = index;
    header_.summary.seq = 100 + index;
    SaveView view;
    view.contributions = {&contributions_[0]};
    view.feedback = {feedback_[0]};
    view.answers = {
        {{.clock = 3, .fragment = 1, .version = 9}, first_},
        {{.clock = 4, .fragment = 0, .version = 8, .adopt = true}, second_}};
    view.foreseen = {{0, before_, after_}};
    const auto bytes = WriteRecord(files_, kRecords, offset, header_, view);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.value_or(0);
  }
  size_t Count(const std::string& base = "base") {
    return FindRecords(files_, kRecords, base).size();
  }
};

TEST_F(RecordFileTest, GivesBackWhatWasAppended) {
  EXPECT_EQ(Count(), 0);
  const int64_t first = Append(0, 0);
  Append(1, first);
  const std::vector<RecordPlace> records =
      FindRecords(files_, kRecords, "base");
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(records[1].offset, first);
  const SaveOutline& outline = records[1].outline;
  EXPECT_EQ(outline.header.summary.seq, 101);
  ASSERT_EQ(outline.header.summary.contributions.size(), 1);
  ASSERT_EQ(outline.answers.size(), 2);
  EXPECT_EQ(outline.answers[0],
            (AppliedAnswer{.clock = 3, .fragment = 1, .version = 9}));
  EXPECT_TRUE(outline.answers[1].adopt);
  EXPECT_EQ(outline.foreseen, std::vector<int32_t>{0});
  const auto record = ReadRecord(files_, kRecords, first);
  ASSERT_TRUE(record.ok()) << record.status();
  ASSERT_EQ(record->answers.size(), 2);
  EXPECT_EQ(record->answers[0].values, first_);
  EXPECT_EQ(record->answers[1].values, second_);
  ASSERT_EQ(record->foreseen.size(), 1);
  EXPECT_EQ(record->foreseen[0].foreseen, before_);
  EXPECT_EQ(record->foreseen[0].momentum, after_);
  ASSERT_EQ(record->feedback.size(), 1);
  EXPECT_EQ(record->feedback[0].after, after_);
  ASSERT_EQ(record->contributions.size(), 1);
  EXPECT_EQ(record->contributions[0].bytes, contributions_[0].bytes);
  EXPECT_TRUE(record->arrays.local.empty());
  // It is no whole save, and a whole save is no record.
  EXPECT_FALSE(ReadSave(files_, kRecords).ok());
}

TEST_F(RecordFileTest, OfAnotherWholeSaveAreNone) {
  Append(1, Append(0, 0));
  EXPECT_EQ(Count("other"), 0);
  header_.base = "other";
  // Replaces the file.
  Append(0, 0);
  EXPECT_EQ(Count("other"), 1);
  EXPECT_EQ(Count("base"), 0);
}

TEST_F(RecordFileTest, EndAtTheFirstThatIsNotWhole) {
  int64_t end = 0;
  std::vector<int64_t> ends;
  for (int i = 0; i < 3; ++i) {
    end += Append(i, end);
    ends.push_back(end);
  }
  EXPECT_EQ(Count(), 3);
  const auto file = *files_.OpenForWrite(kRecords);
  // A byte of the last one's values: only a read sees it.
  ASSERT_TRUE(file->WriteAt(ends[2] - 1, "x").ok());
  EXPECT_EQ(Count(), 3);
  EXPECT_EQ(ReadRecord(files_, kRecords, ends[1]).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadRecord(files_, kRecords, ends[1], kVerify).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(ReadRecord(files_, kRecords, ends[1], kContributions).ok());
  // A byte of the second one's header.
  ASSERT_TRUE(file->WriteAt(ends[0] + 30, "x").ok());
  EXPECT_EQ(Count(), 1);
  // A write that failed is made again.
  Append(1, ends[0]);
  EXPECT_EQ(Count(), 3);
}

TEST_F(RecordFileTest, AreNumberedWithoutGaps) {
  const int64_t first = Append(0, 0);
  Append(2, first);
  EXPECT_EQ(Count(), 1);
}

TEST_F(SaveFileTest, ReadsOnlyWhatIsWanted) {
  local_ = {7.0f};
  ASSERT_TRUE(Write().ok());
  const auto moments = ReadSave(files_, kPath, kMoments);
  ASSERT_TRUE(moments.ok());
  EXPECT_EQ(moments->arrays.first_moment, first_);
  EXPECT_EQ(moments->arrays.second_moment, second_);
  EXPECT_TRUE(moments->arrays.local.empty());
  EXPECT_TRUE(moments->contributions.empty());
  EXPECT_TRUE(moments->feedback.empty());
  EXPECT_EQ(ReadSave(files_, kPath, kLocal)->arrays.local, local_);
  EXPECT_EQ(ReadSave(files_, kPath, kContributions)->contributions.size(), 2);
  EXPECT_EQ(ReadSave(files_, kPath, kFeedback)->feedback.size(), 2);
  // The last section is a feedback's: only kVerify reads it here.
  std::string bytes = Bytes();
  bytes.back() ^= 1;
  Overwrite(bytes);
  EXPECT_TRUE(ReadSave(files_, kPath, kMoments).ok());
  EXPECT_FALSE(ReadSave(files_, kPath, kMoments | kVerify).ok());
}

}  // namespace
}  // namespace atl::worker
