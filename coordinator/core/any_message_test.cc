// Messages that no honest peer sends: the coordinator's core refuses them or
// continues, and its log can be replayed.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "base/testing/mutator.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr int kIslands = 3;

std::string IslandId(size_t i) { return absl::StrCat("i", i); }

class AnyMessageTest : public testing::Test {
 protected:
  AnyMessageTest() : seed_(std::random_device()()), any_(seed_) {
    // Printed first, because a failure may end the process.
    std::printf("seed: %llu\n", static_cast<unsigned long long>(seed_));
    std::fflush(stdout);
  }

  v1::RunSpec AnyKindOfSpec() {
    v1::RunSpec (*const kinds[])(int) = {&SimpleSpec, &ElasticSpec, &AsyncSpec};
    v1::RunSpec spec = kinds[any_.Pick(3)](1 + static_cast<int>(any_.Pick(3)));
    if (spec.schedule().max_staleness() > 0) return spec;
    const v1::MergeRuleKind rules[] = {
        v1::MERGE_RULE_KIND_WEIGHTED_MEAN, v1::MERGE_RULE_KIND_RDA,
        v1::MERGE_RULE_KIND_NORM_CLIP, v1::MERGE_RULE_KIND_MEDIAN};
    spec.mutable_outer()->mutable_merge()->set_rule(rules[any_.Pick(4)]);
    if (any_.Pick(3) == 0) {
      v1::RunSpec merged_live = spec;
      merged_live.set_durability(v1::DURABILITY_ISLAND);
      if (ValidateSpec(merged_live).empty()) spec = merged_live;
    }
    return spec;
  }

  void Step(RunSimulation& run) {
    const std::string id = IslandId(any_.Pick(kIslands));
    const auto shard = static_cast<int32_t>(any_.Pick(run.shard_count()));
    switch (any_.Pick(12)) {
      case 0:
        run.Join(id).IgnoreError();
        break;
      case 1:
        run.Ready(id).IgnoreError();
        break;
      case 2:
        run.Pass(absl::Milliseconds(500));
        break;
      case 3:
        run.machine().Step(event::Resume{}, run.now()).status().IgnoreError();
        break;
      case 4:
      case 5:
      case 6:
        run.FollowPlan(shard, any_.Pick(2) == 0);
        break;
      case 7:
        // The island may not be a member: some specs leave no place for it.
        if (run.machine().CheckIsland(run.Credentials(id)).ok()) {
          run.PushAgain(id);
        }
        break;
      case 8: {
        v1::ReportProgressRequest request;
        request.set_loss(1);
        request.set_loss_step_count(2);
        request.add_evaluations()->set_loss(1);
        v1::SyncPhases& sync = *request.add_sync_phases();
        sync.set_seq(1 + static_cast<int64_t>(any_.Pick(3)));
        v1::PhaseTime& phase = *sync.add_phases();
        phase.set_phase(v1::PHASE_TRAIN);
        phase.mutable_start_time()->set_seconds(1);
        phase.mutable_duration()->set_seconds(1);
        any_.Change(request);
        run.machine()
            .Step(event::Progress{run.Credentials(id), request}, run.now())
            .status()
            .IgnoreError();
        break;
      }
      default:
        run.PushAll(id);
    }
  }

  const uint64_t seed_;
  Mutator any_;
};

// Does not check what a lying shard has merged: the shard holds the parameters.
TEST_F(AnyMessageTest, NoReportOfAShardEndsTheCoordinatorOrItsReplay) {
  int64_t changed_count = 0;
  for (int trial = 0; trial < 60; ++trial) {
    RunSimulation run(AnyKindOfSpec());
    run.StartServers();
    for (int i = 0; i < kIslands; ++i) {
      ASSERT_TRUE(run.Join(IslandId(i)).ok());
      ASSERT_TRUE(run.Ready(IslandId(i)).ok());
    }
    run.alter_report = [&](v1::ShardReport& report) {
      if (any_.Pick(4) != 0) return;
      any_.Change(report);
      ++changed_count;
    };
    for (int step = 0; step < 200; ++step) Step(run);
    run.Restart();
    if (HasFailure()) return;
  }
  EXPECT_GT(changed_count, 1000);
}

// Sums of accepted values do not overflow.
TEST_F(AnyMessageTest, ProgressBeyondReasonIsRefused) {
  RunSimulation run(SimpleSpec());
  run.StartServers();
  ASSERT_TRUE(run.Join("i0").ok());
  const auto report = [&](int64_t loss_step_count) {
    v1::ReportProgressRequest request;
    request.set_loss_step_count(loss_step_count);
    return run.machine()
        .Step(event::Progress{run.Credentials("i0"), request}, run.now())
        .status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(report(INT64_MAX)));
  for (int i = 0; i < 5000; ++i) {
    if (i % 64 == 0) run.Pass(absl::Seconds(8));  // Within its rate.
    ASSERT_TRUE(report(int64_t{1} << 52).ok());
  }
  EXPECT_EQ(run.machine().observed().members[0].loss_step_count,
            int64_t{1} << 52);
}

TEST_F(AnyMessageTest, WhateverSpecIsTakenCanBeRun) {
  int64_t refused_count = 0;
  int64_t run_count = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    v1::RunSpec spec = AnyKindOfSpec();
    any_.Change(spec);
    if (!ValidateSpec(spec).empty()) {
      ++refused_count;
      continue;
    }
    if (spec.server_count() > 8) continue;  // Slow, and no different.
    ++run_count;
    RunSimulation run(spec);
    run.StartServers();
    for (int i = 0; i < kIslands; ++i) {
      run.Join(IslandId(i)).IgnoreError();
      run.Ready(IslandId(i)).IgnoreError();
    }
    for (int step = 0; step < 20; ++step) Step(run);
    run.CheckLog();
    if (HasFailure()) {
      std::printf("%s\n", spec.ShortDebugString().c_str());
      return;
    }
  }
  EXPECT_GT(refused_count, 1000);
  EXPECT_GT(run_count, 500);
}

}  // namespace
}  // namespace atl::coordinator
