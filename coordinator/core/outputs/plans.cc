#include "coordinator/core/outputs/plans.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/layout/run_timing.h"
#include "base/layout/seal_name.h"
#include "base/status/cut_utf8.h"
#include "coordinator/core/outputs/island_warning.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/rounds/recalls.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/rounds/run_end.h"

namespace atl::coordinator {
namespace {

// Limit for all reasons together in one island's plan.
constexpr size_t kReasonsBytesMax = 16 << 10;

// The part of `open` that every island is told.
v1::OpenRound SharedOpenRound(const v1::OpenRound& open) {
  v1::OpenRound shared;
  shared.set_fragment(open.fragment());
  shared.set_version(open.version());
  shared.set_attempt(open.attempt());
  shared.set_min_quorum(open.min_quorum());
  *shared.mutable_grace_window() = open.grace_window();
  *shared.mutable_deadline() = open.deadline();
  shared.set_slot_count(open.slots_size());
  int64_t step_count_sum = 0;
  for (const v1::SlotPlan& plan : open.slots()) {
    step_count_sum += std::max<int64_t>(1, plan.step_count());
  }
  shared.set_step_count_sum(step_count_sum);
  return shared;
}

// Tells the island of `slot` its turn among `evaluators`.
void AddEvaluator(const std::vector<int32_t>& evaluators, int32_t slot,
                  v1::OpenRound& told) {
  const auto at =
      std::lower_bound(evaluators.begin(), evaluators.end(), slot);
  told.set_evaluator_count(static_cast<int32_t>(evaluators.size()));
  told.set_evaluator_index(
      at == evaluators.end() || *at != slot
          ? -1
          : static_cast<int32_t>(at - evaluators.begin()));
}

void AddSlot(const v1::OpenRound& open, int32_t slot, v1::OpenRound& told) {
  told.clear_slots();
  told.clear_slot_index();
  const int index = FindSlotPlan(open, slot);
  if (index < 0) return;
  *told.add_slots() = open.slots(index);
  told.set_slot_index(index);
}

// Keeps the reasons of the newest outcomes, up to the limit.
void ShortenReasons(
    google::protobuf::RepeatedPtrField<v1::ContributionOutcome>& outcomes) {
  size_t room = kReasonsBytesMax;
  for (auto outcome = outcomes.rbegin(); outcome != outcomes.rend();
       ++outcome) {
    if (outcome->reason().empty()) continue;
    std::string& reason = *outcome->mutable_reason();
    reason.resize(CutUtf8(reason, std::min(room, kReasonBytesMax)).size());
    room -= reason.size();
  }
}

bool HasSeal(const v1::ServerRunPlan* plan, const v1::Seal& seal) {
  return plan != nullptr &&
         std::any_of(plan->seals().begin(), plan->seals().end(),
                     [&](const v1::Seal& one) {
                       return IsSameSeal(one, seal);
                     });
}

bool HasCommit(const v1::ServerRunPlan* plan, const v1::Commit& commit) {
  return plan != nullptr &&
         std::any_of(plan->commits().begin(), plan->commits().end(),
                     [&](const v1::Commit& one) {
                       return one.commit_seq() == commit.commit_seq();
                     });
}

// True if `items` has `key` from `begin` on, where it is in the order of slots
// and seqs.
template <typename Item>
bool HasKey(const google::protobuf::RepeatedPtrField<Item>& items, int begin,
            const v1::ContributionKey& key) {
  const auto place = [](const v1::ContributionKey& k) {
    return SlotSeq(k.slot(), k.seq());
  };
  const auto at = std::lower_bound(
      items.begin() + std::min(begin, items.size()), items.end(), place(key),
      [&](const Item& item, const SlotSeq& p) { return place(item.key()) < p; });
  return at != items.end() && place(at->key()) == place(key);
}

// True if the commit of its fragment decides `key`. Its merged contributions
// are those of the seal; the other outcomes follow theirs.
bool Decides(const storage::v1::CommitSnapshot& recent,
             const v1::ContributionKey& key) {
  const auto& merged = recent.seal().contributions();
  return HasKey(merged, 0, key) ||
         HasKey(recent.commit().outcomes(), merged.size(), key);
}

// Tells a shard which contributions it need not keep, at most kDroppedMax a
// plan. First those that it still reports although they have ended, over as
// many plans as needed. Then the newest: the shard may have parts of them that
// no report names.
void AddDropped(const RunState& state, const ObservedShard& shard,
                int64_t persisted, v1::ServerRunPlan& plan) {
  std::set<ContributionPlace> told;
  // The commits of the plan free their contributions.
  const auto is_committed = [&](const v1::ContributionKey& key) {
    const auto& commits = state.recent_commits();
    return std::any_of(commits.begin(), commits.end(), [&](const auto& recent) {
      return recent.commit().commit_seq() > persisted &&
             recent.commit().fragment() == key.fragment() &&
             Decides(recent, key);
    });
  };
  const auto add = [&](const v1::ContributionKey& key, v1::Outcome outcome) {
    if (plan.dropped_size() >= static_cast<int>(kDroppedMax) ||
        is_committed(key) || !told.insert(ToPlace(key)).second) {
      return;
    }
    v1::ContributionOutcome& dropped = *plan.add_dropped();
    *dropped.mutable_key() = key;
    dropped.set_outcome(outcome);
  };
  const auto add_ended = [&](const v1::ContributionKey& key) {
    // The outcome may be forgotten.
    if (state.outcomes().Contains(key)) add(key, state.outcomes().Find(key));
  };
  for (const auto& [reported, is_refused] : shard.ended) {
    v1::ContributionKey key;
    key.set_run_epoch(std::get<0>(reported));
    key.set_fragment(std::get<1>(reported));
    key.set_slot(std::get<2>(reported));
    key.set_seq(std::get<3>(reported));
    add_ended(key);
  }
  const size_t room = kDroppedMax - static_cast<size_t>(plan.dropped_size());
  const auto& newest = state.dropped();
  for (size_t i = newest.size() - std::min(newest.size(), room);
       i < newest.size(); ++i) {
    add(newest[i].key(), newest[i].outcome());
  }
}

}  // namespace

google::protobuf::RepeatedPtrField<v1::ShardPlacement> BuildPlacement(
    const RunState& state, const ServerDirectory& servers) {
  google::protobuf::RepeatedPtrField<v1::ShardPlacement> placements;
  for (size_t shard = 0; shard < state.server_ids().size(); ++shard) {
    v1::ShardPlacement& placement = *placements.Add();
    placement.set_shard(static_cast<int32_t>(shard));
    placement.set_server_id(state.server_ids()[shard]);
    const ServerInfo* server = servers.FindServer(state.server_ids()[shard]);
    if (server == nullptr) continue;
    if (server->alive) placement.set_address(server->address);
    placement.set_incarnation(server->incarnation);
  }
  return placements;
}

int64_t PersistedCommitSeq(const RunState& state,
                           const Observations& observed) {
  // Commits never run further ahead than this.
  const int64_t least =
      std::max<int64_t>(0, state.commit_seq() - kCommitsAheadMax);
  int64_t persisted = state.commit_seq();
  for (const ObservedShard& shard : observed.shards) {
    persisted =
        std::min(persisted,
                 shard.reported ? shard.report.persisted_commit_seq() : least);
  }
  return std::max(persisted, least);
}

v1::IslandPlan BuildSharedIslandPlan(const RunState& state,
                                     const Observations& observed,
                                     const ServerDirectory& servers) {
  v1::IslandPlan plan;
  plan.set_run_id(state.run_id());
  plan.set_run_uid(state.run_uid());
  plan.set_run_epoch(state.run_epoch());
  plan.set_run_state(state.state());
  plan.set_layout_fingerprint(state.layout().fingerprint());
  plan.set_placement_epoch(state.placement_epoch());
  *plan.mutable_shards() = BuildPlacement(state, servers);
  if (state.started()) {
    // An async OPEN stands while one of its contributions is merged.
    const bool is_async = IsAsync(state.spec().schedule());
    for (const FragmentState& fragment : state.fragments()) {
      *plan.add_cut() = fragment.newest;
      if (fragment.phase == RoundPhase::kOpen ||
          (is_async && fragment.phase == RoundPhase::kSealed)) {
        *plan.add_open_rounds() = SharedOpenRound(fragment.open);
      }
      if (IsAtEnd(state, fragment.newest.fragment())) {
        plan.add_ended_fragments(fragment.newest.fragment());
      }
    }
  }
  if (!state.restores().empty()) {
    plan.set_restored_commit_seq(state.restores().back().commit_seq());
  }
  plan.set_commit_seq(state.commit_seq());
  plan.set_persisted_commit_seq(PersistedCommitSeq(state, observed));
  return plan;
}

std::vector<v1::OpenRound> ListSealedRounds(const RunState& state) {
  std::vector<v1::OpenRound> rounds;
  if (!state.started() || IsAsync(state.spec().schedule())) return rounds;
  for (const FragmentState& fragment : state.fragments()) {
    if (fragment.phase == RoundPhase::kSealed) {
      rounds.push_back(SharedOpenRound(fragment.open));
    }
  }
  return rounds;
}

bool IsSealOfOthers(const RunState& state, int32_t fragment, int32_t slot) {
  const FragmentState& at = state.fragments()[fragment];
  const auto& all = at.sealed.seal().contributions();
  const auto sealed = std::lower_bound(
      all.begin(), all.end(), slot,
      [](const auto& one, int32_t s) { return one.key().slot() < s; });
  // An island that joined anew does not know of an earlier one's contribution.
  if (sealed != all.end() && sealed->key().slot() == slot) {
    return sealed->key().seq() >= state.members()[slot].record.next_seq();
  }
  return FindSlotPlan(at.open, slot) < 0;
}

void AddIsland(const RunState& state, const Observations& observed,
               int32_t slot, v1::IslandPlan& plan,
               const std::vector<int32_t>* evaluators) {
  plan.set_slot(slot);
  plan.set_island_epoch(state.members()[slot].record.island_epoch());
  for (v1::OpenRound& open : *plan.mutable_open_rounds()) {
    const v1::OpenRound& whole = state.fragments()[open.fragment()].open;
    AddSlot(whole, slot, open);
    if (open.fragment() != 0) continue;
    AddEvaluator(
        evaluators == nullptr ? state.ListEvaluators(whole) : *evaluators, slot,
        open);
  }
  plan.clear_outcomes();
  for (v1::ContributionOutcome& outcome : state.outcomes().Newest(
           slot, observed.members[slot].acknowledged_seq)) {
    *plan.add_outcomes() = std::move(outcome);
  }
  ShortenReasons(*plan.mutable_outcomes());
  plan.clear_needs_repush();
  for (v1::ContributionKey& key : NeedsRepush(observed, slot)) {
    *plan.add_needs_repush() = std::move(key);
  }
  plan.set_warning(WarnOfIsland(state, observed, slot));
}

void AddMembers(const RunState& state, v1::ServerRunPlan& plan) {
  for (const Member& member : state.members()) {
    if (member.present()) *plan.add_members() = MakePlanMember(member);
  }
}

void AddTokens(const RunState& state, v1::ServerRunPlan& plan) {
  std::map<std::string, v1::TokenSlots> tokens;
  for (const Member& member : state.members()) {
    const int32_t slot = member.record.slot();
    if (member.enrolled()) tokens[member.record.token_id()].add_slots(slot);
    if (member.record.revoked()) plan.add_revoked_slots(slot);
  }
  for (auto& [token_id, slots] : tokens) *plan.add_tokens() = std::move(slots);
}

v1::PlanMember MakePlanMember(const Member& member) {
  v1::PlanMember told;
  told.set_slot(member.record.slot());
  told.set_island_epoch(member.record.island_epoch());
  told.set_session_sha256(member.record.session_sha256());
  return told;
}

v1::Commit NameCommit(const v1::Commit& commit) {
  v1::Commit name;
  name.set_commit_seq(commit.commit_seq());
  return name;
}

v1::ServerRunPlan BuildServerRunPlan(const RunState& state,
                                     const Observations& observed,
                                     int32_t shard,
                                     const v1::ServerRunPlan* before) {
  v1::ServerRunPlan plan;
  plan.set_run_id(state.run_id());
  plan.set_run_uid(state.run_uid());
  plan.set_run_epoch(state.run_epoch());
  plan.set_run_state(state.state());
  plan.set_shard(shard);
  plan.set_shard_count(static_cast<int32_t>(state.server_ids().size()));
  plan.set_placement_epoch(state.placement_epoch());
  plan.set_layout_fingerprint(state.layout().fingerprint());
  plan.set_slot_count(static_cast<int32_t>(state.members().size()));
  if (before == nullptr) {
    AddMembers(state, plan);
    AddTokens(state, plan);
  }
  const auto add_seal = [&](const v1::Seal& seal) {
    *plan.add_seals() = HasSeal(before, seal) ? NameSeal(seal) : seal;
  };
  const int64_t persisted = PersistedCommitSeq(state, observed);
  for (const auto& recent : state.recent_commits()) {
    if (recent.commit().commit_seq() <= persisted) continue;
    v1::Commit& commit = *plan.add_commits();
    if (HasCommit(before, recent.commit())) {
      commit = NameCommit(recent.commit());
    } else {
      commit = recent.commit();
      for (auto& outcome : *commit.mutable_outcomes()) outcome.clear_reason();
    }
    add_seal(recent.seal());
  }
  for (const FragmentState& fragment : state.fragments()) {
    if (fragment.phase == RoundPhase::kOpen) {
      v1::OpenRound& open = *plan.add_open_rounds();
      open = fragment.open;
      open.clear_slots();
      if (state.spec().durability() == v1::DURABILITY_ISLAND) {
        for (const v1::LiveMergeSlot& slot :
             ExpectedSeal(state, observed, fragment.newest.fragment())) {
          *open.add_live_merge() = slot;
        }
      }
    } else if (fragment.phase == RoundPhase::kSealed) {
      add_seal(fragment.sealed.seal());
    }
  }
  for (const auto& [pin_id, state_of_pin] : state.pins()) {
    v1::Pin& pin = *plan.add_pins();
    pin = state_of_pin.pin_set().pin();
    if (pin.mirror().must_repeat()) pin.clear_mirror();
    if (observed.mirror_owner_epoch >= state.run_epoch()) pin.mutable_mirror();
  }
  std::sort(plan.mutable_pins()->begin(), plan.mutable_pins()->end(),
            [](const v1::Pin& a, const v1::Pin& b) {
              return a.commit_seq() != b.commit_seq()
                         ? a.commit_seq() < b.commit_seq()
                         : a.pin_id() < b.pin_id();
            });
  AddDropped(state, observed.shards[shard], persisted, plan);
  plan.set_commit_seq(state.commit_seq());
  plan.set_acknowledged_commit_seq(
      AcknowledgedCommitSeq(state, observed, shard));
  if (!state.restores().empty()) {
    v1::RestoredCut& restored = *plan.mutable_restored();
    restored.set_commit_seq(state.restores().back().commit_seq());
    restored.set_pin_id(state.restores().back().pin_id());
    const auto pin = state.pins().find(restored.pin_id());
    if (pin != state.pins().end()) {
      const v1::Pin& source = pin->second.pin_set().pin();
      // A later checkpoint may have the same name.
      if (source.has_mirror() &&
          source.commit_seq() == state.restores().back().cut_commit_seq()) {
        restored.set_mirror_run_epoch(source.mirror().run_epoch());
        restored.set_mirror_commit_seq(source.commit_seq());
      }
    }
    for (const v1::FragmentVersion& version : state.restored_cut()) {
      *restored.add_cut() = version;
    }
  }
  plan.set_started(state.started());
  *plan.mutable_version0() = state.version0();
  return plan;
}

}  // namespace atl::coordinator
