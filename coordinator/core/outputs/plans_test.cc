// The sizes of plans, and what each island is told of a round.

#include "coordinator/core/outputs/plans.h"

#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/outputs/server_changes.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/state/outcome_table.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr size_t kPlanBytesMax = 64 << 10;  // With 24 fragments and servers.
constexpr size_t kLargestPlanBytesMax = 192 << 10;
// A control message (proto/LIMITS.md).
constexpr size_t kMessageBytesMax = 4 << 20;
constexpr int64_t kMany = int64_t{1} << 40;  // For counts.

v1::Digest SomeDigest() {
  v1::Digest digest;
  digest.set_high(1);
  digest.set_low(2);
  return digest;
}

// A run with the longest names and large counts.
class PlansTest : public testing::Test, public ServerDirectory {
 protected:
  void Start(int fragment_count, int island_count, int server_count) {
    storage::v1::Record record;
    record.mutable_run_created()->set_run_id(std::string(63, 'r'));
    *record.mutable_run_created()->mutable_spec() = ElasticSpec(fragment_count);
    record.mutable_run_created()->set_run_epoch(1);
    Apply(record);
    for (int i = 0; i < server_count; ++i) {
      record.mutable_run_placed()->add_server_ids(
          absl::StrCat(std::string(50, 's'), 1000 + i));
    }
    Apply(record);
    for (int f = 0; f < fragment_count; ++f) {
      v1::FragmentVersion& version =
          *record.mutable_run_started()->add_version0();
      version.set_fragment(f);
      version.set_version(kMany);
      version.set_commit_seq(kMany);
      *version.mutable_digest() = SomeDigest();
    }
    Apply(record);
    for (int slot = 0; slot < island_count; ++slot) {
      record.mutable_member_set()->set_slot(slot);
      record.mutable_member_set()->set_island_id(absl::StrCat("i", slot));
      record.mutable_member_set()->set_island_epoch(1000);
      record.mutable_member_set()->set_session_sha256(std::string(32, 'x'));
      record.mutable_member_set()->set_state(v1::ISLAND_STATE_READY);
      Apply(record);
    }
    for (int f = 0; f < fragment_count; ++f) Open(f);
    observed_.shards.resize(server_count);
    observed_.members.resize(island_count);
  }

  void Open(int fragment) {
    storage::v1::Record record;
    v1::OpenRound& open = *record.mutable_round_opened();
    open.set_fragment(fragment);
    open.set_version(state_.fragments()[fragment].newest.version());
    open.set_min_quorum(1000);
    open.mutable_grace_window()->set_seconds(1000);
    open.mutable_deadline()->set_seconds(1000);
    for (int slot = 0; slot < IslandCount(); ++slot) {
      v1::SlotPlan& plan = *open.add_slots();
      plan.set_slot(slot);
      plan.set_step_count(100 + slot);
      plan.set_start_step(kMany);
      plan.set_data_shard(slot);
      plan.set_data_position(kMany);
    }
    Apply(record);
  }

  v1::ContributionKey Key(int fragment, int slot) const {
    v1::ContributionKey key;
    key.set_run_epoch(1);
    key.set_fragment(fragment);
    key.set_slot(slot);
    key.set_seq(1'000'000 + state_.commit_seq());
    return key;
  }

  void Seal(int fragment) {
    storage::v1::Record record;
    v1::Seal& seal = *record.mutable_round_sealed()->mutable_seal();
    seal.set_fragment(fragment);
    seal.set_version(state_.fragments()[fragment].newest.version());
    for (int slot = 0; slot < IslandCount(); ++slot) {
      v1::SealedContribution& contribution = *seal.add_contributions();
      *contribution.mutable_key() = Key(fragment, slot);
      *contribution.mutable_digest() = SomeDigest();
      contribution.set_weight(0.1f);
      contribution.set_token_count(kMany);
      record.mutable_round_sealed()->add_infos();
    }
    Apply(record);
  }

