// Speeds are what the coordinator measures; claims only lower their own plan.

#include "coordinator/core/rounds/measured_speeds.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/layout/run_length.h"
#include "base/time/proto_time.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

v1::RunSpec MakeSpec(v1::RunSpec spec, int islands) {
  spec.mutable_schedule()->set_inner_step_count(8);
  spec.mutable_schedule()->set_round_count(100);
  spec.mutable_schedule()->set_island_count_min(islands);
  spec.mutable_data()->set_data_shard_count(islands);
  return spec;
}

class MeasuredSpeedsTest : public RunSimulationTest {
 protected:
  // Islands "i0", ... join, claim so many inner steps a second (0: nothing), and
  // are ready. A round needs all of them.
  void StartClaiming(const std::vector<double>& claims,
                     v1::RunSpec spec = ElasticSpec()) {
    const int count = static_cast<int>(claims.size());
    spec = MakeSpec(spec, count);
    if (spec.schedule().max_staleness() == 0) {
      spec.mutable_schedule()->set_min_quorum(count);
    }
    Start(spec, 0);
    for (int i = 0; i < count; ++i) ASSERT_TRUE(run_->Join(Name(i)).ok());
    for (int i = 0; i < count; ++i) Claim(i, claims[i]);
    for (int i = 0; i < count; ++i) ASSERT_TRUE(run_->Ready(Name(i)).ok());
  }
  static std::string Name(int i) { return "i" + std::to_string(i); }
  void Claim(int i, double steps_per_second) {
    v1::ReportProgressRequest report;
    report.set_tokens_per_second(
        steps_per_second *
        static_cast<double>(TokensAStep(run_->state().spec())));
    ASSERT_TRUE(run_->machine()
                    .Step(event::Progress{run_->Credentials(Name(i)), report},
                          run_->now())
                    .status()
                    .ok());
  }
  void ReportPush(int i, int64_t seq, absl::Duration duration) {
    v1::ReportProgressRequest report = *run_->machine()
                                            .observed()
                                            .members[static_cast<size_t>(i)]
                                            .progress;
    v1::SyncPhases& sync = *report.add_sync_phases();
    sync.set_seq(seq);
    v1::PhaseTime& push = *sync.add_phases();
    push.set_phase(v1::PHASE_PUSH);
    *push.mutable_duration() = ToProto(duration);
    ASSERT_TRUE(run_->machine()
                    .Step(event::Progress{run_->Credentials(Name(i)), report},
                          run_->now())
                    .status()
                    .ok());
  }
  // A round in which island i takes `seconds[i]` for its plan.
  void Round(const std::vector<double>& seconds) {
    const int64_t version = run_->fragment(0).newest.version();
    const absl::Time begin = run_->now();
    std::vector<int> order(seconds.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return seconds[a] < seconds[b]; });
    for (const int i : order) {
      run_->Pass(begin + absl::Seconds(seconds[i]) - run_->now());
      run_->PushAll(Name(i));
    }
    run_->FollowPlans();
    run_->FollowPlans();
    ASSERT_EQ(run_->fragment(0).newest.version(), version + 1)
        << run_->machine().waits_for();
  }
  // As planned: `step` seconds for each step of island i.
  void TrainRound(const std::vector<double>& step) {
    std::vector<double> seconds;
    for (size_t i = 0; i < step.size(); ++i) {
      seconds.push_back(step[i] * static_cast<double>(Steps()[i]));
    }
    Round(seconds);
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const v1::SlotPlan& plan : run_->fragment(0).open.slots()) {
      steps.push_back(plan.step_count());
    }
    return steps;
  }
  double Speed(int slot) const {
    return MeasuredSpeed(run_->machine().observed().members[slot]);
  }
  void TearDown() override {
    if (run_ != nullptr) run_->CheckLog();
  }
};

TEST_F(MeasuredSpeedsTest, AFalseClaimChangesNobodysPlan) {
  StartClaiming({10, 10, 10, 1e12});
  EXPECT_THAT(Steps(), ElementsAre(8, 8, 8, 8));
  // It does not train either.
  for (int i = 0; i < 10; ++i) {
    Round({8, 8.1, 8.2, 0.01});
    EXPECT_THAT(Steps(), ElementsAre(8, 8, 8, 8));
  }
  for (int i = 0; i < 4; ++i) run_->PushAll(Name(i));
  for (const auto& sealed : run_->fragment(0).sealed.seal().contributions()) {
    EXPECT_FLOAT_EQ(sealed.weight(), 0.25);
  }
}

// Rounds of 8 steps at 1 step a second. The last island needs 4 s to push, and
// either a measurement or its report says so.
TEST_F(MeasuredSpeedsTest, AnIslandIsAskedForTheStepsThatFitBesideItsPush) {
  StartClaiming({1, 1, 1, 1});
  Round({8, 8, 8, 12});
  ASSERT_THAT(Steps(), ElementsAre(8, 8, 8, 5));  // Measured: 8 in 12 s.
  StartClaiming({1, 1, 1, 1});
  Round({8, 8, 8, 8});
  ASSERT_THAT(Steps(), ElementsAre(8, 8, 8, 8));
  ReportPush(3, 1, absl::Seconds(4));
  Round({8, 8, 8, 8});
  EXPECT_THAT(Steps(), ElementsAre(8, 8, 8, 4));
  // However long a push is, a plan has a step.
  ReportPush(3, 2, absl::Seconds(40));
  ReportPush(3, 3, absl::Seconds(40));
  Round({8, 8, 8, 8});
  EXPECT_THAT(Steps(), ElementsAre(8, 8, 8, 1));
}

