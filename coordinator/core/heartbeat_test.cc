// Heartbeats that report, acknowledged outcomes, and islands that are away
// because they have no plan stream.

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "base/features/features.h"
#include "base/status/refusal.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HeartbeatTest : public RunSimulationTest {
 protected:
  // With a run that knows streams.
  void StartWithStreams(const v1::RunSpec& spec, int count) {
    run_ = std::make_unique<RunSimulation>(spec);
    run_->features = ProgramFeatures();
    run_->StartServers();
    for (int i = 0; i < count; ++i) JoinReady("i" + std::to_string(i));
  }
  // Its rounds wait a minute for islands that are there.
  static v1::RunSpec PatientSpec() {
    v1::RunSpec spec = ElasticSpec();
    spec.mutable_schedule()->mutable_grace_window()->set_seconds(60);
    return spec;
  }
  static v1::HeartbeatRequest Request(const std::string& island_id) {
    v1::HeartbeatRequest request;
    request.set_island_id(island_id);
    return request;
  }
  absl::Status Send(const v1::HeartbeatRequest& request) {
    return run_->Heartbeat(request).status();
  }
  v1::Island Show(int slot = 0) {
    return BuildIslands(run_->machine()).islands(slot);
  }
  absl::Time LeaseEnd() { return run_->machine().observed().leases.Find(0); }
  v1::IslandPlan Plan(int32_t slot = 0) {
    v1::IslandPlan plan = BuildSharedIslandPlan(
        run_->state(), run_->machine().observed(), *run_);
    AddIsland(run_->state(), run_->machine().observed(), slot, plan);
    return plan;
  }
  void MergeRound() {
    run_->PushAll("i0");
    run_->PushAll("i1");
    run_->FollowPlans();
    run_->FollowPlans();
  }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }
};

TEST_F(HeartbeatTest, AHeartbeatReportsProgressAndThePhase) {
  Start(SimpleSpec());
  v1::HeartbeatRequest request = Request("i0");
  request.set_phase(v1::ISLAND_PHASE_DATA);
  request.set_phase_reason("shard 3 is being fetched" +
                           std::string(1000, '.'));
  request.mutable_progress()->set_step(7);
  request.mutable_progress()->set_loss(2.5);
  request.mutable_progress()->set_loss_step_count(4);
  ASSERT_TRUE(Send(request).ok());
  v1::Island shown = Show();
  EXPECT_EQ(shown.phase(), v1::ISLAND_PHASE_DATA);
  EXPECT_THAT(shown.phase_reason(), HasSubstr("shard 3"));
  EXPECT_EQ(shown.phase_reason().size(), 256);
  EXPECT_EQ(shown.progress().step(), 7);
  EXPECT_EQ(run_->machine().observed().members[0].loss_sum, 10);

  // Without progress it leaves the progress as it is.
  request = Request("i0");
  request.set_phase(v1::ISLAND_PHASE_TRAIN);
  ASSERT_TRUE(Send(request).ok());
  shown = Show();
  EXPECT_EQ(shown.phase(), v1::ISLAND_PHASE_TRAIN);
  EXPECT_EQ(shown.phase_reason(), "");
  EXPECT_EQ(shown.progress().step(), 7);

  // A newer program's phase.
  request.set_phase(static_cast<v1::IslandPhase>(1000));
  ASSERT_TRUE(Send(request).ok());
  EXPECT_EQ(Show().phase(), v1::ISLAND_PHASE_UNSPECIFIED);

  request.set_phase(v1::ISLAND_PHASE_TRAIN);
  ASSERT_TRUE(Send(request).ok());
  ASSERT_TRUE(run_->Leave("i0").ok());
  EXPECT_EQ(Show().phase(), v1::ISLAND_PHASE_UNSPECIFIED);
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_EQ(Show().phase(), v1::ISLAND_PHASE_UNSPECIFIED);
}

TEST_F(HeartbeatTest, AWrongFieldIsNamedAndTheLeaseIsRenewed) {
  Start(SimpleSpec());
  run_->Pass(absl::Seconds(5), {"i0"});
  const absl::Time before = LeaseEnd();
  v1::HeartbeatRequest request = Request("i0");
  request.mutable_progress()->set_loss(std::nan(""));
  const absl::Status refused = Send(request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("progress.loss"));
  EXPECT_FALSE(Show().has_progress());
  EXPECT_GT(LeaseEnd(), before);

  request = Request("i0");
  request.set_acknowledged_seq(-1);
  EXPECT_THAT(std::string(Send(request).message()),
              HasSubstr("acknowledged_seq"));
}

