#include "coordinator/core/rounds/data_lease.h"

#include <optional>
#include <string>
#include <vector>

#include "base/status/refusal.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// Three data shards, and rounds of at most 10 s. The first asks three islands.
v1::RunSpec Elastic(int64_t quorum = 1) {
  v1::RunSpec spec = ElasticSpec();
  spec.mutable_schedule()->set_min_quorum(quorum);
  spec.mutable_schedule()->set_island_count_min(3);
  spec.mutable_schedule()->set_round_count(200);
  spec.mutable_schedule()->mutable_round_deadline()->set_seconds(10);
  spec.mutable_data()->set_data_shard_count(3);
  return spec;
}

class DataLeaseTest : public RunSimulationTest {
 protected:
  void Push(const std::string& id) {
    for (int32_t s = 0; s < run_->shard_count(); ++s) run_->Push(id, 0, s);
  }
  // Rounds to which only `pushers` contribute.
  void Rounds(int64_t count, const std::vector<std::string>& pushers) {
    for (int64_t round = 0; round < count; ++round) {
      const int64_t version = run_->fragment(0).newest.version();
      for (const std::string& id : pushers) Push(id);
      for (int i = 0; i < 20 && run_->fragment(0).newest.version() == version;
           ++i) {
        run_->Pass(absl::Seconds(1));
        run_->FollowPlans();
      }
      ASSERT_EQ(run_->fragment(0).newest.version(), version + 1)
          << run_->machine().waits_for();
    }
  }
  std::string Refusal(const std::string& id, const std::string& token = "") {
    const absl::Status status = run_->Join(id, token);
    const std::optional<ErrorReason> reason = GetReason(status);
    return reason.has_value() ? reason->reason : std::string(status.message());
  }
  v1::IslandState StateOf(const std::string& id) const {
    return run_->state().FindMember(id)->record.state();
  }
  // Also: the log stays consistent.
  void TearDown() override { run_->CheckLog(); }
};

TEST_F(DataLeaseTest, AMemberThatDeliversNothingYieldsItsShard) {
  Start(Elastic(), 3);
  Rounds(kIdleRoundsMax - 1, {"i0", "i1"});
  EXPECT_EQ(Refusal("new"), "NO_DATA_SHARD");
  Rounds(1, {"i0", "i1"});
  const int32_t shard = run_->state().FindMember("i2")->record.data_shard();
  EXPECT_EQ(Refusal("new"), "");
  EXPECT_EQ(StateOf("i2"), v1::ISLAND_STATE_LOST);
  EXPECT_EQ(run_->state().FindMember("new")->record.data_shard(), shard);
  EXPECT_EQ(GetReason(run_->Heartbeat("i2"))->reason, "LEASE_ENDED");
  // It takes nothing from the others.
  EXPECT_EQ(Refusal("i2"), "NO_DATA_SHARD");
  EXPECT_EQ(Refusal("newer"), "NO_DATA_SHARD");
}

TEST_F(DataLeaseTest, AMergedContributionRenewsTheLease) {
  Start(Elastic(), 3);
  Rounds(kIdleRoundsMax - 1, {"i0", "i1"});
  Rounds(1, {"i0", "i1", "i2"});
  Rounds(kIdleRoundsMax - 1, {"i0", "i1"});
  EXPECT_EQ(Refusal("new"), "NO_DATA_SHARD");
}

TEST_F(DataLeaseTest, JoiningAgainDoesNotRenewTheLease) {
  Start(Elastic(), 3);
  for (int round = 0; round < kIdleRoundsMax; ++round) {
    Rounds(1, {"i0", "i1"});
    ASSERT_TRUE(run_->Leave("i2").ok());
    JoinReady("i2");
  }
  EXPECT_EQ(Refusal("new"), "");
  EXPECT_EQ(StateOf("i2"), v1::ISLAND_STATE_LOST);
}

TEST_F(DataLeaseTest, ALongAbsenceIsNoIdleness) {
  Start(Elastic(), 3);
  Rounds(kIdleRoundsMax, {"i0", "i1"});
  ASSERT_TRUE(run_->Leave("i2").ok());
  run_->Pass(absl::Minutes(6));
  JoinReady("i2");
  Rounds(kIdleRoundsMax - 1, {"i0", "i1"});
  EXPECT_EQ(Refusal("new"), "NO_DATA_SHARD");
}

