// Live merges of a shard at level ISLAND.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "server/core/faults.h"
#include "server/core/shard_machine.h"

namespace atl::server {
namespace {

class LiveMergeTest : public testing::Test {
 protected:
  LiveMergeTest() {
    RecoveredShard recovered;
    recovered.versions = {0};
    recovered.version0_digests.resize(1);
    Restart(std::move(recovered));
    plan_.set_run_id("run");
    plan_.set_run_epoch(1);
    plan_.set_run_state(v1::RUN_STATE_ACTIVE);
  }

  void Restart(RecoveredShard recovered) {
    ShardShape shape;
    shape.run_id = "run";
    shape.live_merge = true;
    shape.fragments = {{true, true}};
    machine_.emplace(shape, std::move(recovered));
  }

  static v1::ContributionInfo Info(int32_t slot, int64_t seq = 1) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(1);
    info.mutable_key()->set_slot(slot);
    info.mutable_key()->set_seq(seq);
    info.set_codec(v1::CODEC_F32);
    info.set_step_count(1);
    return info;
  }
  static ContributionKey Key(int32_t slot, int64_t seq = 1) {
    return ContributionKey::FromProto(Info(slot, seq).key());
  }

  // A plan that opens the round for `slots`, with equal weights.
  void Open(const std::vector<int32_t>& slots) {
    plan_.clear_open_rounds();
    plan_.clear_seals();
    v1::OpenRound* open = plan_.add_open_rounds();
    for (const int32_t slot : slots) {
      v1::LiveMergeSlot* live_merge = open->add_live_merge();
      live_merge->set_slot(slot);
      live_merge->set_weight(1.0f / static_cast<float>(slots.size()));
    }
    machine_->OnPlan(plan_);
  }

  void Seal(const std::vector<int32_t>& slots, int64_t attempt = 0) {
    plan_.clear_open_rounds();
    plan_.clear_seals();
    v1::Seal* seal = plan_.add_seals();
    seal->set_attempt(attempt);
    for (const int32_t slot : slots) {
      v1::SealedContribution* sealed = seal->add_contributions();
      *sealed->mutable_key() = Info(slot).key();
      sealed->set_weight(1.0f / static_cast<float>(slots.size()));
    }
    machine_->OnPlan(plan_);
  }

  std::vector<ShardAction> Next(ActionKind kind) {
    std::vector<ShardAction> found;
    for (ShardAction& action : machine_->NextActions()) {
      if (action.kind == kind) found.push_back(std::move(action));
    }
    return found;
  }

  // The slots of the set that is named now; empty for none.
  std::string MergedLive() {
    const std::vector<ShardAction> actions = Next(ActionKind::kLiveMerge);
    if (actions.empty()) return "";
    set_ = actions[0].live_merge;
    return absl::StrJoin(set_.keys, " ", [](std::string* out, const auto& key) {
      *out += std::to_string(key.slot);
    });
  }

  void Take(int32_t slot) { machine_->OnStored(Info(slot), 1, set_.id); }

  int StoredCount() { return machine_->Report().stored_size(); }

