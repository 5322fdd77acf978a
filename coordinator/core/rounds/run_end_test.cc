// Traces of runs with a token budget: their ends and their step clocks. A round
// of SimpleSpec merges 2 islands x 4 steps x 20 tokens.

#include "coordinator/core/rounds/run_end.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::RunSpec WithBudget(v1::RunSpec spec, int64_t token_count,
                       int64_t round_count = 0) {
  spec.mutable_schedule()->set_token_count(token_count);
  spec.mutable_schedule()->set_round_count(round_count);
  return spec;
}

v1::RunSpec Staggered(v1::RunSpec spec) {
  spec.mutable_schedule()->set_fragment_schedule(
      v1::FRAGMENT_SCHEDULE_STAGGERED);
  return spec;
}

class RunEndTest : public RunSimulationTest {
 protected:
  void PushEverywhere(const std::string& id, int32_t f) {
    for (int32_t s = 0; s < run_->shard_count(); ++s) run_->Push(id, f, s);
  }
  // Merges the contributions of `ids` to the open round of `f`.
  void Merge(int32_t f, const std::vector<std::string>& ids = {"i0", "i1"}) {
    const int64_t version = Version(f);
    for (const std::string& id : ids) PushEverywhere(id, f);
    run_->FollowPlans();
    run_->FollowPlans();
    ASSERT_EQ(Version(f), version + 1) << run_->machine().waits_for();
  }
  int64_t Version(int32_t f = 0) const {
    return run_->fragment(f).newest.version();
  }
  int64_t Tokens() const { return run_->state().merged_token_count(); }
  bool Completed() const {
    return run_->state().state() == v1::RUN_STATE_COMPLETED;
  }
  v1::IslandPlan Plan() const {
    return BuildSharedIslandPlan(run_->state(), run_->machine().observed(),
                                 *run_);
  }
  int64_t StartStep(int32_t f = 0) const {
    return run_->fragment(f).open.slots(0).start_step();
  }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }
};

TEST_F(RunEndTest, TheCommitThatReachesTheBudgetIsTheLast) {
  for (const auto& [budget, rounds] :
       {std::pair<int64_t, int64_t>{20, 1}, {320, 2}, {321, 3}, {480, 3}}) {
    SCOPED_TRACE(budget);
    Start(WithBudget(SimpleSpec(), budget));
    run_->Settle();
    ASSERT_TRUE(Completed());
    EXPECT_EQ(Version(), rounds);
    EXPECT_EQ(Tokens(), rounds * 160);
    EXPECT_THAT(run_->state().state_reason(),
                HasSubstr("budget of " + std::to_string(budget) + " tokens"));
    EXPECT_EQ(run_->state().pins().at("final").pin_set().pin().cut(0).version(),
              rounds);
    run_->FollowPlans();
    run_->CheckAllDecided();
    run_->CheckLog();
  }
}

TEST_F(RunEndTest, WhatIsReachedFirstOfRoundsAndTokensEndsTheRun) {
  Start(WithBudget(SimpleSpec(), 100000, 2));
  run_->Settle();
  EXPECT_TRUE(Completed());
  EXPECT_EQ(Version(), 2);
  EXPECT_THAT(run_->state().state_reason(), HasSubstr("last round"));
  run_->CheckLog();
  Start(WithBudget(SimpleSpec(), 300, 9));
  run_->Settle();
  EXPECT_TRUE(Completed());
  EXPECT_EQ(Version(), 2);
  EXPECT_THAT(run_->state().state_reason(), HasSubstr("budget"));
}

TEST_F(RunEndTest, FragmentsThatOpenTogetherEndTogether) {
  Start(WithBudget(SimpleSpec(3), 200));
  for (int32_t f = 0; f < 3; ++f) Merge(f);
  Merge(0);
  Merge(1);
  // Over the budget, but one fragment has not reached the version.
  EXPECT_GE(Tokens(), 200);
  EXPECT_FALSE(Completed());
  EXPECT_THAT(Plan().ended_fragments(), IsEmpty());
  Merge(2);
  EXPECT_TRUE(Completed());
  EXPECT_EQ(Tokens(), 320);
  EXPECT_THAT(Plan().ended_fragments(), ElementsAre(0, 1, 2));
}

TEST_F(RunEndTest, AnAbortedFragmentOfTheLastVersionIsOpenedAgain) {
  Start(WithBudget(SimpleSpec(2), 100));
  Merge(0);
  run_->finite = false;
  PushEverywhere("i0", 1);
  PushEverywhere("i1", 1);
  run_->FollowPlans();
  ASSERT_EQ(run_->state().state(), v1::RUN_STATE_PAUSED);
  run_->finite = true;
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).status().ok());
  EXPECT_FALSE(Completed());
  EXPECT_EQ(StartStep(1), 0) << "what fragment 0 merged is not its clock";
  Merge(1);
  EXPECT_TRUE(Completed());
}

TEST_F(RunEndTest, FragmentsOfAStreamingRunEndWhenEachHasTheTokens) {
  // Fragment 0 is pushed after 2, 6, 10, 14 steps, fragment 1 after 4, 8, 12.
  Start(WithBudget(Staggered(SimpleSpec(2)), 12 * 2 * 20));
  for (int version = 0; version < 3; ++version) {
    Merge(0);
    Merge(1);
  }
  EXPECT_FALSE(Completed());
  EXPECT_THAT(Plan().ended_fragments(), ElementsAre(1));
  EXPECT_EQ(run_->fragment(1).phase, RoundPhase::kIdle);
  ASSERT_EQ(run_->fragment(0).phase, RoundPhase::kOpen);
  Merge(0);
  EXPECT_TRUE(Completed());
  EXPECT_EQ(Tokens(), (14 + 12) * 2 * 20 / 2);
}

