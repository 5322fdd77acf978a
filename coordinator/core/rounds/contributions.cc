#include "coordinator/core/rounds/contributions.h"

#include <algorithm>
#include <bit>
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

bool IsSameKey(const v1::ContributionKey& a, const v1::ContributionKey& b) {
  return a.run_epoch() == b.run_epoch() && a.fragment() == b.fragment() &&
         a.slot() == b.slot() && a.seq() == b.seq();
}

template <typename Message>
bool HasUnknownFields(const Message& message) {
  return !message.GetReflection()->GetUnknownFields(message).empty();
}

// Fields that are newer than this program.
bool HasUnknown(const v1::ContributionInfo& info) {
  return HasUnknownFields(info) || HasUnknownFields(info.key()) ||
         HasUnknownFields(info.digest());
}

}  // namespace

std::string FindInfoFault(const RunState& state,
                          const v1::ContributionInfo& info) {
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

bool IsSameInfo(const v1::ContributionInfo& a, const v1::ContributionInfo& b) {
  if (&a == &b) return true;
  if (HasUnknown(a) || HasUnknown(b)) {
    return a.SerializeAsString() == b.SerializeAsString();
  }
  return a.has_key() == b.has_key() && IsSameKey(a.key(), b.key()) &&
         a.anchor_version() == b.anchor_version() &&
         a.has_digest() == b.has_digest() &&
         a.digest().high() == b.digest().high() &&
         a.digest().low() == b.digest().low() && a.codec() == b.codec() &&
         a.step_count() == b.step_count() &&
         a.token_count() == b.token_count() &&
         a.data_shard() == b.data_shard() &&
         a.data_begin() == b.data_begin() && a.data_end() == b.data_end() &&
         a.has_training_loss() == b.has_training_loss() &&
         // A NaN is the same as itself.
         std::bit_cast<uint64_t>(a.training_loss()) ==
             std::bit_cast<uint64_t>(b.training_loss());
}

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

std::optional<SeenContribution> JudgeContribution(
    const RunState& state, const std::vector<ObservedShard>& shards,
    const std::vector<int32_t>& holders, const KnownContribution& known) {
  const int32_t fragment = known.key.fragment();
  SeenContribution seen;
  bool is_seen = false;
  for (const ShardPart& part : known.parts) {
    if (static_cast<size_t>(part.shard) >= shards.size() ||
        !shards[part.shard].reported ||
        !std::binary_search(holders.begin(), holders.end(), part.shard)) {
      continue;
    }
    is_seen = true;
    if (part.stored_count > 0) {
      if (seen.info == nullptr) {
        seen.info = part.info;
        seen.anchor_version = part.info->anchor_version();
        if (seen.refusal.empty()) {
          seen.refusal = FindInfoFault(state, *part.info);
        }
      }
      if (part.has_other_info || !IsSameInfo(*seen.info, *part.info)) {
        seen.refusal = "shards received different headers for its key";
      }
      seen.stored_count += part.stored_count;
      seen.norm_squared += part.norm_squared;
    }
    if (part.refused != nullptr) {
      if (!seen.anchor_version.has_value() &&
          part.refused->has_anchor_version()) {
        seen.anchor_version = part.refused->anchor_version();
      }
      seen.refusal = part.refused->reason().empty()
                         ? std::string("a shard refused it")
                         : std::string(CutUtf8(part.refused->reason(),
                                               kReasonBytesMax));
    }
    // Lost contributions must end too.
    if (part.had != nullptr && seen.info == nullptr && seen.refusal.empty()) {
      seen.info = part.had;
      seen.anchor_version = part.had->anchor_version();
      seen.refusal = FindInfoFault(state, *part.had);
    }
  }
  if (!is_seen) return std::nullopt;
  seen.key = known.key;
  const bool is_whole =
      static_cast<size_t>(seen.stored_count) == holders.size();
  if (seen.refusal.empty() && !(seen.norm_squared < kVerdictNormSquaredMax) &&
      MakeVerdictRule(state.spec().outer().merge()) != nullptr) {
    seen.refusal = "its norm is not below 2^26, the limit of the merge rule";
  }
  if (seen.refusal.empty() && is_whole) JudgeNorm(state, fragment, seen);
  seen.received = is_whole && seen.refusal.empty();
  return seen;
}

}  // namespace atl::coordinator
