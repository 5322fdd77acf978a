// COMMIT of a sealed round, or what a merge that is not finite leads to.

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/digest.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/layout/run_timing.h"
#include "base/layout/trainer_metrics.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/lower_median.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/state/guard.h"

namespace atl::coordinator {
namespace {

// A contribution of a smaller norm cannot make finite parameters or optimizer
// state overflow: its elements vanish next to values near the limit of f32,
// 2^128, and their squares are finite. Then the state itself is the cause.
constexpr double kBlamelessNorm = 0x1p60;

// The outcome of an unsealed contribution when round `version` commits.
v1::ContributionOutcome UnsealedOutcome(const RunState& state,
                                        const FragmentState& fragment,
                                        const SeenContribution& seen) {
  const int64_t version = fragment.newest.version();
  if (!seen.refusal.empty()) {
    return MakeRejection(state, seen);
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

struct MergedLoss {
  int32_t slot = 0;
  double loss = 0;
};

// The training losses of the merged contributions, in the seal's order. For one
// of an older program: the mean of its island's reports of progress, which
// depends on when they come.
std::vector<MergedLoss> ListLosses(const FragmentState& fragment,
                                   const Observations& observed) {
  std::vector<MergedLoss> losses;
  for (const storage::v1::SealedInfo& merged : fragment.sealed.infos()) {
    const int32_t slot = merged.info().key().slot();
    const ObservedMember& member = observed.members[slot];
    if (merged.info().has_training_loss()) {
      losses.push_back({slot, merged.info().training_loss()});
    } else if (member.loss_step_count > 0) {
      losses.push_back({slot, member.loss_sum /
                                  static_cast<double>(member.loss_step_count)});
    }
  }
  return losses;
}

// The unweighted mean; not set if no loss is known.
void SetTrainingLoss(const std::vector<MergedLoss>& losses, v1::Round& round) {
  if (losses.empty()) return;
  double sum = 0;
  for (const MergedLoss& merged : losses) sum += merged.loss;
  // Two claims may be too large for a sum.
  if (!std::isfinite(sum)) return;
  round.set_training_loss(sum / static_cast<double>(losses.size()));
}

// The training loss that the guard looks at. Islands report it themselves, so
// those with a token count only if no other was merged, and three of them must
// agree: one alone could pause the run.
std::optional<double> FindGuardLoss(const RunState& state,
                                    const std::vector<MergedLoss>& losses) {
  std::vector<double> trusted, enrolled;
  for (const MergedLoss& merged : losses) {
    (state.members()[merged.slot].enrolled() ? enrolled : trusted)
        .push_back(merged.loss);
  }
  if (!trusted.empty()) return LowerMedian(trusted);
  if (enrolled.size() < 3) return std::nullopt;
  return LowerMedian(enrolled);
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
  for (int32_t shard = 0; shard < state.server_ids().size(); ++shard) {
    record.mutable_round_committed()->add_persisted_commit_seqs(
        AcknowledgedCommitSeq(state, observed, shard));
  }
  round.set_outer_gradient_norm(std::sqrt(prepared.norm_squared));
  *round.mutable_open_time() = ToProto(fragment.open_time);
  *round.mutable_seal_time() = ToProto(fragment.seal_time);
  const std::vector<MergedLoss> losses = ListLosses(fragment, observed);
  SetTrainingLoss(losses, round);
  const std::optional<double> guard_loss = FindGuardLoss(state, losses);
  if (guard_loss.has_value()) {
    record.mutable_round_committed()->set_guard_loss(*guard_loss);
  }
  round.set_outside_band(
      FindDamage(fragment.guard, round.outer_gradient_norm(), guard_loss));
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
    added.set_norm_bound(info.norm_bound());
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
  for (const auto& [place, seen] : observed.index.Seen(fragment_index)) {
    // Async: another version may take it (SettleAsync).
    if (merged.contains(place) || IsAsync(state.spec().schedule())) continue;
    *commit.add_outcomes() = UnsealedOutcome(state, fragment, seen);
    v1::RoundContribution& added = AddContribution(
        state, commit.outcomes(commit.outcomes_size() - 1), round);
    if (seen.info != nullptr) {
      *added.mutable_info() = *seen.info;
      added.set_payload_bytes(payload_bytes);
    }
    added.set_norm(std::sqrt(seen.norm_squared));
    added.set_norm_bound(seen.norm_bound);
  }
  return record;
}

// A merge was not finite.
Decision LeaveOutLargest(const RunState& state, int32_t fragment) {
  const auto& infos = state.fragments()[fragment].sealed.infos();
  const auto largest = std::max_element(
      infos.begin(), infos.end(),
      [](const auto& a, const auto& b) { return a.norm() < b.norm(); });
  const v1::ContributionKey& key = largest->info().key();
  const std::string what = absl::StrCat(
      RoundName(state, fragment),
      ": the merged outer gradient or the new parameters are not finite; the "
      "largest of ",
      infos.size(), " norms, ", largest->norm(), ", is that of ",
      state.members()[key.slot()].record.island_id());
  if (state.spec().schedule().timing() != v1::TIMING_ELASTIC ||
      largest->norm() < kBlamelessNorm) {
    return DropAndPause(state, fragment,
                        absl::StrCat(what, "; the set is dropped"),
                        "its round's merge was not finite");
  }
  const std::string why = absl::StrCat(
      "MERGE_NOT_FINITE: the merge of ", infos.size(),
      infos.size() == 1 ? " contribution" : " contributions",
      " was not finite, and its norm, ", largest->norm(), ", is the largest");
  return AbortRound(
      state, fragment, absl::StrCat(what, "; it is left out"),
      {MakeOutcome(key, v1::OUTCOME_REJECTED,
                   ExplainRefusal(state, key, largest->info().anchor_version(),
                                  why))});
}

}  // namespace

Decision DecideCommit(const RunState& state, const Observations& observed,
                      int32_t fragment) {
  const std::string name = RoundName(state, fragment);
  const Prepared prepared = CollectPrepared(state, observed, fragment);
  if (!prepared.finite) return LeaveOutLargest(state, fragment);
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

}  // namespace atl::coordinator
