// One island may report the loss of a version.

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/plan.pb.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

class EvaluationsTest : public RunSimulationTest {
 protected:
  // An elastic run, its first round open for islands "i0", "i1", ... with these
  // tokens.
  void StartWith(const std::vector<std::string>& tokens) {
    v1::RunSpec spec = ElasticSpec();
    spec.mutable_schedule()->set_island_count_min(
        static_cast<int32_t>(tokens.size()));
    run_ = std::make_unique<RunSimulation>(spec);
    run_->share_of_token = 0;
    run_->StartServers();
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::string id = "i" + std::to_string(i);
      ASSERT_TRUE(run_->Join(id, tokens[i]).ok());
      ASSERT_TRUE(run_->Ready(id).ok());
    }
    ASSERT_EQ(run_->Expected().size(), tokens.size());
  }
  // Ends the round that is open for `count` islands.
  void Commit(int count) {
    const int64_t commit_seq = run_->state().commit_seq();
    for (int i = 0; i < count; ++i) run_->PushAll("i" + std::to_string(i));
    run_->FollowPlans();
    ASSERT_EQ(run_->state().commit_seq(), commit_seq + 1);
  }
  // True if the report was kept.
  bool Report(const std::string& island_id, int64_t version, double loss) {
    const auto before = run_->state().evaluation_points().size();
    EXPECT_TRUE(run_->Evaluate(island_id, version, loss).ok());
    return run_->state().evaluation_points().size() > before;
  }
  v1::OpenRound Told(int32_t slot) const {
    const Observations& observed = run_->machine().observed();
    v1::IslandPlan plan =
        BuildSharedIslandPlan(run_->state(), observed, *run_);
    AddIsland(run_->state(), observed, slot, plan);
    return plan.open_rounds(0);
  }
};

TEST_F(EvaluationsTest, OnlyTheAskedIslandReportsAVersionAndOnce) {
  StartWith({"", ""});
  EXPECT_EQ(Told(1).evaluator_count(), 2);
  EXPECT_EQ(Told(1).evaluator_index(), 1);
  Commit(2);
  EXPECT_FALSE(Report("i0", 1, 0.0001)) << "1 mod 2 is the other's turn";
  EXPECT_FALSE(Report("i1", 0, 0.0001)) << "nobody evaluates version 0";
  EXPECT_FALSE(Report("i1", 2, 0.0001)) << "there is no version 2";
  EXPECT_TRUE(Report("i1", 1, 2.5));
  EXPECT_FALSE(Report("i1", 1, 0.0001));
  ASSERT_NE(run_->state().newest_evaluation(), nullptr);
  EXPECT_EQ(run_->state().newest_evaluation()->loss(), 2.5);
  EXPECT_EQ(run_->state().newest_evaluation()->island_id(), "i1");
  Commit(2);
  EXPECT_FALSE(Report("i1", 2, 0.0001));
  EXPECT_TRUE(Report("i0", 2, 2.25));
  run_->CheckLog();
}

TEST_F(EvaluationsTest, AFailureIsKeptWithItsReasonAndIsNoPointOfTheCurve) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  StartWith({"", ""});
  Commit(2);
  EXPECT_TRUE(Report("i1", 1, 2.5));
  Commit(2);
  EXPECT_FALSE(run_->Evaluate("i0", 2, nan).ok()) << "no reason";
  EXPECT_FALSE(run_->Evaluate("i0", 2, 2.0, "and yet a loss").ok());
  ASSERT_TRUE(run_->Evaluate("i1", 2, nan, "not its turn").ok());
  EXPECT_EQ(run_->state().newest_failed_evaluation(), nullptr);
  ASSERT_TRUE(
      run_->Evaluate("i0", 2, nan, "it is nan" + std::string(1000, '.')).ok());
  EXPECT_FALSE(Report("i0", 2, 2.25)) << "it has reported this version";
  const auto check = [&] {
    const RunState& state = run_->state();
    EXPECT_EQ(state.evaluation_points().size(), 1u);
    ASSERT_NE(state.newest_evaluation(), nullptr);
    EXPECT_EQ(state.newest_evaluation()->version(), 1);
    ASSERT_NE(state.newest_failed_evaluation(), nullptr);
    EXPECT_EQ(state.newest_failed_evaluation()->version(), 2);
    EXPECT_EQ(state.newest_failed_evaluation()->island_id(), "i0");
    EXPECT_EQ(state.newest_failed_evaluation()->failure().size(), 256u);
  };
  check();
  run_->CheckLog();
  for (const bool has_snapshot : {false, true}) {
    run_->Restart(has_snapshot ? static_cast<int64_t>(run_->log().size()) : 0);
    check();
  }
}