TEST_F(HeartbeatTest, OnlyHeartbeatsWithProgressHaveARate) {
  Start(SimpleSpec());
  v1::HeartbeatRequest request = Request("i0");
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Send(request).ok());
  request.mutable_progress()->set_step(1);
  absl::Status status;
  for (int i = 0; i < 200 && status.ok(); ++i) status = Send(request);
  EXPECT_TRUE(HasReason(status, "TOO_MANY_CALLS")) << status;
  const absl::Time before = LeaseEnd();
  run_->Pass(absl::Milliseconds(1), {"i0"});
  EXPECT_TRUE(HasReason(Send(request), "TOO_MANY_CALLS"));
  EXPECT_GT(LeaseEnd(), before) << "the refused call renews the lease";
  EXPECT_TRUE(Send(Request("i0")).ok());
}

TEST_F(HeartbeatTest, PlansLeaveOutAcknowledgedOutcomes) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_schedule()->set_round_count(9);
  Start(spec);
  for (int round = 0; round < 3; ++round) MergeRound();
  ASSERT_GE(Plan().outcomes_size(), 2);
  const int64_t first = Plan().outcomes(0).key().seq();
  const int64_t newest = Plan().outcomes().rbegin()->key().seq();
  ASSERT_LT(first, newest);
  const int count = Plan().outcomes_size();

  v1::HeartbeatRequest request = Request("i0");
  request.set_acknowledged_seq(first);
  ASSERT_TRUE(Send(request).ok());
  EXPECT_EQ(Plan().outcomes_size(), count - 1);
  EXPECT_GT(Plan().outcomes(0).key().seq(), first);
  EXPECT_EQ(Plan(1).outcomes_size(), count) << "another island's";

  // A claim of what does not exist leaves out nothing that comes later.
  request.set_acknowledged_seq(std::numeric_limits<int64_t>::max());
  ASSERT_TRUE(Send(request).ok());
  EXPECT_EQ(run_->machine().observed().members[0].acknowledged_seq, newest);
  EXPECT_EQ(Plan().outcomes_size(), 0);
  MergeRound();
  EXPECT_GT(Plan().outcomes_size(), 0);

  // The island went back to an older save.
  ASSERT_TRUE(run_->Join("i0").ok());
  EXPECT_GE(Plan().outcomes_size(), count);
  request.set_acknowledged_seq(newest);
  ASSERT_TRUE(Send(request).ok());
  // An older coordinator's life had the number.
  run_->Restart();
  EXPECT_GE(Plan().outcomes_size(), count);
}

TEST_F(HeartbeatTest, ARoundDoesNotAwaitAnIslandWithoutAPlanStream) {
  StartWithStreams(ElasticSpec(), 2);
  run_->SetStream("i0", true);
  run_->SetStream("i1", true);
  ASSERT_EQ(Phase(), RoundPhase::kOpen);
  run_->PushAll("i0");
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("i1"));
  run_->SetStream("i1", false);
  run_->Pass(absl::Milliseconds(500));
  run_->SetStream("i1", true);  // Replaced in time.
  EXPECT_FALSE(run_->machine().observed().members[1].away);
  run_->SetStream("i1", false);
  EXPECT_LE(run_->machine().NextTimer() - run_->now(), kStreamGrace);
  run_->Pass(kStreamGrace);
  EXPECT_TRUE(run_->machine().observed().members[1].away);
  EXPECT_TRUE(run_->state().FindMember("i1")->ready()) << "its lease goes on";
  EXPECT_NE(Phase(), RoundPhase::kOpen);
  run_->FollowPlans();
  run_->FollowPlans();
  ASSERT_EQ(run_->fragment(0).newest.version(), 1);
  ASSERT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_THAT(run_->Expected(), ElementsAre(0)) << "i1 is not asked";

  run_->SetStream("i1", true);
  EXPECT_FALSE(run_->machine().observed().members[1].away);
  run_->PushAll("i0");
  run_->Pass(absl::Seconds(2));
  run_->FollowPlans();
  run_->FollowPlans();
  EXPECT_THAT(run_->Expected(), ElementsAre(0, 1));
}