  // Commits the sealed round: merges each island's contribution and rejects as
  // many others as a slot may have undecided.
  void Commit(int fragment) {
    storage::v1::Record record;
    v1::Commit& commit = *record.mutable_round_committed()->mutable_commit();
    commit.set_commit_seq(state_.commit_seq() + 1);
    commit.set_fragment(fragment);
    commit.set_version(state_.fragments()[fragment].newest.version() + 1);
    *commit.mutable_digest() = SomeDigest();
    for (int slot = 0; slot < IslandCount(); ++slot) {
      v1::ContributionOutcome& outcome = *commit.add_outcomes();
      *outcome.mutable_key() = Key(fragment, slot);
      outcome.set_outcome(v1::OUTCOME_MERGED);
      v1::DataPosition& position = *commit.add_data_positions();
      position.set_data_shard(slot);
      position.set_position(kMany);
    }
    for (int i = 0; i < 3 * IslandCount(); ++i) {
      v1::ContributionOutcome& outcome = *commit.add_outcomes();
      *outcome.mutable_key() = Key(fragment, i / 3);
      outcome.mutable_key()->set_seq(2'000'000 + 3 * state_.commit_seq() +
                                     i % 3);
      outcome.set_outcome(v1::OUTCOME_REJECTED);
      outcome.set_reason(std::string(kReasonBytesMax, 'x'));
    }
    Apply(record);
  }

  // Rejects one contribution of `slot` in each fragment.
  void Reject(int slot, int64_t seq, const std::string& reason) {
    storage::v1::Record record;
    for (size_t f = 0; f < state_.fragments().size(); ++f) {
      v1::ContributionOutcome& outcome =
          *record.mutable_outcomes_set()->add_outcomes();
      *outcome.mutable_key() = Key(static_cast<int>(f), slot);
      outcome.mutable_key()->set_seq(seq);
      outcome.set_outcome(v1::OUTCOME_REJECTED);
      outcome.set_reason(reason);
    }
    Apply(record);
  }

  v1::IslandPlan MakePlan(int slot) const {
    v1::IslandPlan plan = BuildSharedIslandPlan(state_, observed_, *this);
    AddIsland(state_, observed_, slot, plan);
    plan.set_revision(kMany);
    plan.set_coordinator_epoch(kMany);
    return plan;
  }

  void Apply(storage::v1::Record& record) {
    record.set_revision(state_.revision() + 1);
    const absl::Status applied = state_.Apply(record);
    ASSERT_TRUE(applied.ok()) << applied;
    record.Clear();
  }

  int IslandCount() const { return static_cast<int>(state_.members().size()); }

  const ServerInfo* FindServer(const std::string& server_id) const override {
    server_.server_id = server_id;
    return &server_;
  }
  std::vector<std::string> AliveServers() const override { return {}; }

  RunState state_;
  Observations observed_;
  mutable ServerInfo server_ = {.server_id = "",
                                .address = std::string(300, 'a'),
                                .incarnation = 1000,
                                .program_version = "",
                                .alive = true};
};

TEST_F(PlansTest, AnIslandIsToldItsOwnSlotAndTheSumsOfAll) {
  Start(2, 3, 1);
  v1::IslandPlan plan = MakePlan(1);
  ASSERT_EQ(plan.open_rounds_size(), 2);
  for (const v1::OpenRound& open : plan.open_rounds()) {
    ASSERT_EQ(open.slots_size(), 1);
    EXPECT_EQ(open.slots(0).slot(), 1);
    EXPECT_EQ(open.slots(0).step_count(), 101);
    EXPECT_EQ(open.slot_index(), 1);
    EXPECT_EQ(open.slot_count(), 3);
    EXPECT_EQ(open.step_count_sum(), 100 + 101 + 102);
    EXPECT_EQ(open.min_quorum(), 1000);
  }
  // Reusing the plan for another slot leaves nothing of the first.
  AddIsland(state_, observed_, 2, plan);
  ASSERT_EQ(plan.open_rounds(1).slots_size(), 1);
  EXPECT_EQ(plan.open_rounds(1).slots(0).slot(), 2);
  EXPECT_EQ(plan.open_rounds(1).slot_index(), 2);
}

