#include "coordinator/core/rounds/rounds.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/digest.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/layout/run_timing.h"
#include "base/layout/trainer_metrics.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/quorum.h"
#include "coordinator/core/rounds/run_end.h"
#include "coordinator/core/rounds/weights.h"

namespace atl::coordinator {
namespace {

// --- SEAL --------------------------------------------------------------------

struct RoundProgress {
  std::vector<const SeenContribution*> received;  // One a slot, by slot.
  std::vector<int32_t> slots;                     // Of these.
  std::vector<int32_t> awaited;
  std::vector<const SeenContribution*> refused;  // One a slot.
  std::vector<int32_t> gone;
};

RoundProgress ComputeProgress(const RunState& state, const v1::OpenRound& open,
                              const SeenContributions& seen_all) {
  RoundProgress progress;
  for (const v1::SlotPlan& plan : open.slots()) {
    const SeenContribution* received = nullptr;
    const SeenContribution* refused = nullptr;
    for (auto seen = seen_all.lower_bound({plan.slot(), 0});
         seen != seen_all.end() && seen->first.first == plan.slot(); ++seen) {
      const bool is_of_round = seen->second.anchor_version.value_or(
                                   open.version()) == open.version();
      if (!is_of_round) continue;
      if (seen->second.received) received = &seen->second;
      if (!seen->second.refusal.empty()) refused = &seen->second;
    }
    if (received != nullptr) {
      progress.received.push_back(received);
      progress.slots.push_back(plan.slot());
    } else if (refused != nullptr) {
      progress.refused.push_back(refused);
    } else if (state.members()[plan.slot()].present()) {
      progress.awaited.push_back(plan.slot());
    } else {
      progress.gone.push_back(plan.slot());
    }
  }
  return progress;
}

// The first shard of `fragment` that has not reported since its server or the
// coordinator started; -1 if there is none.
int32_t UnreportedShard(const RunState& state, const Observations& observed,
                        int32_t fragment) {
  for (const int32_t shard : ListShards(state, fragment)) {
    if (!observed.shards[shard].reported) return shard;
  }
  return -1;
}

// True if a ready island is not expected: a new attempt could ask it.
bool HasOtherIslands(const RunState& state, const v1::OpenRound& open) {
  std::set<int32_t> expected;
  for (const v1::SlotPlan& plan : open.slots()) expected.insert(plan.slot());
  for (const Member& member : state.members()) {
    if (member.ready() && !expected.contains(member.record.slot())) return true;
  }
  return false;
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
  for (const SeenContribution* received : progress.received) {
    if (wait.received_slots.emplace(received->key.slot(), now).second) {
      wait.received_time = now;
    }
  }
}

// --- COMMIT ------------------------------------------------------------------

// The outcome of an unsealed contribution when round `version` commits.
v1::ContributionOutcome UnsealedOutcome(const RunState& state,
                                        const FragmentState& fragment,
                                        const SeenContribution& seen) {
  const int64_t version = fragment.newest.version();
  if (!seen.refusal.empty()) {
    return MakeOutcome(seen.key, v1::OUTCOME_REJECTED, seen.refusal);
  }
  if (seen.info->anchor_version() < version) {
    return MakeOutcome(seen.key, v1::OUTCOME_STALE);
  }
  for (const v1::SealedContribution& sealed :
       fragment.sealed.seal().contributions()) {
    if (sealed.key().slot() == seen.key.slot()) {
      return MakeOutcome(seen.key, v1::OUTCOME_DROPPED,
                         "another contribution of its island was merged");
    }
  }
  bool expected = false;
  for (const v1::SlotPlan& plan : fragment.open.slots()) {
    expected = expected || plan.slot() == seen.key.slot();
  }
  if (!expected) {
    return MakeOutcome(seen.key, v1::OUTCOME_DROPPED,
                       "its island was not asked in this round");
  }
  if (!seen.received && !state.members()[seen.key.slot()].present()) {
    return MakeOutcome(seen.key, v1::OUTCOME_DROPPED,
                       "its island was gone before all shards received it");
  }
  return MakeOutcome(seen.key, v1::OUTCOME_LATE);
}

// The sum of what the shards have prepared for a sealed round.
struct Prepared {
  std::vector<int32_t> missing;
  bool finite = true;
  Digest128 digest;
  double norm_squared = 0;
};

Prepared CollectPrepared(const RunState& state, const Observations& observed,
                         int32_t fragment) {
  const v1::Seal& seal = state.fragments()[fragment].sealed.seal();
  Prepared all;
  for (int32_t shard : ListShards(state, fragment)) {
    const ObservedShard& seen = observed.shards[shard];
    const v1::PreparedRound* const prepared =
        FindOfSeal(seen, seen.report.prepared(), seal);
    if (prepared == nullptr) {
      all.missing.push_back(shard);
      continue;
    }
    all.finite = all.finite && prepared->finite();
    all.digest += Digest128::FromProto(prepared->digest());
    all.norm_squared += prepared->norm_squared();
  }
  return all;
}

// True if one more commit would be more than W ahead of the slowest shard.
bool IsTooFarAhead(const RunState& state, const Observations& observed) {
  for (const ObservedShard& shard : observed.shards) {
    // Written without a sum: a report may hold any number.
    if (!shard.reported || shard.report.persisted_commit_seq() <
                               state.commit_seq() + 1 - kCommitsAheadMax) {
      return true;
    }
  }
  return false;
}

// Mean of the losses of the merged islands; not set if none reports one.
void SetTrainingLoss(const RunState& state, const Observations& observed,
                     const v1::Seal& seal, v1::Round& round) {
  double sum = 0;
  int64_t count = 0;
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    const ObservedMember& member = observed.members[sealed.key().slot()];
    if (member.loss_step_count > 0) {
      sum += member.loss_sum / static_cast<double>(member.loss_step_count);
      ++count;
    }
  }
  if (count > 0) round.set_training_loss(sum / static_cast<double>(count));
}

// Means of the merged islands' own numbers.
void SetMetrics(const Observations& observed, const v1::Seal& seal,
                v1::Round& round) {
  WeightedMeans all;
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    const WeightedMeans& own = observed.members[sealed.key().slot()].metrics;
    all.AddAll(own.means(), own.token_count());
  }
  for (const auto& [name, mean] : all.means()) {
    (*round.mutable_metrics())[name] = mean;
  }
}