TEST_F(MeasuredSpeedsTest, OneOfTwoCannotRaiseTheMedian) {
  StartClaiming({10, 1e12});
  EXPECT_THAT(Steps(), ElementsAre(8, 8));
  Round({8, 0.01});
  EXPECT_THAT(Steps(), ElementsAre(8, 8));
}

TEST_F(MeasuredSpeedsTest, ALowClaimLowersItsOwnPlanAlone) {
  StartClaiming({10, 10, 10, 2.6});
  EXPECT_THAT(Steps(), ElementsAre(8, 8, 8, 2));
  Round({8, 8, 8, 1});
  EXPECT_THAT(Steps(), ElementsAre(8, 8, 8, 8)) << "measured: 1, 1, 1 and 2";
  Claim(3, 0.26);
  Round({8, 8, 8, 8});
  EXPECT_THAT(Steps(), ElementsAre(8, 8, 8, 2));
}

TEST_F(MeasuredSpeedsTest, StepsFollowWhatIsMeasured) {
  StartClaiming({0, 0, 0, 0});
  EXPECT_THAT(Steps(), Each(8)) << "nothing is known";
  TrainRound({1, 1, 1, 4});
  EXPECT_DOUBLE_EQ(Speed(0), 1);
  EXPECT_DOUBLE_EQ(Speed(3), 0.25);
  EXPECT_THAT(Steps(), ElementsAre(8, 8, 8, 2));
  EXPECT_EQ(run_->fragment(0).open.slots(3).start_step(), 8)
      << "the learning rate's clock is the same for all";
  TrainRound({1, 1, 1, 4});
  EXPECT_THAT(Steps(), ElementsAre(8, 8, 8, 2));
}

TEST_F(MeasuredSpeedsTest, OneLongPauseCostsNoShare) {
  StartClaiming({10, 10, 10});
  for (int i = 0; i < 3; ++i) TrainRound({1, 1, 1});
  TrainRound({1, 1, 75});
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Steps(), ElementsAre(8, 8, 8));
    TrainRound({1, 1, 1});
  }
}

TEST_F(MeasuredSpeedsTest, ANewIslandHasTheMedianAtMost) {
  StartClaiming({10, 10, 10});
  TrainRound({1, 1, 1});
  ASSERT_TRUE(run_->Leave("i2").ok());
  ASSERT_TRUE(run_->Join("i3").ok());
  Claim(3, 1e12);
  ASSERT_TRUE(run_->Ready("i3").ok());
  run_->Pass(absl::Seconds(8));
  run_->PushAll("i0");
  run_->PushAll("i1");
  // The quorum lacks one: the next attempt asks i3 too.
  ASSERT_THAT(run_->Expected(), ElementsAre(0, 1, 3));
  EXPECT_THAT(Steps(), ElementsAre(8, 8, 8));
  run_->Pass(absl::Seconds(1));
  EXPECT_EQ(run_->machine().observed().members[0].speeds.size(), 2)
      << "a contribution is measured once";
  EXPECT_DOUBLE_EQ(Speed(0), 1);
}

TEST_F(MeasuredSpeedsTest, AfterARestartItIsMeasuredAnew) {
  StartClaiming({0, 0});
  run_->Pass(absl::Seconds(4));
  run_->Restart();
  for (int32_t shard = 0; shard < run_->shard_count(); ++shard) {
    run_->FollowPlan(shard);
  }
  Round({4, 4});
  EXPECT_EQ(Speed(0), 0) << "its plan was made at an unknown time";
  Round({4, 4});
  EXPECT_DOUBLE_EQ(Speed(0), 2);
}

TEST_F(MeasuredSpeedsTest, FragmentsThatOpenTogetherAreOneMeasurement) {
  StartClaiming({0, 0}, ElasticSpec(/*fragment_count=*/2));
  Round({4, 8});
  EXPECT_EQ(run_->machine().observed().members[0].speeds.size(), 1);
  EXPECT_DOUBLE_EQ(Speed(0), 2);
}

TEST_F(MeasuredSpeedsTest, AnAsyncPlanIsMeasuredSinceItStands) {
  StartClaiming({0, 0}, AsyncSpec());
  const auto merge = [this](int i, double seconds) {
    run_->Pass(absl::Seconds(seconds));
    run_->PushAll(Name(i));
    run_->FollowPlans();
    run_->FollowPlans();
  };
  merge(0, 1);
  merge(0, 1);
  merge(1, 2);
  EXPECT_DOUBLE_EQ(Speed(0), 8);
  EXPECT_DOUBLE_EQ(Speed(1), 2) << "8 steps in the 4 s since its first plan";
}

}  // namespace
}  // namespace atl::coordinator
