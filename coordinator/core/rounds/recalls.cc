#include "coordinator/core/rounds/recalls.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/run_timing.h"
#include "base/status/cut_utf8.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/rounds/index_updates.h"
#include "coordinator/core/rounds/rounds.h"

namespace atl::coordinator {
namespace {

// Limit of a fault's text in a sentence for people.
constexpr size_t kFaultBytesMax = 512;

// True if a round may still merge it, judging by its header.
bool MayBeMerged(const RunState& state, const v1::ContributionInfo& info) {
  if (!IsUndecided(state, info.key())) return false;
  const int64_t newest =
      state.fragments()[info.key().fragment()].newest.version();
  return info.anchor_version() >= 0 && info.anchor_version() <= newest &&
         IsFreshEnough(state.spec().schedule(), info.anchor_version(), newest);
}

// The shards that have lost the contribution at `place`. Notes which have had it;
// judges it again if that has changed.
std::set<int32_t> FindLosses(const RunState& state,
                             const ContributionPlace& place,
                             Observations& observed) {
  const auto& [f, slot, seq] = place;
  const FragmentState& fragment = state.fragments()[f];
  FragmentContributions& all = observed.index.fragments[f];
  const storage::v1::SealedInfo* const sealed =
      FindSealed(fragment, {slot, seq});
  auto known = all.known.find({slot, seq});
  std::set<int32_t> lost;
  if (known == all.known.end()) {
    if (sealed == nullptr) return lost;
    known = all.known.try_emplace({slot, seq}).first;
    known->second.key = sealed->info().key();
  }
  SharedInfo sealed_info;
  if (sealed != nullptr) {
    for (const ShardPart& part : known->second.parts) {
      for (const SharedInfo& info : {part.info, part.had}) {
        if (info != nullptr && IsSameInfo(*info, sealed->info())) {
          sealed_info = info;
        }
      }
    }
    if (sealed_info == nullptr) {
      sealed_info =
          std::make_shared<const v1::ContributionInfo>(sealed->info());
    }
    // Every shard of the fragment has a part from here on.
    for (const int32_t shard : all.holders) known->second.Part(shard);
  }
  bool has_changed = false;
  for (ShardPart& part : known->second.parts) {
    if (static_cast<size_t>(part.shard) >= observed.shards.size()) continue;
    const ObservedShard& shard = observed.shards[part.shard];
    const bool must_have =
        sealed != nullptr && std::binary_search(all.holders.begin(),
                                                all.holders.end(), part.shard);
    SharedInfo had = part.stored_count > 0 ? part.info
                     : must_have           ? sealed_info
                                           : part.had;
    if (had != nullptr && !MayBeMerged(state, *had)) had = nullptr;
    // A header that the shard has counts before one that it had.
    has_changed |= part.stored_count == 0 && had != part.had;
    part.had = std::move(had);
    if (!IsHeard(shard)) continue;
    if (must_have) {
      // A refusal means that the second push differs from what was sealed. A
      // shard that has merged the round needs no contribution.
      if ((!part.is_named() || part.refused != nullptr) &&
          FindOfSeal(shard, shard.report.prepared(), fragment.sealed.seal()) ==
              nullptr) {
        lost.insert(part.shard);
      }
    } else if (fragment.phase != RoundPhase::kSealed && part.had != nullptr &&
               !part.is_named()) {
      lost.insert(part.shard);
    }
  }
  std::erase_if(known->second.parts,
                [](const ShardPart& part) { return part.is_empty(); });
  if (known->second.parts.empty()) {
    NoteJudged(state, place, observed);
    all.seen.erase({slot, seq});
    all.known.erase(known);
    observed.SetDue(f);
  } else if (has_changed) {
    JudgeAgain(state, place, observed);
  }
  return lost;
}

// The outcome of a lost, sealed contribution that will not come back; empty
// while the round can wait for it.
v1::ContributionOutcome LostOutcome(const RunState& state,
                                    const Observations& observed,
                                    const Recall& recall, absl::Time deadline,
                                    absl::Time now) {
  const KnownContribution* const known =
      observed.index.Find(ToPlace(recall.key));
  for (int32_t shard : recall.shards) {
    const ShardPart* const part =
        known == nullptr ? nullptr : known->Find(shard);
    if (part != nullptr && part->refused != nullptr) {
      return MakeOutcome(
          recall.key, v1::OUTCOME_REJECTED,
          ExplainRefusal(state, recall.key, std::nullopt,
                         std::string(CutUtf8(part->refused->reason(),
                                             kReasonBytesMax))));
    }
  }
  const std::string lost =
      absl::StrCat("shard ", absl::StrJoin(recall.shards, ", "),
                   " lost it before its round was committed, and its island ");
  if (!state.members()[recall.key.slot()].present()) {
    return MakeOutcome(recall.key, v1::OUTCOME_DROPPED,
                       absl::StrCat(lost, "was away"));
  }
  if (now >= deadline) {
    return MakeOutcome(recall.key, v1::OUTCOME_DROPPED,
                       absl::StrCat(lost, "did not push it again in time"));
  }
  return {};
}

absl::Duration RecallWait(const RunState& state) {
  const absl::Duration deadline =
      FromProto(state.spec().schedule().round_deadline());
  return deadline > absl::ZeroDuration() ? deadline : kRecallWait;
}

}  // namespace

bool UpdateRecalls(const RunState& state, absl::Time now,
                   Observations& observed) {
  std::vector<ContributionPlace> places =
      std::exchange(observed.index.changed, {});
  if (!state.started() || state.ended()) {
    const bool had_recalls = !observed.recalls.empty();
    observed.recalls.clear();
    return had_recalls;
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  bool changed = false;
  for (const ContributionPlace& place : places) {
    std::set<int32_t> lost = FindLosses(state, place, observed);
    const auto before = observed.recalls.find(place);
    if (lost.empty()) {
      if (before == observed.recalls.end()) continue;
      observed.recalls.erase(before);
      changed = true;
    } else if (before != observed.recalls.end()) {
      before->second.shards = std::move(lost);
    } else {
      Recall& recall = observed.recalls[place];
      recall.key.set_run_epoch(state.run_epoch());
      recall.key.set_fragment(std::get<0>(place));
      recall.key.set_slot(std::get<1>(place));
      recall.key.set_seq(std::get<2>(place));
      recall.shards = std::move(lost);
      recall.since = now;
      changed = true;
    }
    observed.SetDue(std::get<0>(place));
  }
  return changed;
}

std::vector<v1::ContributionKey> NeedsRepush(const Observations& observed,
                                             int32_t slot) {
  std::vector<v1::ContributionKey> keys;
  const auto& recalls = observed.recalls;
  // From one fragment's recalls of the slot to the next one's.
  for (auto recall = recalls.begin(); recall != recalls.end();) {
    const int32_t fragment = std::get<0>(recall->first);
    for (recall = recalls.lower_bound({fragment, slot, 0});
         recall != recalls.end() && std::get<0>(recall->first) == fragment &&
         std::get<1>(recall->first) == slot;
         ++recall) {
      keys.push_back(recall->second.key);
    }
    recall = recalls.lower_bound({fragment + 1, 0, 0});
  }
  return keys;
}

Decision DecideRecall(const RunState& state, const Observations& observed,
                      int32_t fragment, absl::Time now) {
  if (observed.recalls.empty()) return {};
  const v1::Seal& seal = state.fragments()[fragment].sealed.seal();
  const std::string name = RoundName(state, fragment);
  std::vector<v1::ContributionOutcome> outcomes;
  std::set<int32_t> shards;
  std::vector<std::string> islands;
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    const auto found = observed.recalls.find(ToPlace(sealed.key()));
    if (found == observed.recalls.end()) continue;
    const Recall& recall = found->second;
    shards.insert(recall.shards.begin(), recall.shards.end());
    islands.push_back(state.members()[sealed.key().slot()].record.island_id());
    v1::ContributionOutcome outcome = LostOutcome(
        state, observed, recall, recall.since + RecallWait(state), now);
    if (outcome.outcome() != v1::OUTCOME_UNSPECIFIED) {
      outcomes.push_back(std::move(outcome));
    }
  }
  if (shards.empty()) return {};
  if (!outcomes.empty()) {
    const std::string reason = absl::StrCat(
        name, ": the contribution of ",
        state.members()[outcomes[0].key().slot()].record.island_id(),
        " cannot be merged: ", outcomes[0].reason());
    return AbortRound(state, fragment, reason, std::move(outcomes));
  }
  return {{},
          absl::StrCat(name, ": sealed; shard ", absl::StrJoin(shards, ", "),
                       " has lost contributions and waits for ",
                       absl::StrJoin(islands, ", "), " to push them again")};
}

absl::Time RecallTimer(const RunState& state, const Observations& observed) {
  absl::Time timer = absl::InfiniteFuture();
  for (const auto& [place, recall] : observed.recalls) {
    const FragmentState& fragment = state.fragments()[std::get<0>(place)];
    if (fragment.phase != RoundPhase::kSealed) continue;
    timer = std::min(timer, recall.since + RecallWait(state));
  }
  return timer;
}

std::string ShardFault(const RunState& state, const Observations& observed) {
  for (size_t shard = 0; shard < observed.shards.size(); ++shard) {
    const ObservedShard& seen = observed.shards[shard];
    if (!seen.reported || seen.report.fault().empty()) continue;
    const std::string& server = state.server_ids()[shard];
    return absl::StrCat(
        "shard ", shard, " on server ", server,
        " has stopped: ", CutUtf8(seen.report.fault(), kFaultBytesMax),
        ". If its disk works again, or its newest data directory is in place "
        "on another one, restart ",
        server, ", then run `atoll run resume ", state.run_id(),
        "`. Else `atoll run show ", state.run_id(),
        "` names the checkpoint to go back to; if there is none, end the run "
        "with `atoll run cancel ",
        state.run_id(), "`");
  }
  return "";
}

std::optional<v1::Fault> FindShardFault(const RunState& state,
                                        const Observations& observed) {
  for (size_t shard = 0; shard < observed.shards.size(); ++shard) {
    const ObservedShard& seen = observed.shards[shard];
    if (!seen.reported || seen.report.fault().empty()) continue;
    v1::Fault fault = seen.report.fault_detail();
    const std::string place =
        absl::StrCat("shard ", shard, " on server ", state.server_ids()[shard]);
    if (fault.code().empty()) {
      fault.set_code("DATA_LOSS");
      fault.set_found(seen.report.fault());
    }
    fault.set_expected(fault.expected().empty()
                           ? absl::StrCat(place, " as it was written")
                           : absl::StrCat(fault.expected(), ", in ", place));
    for (std::string* text :
         {fault.mutable_code(), fault.mutable_expected(), fault.mutable_found(),
          fault.mutable_next_command()}) {
      text->resize(CutUtf8(*text, kFaultBytesMax).size());
    }
    return fault;
  }
  return std::nullopt;
}

}  // namespace atl::coordinator
