#include "coordinator/metrics/run_values.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "atoll/v1/island_service.pb.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;

class NoServers : public ServerDirectory {
 public:
  const ServerInfo* FindServer(const std::string& server_id) const override {
    return nullptr;
  }
  std::vector<std::string> AliveServers() const override { return {}; }
};

class RunValuesTest : public testing::Test {
 protected:
  RunValues Read() { return ReadRunValues(run_.machine(), run_); }

  void JoinReady(const std::string& island_id) {
    ASSERT_TRUE(run_.Join(island_id).ok());
    ASSERT_TRUE(run_.Ready(island_id).ok());
  }

  void ReportLoss(const std::string& island_id, double loss) {
    v1::ReportProgressRequest request;
    request.set_loss(loss);
    request.set_loss_step_count(1);
    request.set_tokens_per_second(100);
    ASSERT_TRUE(run_.machine()
                    .Step(event::Progress{run_.Credentials(island_id), request},
                          run_.now())
                    .ok());
  }

  RunSimulation run_{ElasticSpec()};
};

TEST_F(RunValuesTest, CountIslandsByState) {
  run_.StartServers();
  JoinReady("a");
  JoinReady("b");
  ASSERT_TRUE(run_.Join("c").ok());
  ASSERT_TRUE(run_.Leave("b").ok());
  const RunValues values = Read();
  EXPECT_THAT(values.island_counts,
              ElementsAre(0, /*joining=*/1, /*ready=*/1, /*lost=*/0, /*left=*/1,
                          /*removed=*/0, /*readmitted=*/0));
  EXPECT_EQ(values.min_quorum, 1);
  EXPECT_EQ(values.state, v1::RUN_STATE_ACTIVE);
}

TEST_F(RunValuesTest, CountShardsByStateUntilTheRunEnds) {
  EXPECT_THAT(*Read().shard_counts, ElementsAre(0, 0, 0, 0));  // Not placed.
  run_.StartServers();
  EXPECT_THAT(*Read().shard_counts, ElementsAre(2, 0, 0, 0));
  run_.SetBlockedReason(0, "its disk is full");
  EXPECT_THAT(*Read().shard_counts, ElementsAre(1, 1, 0, 0));
  run_.SetFault(1, "its data is damaged");
  EXPECT_THAT(*Read().shard_counts, ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(*ReadRunValues(run_.machine(), NoServers()).shard_counts,
              ElementsAre(0, 0, 0, 2));
  ASSERT_TRUE(run_.machine().Step(event::Cancel{}, run_.now()).ok());
  EXPECT_FALSE(Read().shard_counts.has_value());
}

TEST_F(RunValuesTest, TellSinceWhenARoundWaits) {
  EXPECT_EQ(Read().wait_start, absl::InfiniteFuture());
  run_.StartServers();
  JoinReady("a");
  JoinReady("b");
  EXPECT_EQ(Read().wait_start, run_.now());
  EXPECT_EQ(Read().last_commit, run_.state().create_time());
  run_.Pass(absl::Milliseconds(100));
  run_.Settle();
  EXPECT_GT(Read().commit_count, 0);
  EXPECT_GT(Read().merged_token_count, 0);
  EXPECT_EQ(Read().last_commit, run_.state().last_commit_time());
}

TEST_F(RunValuesTest, LossesAreThoseOfPresentIslandsAndOfTheNewestEvaluation) {
  run_.StartServers();
  JoinReady("a");
  JoinReady("b");
  EXPECT_FALSE(Read().train_loss.has_value());
  EXPECT_FALSE(Read().validation_loss.has_value());
  ReportLoss("a", 2);
  ReportLoss("b", 4);
  EXPECT_EQ(Read().train_loss, 3);
  EXPECT_EQ(Read().tokens_per_second, 200);
  ASSERT_TRUE(run_.Leave("b").ok());
  EXPECT_EQ(Read().train_loss, 2);
  run_.Settle();
  ASSERT_TRUE(run_.Evaluate("a", 1, 7).ok());
  EXPECT_EQ(Read().validation_loss, 7);
}

TEST(ReadShownRunsTest, ShowsRunsThatHaveNotEndedAndThenTheNewestEndedOnes) {
  Coordinator coordinator{CoordinatorOptions()};
  absl::Time now = absl::FromUnixSeconds(1000);
  coordinator.Start(now, {"cluster", "start"}, 0);
  const int count = static_cast<int>(kShownRunsMax);
  const auto create = [&](const std::string& run_id) {
    now += absl::Seconds(1);
    v1::CreateRunRequest request;
    request.set_run_id(run_id);
    *request.mutable_spec() = SimpleSpec();
    ASSERT_TRUE(coordinator.CreateRun(request, now).ok());
  };
  const auto cancel = [&](const std::string& run_id) {
    now += absl::Seconds(1);
    ASSERT_TRUE(
        (*coordinator.FindRun(run_id))->Step(event::Cancel{}, now).ok());
  };
  const auto shown = [&] {
    std::vector<std::string> ids;
    for (const RunValues& run : ReadShownRuns(coordinator)) {
      ids.push_back(run.run_id);
    }
    return ids;
  };
  for (const char* id : {"a", "b", "c"}) create(id);
  cancel("b");
  cancel("a");
  EXPECT_THAT(shown(), ElementsAre("c", "a", "b"));
  for (int i = 0; i < count - 2; ++i) create(absl::StrCat("run-", i));
  const std::vector<std::string> ids = shown();
  EXPECT_EQ(ids.size(), count);
  EXPECT_EQ(ids[count - 2], "c");
  EXPECT_EQ(ids[count - 1], "a");
}

}  // namespace
}  // namespace atl::coordinator