TEST_F(EvaluationsTest, AnIslandWithATokenIsNotAskedBesideOneWithout) {
  StartWith({"t", "", "u"});
  EXPECT_EQ(Told(1).evaluator_count(), 1);
  EXPECT_EQ(Told(0).evaluator_index(), -1);
  EXPECT_EQ(Told(1).evaluator_index(), 0);
  EXPECT_EQ(Told(2).evaluator_index(), -1);
  for (int64_t version = 1; version <= 2; ++version) {
    Commit(3);
    EXPECT_FALSE(Report("i0", version, 0.0001));
    EXPECT_FALSE(Report("i2", version, 0.0001));
    EXPECT_TRUE(Report("i1", version, 2.5));
  }
}

TEST_F(EvaluationsTest, AnIslandWithoutATokenIsAskedThoughItsRoundIsNotYet) {
  StartWith({"t", "u"});
  JoinReady("own");
  EXPECT_EQ(Told(0).evaluator_index(), -1);
  EXPECT_EQ(Told(2).evaluator_index(), 0);
  EXPECT_TRUE(Told(2).slots().empty());
  Commit(2);
  EXPECT_FALSE(Report("i0", 1, 0.0001));
  EXPECT_FALSE(Report("i1", 1, 0.0001));
  EXPECT_TRUE(Report("own", 1, 2.5));
}

TEST_F(EvaluationsTest, IslandsWithTokensTakeTurnsAmongThemselves) {
  StartWith({"t", "u"});
  Commit(2);
  EXPECT_FALSE(Report("i0", 1, 0.0001));
  EXPECT_TRUE(Report("i1", 1, 2.5));
}

TEST_F(EvaluationsTest, ARestartForgetsNobodysTurn) {
  StartWith({"t", ""});
  Commit(2);
  for (const bool has_snapshot : {false, true}) {
    run_->Restart(has_snapshot ? static_cast<int64_t>(run_->log().size()) : 0);
    EXPECT_FALSE(Report("i0", 1, 0.0001));
  }
  EXPECT_TRUE(Report("i1", 1, 2.5));
}

TEST_F(EvaluationsTest, AnOlderSnapshotKnowsNoTurnsButStillWhoHasAToken) {
  StartWith({"t", "", ""});
  Commit(3);
  storage::v1::RunSnapshot snapshot = run_->state().ToSnapshot();
  snapshot.clear_evaluator_slots();
  snapshot.clear_evaluators();
  RunState old;
  ASSERT_TRUE(old.Restore(snapshot, run_->state().revision()).ok());
  EXPECT_FALSE(old.IsAskedToEvaluate(*old.FindMember("i0"), 1));
  EXPECT_TRUE(old.IsAskedToEvaluate(*old.FindMember("i1"), 1));
  EXPECT_TRUE(old.IsAskedToEvaluate(*old.FindMember("i2"), 1));
}

TEST_F(EvaluationsTest, AnAsyncIslandReportsOnceInItsTurn) {
  Start(AsyncSpec());
  run_->Settle();
  ASSERT_GE(run_->fragment(0).newest.version(), 7);
  // Index 0 of two islands has the even periods.
  EXPECT_TRUE(Report("i0", 4, 2.5));
  EXPECT_FALSE(Report("i0", 5, 0.0001));
  EXPECT_TRUE(Report("i1", 5, 2.5));
  EXPECT_FALSE(Report("i1", 6, 0.0001));
  EXPECT_TRUE(Report("i0", 7, 2.5)) << "late in its turn";
  run_->CheckLog();
}

TEST_F(EvaluationsTest, AnAsyncIslandWithATokenHasNoTurn) {
  run_ = std::make_unique<RunSimulation>(AsyncSpec());
  run_->share_of_token = 0;
  run_->StartServers();
  ASSERT_TRUE(run_->Join("i0", "t").ok());
  ASSERT_TRUE(run_->Ready("i0").ok());
  JoinReady("i1");
  run_->Settle();
  ASSERT_GE(run_->fragment(0).newest.version(), 5);
  for (int64_t version = 1; version <= 5; ++version) {
    EXPECT_FALSE(Report("i0", version, 0.0001));
    EXPECT_TRUE(Report("i1", version, 2.5));
  }
}

}  // namespace
}  // namespace atl::coordinator
