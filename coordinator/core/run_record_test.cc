// What a run's record says of its islands' work.

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "atoll/v1/island_service.pb.h"
#include "coordinator/core/outputs/run_events.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class RunRecordTest : public RunSimulationTest {
 protected:
  void ReportLoss(const std::string& id, double loss) {
    v1::ReportProgressRequest request;
    request.set_loss(loss);
    request.set_loss_step_count(4);
    ASSERT_TRUE(Progress(id, request).ok());
  }
  absl::Status Progress(const std::string& id,
                        const v1::ReportProgressRequest& request) {
    const absl::Status status =
        run_->machine()
            .Step(event::Progress{run_->Credentials(id), request}, run_->now())
            .status();
    run_->Flush();
    return status;
  }
  // The newest commit as history has it.
  v1::Round NewestRound() const {
    v1::Round round;
    for (const storage::v1::Record& record : run_->log()) {
      if (record.has_round_committed()) {
        round = record.round_committed().round();
      }
    }
    return round;
  }
  void Commit() {
    for (const char* id : {"i0", "i1"}) run_->PushAll(id);
    run_->FollowPlans();
    run_->FollowPlans();
  }
};

TEST_F(RunRecordTest, ARoundsLossIsTheMeanOfItsContributionsLosses) {
  Start(SimpleSpec());
  run_->training_losses = {{"i0", 0.1}, {"i1", 0.2}};
  // Reports, which come whenever they come, have no part in it.
  ReportLoss("i0", 50);
  Commit();
  ASSERT_EQ(run_->state().commit_seq(), 1);
  EXPECT_EQ(NewestRound().training_loss(), (0.1 + 0.2) / 2);
  EXPECT_EQ(NewestRound().contributions(0).info().training_loss(), 0.1);
  EXPECT_EQ(run_->state().loss_points().back().value(), (0.1 + 0.2) / 2);
}

TEST_F(RunRecordTest, AnOlderIslandsContributionHasNoPartInTheLoss) {
  Start(SimpleSpec());
  run_->training_losses = {{"i1", 0.25}};
  ReportLoss("i0", 50);
  Commit();
  ASSERT_EQ(run_->state().commit_seq(), 1);
  EXPECT_EQ(NewestRound().training_loss(), 0.25);
}

TEST_F(RunRecordTest, OfOlderIslandsAloneTheReportsOfProgressCount) {
  Start(SimpleSpec());
  ReportLoss("i0", 2);
  ReportLoss("i1", 3);
  Commit();
  ASSERT_EQ(run_->state().commit_seq(), 1);
  EXPECT_EQ(NewestRound().training_loss(), 2.5);
  Commit();  // No report has come since.
  EXPECT_FALSE(NewestRound().has_training_loss());
}

TEST_F(RunRecordTest, ALossThatIsNoLossIsRefused) {
  for (const double loss : {std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity(), -1.0}) {
    Start(ElasticSpec());
    run_->training_losses = {{"i0", loss}};
    Commit();
    run_->Pass(absl::Seconds(2));
    run_->FollowPlans();
    run_->FollowPlans();
    ASSERT_EQ(run_->state().commit_seq(), 1) << run_->machine().waits_for();
    EXPECT_EQ(run_->FindOutcome("i0"), v1::OUTCOME_REJECTED);
    EXPECT_EQ(run_->FindOutcome("i1"), v1::OUTCOME_MERGED);
    EXPECT_FALSE(NewestRound().has_training_loss());
    bool is_told = false;
    for (const v1::RoundContribution& one : NewestRound().contributions()) {
      if (one.outcome() != v1::OUTCOME_REJECTED) continue;
      is_told = true;
      EXPECT_THAT(one.reason(), HasSubstr("training_loss"));
    }
    EXPECT_TRUE(is_told);
  }
}

TEST_F(RunRecordTest, ALeaveIsKeptWithWhatItTold) {
  Start(SimpleSpec());
  v1::LeaveRequest request;
  request.set_reason("stop requested" + std::string(300, '.'));
  request.set_step(12);
  request.set_loss(2.5);
  ASSERT_TRUE(run_->machine()
                  .Step(event::Leave{run_->Credentials("i0"), request},
                        run_->now())
                  .ok());
  run_->Flush();
  run_->Restart();
  const storage::v1::MemberSet& left = run_->state().members()[0].record;
  EXPECT_EQ(left.state(), v1::ISLAND_STATE_LEFT);
  EXPECT_THAT(left.leave().reason(), StartsWith("stop requested."));
  EXPECT_EQ(left.leave().reason().size(), 256);
  EXPECT_EQ(left.leave().step(), 12);
  EXPECT_EQ(left.leave().loss(), 2.5);
  const auto islands = BuildIslands(run_->machine(), {});
  ASSERT_TRUE(islands.ok());
  EXPECT_EQ(islands->islands(0).leave().step(), 12);
  EXPECT_FALSE(islands->islands(1).has_leave());
  const auto told = ToEvent(run_->log().back(), {});
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->island_changed().leave().step(), 12);
  // It comes back.
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_FALSE(run_->state().members()[0].record.has_leave());
  run_->CheckLog();
}

TEST_F(RunRecordTest, ALeaveWithALossThatIsNoNumberIsRefused) {
  Start(SimpleSpec());
  v1::LeaveRequest request;
  request.set_loss(std::numeric_limits<double>::quiet_NaN());
  const absl::Status status =
      run_->machine()
          .Step(event::Leave{run_->Credentials("i0"), request}, run_->now())
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(run_->state().members()[0].ready());
}

}  // namespace
}  // namespace atl::coordinator