  std::optional<ShardMachine> machine_;
  v1::ServerRunPlan plan_;
  LiveSet set_;
};

TEST_F(LiveMergeTest, BeginsWhenEveryExpectedSlotHasSentItsHeader) {
  Open({0, 1});
  machine_->OnBound(Info(0));
  EXPECT_EQ(MergedLive(), "");
  machine_->OnBound(Info(1));
  EXPECT_EQ(MergedLive(), "0 1");
  EXPECT_EQ(MergedLive(), "") << "it is named once";
}

TEST_F(LiveMergeTest, WhatWasSentBeforeTheRunWasRestoredIsNotMergedLive) {
  v1::ContributionInfo old = Info(0);
  old.mutable_key()->set_run_epoch(0);
  machine_->OnBound(old);
  Open({0});
  EXPECT_EQ(MergedLive(), "");
  machine_->OnBound(Info(0));
  EXPECT_EQ(MergedLive(), "0");
  EXPECT_EQ(set_.keys[0].run_epoch, 1);
}

TEST_F(LiveMergeTest, PreparesOnceTheSealIsWhatWasMergedLive) {
  Open({0, 1});
  machine_->OnBound(Info(0));
  machine_->OnBound(Info(1));
  MergedLive();
  Take(0);
  Take(1);
  EXPECT_EQ(StoredCount(), 2);
  EXPECT_TRUE(Next(ActionKind::kPrepare).empty()) << "there is no seal";
  Seal({0, 1});
  EXPECT_EQ(Next(ActionKind::kPrepare).size(), 1);
}

TEST_F(LiveMergeTest, AnotherSealIsMergedLiveAnew) {
  Open({0, 1, 2});
  for (int slot = 0; slot < 3; ++slot) machine_->OnBound(Info(slot));
  MergedLive();
  for (int slot = 0; slot < 3; ++slot) Take(slot);
  const int64_t old_id = set_.id;
  Seal({0, 2});
  EXPECT_EQ(MergedLive(), "0 2");
  EXPECT_EQ(StoredCount(), 0) << "they have to be pushed again";
  // A result for the old set is ignored.
  machine_->OnStored(Info(0), 1, old_id);
  EXPECT_EQ(StoredCount(), 0);
  Take(0);
  EXPECT_TRUE(Next(ActionKind::kPrepare).empty());
  Take(2);
  EXPECT_EQ(Next(ActionKind::kPrepare).size(), 1);
}

TEST_F(LiveMergeTest, ALostIslandIsLeftOutAndTheOthersStartOver) {
  Open({0, 1});
  machine_->OnBound(Info(0));
  machine_->OnBound(Info(1));
  MergedLive();
  Take(0);
  Open({0});
  EXPECT_EQ(MergedLive(), "0");
  EXPECT_EQ(StoredCount(), 0);
}

TEST_F(LiveMergeTest, ARefusalLosesWhatWasMergedWithIt) {
  Open({0, 1});
  machine_->OnBound(Info(0));
  machine_->OnBound(Info(1));
  MergedLive();
  Take(0);
  machine_->OnRefused(Info(1), "not finite");
  EXPECT_EQ(StoredCount(), 0);
  EXPECT_EQ(MergedLive(), "") << "the plan still expects slot 1";
  Open({0});
  EXPECT_EQ(MergedLive(), "0");
}

TEST_F(LiveMergeTest, AnIslandThatRestartedIsMergedLiveUnderItsNewKey) {
  Open({0, 1});
  machine_->OnBound(Info(0));
  machine_->OnBound(Info(1));
  MergedLive();
  machine_->OnBound(Info(1, 17));
  EXPECT_EQ(MergedLive(), "0 1");
  EXPECT_EQ(set_.keys[1].seq, 17);
}

TEST_F(LiveMergeTest, AnAbortedRoundIsMergedLiveAgain) {
  Open({0});
  machine_->OnBound(Info(0));
  MergedLive();
  Take(0);
  Seal({0});
  ASSERT_EQ(Next(ActionKind::kPrepare).size(), 1);
  PreparedFact fact;
  machine_->OnPrepared(fact);
  Open({0});
  machine_->NextActions();  // Discards, and starts a live merge.
  EXPECT_EQ(StoredCount(), 0);
  EXPECT_EQ(machine_->Report().prepared_size(), 0);
}

TEST_F(LiveMergeTest, AfterARestartTheSealWaitsForItsContributions) {
  Seal({0, 1});
  EXPECT_EQ(MergedLive(), "");
  EXPECT_NE(machine_->waiting_reason(), "");
  machine_->OnBound(Info(0));
  machine_->OnBound(Info(1));
  EXPECT_EQ(MergedLive(), "0 1");
}

TEST_F(LiveMergeTest, AVersionThatWasPreparedNeedsNothingAfterARestart) {
  RecoveredShard recovered;
  recovered.versions = {0};
  recovered.version0_digests.resize(1);
  PreparedFact fact;
  fact.attempt = 1;
  recovered.prepared = {fact};
  recovered.prepared_here = {0};
  recovered.held = {{0, 0}, {0, 1}};
  Restart(recovered);
  Seal({0, 1}, /*attempt=*/1);
  EXPECT_EQ(MergedLive(), "");
  EXPECT_TRUE(Next(ActionKind::kPrepare).empty());
  EXPECT_EQ(machine_->Report().prepared_size(), 1);
}

TEST_F(LiveMergeTest, ACommitWhoseVersionIsGoneStopsTheShard) {
  Seal({0, 1});
  v1::Commit* commit = plan_.add_commits();
  commit->set_commit_seq(1);
  commit->set_version(1);
  machine_->OnPlan(plan_);
  EXPECT_TRUE(machine_->NextActions().empty());
  EXPECT_EQ(machine_->fault().substr(0, 9), "DATA_LOSS") << machine_->fault();
}

TEST_F(LiveMergeTest, PreparesNothingBeforeTheLastVersionIsPersisted) {
  Seal({0});
  machine_->OnBound(Info(0));
  MergedLive();
  Take(0);
  ASSERT_EQ(Next(ActionKind::kPrepare).size(), 1);
  machine_->OnPrepared({});
  v1::Commit* commit = plan_.add_commits();
  commit->set_commit_seq(1);
  commit->set_version(1);
  *commit->mutable_digest() = Digest128().ToProto();
  v1::ContributionOutcome* outcome = commit->add_outcomes();
  *outcome->mutable_key() = Info(0).key();
  outcome->set_outcome(v1::OUTCOME_MERGED);
  v1::ContributionInfo next = Info(0, /*seq=*/2);
  next.set_anchor_version(1);
  machine_->OnBound(next);
  v1::Seal* seal = plan_.add_seals();
  seal->set_version(1);
  v1::SealedContribution* sealed = seal->add_contributions();
  *sealed->mutable_key() = next.key();
  sealed->set_weight(1);
  machine_->OnPlan(plan_);
  EXPECT_EQ(MergedLive(), "0");
  EXPECT_EQ(set_.version, 1);
  machine_->OnStored(next, 1, set_.id);
  EXPECT_TRUE(Next(ActionKind::kPrepare).empty());
  machine_->OnPersisted(1);
  EXPECT_EQ(Next(ActionKind::kPrepare).size(), 1);
}

// Otherwise it holds memory that others wait for.
TEST_F(LiveMergeTest, WhatIsNotWantedAnyMoreIsGivenUpOnce) {
  const std::vector<std::pair<std::string, std::function<void()>>> ends = {
      {"cancelled",
       [&] {
         plan_.set_run_state(v1::RUN_STATE_CANCELLED);
         machine_->OnPlan(plan_);
       }},
      {"not planned", [&] { machine_->OnUnplanned(); }},
      {"fault", [&] { machine_->OnFault(MakeFault("DATA_LOSS", "", "it broke")); }},
      {"not open",
       [&] {
         plan_.clear_open_rounds();
         machine_->OnPlan(plan_);
       }},
      {"refused", [&] { machine_->OnRefused(Info(1), "not finite"); }},
      {"lost",
       [&] {
         Open({0, 2});
       }},
      {"sealed without one",
       [&] {
         Seal({0, 2});
       }},
  };
  for (const auto& [name, end] : ends) {
    SCOPED_TRACE(name);
    RecoveredShard recovered;
    recovered.versions = {0};
    recovered.version0_digests.resize(1);
    Restart(std::move(recovered));
    plan_.set_run_state(v1::RUN_STATE_ACTIVE);
    Open({0, 1});
    machine_->OnBound(Info(0));
    machine_->OnBound(Info(1));
    ASSERT_EQ(MergedLive(), "0 1");
    Take(0);
    end();
    const std::vector<ShardAction> actions = Next(ActionKind::kLiveMerge);
    ASSERT_EQ(actions.size(), 1);
    EXPECT_TRUE(actions[0].live_merge.keys.empty());
    EXPECT_EQ(StoredCount(), 0);
    EXPECT_TRUE(Next(ActionKind::kLiveMerge).empty()) << "it is named once";
  }
}

TEST_F(LiveMergeTest, AnIslandThatIsExpectedTooKeepsWhatWasMergedLive) {
  Open({0, 1});
  machine_->OnBound(Info(0));
  machine_->OnBound(Info(1));
  MergedLive();
  Take(0);
  Open({0, 1, 2});
  EXPECT_TRUE(Next(ActionKind::kLiveMerge).empty()) << "it may not come";
  EXPECT_EQ(StoredCount(), 1);
}

// The sum is incomplete, and the islands still have their contributions.
TEST_F(LiveMergeTest, WhatADiskDidNotTakeIsMergedLiveAnew) {
  Open({0});
  machine_->OnBound(Info(0));
  MergedLive();
  Take(0);
  Seal({0});
  std::vector<ShardAction> actions = Next(ActionKind::kPrepare);
  ASSERT_EQ(actions.size(), 1);
  machine_->OnFailed(actions[0], absl::ResourceExhaustedError("full"));
  actions = Next(ActionKind::kPrepare);
  ASSERT_EQ(actions.size(), 1) << "what has come is used";
  machine_->OnFailed(actions[0], absl::PermissionDeniedError("read-only"));
  EXPECT_EQ(StoredCount(), 0);
  EXPECT_EQ(MergedLive(), "0");
  Take(0);
  EXPECT_EQ(Next(ActionKind::kPrepare).size(), 1);
}

TEST_F(LiveMergeTest, AFailureIsTriedAgain) {
  Open({0});
  machine_->OnBound(Info(0));
  const std::vector<ShardAction> actions = Next(ActionKind::kLiveMerge);
  ASSERT_EQ(actions.size(), 1);
  machine_->OnFailed(actions[0], absl::ResourceExhaustedError("no memory"));
  EXPECT_EQ(MergedLive(), "0");
}

}  // namespace
}  // namespace atl::server