TEST_F(PlansTest, AnIslandThatIsNotExpectedIsToldHowManyAre) {
  Start(1, 3, 1);
  storage::v1::Record record;
  record.mutable_member_set()->set_slot(3);
  record.mutable_member_set()->set_island_id("late");
  Apply(record);
  observed_.members.resize(4);
  const v1::IslandPlan plan = MakePlan(3);
  EXPECT_TRUE(plan.open_rounds(0).slots().empty());
  EXPECT_EQ(plan.open_rounds(0).slot_count(), 3);
}

TEST_F(PlansTest, SlotsCountAsTheyAreOrdered) {
  Start(1, 5, 1);
  // A sample of slots.
  storage::v1::Record record;
  record.mutable_round_aborted()->set_fragment(0);
  Apply(record);
  v1::OpenRound& open = *record.mutable_round_opened();
  open.set_version(kMany);
  open.set_attempt(1);
  for (const int slot : {1, 3, 4}) open.add_slots()->set_slot(slot);
  Apply(record);
  EXPECT_EQ(MakePlan(4).open_rounds(0).slot_index(), 2);
  EXPECT_EQ(MakePlan(4).open_rounds(0).slots(0).slot(), 4);
  EXPECT_TRUE(MakePlan(2).open_rounds(0).slots().empty());
  // A slot without a step count takes one step.
  EXPECT_EQ(MakePlan(2).open_rounds(0).step_count_sum(), 3);
}

TEST_F(PlansTest, AnIslandsPlanIsSmallHoweverManyIslandsAndFragments) {
  Start(24, 256, 24);
  Reject(255, 7, std::string(1000, 'x'));
  EXPECT_LT(MakePlan(255).ByteSizeLong(), kPlanBytesMax);
  std::cout << "island " << MakePlan(255).ByteSizeLong() << std::endl;
  EXPECT_EQ(MakePlan(0).open_rounds_size(), 24);
}

TEST_F(PlansTest, TheLargestPlansFitTheirBounds) {
  v1::RunSpec spec = ElasticSpec(kFragmentsMax);
  const int islands = IslandsMax(kFragmentsMax);
  Start(kFragmentsMax, islands, kServersMax);
  for (int round = 0; round < 2; ++round) {
    Reject(islands - 1, 100 + round, std::string(1000, 'x'));
  }
  // As many undecided contributions as a slot may have in a fragment.
  for (int i = 0; i < 4 * kFragmentsMax; ++i) {
    Recall recall;
    recall.key = Key(i % kFragmentsMax, islands - 1);
    recall.key.set_seq(kMany + i);
    recall.shards = {0};
    observed_
        .recalls[{recall.key.fragment(), recall.key.slot(), recall.key.seq()}] =
        recall;
  }
  const v1::IslandPlan plan = MakePlan(islands - 1);
  EXPECT_EQ(plan.outcomes_size(), 256);
  EXPECT_EQ(plan.shards_size(), kServersMax);
  EXPECT_EQ(plan.needs_repush_size(), 4 * kFragmentsMax);
  EXPECT_LT(plan.ByteSizeLong(), kLargestPlanBytesMax);
  // Sixteen unpersisted commits, and all fragments sealed.
  for (int f = 0; f < kFragmentsMax; ++f) Seal(f);
  for (int f = 0; f < 16; ++f) {
    Commit(f);
    Open(f);
    Seal(f);
  }
  const v1::ServerRunPlan server = BuildServerRunPlan(state_, observed_, 0);
  EXPECT_EQ(server.commits_size(), 16);
  EXPECT_EQ(server.seals_size(), kFragmentsMax + 16);
  EXPECT_LT(server.ByteSizeLong(), kMessageBytesMax);
  std::cout << "island " << plan.ByteSizeLong() << ", server "
            << server.ByteSizeLong() << std::endl;
}

