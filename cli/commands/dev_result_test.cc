#include "cli/commands/dev_result.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DevResultTest : public ::testing::Test {
 protected:
  DevResultTest() : path_(::testing::TempDir() + "/dev_result_test.json") {
    state_.mutable_run()->set_run_id("tiny");
    state_.mutable_run()->set_state(v1::RUN_STATE_COMPLETED);
    v1::RunSpec& spec = *state_.mutable_run()->mutable_spec();
    spec.mutable_schedule()->set_inner_step_count(20);
    spec.mutable_schedule()->set_island_count_min(3);
    spec.set_server_count(2);
    state_.add_cut()->set_version(2);
    state_.set_merged_token_count(6000);
    state_.set_received_bytes(777);
  }

  // A round from `open_seconds` to `commit_seconds` with one contribution of
  // 100 bytes merged and one of 1000 bytes late.
  void AddRound(int64_t open_seconds, int64_t commit_seconds) {
    v1::Round& round = rounds_.emplace_back();
    round.mutable_open_time()->set_seconds(open_seconds);
    round.mutable_commit_time()->set_seconds(commit_seconds);
    v1::RoundContribution* merged = round.add_contributions();
    merged->set_outcome(v1::OUTCOME_MERGED);
    merged->set_payload_bytes(100);
    v1::RoundContribution* late = round.add_contributions();
    late->set_outcome(v1::OUTCOME_LATE);
    late->set_payload_bytes(1000);
  }

  const std::string path_;
  v1::GetRunStateResponse state_;
  std::vector<v1::Round> rounds_;
};

TEST_F(DevResultTest, SumsUpWhatWasMergedBetweenFirstOpeningAndLastCommit) {
  AddRound(100, 101);
  AddRound(101, 103);
  const DevResult result = Summarize(state_, rounds_);
  EXPECT_EQ(result.run_id, "tiny");
  EXPECT_EQ(result.state, "COMPLETED");
  EXPECT_EQ(result.rounds, 2);
  EXPECT_EQ(result.inner_steps_per_island, 40);
  EXPECT_EQ(result.islands, 3);
  EXPECT_EQ(result.servers, 2);
  EXPECT_EQ(result.bytes_up, 200);
  EXPECT_EQ(result.bytes_down, 777);
  EXPECT_DOUBLE_EQ(result.seconds, 3);
  EXPECT_DOUBLE_EQ(result.tokens_per_second, 2000);
}

TEST_F(DevResultTest, HasNoSpeedWithoutARound) {
  const DevResult result = Summarize(state_, {});
  EXPECT_EQ(result.seconds, 0);
  EXPECT_EQ(result.tokens_per_second, 0);
  EXPECT_THAT(ToText(result), Not(HasSubstr("validation loss")));
}

TEST_F(DevResultTest, ReadsBackWhatItWrote) {
  AddRound(5, 9);
  DevResult result = Summarize(state_, rounds_);
  result.last_evaluation_loss = 1.368;
  result.checkpoint = "out/model";
  result.validation_file = "out/held_out.txt";
  result.parameters_sha256 = std::string(64, 'a');
  ASSERT_TRUE(WriteJson(path_, ToData(result)).ok());
  const absl::StatusOr<DevResult> read = ReadDevResult(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToData(*read), ToData(result));
  EXPECT_THAT(ToText(*read), HasSubstr("out/model"));
}

TEST_F(DevResultTest, ReplacesNoFileOfAPerson) {
  const Json json = {{"rounds", 1}, {"loss", nullptr}};
  EXPECT_TRUE(CheckReplaceable(path_ + ".none", json).ok());
  ASSERT_TRUE(WriteJson(path_, {{"loss", 2.5}, {"rounds", 7}}).ok());
  EXPECT_TRUE(CheckReplaceable(path_, json).ok());
  for (const char* text :
       {"", "years of work", "{\"rounds\": 1}", "[\"rounds\", \"loss\"]",
        "{\"rounds\": 1, \"loss\": 2, \"mine\": 3}"}) {
    std::ofstream(path_) << text;
    const absl::Status status = CheckReplaceable(path_, json);
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << text;
    EXPECT_EQ(GetReason(status), "NOT_OURS");
  }
  EXPECT_FALSE(CheckReplaceable("/dev/null", json).ok());
}

TEST_F(DevResultTest, SaysWhatIsWrongWithAFileThatIsNoResult) {
  EXPECT_EQ(ReadDevResult(path_ + ".none").status().code(),
            absl::StatusCode::kNotFound);
  for (const char* text : {"", "{", "[1]", "{\"a\": 1}"}) {
    std::ofstream(path_) << text;
    EXPECT_EQ(ReadDevResult(path_).status().code(), absl::StatusCode::kDataLoss)
        << text;
  }
}

}  // namespace
}  // namespace atl::cli
