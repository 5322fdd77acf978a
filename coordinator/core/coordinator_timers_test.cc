// The coordinator looks only at runs that have something to decide, and that is
// enough.

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/time/proto_time.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr int kRuns = 6;
constexpr int kIslands = 5;

class CoordinatorTimersTest : public testing::Test {
 protected:
  CoordinatorTimersTest() {
    core_.Start(now_, {"cluster", "start"}, 0);
    for (int i = 0; i < 2; ++i) {
      v1::RegisterServerRequest request;
      request.set_server_id(absl::StrCat("server-", i));
      request.set_address(absl::StrCat("host:", 1 + i));
      request.set_incarnation(1);
      request.set_features(ProgramFeatures());
      const auto response = core_.RegisterServer(request, now_);
      EXPECT_TRUE(response.ok());
      EXPECT_EQ(response->coordinator_features(), ProgramFeatures());
    }
    core_.TakeEffects(now_);
  }

  void CreateRun(const std::string& run_id) {
    v1::CreateRunRequest request;
    request.set_run_id(run_id);
    *request.mutable_spec() = ElasticSpec();
    request.mutable_spec()->mutable_data()->clear_fingerprint();
    EXPECT_TRUE(core_.CreateRun(request, now_, run_id).ok());
  }

  RunMachine& Run(const std::string& run_id) {
    return **core_.FindRun(run_id);
  }

  absl::StatusOr<RunAnswer> Join(const std::string& run_id,
                                 const std::string& island_id) {
    v1::JoinRequest request;
    request.set_run_id(run_id);
    request.set_island_id(island_id);
    request.mutable_capabilities()->add_devices()->set_kind("cpu");
    request.mutable_capabilities()->set_features(ProgramFeatures());
    absl::StatusOr<RunAnswer> answer =
        Run(run_id).Step(event::Join{request, island_id}, now_);
    if (answer.ok()) {
      islands_[{run_id, island_id}] = {
          island_id, answer->joined.island_epoch(), island_id};
    }
    return answer;
  }

  // The earliest timer over every member of every run.
  absl::Time ScanTimers() const {
    absl::Time next = absl::InfiniteFuture();
    for (const auto& [id, run] : core_.runs()) {
      for (const Member& member : run->state().members()) {
        if (run->state().ended()) continue;
        const int32_t slot = member.record.slot();
        next = std::min({next, run->observed().leases.Find(slot),
                         run->observed().aways.Find(slot)});
      }
    }
    return next;
  }

  int64_t CountIslands() const {
    int64_t count = 0;
    for (const auto& [id, run] : core_.runs()) {
      for (const Member& member : run->state().members()) {
        count += member.present() && !run->state().ended() ? 1 : 0;
      }
    }
    return count;
  }

  // Decides, and checks that every lease that has ended was found.
  Effects Advance() {
    std::vector<std::string> expected;
    for (const auto& [id, run] : core_.runs()) {
      for (const Member& member : run->state().members()) {
        if (!member.present() || run->state().ended() ||
            run->observed().leases.Find(member.record.slot()) > now_) {
          continue;
        }
        expected.push_back(absl::StrCat(id, "/", member.record.island_id()));
      }
    }
    core_.Advance(now_);
    Effects effects = core_.TakeEffects(now_);
    std::vector<std::string> lost;
    for (const LogEntry& entry : effects.batch.entries) {
      const storage::v1::MemberSet& set = entry.record.member_set();
      if (set.state() != v1::ISLAND_STATE_LOST) continue;
      lost.push_back(absl::StrCat(entry.run_id, "/", set.island_id()));
    }
    EXPECT_EQ(lost, expected);
    EXPECT_EQ(std::min(core_.NextTimer(), ServerTimer()),
              std::min(ScanTimers(), ServerTimer()));
    return effects;
  }

