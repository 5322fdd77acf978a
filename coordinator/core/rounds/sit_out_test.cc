#include "coordinator/core/rounds/sit_out.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Three islands start the first round.
v1::RunSpec Elastic(int quorum, int fragment_count = 1) {
  v1::RunSpec spec = ElasticSpec(fragment_count);
  spec.mutable_schedule()->set_min_quorum(quorum);
  spec.mutable_schedule()->set_island_count_min(3);
  spec.mutable_schedule()->set_round_count(200);
  return spec;
}

class SitOutTest : public RunSimulationTest {
 protected:
  void Push(const std::string& id, int32_t f = 0) {
    for (int32_t s = 0; s < run_->shard_count(); ++s) run_->Push(id, f, s);
  }
  // The others push, `bad` is refused, and the round is committed.
  void RoundWithRefusal(const std::string& bad) {
    run_->RefusePush(bad, 0, 0);
    RoundOfExpected();
  }
  // Every island of the open round pushes, unless it was refused.
  void RoundOfExpected() {
    const int64_t version = run_->fragment(0).newest.version();
    for (const int32_t slot : run_->Expected()) {
      Push("i" + std::to_string(slot));
    }
    run_->FollowPlans();
    run_->FollowPlans();
    ASSERT_EQ(run_->fragment(0).newest.version(), version + 1)
        << run_->machine().waits_for();
  }
  const Member& member(int slot) const { return run_->state().members()[slot]; }
  v1::RunState State() const { return run_->state().state(); }
  v1::GetRunStateResponse Shown() const {
    return BuildRunState(run_->machine(), *run_);
  }
  // The contributions that the log rejects, as "slot reason".
  std::vector<std::string> Rejections() const {
    std::vector<std::string> all;
    const auto add = [&](const v1::ContributionOutcome& outcome) {
      if (outcome.outcome() != v1::OUTCOME_REJECTED) return;
      all.push_back(absl::StrCat(outcome.key().slot(), " ", outcome.reason()));
    };
    for (const storage::v1::Record& record : run_->log()) {
      for (const auto& o : record.outcomes_set().outcomes()) add(o);
      for (const auto& o : record.round_aborted().outcomes()) add(o);
      for (const auto& o : record.round_committed().commit().outcomes()) add(o);
    }
    return all;
  }
  // Also: the same after a restart, from the log and from a snapshot.
  void TearDown() override {
    if (run_ == nullptr) return;
    run_->CheckLog();
    run_->Restart();
    run_->Restart(static_cast<int64_t>(run_->log().size()));
  }
};

TEST_F(SitOutTest, ARefusedContributionIsAnAbsence) {
  Start(Elastic(2), 3);
  RoundWithRefusal("i2");
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
  EXPECT_EQ(member(2).refusal,
            "a value is not finite; island i2, round 1, inner steps 1 to 4");
  ASSERT_THAT(Shown().sitting_out(), SizeIs(1));
  EXPECT_EQ(Shown().sitting_out(0).island_id(), "i2");
  EXPECT_EQ(Shown().sitting_out(0).refused_count(), 1);
  EXPECT_EQ(Shown().sitting_out(0).until_commit_seq(), 2);
  RoundOfExpected();
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1, 2));
  EXPECT_THAT(Shown().sitting_out(), IsEmpty());
}

TEST_F(SitOutTest, EachFurtherRefusalDoublesTheRoundsAndAMergeEndsThem) {
  Start(Elastic(2), 3);
  int64_t sat_out = 1;
  for (int refused = 1; refused <= 8; ++refused) {
    run_->Pass(absl::Milliseconds(500));
    RoundWithRefusal("i2");
    ASSERT_EQ(member(2).refused_count, refused);
    ASSERT_EQ(member(2).sits_out_until - run_->state().commit_seq(), sat_out);
    for (int64_t round = 0; round < sat_out; ++round) {
      ASSERT_THAT(run_->Expected(), ElementsAre(0, 1));
      RoundOfExpected();
    }
    ASSERT_THAT(run_->Expected(), ElementsAre(0, 1, 2));
    sat_out = std::min<int64_t>(2 * sat_out, 64);
    if (run_->state().commit_seq() > 120) break;
  }
  EXPECT_EQ(sat_out, 64);
  RoundOfExpected();
  EXPECT_EQ(member(2).refused_count, 0);
  EXPECT_EQ(member(2).refusal, "");
}

TEST_F(SitOutTest, RefusalsOfOneRoundCountOnce) {
  Start(Elastic(2, 3), 3);
  run_->Pass(absl::Milliseconds(500));
  for (int32_t f = 0; f < 3; ++f) {
    run_->RefusePush("i2", f, 0);
    Push("i0", f);
    Push("i1", f);
    run_->FollowPlans();
    run_->FollowPlans();
    run_->Pass(absl::Milliseconds(500));
  }
  EXPECT_EQ(member(2).refused_count, 1);
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
}

