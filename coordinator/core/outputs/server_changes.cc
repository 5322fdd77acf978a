#include "coordinator/core/outputs/server_changes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/layout/seal_name.h"
#include "coordinator/core/outputs/plans.h"

namespace atl::coordinator {
namespace {

using Plan = v1::ServerRunPlan;

template <typename List>
codec::Sha256Digest ComputeDigest(const List& list) {
  std::string bytes;
  for (const auto& one : list) {
    const std::string encoded = one.SerializeAsString();
    absl::StrAppend(&bytes, encoded.size(), ":", encoded);
  }
  return codec::ComputeSha256(bytes);
}

// Adds the changed members in place of all. True if there are some.
bool AddChangedMembers(const RunState& state, const ServerMarks& marks,
                       Plan& plan) {
  plan.add_unchanged_fields(Plan::kMembersFieldNumber);
  for (const int32_t slot : marks.members) {
    const Member& member = state.members()[slot];
    if (member.present()) {
      *plan.add_members() = MakePlanMember(member);
    } else {
      plan.add_gone_slots(slot);
    }
  }
  if (!marks.members.empty()) {
    AddTokens(state, plan);
  } else {
    plan.add_unchanged_fields(Plan::kTokensFieldNumber);
    plan.add_unchanged_fields(Plan::kRevokedSlotsFieldNumber);
  }
  return !marks.members.empty();
}

}  // namespace

std::optional<Plan> ServerRunChanges::Next(const RunState& state,
                                           const Observations& observed,
                                           int32_t shard,
                                           const ServerMarks& marks,
                                           const AddNames& add_names) {
  const bool is_first = given_.run_uid() != state.run_uid() ||
                        given_.run_id().empty() ||
                        given_.run_epoch() != state.run_epoch() ||
                        given_.shard() != shard;
  if (is_first) lists_.clear();
  Plan plan = BuildServerRunPlan(state, observed, shard,
                                 is_first ? nullptr : &given_);
  bool has_contents =
      std::any_of(plan.seals().begin(), plan.seals().end(),
                  [](const v1::Seal& seal) {
                    return !seal.contributions().empty();
                  }) ||
      std::any_of(plan.commits().begin(), plan.commits().end(),
                  [](const v1::Commit& commit) {
                    return !commit.outcomes().empty();
                  });
  KeepNames(plan);
  has_contents |=
      !Omit(Plan::kPinsFieldNumber, *plan.mutable_pins(), plan);
  has_contents |=
      !Omit(Plan::kDroppedFieldNumber, *plan.mutable_dropped(), plan);
  has_contents |=
      !Omit(Plan::kVersion0FieldNumber, *plan.mutable_version0(), plan);
  if (is_first) {
    whole_.reset();
    add_names(plan);
    return plan;
  }
  plan.set_is_change(true);
  if (marks.all_members) {
    AddMembers(state, plan);
    AddTokens(state, plan);
    has_contents = true;
  } else {
    has_contents |= AddChangedMembers(state, marks, plan);
  }
  if (marks.names) {
    add_names(plan);
    has_contents = true;
  } else {
    plan.set_lists_enrolled(true);
    plan.add_unchanged_fields(Plan::kRevokedIslandIdsFieldNumber);
    plan.add_unchanged_fields(Plan::kEnrolledFieldNumber);
  }
  std::optional<codec::Sha256Digest> whole;
  if (!has_contents) whole = codec::ComputeSha256(plan.SerializeAsString());
  const bool is_same = whole.has_value() && whole == whole_;
  whole_ = whole;
  if (is_same) return std::nullopt;
  return plan;
}

template <typename List>
bool ServerRunChanges::Omit(int number, List& list, Plan& plan) {
  const codec::Sha256Digest digest = ComputeDigest(list);
  const auto [known, is_new] = lists_.emplace(number, digest);
  if (!is_new && known->second == digest) {
    list.Clear();
    plan.add_unchanged_fields(number);
    return true;
  }
  known->second = digest;
  return false;
}

void ServerRunChanges::KeepNames(const Plan& plan) {
  given_ = Plan();
  given_.set_run_id(plan.run_id());
  given_.set_run_uid(plan.run_uid());
  given_.set_run_epoch(plan.run_epoch());
  given_.set_shard(plan.shard());
  for (const v1::Seal& seal : plan.seals()) {
    *given_.add_seals() = NameSeal(seal);
  }
  for (const v1::Commit& commit : plan.commits()) {
    *given_.add_commits() = NameCommit(commit);
  }
}

}  // namespace atl::coordinator
