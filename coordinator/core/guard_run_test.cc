// Damage is seen before it is kept: the guard of a run.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/features/features.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/state/guard.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A checkpoint every 2 rounds.
v1::RunSpec Guarded(v1::GuardAction on_norm, int64_t round_count = 100) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_round_count(round_count);
  spec.set_checkpoint_every_round_count(2);
  spec.mutable_checkpoint()->set_keep_count(32);
  spec.mutable_guard()->set_on_norm(on_norm);
  return spec;
}

class GuardRunTest : public RunSimulationTest {
 protected:
  // Starts it and commits 17 rounds whose merges have the norm 1.
  void StartSteady(const v1::RunSpec& spec) {
    Start(spec);
    run_->merge_norm_squared = 0.5;
    for (int i = 0; i < 17; ++i) Commit();
    ASSERT_EQ(run_->state().FindHeld(), nullptr);
    ASSERT_THAT(Suspects(), IsEmpty());
  }
  // Ends the open round. A merge has this norm.
  void Commit(double norm = 1) {
    const int64_t commit_seq = run_->state().commit_seq();
    run_->merge_norm_squared = norm * norm / 2;
    for (const char* id : {"i0", "i1"}) run_->PushAll(id);
    run_->FollowPlans();
    run_->FollowPlans();
    ASSERT_EQ(run_->state().commit_seq(), commit_seq + 1)
        << run_->machine().waits_for();
  }
  v1::RunState State() const { return run_->state().state(); }
  const std::string& Reason() const { return run_->state().state_reason(); }
  bool Has(const std::string& pin_id) const {
    return run_->state().pins().contains(pin_id);
  }
  // Versions of the checkpoints.
  std::vector<int64_t> Checkpoints() const {
    std::vector<int64_t> versions;
    for (const auto& [pin_id, pin] : run_->state().pins()) {
      versions.push_back(pin.pin_set().pin().cut(0).version());
    }
    return versions;
  }
  std::vector<std::string> Suspects() const {
    std::vector<std::string> ids;
    for (const auto& [pin_id, pin] : run_->state().pins()) {
      if (pin.pin_set().pin().suspect()) ids.push_back(pin_id);
    }
    return ids;
  }
  void Resume() {
    ASSERT_TRUE(
        run_->machine().Step(event::Resume{}, run_->now()).status().ok());
    run_->Flush();
  }
  // The island reports its training loss.
  void ReportLoss(const std::string& id, double loss) {
    v1::ReportProgressRequest request;
    request.set_loss(loss);
    request.set_loss_step_count(4);
    ASSERT_TRUE(
        run_->machine()
            .Step(event::Progress{run_->Credentials(id), request}, run_->now())
            .ok());
    run_->Flush();
  }
  // Evaluates the newest version, by the island whose turn it is.
  void Evaluate(double loss, const std::string& failure = "") {
    const int64_t version = run_->fragment(0).newest.version();
    for (const char* id : {"i0", "i1"}) {
      ASSERT_TRUE(run_->Evaluate(id, version, loss, failure).ok());
    }
    ASSERT_TRUE(run_->state().IsEvaluated(version));
  }
};

TEST_F(GuardRunTest, APoisonedCommitPausesTheRunBeforeACheckpointHoldsIt) {
  StartSteady(Guarded(v1::GUARD_ACTION_PAUSE));
  ASSERT_TRUE(Has("round-16"));
  Commit(1e30);
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_THAT(Reason(), HasSubstr("commit 18 (round 18) is outside the run's "
                                  "band: its norm, 1e+30, is above 10"));
  EXPECT_THAT(Reason(), HasSubstr("`atoll run restore run --from round-16`"));
  EXPECT_THAT(Reason(), HasSubstr("`atoll run resume run` accepts it"));
  EXPECT_FALSE(Has("round-18"));
  EXPECT_THAT(Checkpoints(), Each(testing::Lt(18)));
  // The state is durable.
  run_->Restart();
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  run_->Restart(run_->state().revision());
  EXPECT_NE(run_->state().FindHeld(), nullptr);
  EXPECT_FALSE(Has("round-18"));
  run_->CheckLog();
}

// The control: without a band the same commit is in the next checkpoint.
TEST_F(GuardRunTest, WithoutABandThePoisonIsInTheNextCheckpoint) {
  Start(Guarded(v1::GUARD_ACTION_PAUSE));
  for (int i = 0; i < 15; ++i) Commit();
  Commit(1e30);
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_TRUE(Has("round-16"));
  EXPECT_THAT(Suspects(), IsEmpty());
}

