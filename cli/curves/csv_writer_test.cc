#include "cli/curves/csv_writer.h"

#include <cerrno>

#include "absl/strings/str_split.h"
#include "base/io/files.h"
#include "base/io/testing/fake_file_system.h"
#include "base/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class CsvWriterTest : public ::testing::Test {
 protected:
  static v1::Round Round(int64_t commit_seq) {
    const absl::Time open = absl::FromUnixSeconds(1000 * commit_seq);
    v1::Round round;
    round.set_commit_seq(commit_seq);
    round.set_version(commit_seq);
    *round.mutable_open_time() = ToProto(open);
    *round.mutable_seal_time() = ToProto(open + absl::Milliseconds(2500));
    *round.mutable_commit_time() = ToProto(open + absl::Milliseconds(2750));
    round.set_merged_token_count(100 * commit_seq);
    round.set_training_loss(2.5);
    round.set_outer_gradient_norm(0.25);
    for (const v1::Outcome outcome :
         {v1::OUTCOME_MERGED, v1::OUTCOME_MERGED, v1::OUTCOME_LATE}) {
      round.add_contributions()->set_outcome(outcome);
      round.mutable_contributions()->rbegin()->set_payload_bytes(10);
    }
    return round;
  }

  static v1::Evaluation Evaluation(int64_t commit_seq, double loss) {
    v1::Evaluation evaluation;
    evaluation.set_commit_seq(commit_seq);
    evaluation.set_loss(loss);
    return evaluation;
  }

  void Open() {
    writer_.reset();
    auto writer = CsvWriter::Open(files_, "/c.csv", "uid");
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
  }

  // Returns "commit_seq validation_loss@validation_commit_seq" for each row.
  std::vector<std::string> Rows() {
    const std::string text = *ReadFile(files_, "/c.csv");
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    EXPECT_EQ(lines.back(), "");
    lines.pop_back();
    const size_t width =
        std::vector<std::string>(absl::StrSplit(lines[0], ',')).size();
    std::vector<std::string> rows;
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::vector<std::string> cells = absl::StrSplit(lines[i], ',');
      EXPECT_THAT(cells, SizeIs(width));
      rows.push_back(cells[0] + " " + cells[7] + "@" + cells[8]);
    }
    return rows;
  }

  FakeFileSystem files_;
  std::unique_ptr<CsvWriter> writer_;
};

TEST_F(CsvWriterTest, ARowHasWhatTheHeaderSays) {
  Open();
  ASSERT_TRUE(writer_->Add(Round(1), 12.5).ok());
  const std::string text = *ReadFile(files_, "/c.csv");
  EXPECT_THAT(text, StartsWith("commit_seq,version,fragment,time,tokens,"));
  EXPECT_THAT(text, HasSubstr("\n1,1,0,1970-01-01T00:16:42.750Z,100,12.5,2.5,,,"
                              "0.25,2,1,30,2.500,0.250,uid\n"));
}

TEST_F(CsvWriterTest, AnEvaluationFillsTheLastRow) {
  Open();
  ASSERT_TRUE(writer_->Add(Round(1), {}).ok());
  ASSERT_TRUE(writer_->Add(Evaluation(1, 1.5)).ok());
  ASSERT_TRUE(writer_->Add(Evaluation(1, 1.5)).ok());
  ASSERT_TRUE(writer_->Add(Round(2), {}).ok());
  EXPECT_THAT(Rows(), ElementsAre("1 1.5@1", "2 @"));
}

TEST_F(CsvWriterTest, AnEvaluationThatFindsNoCellIsInTheNextRow) {
  Open();
  ASSERT_TRUE(writer_->Add(Round(1), {}).ok());
  ASSERT_TRUE(writer_->Add(Evaluation(1, 1.5)).ok());
  ASSERT_TRUE(writer_->Add(Evaluation(2, 1.25)).ok());
  ASSERT_TRUE(writer_->Add(Round(2), {}).ok());
  EXPECT_THAT(Rows(), ElementsAre("1 1.5@1", "2 1.25@2"));
}