TEST_F(HeartbeatTest, ARoundWhoseIslandsAreAllAwayWaitsForOneOfThem) {
  StartWithStreams(ElasticSpec(), 2);
  run_->SetStream("i0", false);
  run_->SetStream("i1", false);
  run_->Pass(absl::Seconds(10));
  EXPECT_EQ(Phase(), RoundPhase::kOpen);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("no island is left"));
  run_->SetStream("i1", true);
  run_->Pass(absl::Milliseconds(500));
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("waits for i1"));
  run_->PushAll("i1");
  EXPECT_NE(Phase(), RoundPhase::kOpen);
}

TEST_F(HeartbeatTest, StrictRunsAndOlderIslandsAreAwaitedWithoutAStream) {
  StartWithStreams(SimpleSpec(), 2);
  run_->SetStream("i1", false);
  run_->Pass(absl::Seconds(10));
  EXPECT_FALSE(run_->machine().observed().members[1].away);
  run_->PushAll("i0");
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("i1"));

  Start(ElasticSpec(), 2);
  run_->SetStream("i1", false);
  run_->Pass(absl::Seconds(1));
  EXPECT_FALSE(run_->machine().observed().members[1].away);

  // A stream of an earlier life says nothing.
  StartWithStreams(ElasticSpec(), 2);
  const IslandCredentials old = run_->Credentials("i1");
  ASSERT_TRUE(run_->Join("i1").ok());
  run_->SetStream("i1", true);
  ASSERT_TRUE(
      run_->machine()
          .Step(event::PlanStream{old, /*has_begun=*/false}, run_->now())
          .ok());
  run_->Pass(absl::Seconds(10));
  EXPECT_FALSE(run_->machine().observed().members[1].away);
}

TEST_F(HeartbeatTest, AnIslandThatOpensNoPlanStreamAfterItsJoinIsAway) {
  StartWithStreams(PatientSpec(), 2);
  run_->SetStream("i0", true);
  run_->PushAll("i0");
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("i1"));
  run_->Pass(kStreamGrace);
  EXPECT_TRUE(run_->machine().observed().members[1].away);
  EXPECT_FALSE(run_->machine().observed().members[0].away);
  EXPECT_NE(Phase(), RoundPhase::kOpen) << run_->machine().waits_for();
}

// All islands come back at once after a restart.
TEST_F(HeartbeatTest, AnIslandIsAwayIfItDoesNotComeBackAfterARestart) {
  StartWithStreams(PatientSpec(), 2);
  run_->SetStream("i0", true);
  run_->SetStream("i1", true);
  run_->Restart();
  run_->PushAll("i0");
  run_->Pass(kReconnectGrace / 2);
  run_->SetStream("i0", true);
  EXPECT_FALSE(run_->machine().observed().members[1].away);
  EXPECT_THAT(run_->machine().waits_for(), HasSubstr("i1"));
  run_->Pass(kReconnectGrace / 2);
  EXPECT_FALSE(run_->machine().observed().members[0].away);
  EXPECT_TRUE(run_->machine().observed().members[1].away);
  EXPECT_TRUE(run_->state().FindMember("i1")->ready()) << "its lease goes on";
  EXPECT_NE(Phase(), RoundPhase::kOpen) << run_->machine().waits_for();

  // Older islands, which send no heartbeats that report.
  Start(ElasticSpec(), 2);
  run_->Restart();
  run_->Pass(absl::Seconds(20));
  EXPECT_FALSE(run_->machine().observed().members[1].away);
}

TEST_F(HeartbeatTest, AnIslandIsBackOnceItJoins) {
  StartWithStreams(ElasticSpec(), 2);
  run_->SetStream("i1", false);
  run_->Pass(absl::Seconds(3));
  ASSERT_TRUE(run_->machine().observed().members[1].away);
  ASSERT_TRUE(run_->Join("i1").ok());
  EXPECT_FALSE(run_->machine().observed().members[1].away);
}

}  // namespace
}  // namespace atl::coordinator