v1::RoundContribution& AddContribution(const RunState& state,
                                       const v1::ContributionOutcome& outcome,
                                       v1::Round& round) {
  v1::RoundContribution& added = *round.add_contributions();
  *added.mutable_info()->mutable_key() = outcome.key();
  added.set_island_id(state.members()[outcome.key().slot()].record.island_id());
  added.set_outcome(outcome.outcome());
  added.set_reason(outcome.reason());
  return added;
}

storage::v1::Record MakeCommit(const RunState& state,
                               const Observations& observed,
                               int32_t fragment_index,
                               const Prepared& prepared) {
  const FragmentState& fragment = state.fragments()[fragment_index];
  const v1::Seal& seal = fragment.sealed.seal();
  const int64_t payload_bytes =
      EncodedLayout(state.layout(), fragment_index, UpCodec(state.spec()))
          .byte_count();
  storage::v1::Record record;
  v1::Commit& commit = *record.mutable_round_committed()->mutable_commit();
  v1::Round& round = *record.mutable_round_committed()->mutable_round();
  commit.set_commit_seq(state.commit_seq() + 1);
  commit.set_fragment(fragment_index);
  commit.set_version(seal.version() + 1);
  commit.set_attempt(seal.attempt());
  *commit.mutable_digest() = prepared.digest.ToProto();
  round.set_commit_seq(commit.commit_seq());
  round.set_fragment(fragment_index);
  round.set_version(commit.version());
  round.set_attempt(commit.attempt());
  *round.mutable_digest() = commit.digest();
  round.set_outer_gradient_norm(std::sqrt(prepared.norm_squared));
  *round.mutable_open_time() = ToProto(fragment.open_time);
  *round.mutable_seal_time() = ToProto(fragment.seal_time);
  SetTrainingLoss(state, observed, seal, round);
  SetMetrics(observed, seal, round);
  if (seal.has_verdict()) *round.mutable_verdict() = seal.verdict();

  std::map<int32_t, int64_t> positions;
  std::set<std::pair<int32_t, int64_t>> merged;
  int64_t token_count = 0;
  for (int i = 0; i < seal.contributions_size(); ++i) {
    const v1::SealedContribution& sealed = seal.contributions(i);
    const storage::v1::SealedInfo& info = fragment.sealed.infos(i);
    merged.insert({sealed.key().slot(), sealed.key().seq()});
    token_count += sealed.token_count();
    *commit.add_outcomes() = MakeOutcome(sealed.key(), v1::OUTCOME_MERGED);
    v1::RoundContribution& added = AddContribution(
        state, commit.outcomes(commit.outcomes_size() - 1), round);
    *added.mutable_info() = info.info();
    added.set_weight(sealed.weight());
    added.set_token_count(sealed.token_count());
    added.set_norm(info.norm());
    added.set_payload_bytes(payload_bytes);
    int64_t& position = positions[info.info().data_shard()];
    position = std::max(position, info.info().data_end());
  }
  round.set_merged_token_count(state.MergedTokenCountWith(token_count));
  for (const auto& [data_shard, position] : positions) {
    v1::DataPosition& added = *commit.add_data_positions();
    added.set_data_shard(data_shard);
    added.set_position(position);
  }
  for (const auto& [place, seen] :
       CollectContributions(state, observed.shards, fragment_index)) {
    // Async: another version may take it (SettleAsync).
    if (merged.contains(place) || IsAsync(state.spec().schedule())) continue;
    *commit.add_outcomes() = UnsealedOutcome(state, fragment, seen);
    v1::RoundContribution& added = AddContribution(
        state, commit.outcomes(commit.outcomes_size() - 1), round);
    if (seen.info.has_value()) {
      *added.mutable_info() = *seen.info;
      added.set_payload_bytes(payload_bytes);
    }
    added.set_norm(std::sqrt(seen.norm_squared));
  }
  return record;
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
  std::vector<int64_t> token_counts;
  std::vector<int64_t> step_counts;
  std::vector<int32_t> slots;
  for (const SeenContribution* seen : contributions) {
    slots.push_back(seen->key.slot());
    // Async: the contribution of an absent island has no plan.
    int64_t planned = state.spec().schedule().inner_step_count();
    for (const v1::SlotPlan& plan : open.slots()) {
      if (plan.slot() == seen->key.slot()) planned = plan.step_count();
    }
    token_counts.push_back(
        CountedTokens(state.spec(), planned, seen->info->token_count()));
    step_counts.push_back(CountedSteps(state.spec(), token_counts.back(),
                                       seen->info->step_count()));
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

Decision AbortAndPause(const RunState& state, int32_t fragment,
                       const std::string& reason,
                       std::vector<v1::ContributionOutcome> outcomes) {
  return {{MakeAbort(state, fragment, reason, std::move(outcomes)),
           MakeStateRecord(v1::RUN_STATE_PAUSED, reason)},
          reason};
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
  const SeenContributions seen =
      CollectContributions(state, observed.shards, fragment);
  const RoundProgress progress = ComputeProgress(state, open, seen);
  std::set<int32_t> left_out(progress.gone.begin(), progress.gone.end());
  for (const SeenContribution* refused : progress.refused) {
    left_out.insert(refused->key.slot());
  }
  std::vector<v1::LiveMergeSlot> slots;
  std::vector<int64_t> token_counts;
  std::vector<int64_t> step_counts;
  for (const v1::SlotPlan& plan : open.slots()) {
    if (left_out.contains(plan.slot())) continue;
    slots.emplace_back().set_slot(plan.slot());
    token_counts.push_back(
        CountedTokens(state.spec(), plan.step_count(), INT64_MAX));
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
                    RoundTimers& timers) {
  const v1::OpenRound& open = state.fragments()[fragment].open;
  const std::string name = RoundName(state, fragment);
  const SeenContributions seen =
      CollectContributions(state, observed.shards, fragment);
  const RoundProgress progress = ComputeProgress(state, open, seen);
  const auto received_count = static_cast<int>(progress.received.size());
  NoteWait(progress, now, timers.wait);
  const QuorumCount quorum = CountQuorum(state, observed, open, progress.slots,
                                         timers.wait.received_slots);
  const bool has_quorum = quorum.reached();
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
      return Decision{{MakeSeal(state, fragment, progress.received)},
                      absl::StrCat("seals ", name, " with ", received_count,
                                   " contributions: ", why)};
    };
    if (progress.awaited.empty()) return seal("nobody else is awaited");
    if (elastic && due >= timers.quorum_time + FromProto(open.grace_window())) {
      return seal("the quorum is there and the grace window is over");
    }
    if (past_deadline) return seal("the deadline is reached with a quorum");
  } else if (unreported >= 0) {
    // That shard may hold what would be given up.
    if (past_deadline) timers.deadline_start = now;
    return {{},
            absl::StrCat(name, ": waits for the report of shard ", unreported)};
  } else if (progress.awaited.empty() && !progress.refused.empty()) {
    std::vector<v1::ContributionOutcome> outcomes;
    for (const auto& [place, contribution] : seen) {
      if (contribution.refusal.empty()) continue;
      outcomes.push_back(MakeOutcome(contribution.key, v1::OUTCOME_REJECTED,
                                     contribution.refusal));
    }
    return AbortAndPause(
        state, fragment,
        absl::StrCat(name, ": refused contributions leave ", received_count,
                     " of the ", open.min_quorum(),
                     " that it needs; the first was refused because ",
                     progress.refused[0]->refusal),
        std::move(outcomes));
  } else if ((progress.awaited.empty() || past_deadline) &&
             HasOtherIslands(state, open)) {
    const std::string reason =
        absl::StrCat(name, ": ", quorum.text,
                     " contributions are there; other islands are asked");
    return {{MakeAbort(state, fragment, reason, {})}, reason};
  } else if (past_deadline) {
    timers.deadline_start = now;
  }
  if (progress.awaited.empty()) {
    std::vector<int32_t> may_return;
    for (const int32_t slot : progress.gone) {
      if (!state.members()[slot].removed()) may_return.push_back(slot);
    }
    return {{},
            absl::StrCat(name, ": ", quorum.text,
                         " contributions are there and no island is left; "
                         "waits for ",
                         may_return.empty() ? std::string("another island")
                                            : IslandNames(state, may_return))};
  }
  return {{},
          absl::StrCat(name, ": ", received_count, " of ", open.slots_size(),
                       " contributions; waits for ",
                       IslandNames(state, progress.awaited))};
}

absl::Time SealTimer(const RunState& state, int32_t fragment,
                     const RoundTimers& timers) {
  if (state.spec().schedule().timing() != v1::TIMING_ELASTIC ||
      IsAsync(state.spec().schedule())) {
    return absl::InfiniteFuture();
  }
  const v1::OpenRound& open = state.fragments()[fragment].open;
  absl::Time timer = timers.quorum_time + FromProto(open.grace_window());
  const absl::Duration deadline = FromProto(open.deadline());
  if (deadline > absl::ZeroDuration() &&
      timers.deadline_start != absl::InfinitePast()) {
    timer = std::min(timer, timers.deadline_start + deadline);
  }
  return timer;
}

Decision DecideCommit(const RunState& state, const Observations& observed,
                      int32_t fragment) {
  const std::string name = RoundName(state, fragment);
  const Prepared prepared = CollectPrepared(state, observed, fragment);
  if (!prepared.finite) {
    return DropAndPause(
        state, fragment,
        absl::StrCat(name,
                     ": the merged outer gradient or the new parameters are "
                     "not finite; the set is dropped"),
        "its round's merge was not finite");
  }
  if (!prepared.missing.empty()) {
    return {{},
            absl::StrCat(name, ": sealed; waits for shards ",
                         absl::StrJoin(prepared.missing, ", "), " to prepare")};
  }
  if (IsTooFarAhead(state, observed)) {
    return {{},
            absl::StrCat(name,
                         ": prepared; waits for the slowest shard to "
                         "persist earlier versions")};
  }
  return {
      {MakeCommit(state, observed, fragment, prepared)},
      absl::StrCat("commits ", name, " as number ", state.commit_seq() + 1)};
}

std::vector<v1::ContributionOutcome> SettleOld(const RunState& state,
                                               const Observations& observed,
                                               int32_t fragment) {
  std::vector<v1::ContributionOutcome> outcomes;
  const int64_t version = state.fragments()[fragment].newest.version();
  const bool is_over = state.ended() || IsAtEnd(state, fragment);
  for (const auto& [place, seen] :
       CollectContributions(state, observed.shards, fragment)) {
    if (state.state() == v1::RUN_STATE_CANCELLED) {
      outcomes.push_back(MakeOutcome(seen.key, v1::OUTCOME_CANCELLED));
    } else if (!seen.refusal.empty()) {
      if (!is_over && seen.anchor_version.value_or(version) >= version) {
        continue;
      }
      outcomes.push_back(
          MakeOutcome(seen.key, v1::OUTCOME_REJECTED, seen.refusal));
    } else if (seen.info->anchor_version() < version) {
      outcomes.push_back(
          MakeOutcome(seen.key, seen.info->anchor_version() + 1 == version
                                    ? v1::OUTCOME_LATE
                                    : v1::OUTCOME_STALE));
    } else if (is_over) {
      outcomes.push_back(MakeOutcome(seen.key, v1::OUTCOME_CANCELLED));
    }
  }
  return outcomes;
}

std::vector<v1::ContributionOutcome> SettleCancelled(
    const RunState& state, const Observations& observed, int32_t fragment) {
  std::vector<v1::ContributionOutcome> outcomes;
  std::set<std::pair<int32_t, int64_t>> seen_keys;
  for (const auto& [place, seen] :
       CollectContributions(state, observed.shards, fragment)) {
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
