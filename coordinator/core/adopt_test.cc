// A cluster continues a run of the mirror.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/status/refusal.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/state/mirrored_run.h"
#include "coordinator/core/testing/run_simulation_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kUid[] = "0123456789abcdef0123456789abcdef";

class AdoptTest : public RunSimulationTest {
 protected:
  // The lost cluster's run; `pin_id` is the mirror's newest checkpoint.
  void MakeManifest(const std::string& pin_id = "round-4") {
    v1::RunSpec spec = SimpleSpec();
    spec.mutable_schedule()->set_round_count(6);
    spec.set_checkpoint_every_round_count(2);
    spec.mutable_checkpoint()->set_mirror(true);
    Start(spec);
    run_->makes_copies = true;
    for (int i = 0; i < 100; ++i) {
      const auto work = run_->machine().FindMirrorWork();
      if (work.has_value() && work->manifest.pin().pin_id() == pin_id) {
        manifest_ = work->manifest;
        manifest_.set_run_uid(kUid);
        manifest_.clear_parts();
        return;
      }
      for (const char* id : {"i0", "i1"}) run_->PushAll(id);
      run_->FollowPlans();
    }
    FAIL() << "no " << pin_id;
  }

  void SetUp() override {
    MakeManifest();
    StartCluster();
  }

  void StartCluster(bool has_mirror = true) {
    CoordinatorOptions options;
    options.has_mirror = has_mirror;
    entries_.clear();
    core_ = std::make_unique<Coordinator>(options);
    core_->Start(now_, {"other", "start"}, 0);
    Sync();
  }

  void Sync() {
    core_->Advance(now_);
    for (LogEntry& entry : core_->TakeEffects(now_).batch.entries) {
      entries_.push_back(std::move(entry));
    }
  }

  void Register(int count) {
    for (int i = 0; i < count; ++i) {
      v1::RegisterServerRequest request;
      request.set_server_id(absl::StrCat("s", i));
      request.set_address(absl::StrCat("host:", 1 + i));
      request.set_incarnation(1);
      request.set_directory_id(absl::StrCat("directory-", i));
      request.set_features(ProgramFeatures());
      ASSERT_TRUE(core_->RegisterServer(request, now_).ok());
    }
    Sync();
  }

  absl::StatusOr<v1::AdoptRunResponse> Adopt(int32_t server_count = 0) {
    auto answer = core_->AdoptRun(manifest_, server_count, now_);
    Sync();
    return answer;
  }

  // Adopts it; checks that the call is refused with `reason`.
  std::string Refused(const std::string& reason, int32_t server_count = 0) {
    const absl::Status status = Adopt(server_count).status();
    EXPECT_TRUE(HasReason(status, reason)) << status;
    return std::string(status.message());
  }

  // Each of `count` shards has gone to the cut.
  void Report(int count) {
    for (int i = 0; i < count; ++i) {
      v1::ReportShardsRequest request;
      request.set_server_id(absl::StrCat("s", i));
      request.set_incarnation(1);
      request.set_report_seq(++report_seq_);
      v1::ShardReport& report = *request.add_shards();
      report.set_run_id("run");
      report.set_run_uid(kUid);
      report.set_run_epoch(1 + kEpochJump);
      report.set_shard(i);
      report.set_initialized(true);
      report.set_persisted_commit_seq(kSeqJump);
      ASSERT_TRUE(core_->ReportShards(request, now_).ok());
    }
    Sync();
  }

  absl::Status Step(const RunEvent& event) {
    const absl::Status status = Machine().Step(event, now_).status();
    Sync();
    return status;
  }

  v1::JoinResponse Join(const std::string& island_id) {
    v1::JoinRequest request;
    request.set_run_id("run");
    request.set_island_id(island_id);
    request.mutable_capabilities()->add_devices()->set_kind("cpu");
    request.mutable_capabilities()->set_data_fingerprint(
        manifest_.spec().data().fingerprint());
    request.mutable_capabilities()->set_features(ProgramFeatures());
    const auto joined =
        Machine().Step(event::Join{request, std::string(32, 's')}, now_);
    EXPECT_TRUE(joined.ok()) << joined.status();
    Sync();
    return joined.ok() ? joined->joined : v1::JoinResponse();
  }

  RunMachine& Machine() { return **core_->FindRun("run"); }
  const RunState& State() { return Machine().state(); }