TEST_F(CsvWriterTest, AnotherProcessAddsOnlyWhatIsNew) {
  Open();
  ASSERT_TRUE(writer_->Add(Round(1), {}).ok());
  ASSERT_TRUE(writer_->Add(Evaluation(1, 1.5)).ok());
  ASSERT_TRUE(writer_->Add(Round(2), {}).ok());
  Open();
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(writer_->Add(Round(i), {}).ok());
    ASSERT_TRUE(writer_->Add(Evaluation(i, 1.5)).ok());
  }
  EXPECT_THAT(Rows(), ElementsAre("1 1.5@1", "2 1.5@2", "3 1.5@3"));
}

TEST_F(CsvWriterTest, ARowThatADiskFullTornIsCutOffAndWrittenAgain) {
  for (const int written : {1, 40, 0}) {
    Open();
    ASSERT_TRUE(writer_->Add(Round(1), {}).ok());
    files_.AddFault({.call = FakeFileSystem::Fault::Call::kWrite,
                     .path_part = "c.csv",
                     .error_number = ENOSPC,
                     .written_bytes = written});
    EXPECT_EQ(writer_->Add(Round(2), {}).code(),
              absl::StatusCode::kResourceExhausted);
    Open();
    EXPECT_THAT(Rows(), ElementsAre("1 @"));
  }
  ASSERT_TRUE(writer_->Add(Round(2), {}).ok());
  EXPECT_THAT(Rows(), ElementsAre("1 @", "2 @"));
}

TEST_F(CsvWriterTest, AHeaderThatIsTornIsWrittenAgain) {
  ASSERT_TRUE(WriteFileAtomically(files_, "/c.csv", "commit_seq,ver").ok());
  Open();
  ASSERT_TRUE(writer_->Add(Round(1), {}).ok());
  EXPECT_THAT(Rows(), ElementsAre("1 @"));
}

TEST_F(CsvWriterTest, ARestoreIsARowThatTakesNoEvaluation) {
  Open();
  ASSERT_TRUE(writer_->Add(Round(1), {}).ok());
  ASSERT_TRUE(writer_->Add(Round(2), {}).ok());
  v1::Restore restore;
  restore.set_commit_seq(3);
  restore.set_cut_commit_seq(2);
  ASSERT_TRUE(writer_->Add(restore).ok());
  EXPECT_THAT(Rows(), ElementsAre("1 @", "2 @", "3 @1"));
  for (const bool reopened : {false, true}) {
    if (reopened) Open();
    ASSERT_TRUE(writer_->Add(restore).ok());
    EXPECT_THAT(Rows(), ElementsAre("1 @", "2 @", "3 @1"));
  }
  ASSERT_TRUE(writer_->Add(Evaluation(4, 1.5)).ok());
  ASSERT_TRUE(writer_->Add(Round(4), {}).ok());
  EXPECT_THAT(Rows(), ElementsAre("1 @", "2 @", "3 @1", "4 1.5@4"));
}

TEST_F(CsvWriterTest, RefusesAFileOfAnotherRunOrKind) {
  Open();
  ASSERT_TRUE(writer_->Add(Round(1), {}).ok());
  writer_.reset();
  const absl::Status other = CsvWriter::Open(files_, "/c.csv", "uid2").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(other.message(), "/c.csv:2: a round of another run, uid");
  for (const char* text : {"a,b\n1,2\n", "notes"}) {
    ASSERT_TRUE(WriteFileAtomically(files_, "/x.csv", text).ok());
    EXPECT_EQ(CsvWriter::Open(files_, "/x.csv", "uid").status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(*ReadFile(files_, "/x.csv"), text);
  }
}

}  // namespace
}  // namespace atl::cli