TEST_F(GuardRunTest, ARestoreGoesBackWithTheBandOfItsCut) {
  StartSteady(Guarded(v1::GUARD_ACTION_PAUSE));
  Commit(1e30);
  const auto restored = run_->RestoreRun("round-16");
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(run_->state().FindHeld(), nullptr);
  EXPECT_EQ(run_->fragment(0).guard.norms_size(), 16);
  run_->FollowPlans();
  for (const char* id : {"i0", "i1"}) ASSERT_TRUE(run_->Ready(id).ok());
  Commit();
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  Commit(1e30);
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED) << "the band is still there";
  run_->CheckLog();
}

TEST_F(GuardRunTest, AnOperatorAcceptsTheCommitAndTheBandStartsAfresh) {
  StartSteady(Guarded(v1::GUARD_ACTION_PAUSE));
  Commit(100);
  ASSERT_EQ(State(), v1::RUN_STATE_PAUSED);
  Resume();
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(run_->state().FindHeld(), nullptr);
  Commit(100);
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  // The checkpoint that the guard held back is made now.
  EXPECT_TRUE(Has("round-19"));
  Commit(1e30);
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE) << "16 commits come first";
  run_->Restart();
  run_->CheckLog();
}

TEST_F(GuardRunTest, AnotherPauseThatEndsAcceptsNothing) {
  StartSteady(Guarded(v1::GUARD_ACTION_PAUSE));
  for (const char* id : {"i0", "i1"}) run_->PushAll(id);
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).status().ok());
  run_->Flush();
  run_->merge_norm_squared = 1e30;
  run_->FollowPlans();  // The sealed round commits.
  ASSERT_EQ(run_->state().commit_seq(), 18);
  EXPECT_THAT(Reason(), HasSubstr("an operator paused it"));
  Resume();
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_THAT(Reason(), HasSubstr("outside the run's band"));
  Resume();
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
}

TEST_F(GuardRunTest, TheLastCommitIsAcceptedBeforeTheRunEnds) {
  StartSteady(Guarded(v1::GUARD_ACTION_PAUSE, 18));
  Commit(100);
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_FALSE(Has("final"));
  Resume();
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_TRUE(Has("final"));
  EXPECT_THAT(Suspects(), IsEmpty());
}

TEST_F(GuardRunTest, AnAlertHoldsCheckpointsBackForEightCommits) {
  StartSteady(Guarded(v1::GUARD_ACTION_UNSPECIFIED));
  for (int i = 0; i < 8; ++i) Commit(100);
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_THAT(Checkpoints(), Each(testing::Lt(18)));
  EXPECT_THAT(BuildRunState(run_->machine(), *run_).outside_band(),
              HasSubstr("commit 25 (round 25) is outside the run's band"));
  Commit(100);  // The ninth.
  EXPECT_THAT(Suspects(), testing::ElementsAre("round-26"));
  Commit(100);
  Commit(100);
  EXPECT_THAT(Suspects(), testing::ElementsAre("round-26", "round-28"));
  // The newest that is not suspect is what a restore without an id takes.
  const auto restored = run_->RestoreRun("");
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->pin().pin_id(), "round-16");
  run_->CheckLog();
}

TEST_F(GuardRunTest, ASingleOutlierMakesNoCheckpointSuspect) {
  StartSteady(Guarded(v1::GUARD_ACTION_ALERT));
  Commit(100);
  for (int i = 0; i < 7; ++i) Commit();
  EXPECT_THAT(Checkpoints(), Each(testing::Lt(18)));
  Commit();
  EXPECT_EQ(run_->state().FindHeld(), nullptr);
  EXPECT_TRUE(Has("round-26"));
  EXPECT_THAT(Suspects(), IsEmpty());
  EXPECT_EQ(BuildRunState(run_->machine(), *run_).outside_band(), "");
}

TEST_F(GuardRunTest, InAnAlertTheLastCheckpointIsMadeAndMarked) {
  StartSteady(Guarded(v1::GUARD_ACTION_ALERT, 18));
  Commit(100);
  EXPECT_EQ(State(), v1::RUN_STATE_COMPLETED);
  EXPECT_THAT(Suspects(), testing::ElementsAre("final"));
}