TEST_F(SitOutTest, ARoundThatNeedsTheIslandAsksItAgainLaterAndDoesNotPause) {
  Start(Elastic(3), 3);
  Push("i0");
  Push("i1");
  run_->RefusePush("i2", 0, 0);
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(Phase(), RoundPhase::kIdle);
  EXPECT_THAT(run_->machine().waits_for(),
              AllOf(StartsWith("waits for islands: 2 of 3"),
                    HasSubstr("i2 sits out"), HasSubstr("not finite")));
  EXPECT_EQ(run_->machine().NextTimer() - run_->now(), absl::Seconds(10));
  run_->Pass(absl::Seconds(9.5));
  EXPECT_EQ(Phase(), RoundPhase::kIdle);
  run_->Pass(absl::Seconds(0.5));
  // What the others have pushed stays.
  EXPECT_EQ(run_->machine().waits_for(),
            "fragment 0, round 1: 2 of 3 contributions; waits for i2; i2 sits "
            "out: its newest contribution was refused: " +
                member(2).refusal);
  run_->RefusePush("i2", 0, 0);
  EXPECT_EQ(run_->machine().NextTimer() - run_->now(), absl::Seconds(20));
  run_->Pass(absl::Seconds(20));
  Push("i2");
  run_->FollowPlans();
  EXPECT_EQ(run_->state().commit_seq(), 1);
  EXPECT_EQ(member(2).refused_count, 0);
}

TEST_F(SitOutTest, OfThoseThatSitOutTheOneThatWaitsLongestIsAskedFirst) {
  Start(Elastic(2), 3);
  run_->RefusePush("i1", 0, 0);
  run_->Pass(absl::Seconds(2));
  run_->RefusePush("i2", 0, 0);
  Push("i0");
  run_->Pass(absl::Seconds(30));
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
}

TEST_F(SitOutTest, ItIsAskedAgainIfTheOthersCountLessThanTheQuorum) {
  run_ = std::make_unique<RunSimulation>(Elastic(2));
  run_->StartServers();
  for (const char* id : {"i0", "i1"}) {
    ASSERT_TRUE(run_->Join(id, "t").ok());  // They count once together.
    ASSERT_TRUE(run_->Ready(id).ok());
  }
  JoinReady("i2");
  run_->RefusePush("i2", 0, 0);
  Push("i0");
  Push("i1");
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(Phase(), RoundPhase::kIdle);
  run_->Pass(absl::Seconds(10));
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1, 2));
}

TEST_F(SitOutTest, AnIslandThatJoinsAgainKeepsItsCount) {
  Start(Elastic(2), 3);
  RoundWithRefusal("i2");
  JoinReady("i2");
  EXPECT_EQ(member(2).refused_count, 1);
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
}

TEST_F(SitOutTest, AStrictRunPausesAndNamesTheIslandAndItsSteps) {
  v1::RunSpec spec = SimpleSpec();
  Start(spec);
  Push("i0");
  run_->RefusePush("i1", 0, 0);
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_THAT(run_->state().state_reason(),
              HasSubstr("a value is not finite; island i1, round 1, inner "
                        "steps 1 to 4"));
  EXPECT_EQ(member(1).refused_count, 0);
}

TEST_F(SitOutTest, AnAsyncRunDoesNotAskARefusedIslandForAWhile) {
  v1::RunSpec spec = AsyncSpec();
  spec.mutable_schedule()->set_island_count_min(3);
  Start(spec, 3);
  run_->RefusePush("i2", 0, 0);
  EXPECT_EQ(member(2).sits_out_until, 3);  // Three present islands.
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(run_->Train("i2", 0));
    Push("i0");
    run_->FollowPlans();
    run_->FollowPlans();
  }
  EXPECT_TRUE(run_->Train("i2", 0));
}

TEST_F(SitOutTest, AMergeThatIsNotFiniteIsSealedWithoutItsLargestNorm) {
  Start(Elastic(2), 3);
  run_->merge_norm_squared_max = 0x1p130;
  Push("i0");
  run_->push_norm_squared = 0x1p140;
  Push("i1");
  run_->push_norm_squared = 2;
  Push("i2");
  run_->FollowPlans();
  run_->FollowPlans();
  run_->FollowPlans();
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(run_->state().commit_seq(), 1);
  EXPECT_THAT(Rejections(),
              ElementsAre(StartsWith("1 MERGE_NOT_FINITE: the merge of 3 ")));
  EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_MERGED);
  EXPECT_EQ(run_->FindOutcome("i2"), v1::OUTCOME_MERGED);
  EXPECT_EQ(member(1).refused_count, 1);
}

TEST_F(SitOutTest, AMergeThatIsNotFiniteThroughNoContributionPauses) {
  Start(Elastic(1), 3);
  run_->finite = false;
  for (const char* id : {"i0", "i1", "i2"}) Push(id);
  run_->FollowPlans();
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_THAT(Rejections(), IsEmpty());
}

TEST_F(SitOutTest, AloneItIsRejectedTooAndTheRunWaits) {
  Start(Elastic(1), 3);
  for (const char* id : {"i1", "i2"}) ASSERT_TRUE(run_->Leave(id).ok());
  run_->merge_norm_squared_max = 0x1p130;
  run_->push_norm_squared = 0x1p140;
  Push("i0");
  run_->FollowPlans();
  run_->FollowPlans();
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_THAT(Rejections(), SizeIs(1));
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("i0 sits out"));
}

}  // namespace
}  // namespace atl::coordinator
