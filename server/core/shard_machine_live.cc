// ShardMachine: live merges, at level ISLAND.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/core/faults.h"
#include "server/core/shard_machine.h"

namespace atl::server {

void ShardMachine::DiscardLiveMerge(int32_t f) {
  fragments_[f].live_merge.reset();
  for (auto it = stored_.begin(); it != stored_.end();) {
    if (it->first.fragment != f || decided_.count(it->first)) {
      ++it;
      continue;
    }
    NoteChanged(it->first);
    partial_[it->first] = std::move(it->second.info);
    it = stored_.erase(it);
  }
}

const v1::ContributionInfo* ShardMachine::FindBound(int32_t f, int64_t version,
                                                    int32_t slot) const {
  const v1::ContributionInfo* newest = nullptr;
  const auto look = [&](const ContributionKey& key,
                        const v1::ContributionInfo& info) {
    if (key.fragment == f && key.slot == slot && key.run_epoch == run_epoch_ &&
        info.anchor_version() == version && !decided_.count(key) &&
        (newest == nullptr || newest->key().seq() < key.seq)) {
      newest = &info;
    }
  };
  for (const auto& [key, info] : partial_) look(key, info);
  for (const auto& [key, fact] : stored_) look(key, fact.info);
  return newest;
}

std::optional<LiveSet> ShardMachine::WantedSet(int32_t f) {
  LiveSet set;
  set.fragment = f;
  set.version = fragments_[f].version;
  if (const v1::Commit* commit = CommitOfNext(f)) {
    // The shard had prepared it before the COMMIT, so islands may have gone on.
    OnFault(MakeFault(
        "DATA_LOSS", "",
        absl::StrCat("commit ", commit->commit_seq(), " is version ",
                     commit->version(), " of fragment ", f,
                     ", whose file is missing or damaged")));
    return std::nullopt;
  }
  if (const v1::Seal* seal = WantedSeal(f)) {
    for (const v1::SealedContribution& sealed : seal->contributions()) {
      const auto key = ContributionKey::FromProto(sealed.key());
      if (!stored_.count(key) && !partial_.count(key)) {
        waiting_reason_ =
            absl::StrCat("fragment ", f, " version ", set.version,
                         " waits to be pushed again: ", key.ToString());
        return std::nullopt;
      }
      set.keys.push_back(key);
      set.weights.push_back(sealed.weight());
    }
    return set;
  }
  for (const v1::OpenRound& round : plan_.open_rounds()) {
    if (round.fragment() != f || round.version() != set.version) continue;
    for (const v1::LiveMergeSlot& slot : round.live_merge()) {
      const v1::ContributionInfo* info = FindBound(f, set.version, slot.slot());
      if (info == nullptr) return std::nullopt;
      set.keys.push_back(ContributionKey::FromProto(info->key()));
      set.weights.push_back(slot.weight());
    }
  }
  if (set.keys.empty()) return std::nullopt;
  return set;
}

bool ShardMachine::MergesLiveForPlan(int32_t f) const {
  const std::optional<LiveSet>& set = fragments_[f].live_merge;
  if (!set || unplanned_ || plan_.run_state() == v1::RUN_STATE_CANCELLED) {
    return false;
  }
  if (const v1::Seal* seal = WantedSeal(f)) return set->Merges(*seal);
  for (const v1::OpenRound& round : plan_.open_rounds()) {
    if (round.fragment() != f || round.version() != set->version) continue;
    // The round may expect slots that the set lacks; they need not arrive.
    return std::all_of(set->keys.begin(), set->keys.end(),
                       [&](const ContributionKey& key) {
                         return std::any_of(round.live_merge().begin(),
                                            round.live_merge().end(),
                                            [&](const v1::LiveMergeSlot& slot) {
                                              return slot.slot() == key.slot;
                                            });
                       });
  }
  return false;
}

void ShardMachine::NameGiveUp(int32_t f, std::vector<ShardAction>* actions) {
  Fragment& fragment = fragments_[f];
  if (!fragment.holds_live_merge) return;
  DiscardLiveMerge(f);
  fragment.holds_live_merge = false;
  ShardAction action{ActionKind::kLiveMerge};
  action.fragment = f;
  action.version = fragment.version;
  actions->push_back(std::move(action));
}

void ShardMachine::NameLiveSet(int32_t f, std::vector<ShardAction>* actions) {
  Fragment& fragment = fragments_[f];
  if (!shape_.live_merge || !shape_.fragments[f].holds || fragment.prepared ||
      fragment.preparing) {
    return;
  }
  std::optional<LiveSet> wanted = WantedSet(f);
  if (unplanned_ || plan_.run_state() == v1::RUN_STATE_CANCELLED) {
    wanted.reset();
  }
  if (!wanted) {
    // It holds memory that others wait for.
    if (!MergesLiveForPlan(f)) NameGiveUp(f, actions);
    return;
  }
  if (wanted == fragment.live_merge) return;
  DiscardLiveMerge(f);
  wanted->id = ++live_merge_count_;
  fragment.live_merge = wanted;
  fragment.holds_live_merge = true;
  ShardAction action{ActionKind::kLiveMerge};
  action.fragment = f;
  action.version = fragment.version;
  action.live_merge = *std::move(wanted);
  actions->push_back(std::move(action));
}

}  // namespace atl::server