  // Servers report so often that their leases never end.
  absl::Time ServerTimer() const { return now_ + absl::Seconds(10); }
  void RenewServers() {
    for (int i = 0; i < 2; ++i) {
      v1::ReportShardsRequest request;
      request.set_server_id(absl::StrCat("server-", i));
      request.set_incarnation(1);
      const auto response = core_.ReportShards(request, now_);
      ASSERT_TRUE(response.ok());
      EXPECT_EQ(response->coordinator_features(), ProgramFeatures());
    }
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  Coordinator core_{CoordinatorOptions{}};
  std::map<std::pair<std::string, std::string>, IslandCredentials> islands_;
};

TEST_F(CoordinatorTimersTest, FindWhatAScanOfAllRunsFinds) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  int lost_count = 0;
  for (int step = 0; step < 2000; ++step) {
    const std::string run_id = absl::StrCat("run", random() % kRuns);
    const std::string island_id = absl::StrCat("i", random() % kIslands);
    now_ += absl::Milliseconds(random() % 1500);
    RenewServers();
    const bool exists = core_.FindRun(run_id).ok();
    const auto island = islands_.find({run_id, island_id});
    switch (exists ? random() % 12 : 0) {
      case 0:
        if (!exists) CreateRun(run_id);
        break;
      case 1:
        if (random() % 10 != 0) break;
        Run(run_id).Step(event::Cancel{}, now_).IgnoreError();
        if (random() % 2 != 0) break;
        ASSERT_TRUE(core_.DeleteRun(run_id, "", now_).ok());
        break;
      case 2:
        core_.AddStall(absl::Milliseconds(random() % 700));
        break;
      case 3:
        if (island == islands_.end()) break;
        Run(run_id).Step(event::Leave{island->second}, now_).IgnoreError();
        break;
      case 4:
      case 5:
        if (island == islands_.end()) break;
        Run(run_id)
            .Step(event::PlanStream{island->second, random() % 2 == 0}, now_)
            .IgnoreError();
        break;
      case 6:
      case 7:
        Join(run_id, island_id).IgnoreError();
        break;
      default:
        if (island == islands_.end()) break;
        Run(run_id).Step(event::Heartbeat{island->second}, now_).IgnoreError();
    }
    // Several batches may pass before the queue is empty.
    if (random() % 4 == 0) {
      core_.TakeEffects(now_);
      continue;
    }
    for (const LogEntry& entry : Advance().batch.entries) {
      lost_count += entry.record.member_set().state() == v1::ISLAND_STATE_LOST;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(lost_count, 10) << "too few leases ended to prove anything";
}

TEST_F(CoordinatorTimersTest, AHeartbeatHandsOutNothingOfOtherRuns) {
  CreateRun("run0");
  CreateRun("run1");
  ASSERT_TRUE(Join("run0", "i0").ok());
  ASSERT_TRUE(Join("run1", "i0").ok());
  Advance();
  now_ += absl::Seconds(1);
  RenewServers();
  ASSERT_TRUE(
      Run("run0").Step(event::Heartbeat{islands_[{"run0", "i0"}]}, now_).ok());
  EXPECT_FALSE(Run("run0").NeedsTick(now_)) << "a heartbeat decides nothing";
  const Effects effects = Advance();
  EXPECT_TRUE(effects.batch.empty());
  EXPECT_TRUE(effects.changed_runs.empty());
  // The run without a heartbeat loses its island in time.
  now_ += absl::Seconds(29);
  RenewServers();
  Advance();
  EXPECT_TRUE(Run("run0").state().members()[0].present());
  EXPECT_FALSE(Run("run1").state().members()[0].present());
}

TEST(HeartbeatIntervalTest, HasBoundsOfItsOwnAndOfTheLease) {
  const auto seconds = [](int64_t island_count, int64_t lease) {
    return absl::ToDoubleSeconds(
        HeartbeatInterval(island_count, absl::Seconds(lease)));
  };
  EXPECT_EQ(seconds(0, 60), 2);
  EXPECT_EQ(seconds(1000, 60), 2);
  EXPECT_EQ(seconds(5000, 60), 10);
  EXPECT_EQ(seconds(1'000'000, 600), 20);
  EXPECT_EQ(seconds(1'000'000, 60), 15);
  EXPECT_EQ(seconds(1, 4), 1);
}

TEST_F(CoordinatorTimersTest, IslandsLearnWhenToCallAgain) {
  CreateRun("run0");
  const absl::StatusOr<RunAnswer> joined = Join("run0", "i0");
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(joined->joined.coordinator_features(), ProgramFeatures());
  Advance();
  v1::HeartbeatResponse response = core_.DescribeLease(Run("run0"));
  EXPECT_EQ(FromProto(response.lease_duration()), absl::Seconds(30));
  EXPECT_EQ(response.coordinator_features(), ProgramFeatures());
  EXPECT_EQ(response.coordinator_epoch(), 1);
  EXPECT_EQ(FromProto(response.next_interval()), absl::Seconds(2));

  // 500 calls a second, of all runs together.
  int64_t count = 1;
  for (int r = 1; count < 1500; ++r) {
    const std::string run_id = absl::StrCat("run", r);
    CreateRun(run_id);
    for (int i = 0; i < 250; ++i) {
      ASSERT_TRUE(Join(run_id, absl::StrCat("i", i)).ok());
      ++count;
    }
  }
  Advance();
  ASSERT_EQ(CountIslands(), count);
  response = core_.DescribeLease(Run("run0"));
  EXPECT_EQ(FromProto(response.next_interval()),
            absl::Seconds(1) * count / 500);

  ASSERT_TRUE(Run("run1").Step(event::Cancel{}, now_).ok());
  Advance();
  response = core_.DescribeLease(Run("run0"));
  EXPECT_EQ(FromProto(response.next_interval()),
            absl::Seconds(1) * (count - 250) / 500);
}

}  // namespace
}  // namespace atl::coordinator
