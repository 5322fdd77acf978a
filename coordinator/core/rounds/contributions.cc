#include "coordinator/core/rounds/contributions.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/layout/exchange.h"
#include "base/layout/run_length.h"
#include "base/layout/weight_unit.h"
#include "base/status/cut_utf8.h"
#include "coordinator/core/rounds/norm_bound.h"
#include "coordinator/core/verdict/verdict_rule.h"

namespace atl::coordinator {
namespace {

bool SameInfo(const v1::ContributionInfo& a, const v1::ContributionInfo& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

// Returns why a header is invalid; empty if it is valid.
std::string InfoFault(const RunState& state, const v1::ContributionInfo& info) {
  const int64_t version =
      state.fragments()[info.key().fragment()].newest.version();
  if (info.anchor_version() < 0 || info.anchor_version() > version) {
    return "its anchor is a version that does not exist";
  }
  if (info.key().seq() > FindSeqMax(state.members()[info.key().slot()])) {
    return "its seq is far beyond the next_seq that its island was given";
  }
  if (info.codec() != ToProto(UpCodec(state.spec()))) {
    return "its codec is not the run's";
  }
  if (info.step_count() < 1) return "it claims no steps";
  if (info.token_count() < 1 &&
      state.spec().outer().weighting() != v1::WEIGHTING_UNIFORM) {
    return absl::StrCat(
        "it claims no ",
        WeightUnitName(WeightUnitOf(state.spec().weight_unit())),
        ", so it has no weight");
  }
  if (info.token_count() < (HasTokenBudget(state.spec().schedule()) ? 1 : 0)) {
    return absl::StrCat(
        "it claims no ",
        WeightUnitName(WeightUnitOf(state.spec().weight_unit())),
        ", and the run counts them");
  }
  if (info.has_training_loss() &&
      !(std::isfinite(info.training_loss()) && info.training_loss() >= 0)) {
    return absl::StrCat("its training_loss, ", info.training_loss(),
                        ", is not a finite number of at least 0");
  }
  return "";
}

// Judges a contribution that every shard has stored.
void JudgeNorm(const RunState& state, int32_t fragment, SeenContribution& seen) {
  const int32_t slot = seen.key.slot();
  seen.counted_step_count =
      CountBoundedSteps(state, fragment, slot, seen.info->step_count());
  const NormBound bound =
      FindNormBound(state, fragment, seen.counted_step_count);
  seen.norm_bound = bound.value;
  const double norm = std::sqrt(seen.norm_squared);
  if (bound.value > 0 && !(norm <= bound.value) && IsBounded(state, slot)) {
    seen.refusal = absl::StrCat("NORM_TOO_LARGE: its norm, ", norm,
                                ", is above ", bound.value, ", ", bound.how);
  }
}

bool Belongs(const RunState& state, int32_t fragment,
             const v1::ContributionKey& key) {
  return key.fragment() == fragment && IsUndecided(state, key);
}

}  // namespace

bool IsUndecided(const RunState& state, const v1::ContributionKey& key) {
  return key.fragment() >= 0 && key.fragment() < state.fragments().size() &&
         key.run_epoch() == state.run_epoch() && key.slot() >= 0 &&
         key.slot() < state.members().size() && key.seq() >= 1 &&
         key.seq() <= kSeqMax && !state.outcomes().Contains(key);
}

std::string ExplainRefusal(const RunState& state,
                           const v1::ContributionKey& key,
                           std::optional<int64_t> anchor_version,
                           const std::string& why) {
  const FragmentState& fragment = state.fragments()[key.fragment()];
  const int64_t version = anchor_version.value_or(fragment.newest.version());
  std::string where =
      absl::StrCat("; island ", state.members()[key.slot()].record.island_id(),
                   ", round ", version + 1);
  for (const v1::SlotPlan& plan : fragment.open.slots()) {
    if (plan.slot() != key.slot() || version != fragment.open.version()) {
      continue;
    }
    absl::StrAppend(&where, ", inner steps ", plan.start_step() + 1, " to ",
                    plan.start_step() + std::max<int64_t>(1, plan.step_count()));
  }
  const size_t room = kReasonBytesMax - std::min(kReasonBytesMax, where.size());
  return absl::StrCat(CutUtf8(why, room), where);
}

int64_t FindSeqMax(const Member& member) {
  return std::min(kSeqMax, member.record.next_seq() + kSeqsALifeMax);
}

int64_t AcknowledgedCommitSeq(const RunState& state,
                              const Observations& observed, int32_t shard) {
  const std::vector<int64_t>& logged = state.persisted_commit_seqs();
  const int64_t before =
      static_cast<size_t>(shard) < logged.size() ? logged[shard] : 0;
  return std::max(before, observed.shards[shard].acknowledged_commit_seq);
}

std::vector<int32_t> ListShards(const RunState& state, int32_t fragment) {
  std::vector<int32_t> shards;
  const auto shard_count = static_cast<int32_t>(state.server_ids().size());
  for (int32_t shard = 0; shard < shard_count; ++shard) {
    if (!state.layout().ShardBlocks(fragment, shard, shard_count).empty()) {
      shards.push_back(shard);
    }
  }
  return shards;
}

SeenContributions CollectContributions(const RunState& state,
                                       const std::vector<ObservedShard>& shards,
                                       int32_t fragment) {
  SeenContributions all;
  const std::vector<int32_t> holders = ListShards(state, fragment);
  for (int32_t shard : holders) {
    if (shard >= shards.size() || !shards[shard].reported) continue;
    const v1::ShardReport& report = shards[shard].report;
    for (const v1::StoredContribution& stored : report.stored()) {
      const v1::ContributionKey& key = stored.info().key();
      if (!Belongs(state, fragment, key)) continue;
      SeenContribution& seen = all[{key.slot(), key.seq()}];
      if (!seen.info.has_value()) {
        seen.key = key;
        seen.info = stored.info();
        seen.anchor_version = stored.info().anchor_version();
        if (seen.refusal.empty()) {
          seen.refusal = InfoFault(state, stored.info());
        }
      } else if (!SameInfo(*seen.info, stored.info())) {
        seen.refusal = "shards received different headers for its key";
      }
      seen.stored_count += 1;
      seen.norm_squared += stored.norm_squared();
    }
    for (const v1::RefusedContribution& refused : report.refused()) {
      const v1::ContributionKey& key = refused.key();
      if (!Belongs(state, fragment, key)) continue;
      SeenContribution& seen = all[{key.slot(), key.seq()}];
      seen.key = key;
      if (!seen.anchor_version.has_value() && refused.has_anchor_version()) {
        seen.anchor_version = refused.anchor_version();
      }
      seen.refusal =
          refused.reason().empty()
              ? std::string("a shard refused it")
              : std::string(CutUtf8(refused.reason(), kReasonBytesMax));
    }
    // Lost contributions must end too.
    for (const auto& [place, info] : shards[shard].had) {
      if (!Belongs(state, fragment, info.key())) continue;
      SeenContribution& seen = all[{info.key().slot(), info.key().seq()}];
      if (seen.info.has_value() || !seen.refusal.empty()) continue;
      seen.key = info.key();
      seen.info = info;
      seen.anchor_version = info.anchor_version();
      seen.refusal = InfoFault(state, info);
    }
  }
  const bool is_judged =
      MakeVerdictRule(state.spec().outer().merge()) != nullptr;
  for (auto& [place, seen] : all) {
    if (is_judged && seen.refusal.empty() &&
        !(seen.norm_squared < kVerdictNormSquaredMax)) {
      seen.refusal = "its norm is not below 2^26, the limit of the merge rule";
    }
    if (seen.refusal.empty() && seen.stored_count == holders.size()) {
      JudgeNorm(state, fragment, seen);
    }
    seen.received = seen.stored_count == holders.size() && seen.refusal.empty();
  }
  return all;
}

}  // namespace atl::coordinator
