#include "coordinator/core/rounds/rounds.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/run_timing.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/quorum.h"
#include "coordinator/core/rounds/run_end.h"
#include "coordinator/core/rounds/sit_out.h"
#include "coordinator/core/rounds/weights.h"

namespace atl::coordinator {
namespace {

struct RoundProgress {
  std::vector<SlotSeq> received;  // One a slot, by slot.
  std::vector<int32_t> slots;     // Slots of `received`.
  std::vector<int32_t> awaited;
  std::vector<SlotSeq> refused;  // One a slot.
  std::vector<int32_t> gone;
};

RoundStanding::Slot FindStanding(const v1::OpenRound& open,
                                 const SeenContributions& all, int32_t slot) {
  RoundStanding::Slot standing;
  for (auto seen = all.lower_bound({slot, 0});
       seen != all.end() && seen->first.first == slot; ++seen) {
    const auto& [place, contribution] = *seen;
    if (contribution.anchor_version.value_or(open.version()) !=
        open.version()) {
      continue;
    }
    if (contribution.received) standing.received_seq = place.second;
    if (!contribution.refusal.empty()) standing.refused_seq = place.second;
  }
  return standing;
}

void Update(const v1::OpenRound& open, const SeenContributions& seen,
            RoundStanding& standing) {
  const auto count = static_cast<size_t>(open.slots_size());
  if (standing.version != open.version() ||
      standing.attempt != open.attempt() || standing.slots.size() != count ||
      standing.changed.size() > count) {
    standing.version = open.version();
    standing.attempt = open.attempt();
    standing.slots.clear();
    for (const v1::SlotPlan& plan : open.slots()) {
      standing.slots.push_back(FindStanding(open, seen, plan.slot()));
    }
  } else {
    for (const int32_t slot : standing.changed) {
      const int at = FindSlotPlan(open, slot);
      if (at >= 0) standing.slots[at] = FindStanding(open, seen, slot);
    }
  }
  standing.changed.clear();
}

// `standing`: that of `open`, before or none.
RoundProgress ComputeProgress(const RunState& state,
                              const Observations& observed,
                              const v1::OpenRound& open,
                              RoundStanding& standing) {
  Update(open, observed.index.Seen(open.fragment()), standing);
  RoundProgress progress;
  for (int i = 0; i < open.slots_size(); ++i) {
    const int32_t slot = open.slots(i).slot();
    const auto& [received_seq, refused_seq] = standing.slots[i];
    if (received_seq > 0) {
      progress.received.emplace_back(slot, received_seq);
      progress.slots.push_back(slot);
    } else if (refused_seq > 0) {
      progress.refused.emplace_back(slot, refused_seq);
    } else if (state.members()[slot].present() &&
               !observed.members[slot].away) {
      progress.awaited.push_back(slot);
    } else {
      progress.gone.push_back(slot);
    }
  }
  return progress;
}

// Returns the first shard of `fragment` that has not reported since its server
// or the coordinator started; -1 if all have.
int32_t UnreportedShard(const RunState& state, const Observations& observed,
                        int32_t fragment) {
  for (const int32_t shard : ListShards(state, fragment)) {
    if (!observed.shards[shard].reported) return shard;
  }
  return -1;
}

// True if a new attempt could ask an island that the open round does not.
bool HasOtherIslands(const RunState& state, const Observations& observed,
                     const v1::OpenRound& open, const RoundProgress& progress,
                     absl::Time due) {
  std::set<int32_t> others =
      FindAskable(state, observed,
                  {progress.slots.begin(), progress.slots.end()},
                  std::max(open.min_quorum(), 1), due);
  for (const v1::SlotPlan& plan : open.slots()) others.erase(plan.slot());
  return !others.empty();
}

// Outcomes of the refused contributions that the open round may see.
std::vector<v1::ContributionOutcome> RejectRefused(
    const RunState& state, const SeenContributions& seen) {
  std::vector<v1::ContributionOutcome> outcomes;
  for (const auto& [place, contribution] : seen) {
    if (contribution.refusal.empty()) continue;
    outcomes.push_back(MakeRejection(state, contribution));
  }
  return outcomes;
}

std::string IslandNames(const RunState& state,
                        const std::vector<int32_t>& slots) {
  std::vector<std::string> names;
  for (int32_t slot : slots) {
    if (names.size() == kAwaitedNamedMax) {
      names.push_back(absl::StrCat(slots.size() - kAwaitedNamedMax, " more"));
      break;
    }
    names.push_back(state.members()[slot].record.island_id());
  }
  return absl::StrJoin(names, ", ");
}

void NoteWait(const RoundProgress& progress, absl::Time now, RoundWait& wait) {
  wait.received_count = static_cast<int>(progress.received.size());
  wait.awaited_count = static_cast<int>(progress.awaited.size());
  wait.awaited.assign(progress.awaited.begin(),
                      progress.awaited.begin() +
                          std::min(progress.awaited.size(), kAwaitedNamedMax));
  // A second push after a loss does not count as progress.
  for (const int32_t slot : progress.slots) {
    const auto at = static_cast<size_t>(slot);
    if (wait.received_times.size() <= at) {
      wait.received_times.resize(at + 1, absl::InfiniteFuture());
    }
    if (wait.received_times[at] != absl::InfiniteFuture()) continue;
    wait.received_times[at] = now;
    wait.received_time = now;
  }
}

}  // namespace

v1::ContributionOutcome MakeOutcome(const v1::ContributionKey& key,
                                    v1::Outcome outcome,
                                    const std::string& reason) {
  v1::ContributionOutcome made;
  *made.mutable_key() = key;
  made.set_outcome(outcome);
  made.set_reason(reason);
  return made;
}

v1::ContributionOutcome MakeRejection(const RunState& state,
                                      const SeenContribution& seen) {
  return MakeOutcome(
      seen.key, v1::OUTCOME_REJECTED,
      ExplainRefusal(state, seen.key, seen.anchor_version, seen.refusal));
}

storage::v1::Record MakeSeal(
    const RunState& state, int32_t fragment,
    const std::vector<const SeenContribution*>& contributions) {
  const v1::OpenRound& open = state.fragments()[fragment].open;
  storage::v1::Record record;
  storage::v1::RoundSealed& sealed = *record.mutable_round_sealed();
  v1::Seal& seal = *sealed.mutable_seal();
  seal.set_fragment(fragment);
  seal.set_version(open.version());
  seal.set_attempt(open.attempt());
  std::vector<int64_t> planned, claimed;
  std::vector<int32_t> slots;
  for (const SeenContribution* seen : contributions) {
    slots.push_back(seen->key.slot());
    // Async: the contribution of an absent island has no plan.
    planned.push_back(state.spec().schedule().inner_step_count());
    const int plan = FindSlotPlan(open, seen->key.slot());
    if (plan >= 0) planned.back() = open.slots(plan).step_count();
    claimed.push_back(std::min(seen->info->step_count(),
                               MostSteps(state, slots.back(), planned.back())));
  }
  const std::vector<int64_t> credited = CreditSteps(planned, claimed);
  std::vector<int64_t> token_counts;
  std::vector<int64_t> step_counts;
  for (size_t i = 0; i < contributions.size(); ++i) {
    const v1::ContributionInfo& info = *contributions[i]->info;
    token_counts.push_back(
        CountedTokens(state.spec(), credited[i], info.token_count()));
    step_counts.push_back(
        CountedSteps(state.spec(), token_counts.back(), info.step_count()));
  }
  const std::vector<float> weights =
      NormalizedWeights(state.spec().outer().weighting(), token_counts,
                        step_counts, WeightCaps(state, slots));
  for (size_t i = 0; i < contributions.size(); ++i) {
    const SeenContribution& seen = *contributions[i];
    v1::SealedContribution& contribution = *seal.add_contributions();
    *contribution.mutable_key() = seen.key;
    *contribution.mutable_digest() = seen.info->digest();
    contribution.set_weight(weights[i]);
    contribution.set_token_count(token_counts[i]);
    storage::v1::SealedInfo& info = *sealed.add_infos();
    *info.mutable_info() = *seen.info;
    info.set_norm(std::sqrt(seen.norm_squared));
    info.set_counted_step_count(seen.counted_step_count);
    info.set_norm_bound(seen.norm_bound);
  }
  return record;
}

storage::v1::Record MakeAbort(const RunState& state, int32_t fragment,
                              const std::string& reason,
                              std::vector<v1::ContributionOutcome> outcomes) {
  storage::v1::Record record;
  storage::v1::RoundAborted& abort = *record.mutable_round_aborted();
  abort.set_fragment(fragment);
  abort.set_version(state.fragments()[fragment].newest.version());
  abort.set_attempt(state.fragments()[fragment].attempt);
  abort.set_reason(reason);
  for (v1::ContributionOutcome& outcome : outcomes) {
    *abort.add_outcomes() = std::move(outcome);
  }
  return record;
}

storage::v1::Record MakeStateRecord(v1::RunState state,
                                    const std::string& reason) {
  storage::v1::Record record;
  record.mutable_run_state_set()->set_state(state);
  record.mutable_run_state_set()->set_reason(reason);
  return record;
}

Decision AbortRound(const RunState& state, int32_t fragment,
                    const std::string& reason,
                    std::vector<v1::ContributionOutcome> outcomes) {
  // Refusals have a record, and so an event, of their own.
  storage::v1::Record refused;
  std::vector<v1::ContributionOutcome> others;
  for (v1::ContributionOutcome& outcome : outcomes) {
    if (outcome.outcome() == v1::OUTCOME_REJECTED) {
      *refused.mutable_outcomes_set()->add_outcomes() = std::move(outcome);
    } else {
      others.push_back(std::move(outcome));
    }
  }
  Decision decision;
  decision.reason = reason;
  if (refused.has_outcomes_set()) decision.records.push_back(refused);
  decision.records.push_back(
      MakeAbort(state, fragment, reason, std::move(others)));
  return decision;
}

Decision AbortAndPause(const RunState& state, int32_t fragment,
                       const std::string& reason,
                       std::vector<v1::ContributionOutcome> outcomes) {
  Decision decision = AbortRound(state, fragment, reason, std::move(outcomes));
  decision.records.push_back(MakeStateRecord(v1::RUN_STATE_PAUSED, reason));
  return decision;
}

Decision DropAndPause(const RunState& state, int32_t fragment,
                      const std::string& reason, const std::string& why) {
  std::vector<v1::ContributionOutcome> outcomes;
  for (const v1::SealedContribution& sealed :
       state.fragments()[fragment].sealed.seal().contributions()) {
    outcomes.push_back(MakeOutcome(sealed.key(), v1::OUTCOME_DROPPED, why));
  }
  return AbortAndPause(state, fragment, reason, std::move(outcomes));
}

std::string RoundName(const RunState& state, int32_t fragment) {
  return absl::StrCat("fragment ", fragment, ", round ",
                      state.fragments()[fragment].newest.version() + 1);
}

std::vector<v1::LiveMergeSlot> ExpectedSeal(const RunState& state,
                                            const Observations& observed,
                                            int32_t fragment) {
  const v1::OpenRound& open = state.fragments()[fragment].open;
  RoundStanding standing;
  const RoundProgress progress =
      ComputeProgress(state, observed, open, standing);
  std::set<int32_t> left_out(progress.gone.begin(), progress.gone.end());
  for (const auto& [slot, seq] : progress.refused) left_out.insert(slot);
  std::vector<v1::LiveMergeSlot> slots;
  std::vector<int64_t> token_counts;
  std::vector<int64_t> step_counts;
  for (const v1::SlotPlan& plan : open.slots()) {
    if (left_out.contains(plan.slot())) continue;
    slots.emplace_back().set_slot(plan.slot());
    token_counts.push_back(
        CountedTokens(state.spec(),
                      MostSteps(state, plan.slot(), plan.step_count()),
                      INT64_MAX));
    step_counts.push_back(
        CountedSteps(state.spec(), token_counts.back(), plan.step_count()));
  }
  if (slots.empty()) return slots;
  std::vector<int32_t> numbers;
  for (const v1::LiveMergeSlot& slot : slots) numbers.push_back(slot.slot());
  const std::vector<float> weights =
      NormalizedWeights(state.spec().outer().weighting(), token_counts,
                        step_counts, WeightCaps(state, numbers));
  for (size_t i = 0; i < slots.size(); ++i) slots[i].set_weight(weights[i]);
  return slots;
}

Decision DecideSeal(const RunState& state, const Observations& observed,
                    int32_t fragment, absl::Time now, absl::Time due,
                    RoundTimers& timers, bool* reads_speeds) {
  const v1::OpenRound& open = state.fragments()[fragment].open;
  const std::string name = RoundName(state, fragment);
  const SeenContributions& seen = observed.index.Seen(fragment);
  const RoundProgress progress =
      ComputeProgress(state, observed, open, timers.standing);
  const auto received_count = static_cast<int>(progress.received.size());
  NoteWait(progress, now, timers.wait);
  const QuorumCount quorum = CountQuorum(state, observed, open, progress.slots,
                                         timers.wait.received_times);
  if (reads_speeds != nullptr) *reads_speeds = quorum.reads_speeds;
  const bool has_quorum = quorum.reached();
  const auto quorum_text = [&] {
    return absl::StrCat(CountForQuorum(state, {progress.slots.begin(),
                                               progress.slots.end()}),
                        " of ", std::max(open.min_quorum(), 1));
  };
  const bool elastic = state.spec().schedule().timing() == v1::TIMING_ELASTIC;
  if (timers.deadline_start == absl::InfinitePast()) {
    timers.deadline_start = now;
  }
  timers.quorum_time = quorum.time;
  const absl::Duration deadline = FromProto(open.deadline());
  const bool past_deadline = elastic && deadline > absl::ZeroDuration() &&
                             due >= timers.deadline_start + deadline;
  const int32_t unreported = UnreportedShard(state, observed, fragment);

  if (has_quorum) {
    const auto seal = [&](absl::string_view why) {
      std::vector<const SeenContribution*> received;
      for (const SlotSeq& place : progress.received) {
        received.push_back(&seen.at(place));
      }
      return Decision{{MakeSeal(state, fragment, received)},
                      absl::StrCat("seals ", name, " with ", received_count,
                                   " contributions: ", why)};
    };
    if (progress.awaited.empty()) return seal("no other island is awaited");
    if (elastic && due >= timers.quorum_time + FromProto(open.grace_window())) {
      return seal("the quorum is there and the grace window is over");
    }
    if (past_deadline) return seal("the deadline is reached with a quorum");
  } else if (unreported >= 0) {
    // That shard may hold contributions that the deadline would give up.
    if (past_deadline) timers.deadline_start = now;
    return {{},
            absl::StrCat(name, ": waits for the report of shard ", unreported)};
  } else if (progress.awaited.empty() && !progress.refused.empty()) {
    const std::string reason =
        absl::StrCat(name, ": refused contributions leave ", received_count,
                     " of the ", open.min_quorum(),
                     " that it needs; the first was refused because ",
                     MakeRejection(state, seen.at(progress.refused[0])).reason());
    // An island's fault is an absence; only a strict run needs this island.
    return (elastic ? AbortRound : AbortAndPause)(state, fragment, reason,
                                                  RejectRefused(state, seen));
  } else if ((progress.awaited.empty() || past_deadline) &&
             HasOtherIslands(state, observed, open, progress, due)) {
    return AbortRound(
        state, fragment,
        absl::StrCat(name, ": ", quorum_text(),
                     " contributions are there; other islands are asked"),
        RejectRefused(state, seen));
  } else if (past_deadline) {
    timers.deadline_start = now;
  }
  if (progress.awaited.empty()) {
    std::vector<int32_t> may_return;
    for (const int32_t slot : progress.gone) {
      if (!state.members()[slot].removed()) may_return.push_back(slot);
    }
    return {{},
            absl::StrCat(name, ": ", quorum_text(),
                         " contributions are there and no island is left; "
                         "waits for ",
                         may_return.empty() ? std::string("another island")
                                            : IslandNames(state, may_return),
                         DescribeSittingOut(state))};
  }
  return {{},
          absl::StrCat(name, ": ", received_count, " of ", open.slots_size(),
                       " contributions; waits for ",
                       IslandNames(state, progress.awaited),
                       observed.has_refused ? DescribeSittingOut(state) : "")};
}

absl::Time SealTimer(const RunState& state, int32_t fragment,
                     const RoundTimers& timers) {
  if (state.spec().schedule().timing() != v1::TIMING_ELASTIC) {
    return absl::InfiniteFuture();
  }
  if (IsAsync(state.spec().schedule())) return timers.quorum_time;
  const v1::OpenRound& open = state.fragments()[fragment].open;
  absl::Time timer = timers.quorum_time + FromProto(open.grace_window());
  const absl::Duration deadline = FromProto(open.deadline());
  if (deadline > absl::ZeroDuration() &&
      timers.deadline_start != absl::InfinitePast()) {
    timer = std::min(timer, timers.deadline_start + deadline);
  }
  return timer;
}

std::vector<v1::ContributionOutcome> SettleOld(const RunState& state,
                                               Observations& observed,
                                               int32_t fragment) {
  std::vector<v1::ContributionOutcome> outcomes;
  const int64_t version = state.fragments()[fragment].newest.version();
  const bool is_over = state.ended() || IsAtEnd(state, fragment);
  const auto settle = [&](const SeenContribution& seen) {
    if (state.state() == v1::RUN_STATE_CANCELLED) {
      outcomes.push_back(MakeOutcome(seen.key, v1::OUTCOME_CANCELLED));
    } else if (!seen.refusal.empty()) {
      if (!is_over && seen.anchor_version.value_or(version) >= version) return;
      outcomes.push_back(MakeRejection(state, seen));
    } else if (seen.info->anchor_version() < version) {
      outcomes.push_back(
          MakeOutcome(seen.key, seen.info->anchor_version() + 1 == version
                                    ? v1::OUTCOME_LATE
                                    : v1::OUTCOME_STALE));
    } else if (is_over) {
      outcomes.push_back(MakeOutcome(seen.key, v1::OUTCOME_CANCELLED));
    }
  };
  FragmentContributions& all = observed.index.fragments[fragment];
  const std::vector<SlotSeq> judged = TakePlaces(all.unsettled);
  if (is_over) {
    for (const auto& [place, seen] : all.seen) settle(seen);
    return outcomes;
  }
  // A new version has all others judged again.
  for (const SlotSeq& place : judged) {
    const auto seen = all.seen.find(place);
    if (seen != all.seen.end()) settle(seen->second);
  }
  return outcomes;
}

bool HasRevoked(const RunState& state) {
  return std::any_of(
      state.members().begin(), state.members().end(),
      [](const Member& member) { return member.record.revoked(); });
}

std::vector<v1::ContributionOutcome> SettleRevoked(
    const RunState& state, const Observations& observed, int32_t fragment) {
  std::vector<v1::ContributionOutcome> outcomes;
  std::set<std::pair<int32_t, int64_t>> sealed_keys;
  for (const v1::SealedContribution& sealed :
       state.fragments()[fragment].sealed.seal().contributions()) {
    sealed_keys.emplace(sealed.key().slot(), sealed.key().seq());
  }
  for (const auto& [place, seen] : observed.index.Seen(fragment)) {
    if (state.members()[place.first].record.revoked() &&
        !sealed_keys.contains(place)) {
      outcomes.push_back(MakeOutcome(seen.key, v1::OUTCOME_DROPPED,
                                     "an operator has revoked its island"));
    }
  }
  return outcomes;
}

std::vector<v1::ContributionOutcome> SettleCancelled(
    const RunState& state, const Observations& observed, int32_t fragment) {
  std::vector<v1::ContributionOutcome> outcomes;
  std::set<std::pair<int32_t, int64_t>> seen_keys;
  for (const auto& [place, seen] : observed.index.Seen(fragment)) {
    seen_keys.insert(place);
    outcomes.push_back(MakeOutcome(seen.key, v1::OUTCOME_CANCELLED));
  }
  // Sealed contributions that no report names any longer end too.
  for (const v1::SealedContribution& sealed :
       state.fragments()[fragment].sealed.seal().contributions()) {
    if (!seen_keys.contains({sealed.key().slot(), sealed.key().seq()})) {
      outcomes.push_back(MakeOutcome(sealed.key(), v1::OUTCOME_CANCELLED));
    }
  }
  return outcomes;
}

}  // namespace atl::coordinator
