#include "coordinator/core/rounds/recalls.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/run_timing.h"
#include "base/status/cut_utf8.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/rounds/rounds.h"

namespace atl::coordinator {
namespace {

// Limit of a fault's text in a sentence for people.
constexpr size_t kFaultBytesMax = 512;

struct Named {
  std::set<ContributionPlace> here;  // Stored or refused.
  std::map<ContributionPlace, std::string> refused;
};

Named NamedBy(const ObservedShard& shard, int64_t run_epoch) {
  Named named;
  for (const v1::StoredContribution& stored : shard.report.stored()) {
    if (stored.info().key().run_epoch() != run_epoch) continue;
    named.here.insert(ToPlace(stored.info().key()));
  }
  for (const v1::RefusedContribution& refused : shard.report.refused()) {
    if (refused.key().run_epoch() != run_epoch) continue;
    named.here.insert(ToPlace(refused.key()));
    named.refused[ToPlace(refused.key())] =
        std::string(CutUtf8(refused.reason(), kReasonBytesMax));
  }
  return named;
}

// True if a round may still merge it, judging by its header.
bool MayBeMerged(const RunState& state, const v1::ContributionInfo& info) {
  if (!IsUndecided(state, info.key())) return false;
  const int64_t newest =
      state.fragments()[info.key().fragment()].newest.version();
  return info.anchor_version() >= 0 && info.anchor_version() <= newest &&
         IsFreshEnough(state.spec().schedule(), info.anchor_version(), newest);
}

// Adds what the shard has now; drops what is decided or cannot be merged.
void NoteHad(const RunState& state, const ObservedShard& shard,
             std::map<ContributionPlace, v1::ContributionInfo>& had) {
  if (shard.reported) {
    for (const v1::StoredContribution& stored : shard.report.stored()) {
      if (stored.info().key().run_epoch() != state.run_epoch()) continue;
      had[ToPlace(stored.info().key())] = stored.info();
    }
  }
  std::erase_if(had, [&](const auto& entry) {
    return !MayBeMerged(state, entry.second);
  });
}

// The outcome of a lost, sealed contribution that will not come back; empty
// while the round can wait for it.
v1::ContributionOutcome LostOutcome(const RunState& state,
                                    const Observations& observed,
                                    const Recall& recall, absl::Time deadline,
                                    absl::Time now) {
  for (int32_t shard : recall.shards) {
    const Named named = NamedBy(observed.shards[shard], state.run_epoch());
    const auto refused = named.refused.find(ToPlace(recall.key));
    if (refused != named.refused.end()) {
      return MakeOutcome(
          recall.key, v1::OUTCOME_REJECTED,
          ExplainRefusal(state, recall.key, std::nullopt, refused->second));
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
  std::map<ContributionPlace, Recall> recalls;
  const auto add = [&](const v1::ContributionKey& key, int32_t shard) {
    Recall& recall = recalls[ToPlace(key)];
    recall.key = key;
    recall.shards.insert(shard);
  };
  const bool under_way = state.started() && !state.ended();
  for (int32_t shard = 0; under_way && shard < observed.shards.size();
       ++shard) {
    ObservedShard& seen = observed.shards[shard];
    const bool heard = IsHeard(seen);
    const Named named = heard ? NamedBy(seen, state.run_epoch()) : Named();
    for (const FragmentState& fragment : state.fragments()) {
      const int32_t f = fragment.newest.fragment();
      if (fragment.phase != RoundPhase::kSealed ||
          state.layout()
              .ShardBlocks(f, shard, observed.shards.size())
              .empty()) {
        continue;
      }
      const v1::Seal& seal = fragment.sealed.seal();
      // A shard that has merged the round needs no contribution.
      const bool prepared =
          FindOfSeal(seen, seen.report.prepared(), seal) != nullptr;
      for (const storage::v1::SealedInfo& sealed : fragment.sealed.infos()) {
        const v1::ContributionKey& key = sealed.info().key();
        seen.had[ToPlace(key)] = sealed.info();
        // A refusal means that the second push differs from what was sealed.
        if (heard && !prepared &&
            (!named.here.contains(ToPlace(key)) ||
             named.refused.contains(ToPlace(key)))) {
          add(key, shard);
        }
      }
    }
    NoteHad(state, seen, seen.had);
    for (const auto& [place, info] : seen.had) {
      const FragmentState& fragment = state.fragments()[std::get<0>(place)];
      if (heard && fragment.phase != RoundPhase::kSealed &&
          !named.here.contains(place)) {
        add(info.key(), shard);
      }
    }
  }
  bool changed = recalls.size() != observed.recalls.size();
  for (auto& [place, recall] : recalls) {
    const auto before = observed.recalls.find(place);
    changed |= before == observed.recalls.end();
    recall.since =
        before == observed.recalls.end() ? now : before->second.since;
  }
  observed.recalls = std::move(recalls);
  return changed;
}

std::vector<v1::ContributionKey> NeedsRepush(const Observations& observed,
                                             int32_t slot) {
  std::vector<v1::ContributionKey> keys;
  for (const auto& [place, recall] : observed.recalls) {
    if (recall.key.slot() == slot) keys.push_back(recall.key);
  }
  return keys;
}

Decision DecideRecall(const RunState& state, const Observations& observed,
                      int32_t fragment, absl::Time now) {
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