TEST_F(RunEndTest, AnAsyncRunEndsWithAContributionAndCancelsTheOthers) {
  Start(WithBudget(AsyncSpec(), 100), 3);
  run_->Push("i2", 0, 0);
  run_->Train("i1", 0);
  PushEverywhere("i0", 0);
  run_->FollowPlans();
  run_->FollowPlans();
  EXPECT_EQ(Tokens(), 80);
  EXPECT_FALSE(Completed());
  PushEverywhere("i1", 0);
  run_->FollowPlans();
  run_->FollowPlans();
  ASSERT_TRUE(Completed());
  EXPECT_EQ(Tokens(), 160);
  EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_MERGED);
  EXPECT_EQ(run_->FindOutcome("i2"), v1::OUTCOME_CANCELLED);
  run_->CheckAllDecided();
}

TEST_F(RunEndTest, ARestartAnywhereEndsAtTheSameCommit) {
  for (const v1::RunSpec& spec :
       {WithBudget(SimpleSpec(2), 400), WithBudget(AsyncSpec(2), 400),
        WithBudget(Staggered(SimpleSpec(2)), 400)}) {
    Start(spec);
    for (int i = 0; i < 100 && !Completed(); ++i) {
      for (int32_t f = 0; f < 2; ++f) {
        for (const char* id : {"i0", "i1"}) {
          PushEverywhere(id, f);
          run_->Restart(run_->state().revision());
        }
        run_->FollowPlan(0);
        run_->Restart();
        run_->FollowPlan(1);
        run_->Restart(run_->state().revision());
        ASSERT_TRUE(run_->Ready("i0").ok());
        ASSERT_TRUE(run_->Ready("i1").ok());
      }
      run_->FollowPlans();
    }
    ASSERT_TRUE(Completed());
    for (int32_t f = 0; f < 2; ++f) {
      EXPECT_GE(run_->fragment(f).token_count, 400);
      EXPECT_LT(run_->fragment(f).token_count, 400 + 160);
    }
    run_->CheckLog();
  }
}

TEST_F(RunEndTest, CommitsTellWhatIsMergedSoFar) {
  Start(WithBudget(SimpleSpec(3), 160));
  run_->Settle();
  std::vector<int64_t> merged;
  for (const storage::v1::Record& record : run_->log()) {
    if (!record.has_round_committed()) continue;
    merged.push_back(record.round_committed().round().merged_token_count());
  }
  EXPECT_THAT(merged, ElementsAre(53, 106, 160));
}

TEST_F(RunEndTest, ContributionsWithoutTokensAreRefusedWhereTokensCount) {
  v1::RunSpec spec = WithBudget(AsyncSpec(), 100);
  ASSERT_EQ(spec.outer().weighting(), v1::WEIGHTING_UNIFORM);
  Start(spec);
  run_->claims_tokens = false;
  PushEverywhere("i0", 0);
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_REJECTED);
  EXPECT_EQ(Tokens(), 0);
}

TEST_F(RunEndTest, TheClockOfAsManyIslandsAsExpectedCountsTheirSteps) {
  Start(WithBudget(SimpleSpec(), 1000));
  EXPECT_EQ(StartStep(), 0);
  Merge(0);
  EXPECT_EQ(StartStep(), 4);
  Merge(0);
  EXPECT_EQ(StartStep(), 8);
  run_->CheckLog();
  Start(WithBudget(Staggered(SimpleSpec(2)), 1000));
  Merge(0);
  Merge(1);
  EXPECT_EQ(StartStep(0), 2);
  EXPECT_EQ(StartStep(1), 4);
}

TEST_F(RunEndTest, MoreIslandsMoveTheClockAsMuchFaster) {
  Start(WithBudget(SimpleSpec(), 1000), 2);
  ASSERT_TRUE(run_->Join("i2").ok());
  ASSERT_TRUE(run_->Ready("i2").ok());
  Merge(0);
  EXPECT_EQ(StartStep(), 4) << "the round was open when i2 came";
  Merge(0, {"i0", "i1", "i2"});
  EXPECT_EQ(StartStep(), 4 + 6);
}

TEST_F(RunEndTest, TheClockOfAnAsyncRunCountsStepsAndNotContributions) {
  Start(WithBudget(AsyncSpec(), 1000), 3);
  v1::ReportProgressRequest slow;
  slow.set_tokens_per_second(10);
  v1::ReportProgressRequest fast;
  fast.set_tokens_per_second(40);
  ASSERT_TRUE(
      run_->machine()
          .Step(event::Progress{run_->Credentials("i0"), slow}, run_->now())
          .status()
          .ok());
  for (const char* id : {"i1", "i2"}) {
    ASSERT_TRUE(
        run_->machine()
            .Step(event::Progress{run_->Credentials(id), fast}, run_->now())
            .status()
            .ok());
  }
  Merge(0, {"i0"});  // 4 steps, planned before the speeds were known.
  EXPECT_EQ(StartStep(), 4);
  Merge(0, {"i0"});  // 1 step: DyLU.
  EXPECT_EQ(StartStep(), 5);
}

}  // namespace
}  // namespace atl::coordinator