TEST_F(DataLeaseTest, MembersThatNeverGetReadyYield) {
  Start(Elastic(), 0);
  for (const char* id : {"i0", "i1", "i2"}) {
    ASSERT_TRUE(run_->Join(id).ok());
  }
  run_->Pass(kIdleRoundsMax * absl::Seconds(10) - absl::Seconds(1));
  EXPECT_EQ(Refusal("new"), "NO_DATA_SHARD");
  run_->Pass(absl::Seconds(1));
  EXPECT_EQ(Refusal("new"), "");
}

TEST_F(DataLeaseTest, MembersWithWhichNoRoundEndsYield) {
  Start(Elastic(/*quorum=*/2), 3);
  Push("i0");
  run_->Pass(kIdleRoundsMax * absl::Seconds(10));
  EXPECT_EQ(run_->fragment(0).newest.version(), 0);
  // The contribution of i0 waits for a second one.
  EXPECT_EQ(Refusal("new"), "");
  EXPECT_EQ(Refusal("newer"), "");
  EXPECT_EQ(Refusal("newest"), "NO_DATA_SHARD");
  EXPECT_EQ(StateOf("i0"), v1::ISLAND_STATE_READY);
}

TEST_F(DataLeaseTest, APauseIsNoIdleness) {
  Start(Elastic(/*quorum=*/2), 3);
  ASSERT_TRUE(run_->machine().Step(event::Pause{}, run_->now()).ok());
  run_->Flush();
  run_->Pass(2 * kIdleRoundsMax * absl::Seconds(10));
  EXPECT_EQ(Refusal("new"), "NO_DATA_SHARD");
  ASSERT_TRUE(run_->machine().Step(event::Resume{}, run_->now()).ok());
  run_->Flush();
  EXPECT_EQ(Refusal("new"), "NO_DATA_SHARD");
}

TEST_F(DataLeaseTest, ARestartStartsTheTimeAnew) {
  Start(Elastic(/*quorum=*/2), 3);
  run_->Pass(kIdleRoundsMax * absl::Seconds(10));
  run_->Restart();
  EXPECT_EQ(Refusal("new"), "NO_DATA_SHARD");
  run_->Pass(kIdleRoundsMax * absl::Seconds(10));
  EXPECT_EQ(Refusal("new"), "");
}

TEST_F(DataLeaseTest, AStrictRoundAwaitsItsMembers) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_data()->set_data_shard_count(2);
  Start(spec, 2);
  run_->Pass(2 * kIdleRoundsMax * kIdleRoundDefault);
  EXPECT_EQ(Refusal("new"), "NO_DATA_SHARD");
}

TEST_F(DataLeaseTest, ATokenKeepsHalfOfTheShardsWhileOthersWantOne) {
  v1::RunSpec spec = Elastic();
  spec.mutable_data()->set_data_shard_count(4);
  Start(spec, 0);
  for (const char* id : {"t0", "t1", "t2", "t3"}) {
    ASSERT_TRUE(run_->Join(id, "one").ok());
    ASSERT_TRUE(run_->Ready(id).ok());
  }
  EXPECT_EQ(Refusal("t4", "one"), "NO_DATA_SHARD");
  EXPECT_EQ(Refusal("own"), "");
  EXPECT_EQ(StateOf("t3"), v1::ISLAND_STATE_LOST);
  EXPECT_EQ(Refusal("other", "two"), "");
  EXPECT_EQ(StateOf("t2"), v1::ISLAND_STATE_LOST);
  EXPECT_EQ(Refusal("more"), "NO_DATA_SHARD");
  EXPECT_EQ(Refusal("t3", "one"), "NO_DATA_SHARD");
  EXPECT_EQ(DataShardsOfTokenMax(1), 1);
  EXPECT_EQ(DataShardsOfTokenMax(2), 1);
  EXPECT_EQ(DataShardsOfTokenMax(3), 2);
}

}  // namespace
}  // namespace atl::coordinator
