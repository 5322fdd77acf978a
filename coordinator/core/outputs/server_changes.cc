#include "coordinator/core/outputs/server_changes.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/outputs/plans.h"

namespace atl::coordinator {
namespace {

using Plan = v1::ServerRunPlan;

template <typename List>
bool IsSame(const List& a, const List& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& one, const auto& other) {
                      return one.SerializeAsString() ==
                             other.SerializeAsString();
                    });
}

// Omits a list that is as before.
template <typename List>
bool Omit(int number, const List& before, List& list, Plan& plan) {
  const bool is_same = IsSame(before, list);
  if (is_same) {
    list.Clear();
    plan.add_unchanged_fields(number);
  }
  return is_same;
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
  if (given_.run_uid() != state.run_uid() || given_.run_id().empty() ||
      given_.run_epoch() != state.run_epoch() || given_.shard() != shard) {
    Plan whole = BuildServerRunPlan(state, observed, shard);
    Keep(whole);
    encoded_.clear();
    add_names(whole);
    return whole;
  }
  Plan plan = BuildServerRunPlan(state, observed, shard, &given_);
  plan.set_is_change(true);
  bool has_contents =
      std::any_of(plan.seals().begin(), plan.seals().end(),
                  [](const v1::Seal& seal) {
                    return !seal.contributions().empty();
                  }) ||
      std::any_of(plan.commits().begin(), plan.commits().end(),
                  [](const v1::Commit& commit) {
                    return !commit.outcomes().empty();
                  });
  const Plan before = std::move(given_);
  Keep(plan);
  has_contents |= !Omit(Plan::kPinsFieldNumber, before.pins(),
                        *plan.mutable_pins(), plan);
  has_contents |= !Omit(Plan::kDroppedFieldNumber, before.dropped(),
                        *plan.mutable_dropped(), plan);
  has_contents |= !Omit(Plan::kVersion0FieldNumber, before.version0(),
                        *plan.mutable_version0(), plan);
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
  std::string encoded;
  if (!has_contents) plan.SerializeToString(&encoded);
  const bool is_same = !has_contents && encoded == encoded_;
  encoded_ = std::move(encoded);
  if (is_same) return std::nullopt;
  return plan;
}

void ServerRunChanges::Keep(const Plan& plan) {
  given_.Clear();
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
  *given_.mutable_pins() = plan.pins();
  *given_.mutable_dropped() = plan.dropped();
  *given_.mutable_version0() = plan.version0();
}

}  // namespace atl::coordinator
