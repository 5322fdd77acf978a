// Random headers and plans: the machine refuses, stops the shard or goes on.

#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "atoll/v1/parameter_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "base/testing/mutator.h"
#include "gtest/gtest.h"
#include "server/core/shard_machine.h"
#include "server/core/testing/told_contributions.h"

namespace atl::server {
namespace {

constexpr uint64_t kFingerprint = 0xfeed;

class AnyMessageTest : public testing::Test {
 protected:
  AnyMessageTest() : seed_(std::random_device()()), any_(seed_) {
    // Printed first, because a failure ends the process.
    std::printf("seed: %llu\n", static_cast<unsigned long long>(seed_));
    std::fflush(stdout);
  }

  void Begin() {
    ShardShape shape;
    shape.run_id = "run";
    shape.layout_fingerprint = kFingerprint;
    shape.fragments = {{true, true}, {true, false}};
    shape.judged = any_.Pick(3) == 0;
    shape.live_merge = !shape.judged && any_.Pick(2) == 0;
    shape.max_staleness = any_.Pick(3) == 0 ? 2 : 0;
    shape.codec = v1::CODEC_F32;
    RecoveredShard recovered;
    recovered.versions = {0, 0};
    recovered.version0_digests.resize(2);
    machine_.emplace(shape, std::move(recovered));
    told_ = {};
    plan_ = v1::ServerRunPlan();
    plan_.set_run_id("run");
    plan_.set_run_epoch(1);
    plan_.set_run_state(v1::RUN_STATE_ACTIVE);
    plan_.set_shard_count(2);
    plan_.set_placement_epoch(1);
    plan_.set_layout_fingerprint(kFingerprint);
    plan_.set_started(true);
    for (int32_t f = 0; f < 2; ++f) {
      plan_.add_version0()->set_fragment(f);
      v1::OpenRound& open = *plan_.add_open_rounds();
      open.set_fragment(f);
      for (int32_t slot = 0; shape.live_merge && slot < 3; ++slot) {
        open.add_live_merge()->set_slot(slot);
      }
    }
    for (int32_t slot = 0; slot < 3; ++slot) {
      v1::PlanMember& member = *plan_.add_members();
      member.set_slot(slot);
      member.set_island_epoch(1);
      member.set_session_sha256(std::string(32, 's'));
    }
    machine_->OnPlan(plan_);
    machine_->NextActions();
  }

  static v1::ContributionInfo Info(int32_t fragment, int32_t slot) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(1);
    info.mutable_key()->set_fragment(fragment);
    info.mutable_key()->set_slot(slot);
    info.mutable_key()->set_seq(1);
    info.set_codec(v1::CODEC_F32);
    info.set_step_count(1);
    info.set_token_count(10);
    return info;
  }

  // Reports as a server does; sometimes a report is lost, or the coordinator is
  // an older program. Whole reports and reports of changes say the same.
  void Report() {
    if (any_.Pick(4) == 0) return;  // More changes come together.
    const v1::ShardReport report =
        machine_->Report(++report_seq_, any_.Pick(8) != 0);
    if (report.base_report_seq() > 0) {
      ASSERT_EQ(report.base_report_seq(), report_seq_ - 1);
      ++changes_count_;
    }
    told_.Take(report);
    ToldContributions whole;
    whole.Take(machine_->Report());
    ASSERT_TRUE(told_ == whole) << report.ShortDebugString();
    if (any_.Pick(8) != 0) return;
    told_ = {};
    machine_->ReportWhole();
    ASSERT_EQ(machine_->Report(++report_seq_, true).base_report_seq(), 0);
    machine_->ReportWhole();
  }

  const uint64_t seed_;
  Mutator any_;
  ToldContributions told_;
  int64_t report_seq_ = 0;
  int changes_count_ = 0;
  std::optional<ShardMachine> machine_;
  v1::ServerRunPlan plan_;
};

TEST_F(AnyMessageTest, WhateverHeaderIsAdmittedIsOfThisRun) {
  int admitted_count = 0;
  for (int trial = 0; trial < 200; ++trial) {
    Begin();
    for (int i = 0; i < 100; ++i) {
      v1::PushHeader header;
      header.set_run_id("run");
      header.set_island_id("island");
      header.set_island_epoch(1);
      *header.mutable_info() =
          Info(static_cast<int32_t>(any_.Pick(2)),
               static_cast<int32_t>(any_.Pick(3)));
      header.set_layout_fingerprint(kFingerprint);
      header.set_placement_epoch(1);
      any_.Change(header);
      if (!machine_->AdmitPush(header, std::string(32, 's')).ok()) continue;
      ++admitted_count;
      const v1::ContributionInfo& info = header.info();
      ASSERT_EQ(info.key().run_epoch(), 1);
      ASSERT_TRUE(info.key().fragment() == 0 || info.key().fragment() == 1);
      ASSERT_TRUE(info.key().slot() >= 0 && info.key().slot() < 3);
      ASSERT_GE(info.step_count(), 0);
      machine_->OnBound(info);
      if (any_.Pick(2) == 0) machine_->OnStored(info, 1.0);
      machine_->NextActions();
      Report();
      if (HasFatalFailure()) return;
      v1::ImportHeader import;
      import.set_run_id("run");
      any_.Change(import);
      machine_->AdmitImport(import).IgnoreError();
    }
  }
  EXPECT_GT(admitted_count, 1000);
  EXPECT_GT(changes_count_, 500);
}

TEST_F(AnyMessageTest, NoPlanEndsTheServer) {
  for (int trial = 0; trial < 1000; ++trial) {
    Begin();
    for (int i = 0; i < 20; ++i) {
      for (int32_t slot = 0; slot < 3; ++slot) {
        const auto f = static_cast<int32_t>(any_.Pick(2));
        machine_->OnBound(Info(f, slot));
        machine_->OnStored(Info(f, slot), 1.0, any_.Pick(3));
        const auto key = ContributionKey::FromProto(Info(f, slot).key());
        if (any_.Pick(8) == 0) machine_->OnLost(key, "a test");
        if (any_.Pick(8) == 0) machine_->OnRefused(Info(f, slot), "a test");
      }
      v1::ServerRunPlan plan = plan_;
      v1::Seal& seal = *plan.add_seals();
      seal.set_fragment(static_cast<int32_t>(any_.Pick(2)));
      for (int32_t slot = 0; slot < 3; ++slot) {
        *seal.add_contributions()->mutable_key() =
            Info(seal.fragment(), slot).key();
      }
      if (any_.Pick(2) == 0) {
        v1::Commit& commit = *plan.add_commits();
        commit.set_commit_seq(1);
        commit.set_fragment(seal.fragment());
        commit.set_version(1);
        for (const auto& one : seal.contributions()) {
          *commit.add_outcomes()->mutable_key() = one.key();
        }
        plan.set_commit_seq(1);
      }
      plan.add_pins()->set_pin_id("pin");
      any_.Change(plan);
      machine_->OnPlan(plan);
      for (const ShardAction& action : machine_->NextActions()) {
        // The caller indexes by these.
        ASSERT_TRUE(action.fragment == 0 || action.fragment == 1)
            << action.ToString();
        if (action.kind == ActionKind::kPrepare) {
          PreparedFact fact;
          fact.fragment = action.seal.fragment();
          fact.version = action.seal.version();
          fact.attempt = action.seal.attempt();
          machine_->OnPrepared(fact);
        } else if (action.kind == ActionKind::kPersist) {
          machine_->OnPersisted(action.commit.commit_seq());
        }
      }
      Report();
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(changes_count_, 5000);
}

}  // namespace
}  // namespace atl::server