  const absl::Time now_ = absl::FromUnixSeconds(3'000'000);
  storage::v1::MirrorManifest manifest_;
  std::unique_ptr<Coordinator> core_;
  std::vector<LogEntry> entries_;
  int64_t report_seq_ = 0;
};

TEST_F(AdoptTest, NumbersOfAnEarlierAdoptionAreNotUsedAgain) {
  Register(2);
  // Another cluster, or this one before it deleted the run.
  ReachedNumbers reached = {.run_epoch = 1 + kEpochJump,
                            .commit_seq = kSeqJump};
  const auto adopted = core_->AdoptRun(manifest_, 0, now_, reached);
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  Sync();
  EXPECT_EQ(State().run_epoch(), 1 + 2 * kEpochJump);
  EXPECT_EQ(State().commit_seq(), 2 * kSeqJump);
  // The same command again finds this cluster's owner.
  reached = {.run_epoch = State().run_epoch(),
             .commit_seq = State().commit_seq()};
  const auto again = core_->AdoptRun(manifest_, 0, now_, reached);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->changed());
  for (const ReachedNumbers& wrong :
       {ReachedNumbers{.run_epoch = -1}, ReachedNumbers{.run_epoch = INT64_MAX},
        ReachedNumbers{.commit_seq = -1},
        ReachedNumbers{.commit_seq = INT64_MAX}}) {
    EXPECT_EQ(core_->AdoptRun(manifest_, 0, now_, wrong).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(AdoptTest, TheRunContinuesOnAnotherNumberOfServers) {
  Register(3);
  const auto adopted = Adopt(3);
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_TRUE(adopted->changed());
  EXPECT_EQ(adopted->run().run_uid(), kUid);
  EXPECT_EQ(adopted->run().run_epoch(), 1 + kEpochJump);
  EXPECT_EQ(adopted->run().spec().server_count(), 3);
  EXPECT_EQ(adopted->run().restored().pin_id(), "round-4");
  EXPECT_EQ(State().state(), v1::RUN_STATE_ACTIVE);

  const v1::ServerPlan plan = core_->ServerPlan("s2");
  ASSERT_EQ(plan.runs_size(), 1);
  const v1::ServerRunPlan& run = plan.runs(0);
  EXPECT_EQ(run.shard(), 2);
  EXPECT_EQ(run.shard_count(), 3);
  EXPECT_EQ(run.run_epoch(), 1 + kEpochJump);
  EXPECT_EQ(run.commit_seq(), kSeqJump);
  EXPECT_EQ(run.acknowledged_commit_seq(), 0);
  EXPECT_EQ(run.commits_size(), 0);
  EXPECT_EQ(run.restored().commit_seq(), kSeqJump);
  EXPECT_EQ(run.restored().mirror_run_epoch(), 1);
  EXPECT_EQ(run.restored().mirror_commit_seq(),
            manifest_.pin().commit_seq());
  ASSERT_EQ(run.pins_size(), 1);
  // The shards copy it again.
  EXPECT_FALSE(run.pins(0).has_mirror());

  // The islands of before join in their slots, with new epochs and seqs.
  for (const char* id : {"i1", "i0"}) {
    const v1::JoinResponse joined = Join(id);
    EXPECT_EQ(joined.slot(), run_->state().FindMember(id)->record.slot());
    EXPECT_GT(joined.island_epoch(), kEpochJump);
    // Four rounds of four steps with two samples; the lost run had more.
    EXPECT_EQ(joined.data_position(), 4 * 4 * 2);
    const event::Ready ready{
        {id, joined.island_epoch(), std::string(32, 's')}, kSeqJump};
    ASSERT_TRUE(Step(ready).ok());
  }
  EXPECT_THAT(Machine().waits_for(), HasSubstr("shard 0 on s0"));
  Report(3);
  const FragmentState& fragment = State().fragments()[0];
  ASSERT_EQ(fragment.phase, RoundPhase::kOpen) << Machine().waits_for();
  EXPECT_EQ(fragment.open.version(), 4);
  EXPECT_EQ(core_->ServerPlan("s0").runs(0).acknowledged_commit_seq(),
            kSeqJump);

  // The log gives the same run.
  Coordinator again({.has_mirror = true});
  for (const LogEntry& entry : entries_) {
    ASSERT_TRUE(again.Replay(entry).ok());
  }
  EXPECT_EQ((*again.FindRun("run"))->state().ToSnapshot().DebugString(),
            State().ToSnapshot().DebugString());
}

TEST_F(AdoptTest, ItWaitsForItsServers) {
  Register(1);
  ASSERT_TRUE(Adopt().ok());
  EXPECT_EQ(State().state(), v1::RUN_STATE_STARTING);
  EXPECT_THAT(Machine().waits_for(), HasSubstr("1 of 2"));
  v1::RestoreRunRequest restore;
  EXPECT_TRUE(HasReason(Step(event::Restore{restore}), "NOT_STARTED"));
  ASSERT_TRUE(Step(event::Pause()).ok());
  ASSERT_TRUE(Step(event::Resume()).ok());
  EXPECT_EQ(State().state(), v1::RUN_STATE_STARTING);
  Register(2);
  EXPECT_EQ(State().state(), v1::RUN_STATE_ACTIVE);
  EXPECT_THAT(State().server_ids(), ElementsAre("s0", "s1"));
}

TEST_F(AdoptTest, ARepeatedCallChangesNothing) {
  for (const int server_count : {1, 2}) {
    Register(server_count);  // Before and after the shards are placed.
    ASSERT_TRUE(Adopt().ok());
    const int64_t revision = State().revision();
    const auto again = Adopt(2);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_FALSE(again->changed());
    EXPECT_EQ(again->run().run_epoch(), 1 + kEpochJump);
    EXPECT_EQ(State().revision(), revision);
  }
  // By the run's own copy of the checkpoint, once that is in the mirror.
  const storage::v1::MirrorManifest first = manifest_;
  manifest_.set_run_epoch(1 + kEpochJump);
  EXPECT_FALSE(Adopt(2).value().changed());
  manifest_ = first;
  EXPECT_THAT(Refused("RUN_EXISTS", 3), HasSubstr("server_count"));
  ASSERT_TRUE(Step(event::Cancel()).ok());
  manifest_.set_run_uid(std::string(32, 'a'));
  EXPECT_THAT(Refused("RUN_EXISTS"), HasSubstr(kUid));
}

TEST_F(AdoptTest, AnOlderCheckpointIsRefusedOnceTheRunIsThere) {
  Register(2);
  ASSERT_TRUE(Adopt().ok());
  MakeManifest("round-2");
  EXPECT_THAT(Refused("RUN_EXISTS"), HasSubstr("atoll run restore run"));
}

TEST_F(AdoptTest, ADeletedRunComesBackOnceItsFilesAreGone) {
  Register(2);
  ASSERT_TRUE(Adopt().ok());
  ASSERT_TRUE(Step(event::Cancel()).ok());
  ASSERT_TRUE(core_->DeleteRun("run", kUid, now_).ok());
  Sync();
  EXPECT_THAT(Refused("RUN_DELETING"), HasSubstr("atoll run delete run"));
}

TEST_F(AdoptTest, TheEndOfARunIsItsEnd) {
  MakeManifest("final");
  Register(2);
  ASSERT_TRUE(Adopt().ok());
  EXPECT_EQ(State().state(), v1::RUN_STATE_COMPLETED);
  // The shards get it all the same: it can be exported.
  EXPECT_EQ(core_->ServerPlan("s0").runs(0).restored().pin_id(), "final");
}

TEST_F(AdoptTest, ItsHistoryBeginsWithIt) {
  Register(2);
  ASSERT_TRUE(Adopt().ok());
  const auto page = PlanRounds(State(), v1::ListRoundsRequest());
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->begin, page->end);
  EXPECT_TRUE(page->last);
}

TEST_F(AdoptTest, AWrongManifestIsRefused) {
  const auto refused = [this](int32_t server_count = 0) {
    const absl::Status status = Adopt(server_count).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_FALSE(core_->FindRun("run").ok());
    return std::string(status.message());
  };
  EXPECT_THAT(refused(100'000), HasSubstr("server_count"));
  const storage::v1::MirrorManifest good = manifest_;
  manifest_.clear_started();
  EXPECT_THAT(refused(), HasSubstr("version 0"));
  manifest_ = good;
  manifest_.mutable_spec()->mutable_schedule()->set_min_quorum(-1);
  EXPECT_THAT(refused(), HasSubstr("min_quorum"));
}

TEST_F(AdoptTest, ACoordinatorWithoutAMirrorRefuses) {
  StartCluster(/*has_mirror=*/false);
  EXPECT_THAT(Refused("NO_MIRROR"), HasSubstr("--mirror"));
}

}  // namespace
}  // namespace atl::coordinator
