// A ShardMachine under test, with its plan and disk. Thread-compatible.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "server/core/shard_machine.h"

namespace atl::server {

inline constexpr uint64_t kFingerprint = 0xfeed;

// A shard with all of fragment 0 and no block of fragment 1.
class ShardMachineTest : public testing::Test {
 protected:
  ShardMachineTest() { Restart({}); }

  // --- Verbs ----------------------------------------------------------------

  void Restart(RecoveredShard recovered, bool import = false) {
    ShardShape shape;
    shape.import = import;
    shape.run_id = "run";
    shape.run_uid = run_uid_;
    shape.shard = 1;
    shape.layout_fingerprint = kFingerprint;
    shape.fragments = {{true, true}, {false, false}};
    shape.judged = judged_;
    shape.max_staleness = max_staleness_;
    if (recovered.versions.empty()) {
      recovered.versions = {-1, 0};
      recovered.version0_digests.resize(2);
    }
    // The plans that follow know what is on the disk.
    plan_.set_commit_seq(
        std::max(plan_.commit_seq(), recovered.persisted_commit_seq));
    machine_.emplace(shape, std::move(recovered));
  }

  std::string Trace() {
    actions_ = machine_->NextActions();
    return absl::StrJoin(actions_, "\n", [](std::string* out, const auto& a) {
      *out += a.ToString();
    });
  }

  void Plan() {
    plan_.set_run_id("run");
    plan_.set_run_epoch(1);
    plan_.set_shard(1);
    plan_.set_layout_fingerprint(kFingerprint);
    plan_.set_placement_epoch(1);
    if (plan_.run_state() == v1::RUN_STATE_UNSPECIFIED) {
      plan_.set_run_state(v1::RUN_STATE_ACTIVE);
    }
    machine_->OnPlan(plan_);
  }

  static v1::ContributionInfo Info(int32_t slot, int64_t version,
                                   uint64_t digest = 7) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(1);
    info.mutable_key()->set_slot(slot);
    info.mutable_key()->set_seq(version + 1);
    info.set_anchor_version(version);
    info.mutable_digest()->set_low(digest);
    info.set_codec(v1::CODEC_F32);
    info.set_step_count(1);
    return info;
  }
  static ContributionKey Key(int32_t slot, int64_t version) {
    return ContributionKey::FromProto(Info(slot, version).key());
  }

  void Seal(int64_t version, int64_t attempt, std::vector<int32_t> slots) {
    v1::Seal* seal = plan_.add_seals();
    seal->set_version(version);
    seal->set_attempt(attempt);
    for (const int32_t slot : slots) {
      v1::SealedContribution* sealed = seal->add_contributions();
      *sealed->mutable_key() = Info(slot, version).key();
      *sealed->mutable_digest() = Info(slot, version).digest();
    }
  }

  void Commit(int64_t seq, int32_t fragment, int64_t new_version,
              uint64_t digest, std::vector<int32_t> slots,
              int64_t attempt = 0) {
    v1::Commit* commit = plan_.add_commits();
    commit->set_commit_seq(seq);
    commit->set_fragment(fragment);
    commit->set_version(new_version);
    commit->set_attempt(attempt);
    commit->mutable_digest()->set_low(digest);
    for (const int32_t slot : slots) {
      *commit->add_outcomes()->mutable_key() =
          Info(slot, new_version - 1).key();
    }
    plan_.set_commit_seq(seq);
  }

  static PreparedFact Prepared(int64_t version, uint64_t digest,
                               int64_t attempt = 0) {
    PreparedFact fact;
    fact.version = version;
    fact.attempt = attempt;
    fact.digest.low = digest;
    return fact;
  }

  // A shard that holds version 0 and the contributions of two slots.
  void BringToRound0() {
    Plan();
    machine_->NextActions();
    machine_->OnVersion0(0, {Digest128{0, 100}});
    machine_->OnStored(Info(0, 0), 1.0);
    machine_->OnStored(Info(1, 0), 2.0);
  }

  // The disk after version `version` was persisted at commit `seq`.
  static RecoveredShard Disk(int64_t version, int64_t seq) {
    RecoveredShard disk;
    disk.run_epoch = 1;
    disk.persisted_commit_seq = seq;
    disk.versions = {version, 0};
    disk.version0_digests = {Digest128{0, 100}, Digest128{}};
    disk.held = {{0, version}};
    return disk;
  }

  std::string run_uid_;        // For the next Restart.
  bool judged_ = false;        // The same.
  int64_t max_staleness_ = 0;  // The same.
  v1::ServerRunPlan plan_;
  std::optional<ShardMachine> machine_;
  std::vector<ShardAction> actions_;
};

}  // namespace atl::server