TEST_F(PlansTest, AServersStreamKeepsLittleOfAPlan) {
  for (const int fragment_count : {24, kFragmentsMax}) {
    state_ = RunState();
    Start(fragment_count, 1, 2);
    for (int seq = 1; seq <= 256; ++seq) Reject(0, seq, "an old one");
    for (int f = 0; f < fragment_count; ++f) Seal(f);
    for (int f = 0; f < 16; ++f) {
      Commit(f);
      Open(f);
      Seal(f);
    }
    ServerRunChanges given;
    const auto plan = given.Next(state_, observed_, 0, ServerMarks(),
                                 [](v1::ServerRunPlan&) {});
    ASSERT_TRUE(plan.has_value());
    EXPECT_GT(plan->dropped_size(), 200);
    EXPECT_EQ(plan->commits_size(), 16);
    EXPECT_EQ(plan->seals_size(), fragment_count + 16);
    std::cout << "kept " << given.memory_bytes() << std::endl;
    // BOUNDS.md.
    EXPECT_LT(given.memory_bytes(), size_t{6 << 10} + 192 * fragment_count);
  }
}

TEST_F(PlansTest, AServersPlanOfTheMostIslandsFits) {
  Start(kFragmentsTimesIslandsMax / kIslandsMax, kIslandsMax, 1);
  for (size_t f = 0; f < state_.fragments().size(); ++f) {
    Seal(static_cast<int>(f));
  }
  for (int f = 0; f < 16; ++f) {
    Commit(f);
    Open(f);
    Seal(f);
  }
  const v1::ServerRunPlan server = BuildServerRunPlan(state_, observed_, 0);
  EXPECT_EQ(server.members_size(), kIslandsMax);
  EXPECT_EQ(server.commits_size(), 16);
  EXPECT_LT(server.ByteSizeLong(), kMessageBytesMax);
  EXPECT_LT(MakePlan(0).ByteSizeLong(), kPlanBytesMax);
  std::cout << "server " << server.ByteSizeLong() << std::endl;
}

TEST_F(PlansTest, AServerIsToldTheSlotsOfATokenAndOfRevokedIslands) {
  Start(1, 5, 1);
  const auto set = [this](int slot, const std::string& token_id,
                          v1::IslandState island_state) {
    storage::v1::Record record;
    *record.mutable_member_set() = state_.members()[slot].record;
    record.mutable_member_set()->set_token_id(token_id);
    record.mutable_member_set()->set_state(island_state);
    record.mutable_member_set()->set_revoked(slot == 2);
    Apply(record);
  };
  set(0, "b", v1::ISLAND_STATE_READY);
  set(1, "a", v1::ISLAND_STATE_LOST);
  set(2, "b", v1::ISLAND_STATE_REMOVED);
  const v1::ServerRunPlan plan = BuildServerRunPlan(state_, observed_, 0);
  EXPECT_EQ(plan.slot_count(), 5);
  ASSERT_EQ(plan.tokens_size(), 2);
  EXPECT_THAT(plan.tokens(0).slots(), testing::ElementsAre(1));
  EXPECT_THAT(plan.tokens(1).slots(), testing::ElementsAre(0, 2));
  EXPECT_THAT(plan.revoked_slots(), testing::ElementsAre(2));
  EXPECT_EQ(plan.members_size(), 3);
}

TEST_F(PlansTest, AServerIsToldOfAllThatItStillReportsThoughItHasEnded) {
  Start(100, 1, 2);
  std::set<std::string> left;
  for (int64_t seq = 1; seq <= 6; ++seq) Reject(0, seq, "an old one");
  for (int f = 0; f < 100; ++f) {
    for (int64_t seq = 1; seq <= 6; ++seq) {
      v1::ContributionKey key = Key(f, 0);
      key.set_seq(seq);
      observed_.shards[1].ended[ToReportedKey(key)] = false;
      left.insert(key.ShortDebugString());
    }
    // One of another epoch is not the plan's business.
    observed_.shards[1].ended[{7, f, 0, 99}] = false;
  }
  // A shard that reports nothing is told the newest.
  EXPECT_EQ(BuildServerRunPlan(state_, observed_, 0).dropped(255).key().seq(),
            6);
  int part_count = 0;
  for (; !left.empty(); ++part_count) {
    const v1::ServerRunPlan plan = BuildServerRunPlan(state_, observed_, 1);
    ASSERT_LE(plan.dropped_size(), 256);
    const size_t before = left.size();
    for (const v1::ContributionOutcome& outcome : plan.dropped()) {
      left.erase(outcome.key().ShortDebugString());
      observed_.shards[1].ended.erase(ToReportedKey(outcome.key()));
      EXPECT_EQ(outcome.outcome(), v1::OUTCOME_REJECTED);
    }
    ASSERT_LT(left.size(), before);
  }
  EXPECT_EQ(part_count, 3);
}