TEST_F(GuardRunTest, AcceptingInAnAlertTakesTheMarksAway) {
  StartSteady(Guarded(v1::GUARD_ACTION_ALERT));
  for (int i = 0; i < 9; ++i) Commit(100);
  ASSERT_THAT(Suspects(), Not(IsEmpty()));
  Resume();
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_THAT(Suspects(), IsEmpty());
  Commit(100);
  EXPECT_EQ(run_->state().FindHeld(), nullptr);
  run_->CheckLog();
}

TEST_F(GuardRunTest, ABadEvaluationMarksCheckpointsThatHaveItsVersion) {
  for (const double loss : {kNan, 9.0}) {
    StartSteady(Guarded(v1::GUARD_ACTION_PAUSE));
    for (int i = 0; i < 7; ++i) {
      Evaluate(3);
      Commit();
    }
    ASSERT_TRUE(Has("round-24"));
    Evaluate(loss, loss == loss ? "" : "the held-out loss is nan");
    EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
    EXPECT_THAT(Reason(), HasSubstr("version 24 of commit"));
    EXPECT_THAT(Reason(), HasSubstr("--from round-22`"));
    EXPECT_THAT(Suspects(), testing::ElementsAre("round-24"));
    run_->Restart();
    EXPECT_THAT(Suspects(), testing::ElementsAre("round-24"));
    run_->FollowPlans();
    // Accepted, the same loss is no damage any longer.
    Resume();
    Commit();
    Evaluate(loss, loss == loss ? "" : "the held-out loss is nan");
    EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
    run_->CheckLog();
  }
}

TEST_F(GuardRunTest, ATrainingLossThatJumpsIsDamage) {
  StartSteady(Guarded(v1::GUARD_ACTION_PAUSE));
  for (int i = 0; i < 17; ++i) {
    for (const char* id : {"i0", "i1"}) ReportLoss(id, 3);
    Commit();
  }
  ReportLoss("i0", 3);
  ReportLoss("i1", 50);  // One of two is not the run.
  Commit();
  ASSERT_EQ(State(), v1::RUN_STATE_ACTIVE);
  for (const char* id : {"i0", "i1"}) ReportLoss(id, 50);
  Commit();
  EXPECT_EQ(State(), v1::RUN_STATE_PAUSED);
  EXPECT_THAT(Reason(), HasSubstr("its training loss, 50, is above 4.5"));
  run_->CheckLog();
}

// A peer's claim is not what pauses a run.
TEST_F(GuardRunTest, ALossThatAnEnrolledIslandClaimsIsNotDamage) {
  v1::RunSpec spec = Guarded(v1::GUARD_ACTION_PAUSE);
  run_ = std::make_unique<RunSimulation>(spec);
  run_->share_of_token = 0;
  run_->StartServers();
  for (const char* id : {"i0", "i1"}) {
    ASSERT_TRUE(run_->Join(id, "token").ok());
    ASSERT_TRUE(run_->Ready(id).ok());
  }
  for (int i = 0; i < 20; ++i) {
    for (const char* id : {"i0", "i1"}) ReportLoss(id, 3);
    Commit();
    Evaluate(3);
  }
  for (const char* id : {"i0", "i1"}) ReportLoss(id, 1e9);
  Commit();
  Evaluate(1e9);
  EXPECT_EQ(State(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(run_->state().FindHeld(), nullptr);
}

TEST_F(GuardRunTest, OlderProgramsGetASpecThatTheyKnow) {
  v1::RunSpec spec = Guarded(v1::GUARD_ACTION_PAUSE);
  Start(spec);
  const v1::RunSpec sent =
      BuildRun(run_->machine(), /*with_tensors=*/true).spec();
  EXPECT_FALSE(sent.has_guard());
  EXPECT_FALSE(sent.has_checkpoint());
  const v1::RunSpec preview = BuildRunPreview(run_->machine()).spec();
  EXPECT_FALSE(preview.has_guard());
  EXPECT_FALSE(preview.has_checkpoint());
  // Nor does the run need a feature for them.
  EXPECT_EQ(RequiredFeatures(spec) & ~kBaseFeatures, 0u);
  // Operators are shown them.
  const v1::RunSpec shown =
      BuildRun(run_->machine(), /*with_tensors=*/false).spec();
  EXPECT_EQ(shown.guard().on_norm(), v1::GUARD_ACTION_PAUSE);
  EXPECT_EQ(shown.checkpoint().keep_count(), 32);
}

}  // namespace
}  // namespace atl::coordinator