// First its commit leaves the plan, then its outcome is forgotten.
TEST_F(PlansTest, WhatWasMergedAndIsStillReportedIsToldAsItEnded) {
  Start(1, 1, 1);
  Seal(0);
  const v1::ContributionKey key =
      state_.fragments()[0].sealed.seal().contributions(0).key();
  observed_.shards[0].ended[ToReportedKey(key)] = false;
  Commit(0);
  ObservedShard& shard = observed_.shards[0];
  shard.reported = true;
  shard.report.set_persisted_commit_seq(state_.commit_seq());
  const auto told = [&] {
    const v1::ServerRunPlan plan = BuildServerRunPlan(state_, observed_, 0);
    EXPECT_EQ(plan.commits_size(), 0);
    for (const v1::ContributionOutcome& outcome : plan.dropped()) {
      if (outcome.key().seq() == key.seq()) return outcome.outcome();
    }
    ADD_FAILURE() << "not told";
    return v1::OUTCOME_CANCELLED;
  };
  EXPECT_EQ(told(), v1::OUTCOME_MERGED);
  for (size_t i = 1; i <= OutcomeTable::kKeptMax; ++i) {
    Reject(0, key.seq() + static_cast<int64_t>(i), "a newer one");
  }
  EXPECT_EQ(told(), v1::OUTCOME_UNSPECIFIED);
}

// The shard frees them after the merge.
TEST_F(PlansTest, WhatACommitOfThePlanDecidesIsNotToldAsDropped) {
  Start(1, 2, 1);
  Seal(0);
  for (const v1::SealedContribution& sealed :
       state_.fragments()[0].sealed.seal().contributions()) {
    observed_.shards[0].ended[ToReportedKey(sealed.key())] = false;
  }
  Commit(0);
  const v1::ServerRunPlan plan = BuildServerRunPlan(state_, observed_, 0);
  ASSERT_EQ(plan.commits_size(), 1);
  for (const v1::ContributionOutcome& dropped : plan.dropped()) {
    EXPECT_EQ(dropped.outcome(), v1::OUTCOME_REJECTED);
  }
}

TEST_F(PlansTest, TheNewestReasonsAreKeptAndCutBetweenCharacters) {
  Start(100, 1, 1);
  Reject(0, 1, "an old one");
  // 256 bytes end within the last of 86 characters of three bytes.
  std::string reason;
  for (int i = 0; i < 86; ++i) reason += "\xe2\x82\xac";
  Reject(0, 2, reason);
  const v1::IslandPlan plan = MakePlan(0);
  ASSERT_EQ(plan.outcomes_size(), 200);
  EXPECT_EQ(plan.outcomes(199).reason(), reason.substr(0, 255));
  size_t reason_bytes = 0;
  for (const v1::ContributionOutcome& outcome : plan.outcomes()) {
    EXPECT_EQ(outcome.outcome(), v1::OUTCOME_REJECTED);
    reason_bytes += outcome.reason().size();
  }
  EXPECT_LE(reason_bytes, 16u << 10);
  EXPECT_EQ(plan.outcomes(0).reason(), "");
  const v1::ServerRunPlan server = BuildServerRunPlan(state_, observed_, 0);
  ASSERT_EQ(server.dropped_size(), 200);
  EXPECT_EQ(server.dropped(0).reason(), "");
  EXPECT_EQ(server.dropped(0).key().seq(), 1);
}

}  // namespace
}  // namespace atl::coordinator
