// Converts a run's state to a snapshot and back.

#include <cstdint>
#include <map>
#include <utility>

#include "base/time/proto_time.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {
namespace {

absl::Status Broken() {
  return absl::DataLossError("a run's snapshot is inconsistent");
}

}  // namespace

storage::v1::MemberSnapshot ToSnapshot(const Member& member) {
  storage::v1::MemberSnapshot snapshot;
  *snapshot.mutable_member() = member.record;
  snapshot.set_local_position(member.local_position);
  snapshot.set_merged_count(member.merged_count);
  snapshot.set_unmerged_count(member.unmerged_count);
  *snapshot.mutable_set_time() = ToProto(member.set_time);
  *snapshot.mutable_totals() = member.totals;
  for (const auto& [place, work] : member.newest_unpushed) {
    *snapshot.add_newest_unpushed() = work;
  }
  if (member.refused_count == 0) return snapshot;
  snapshot.set_refused_count(member.refused_count);
  snapshot.set_refusal(member.refusal);
  *snapshot.mutable_refusal_time() = ToProto(member.refusal_time);
  snapshot.set_sits_out_until(member.sits_out_until);
  return snapshot;
}

namespace {

// The part that the fragment's commits have made.
storage::v1::FragmentSnapshot ToPoint(const FragmentState& fragment) {
  storage::v1::FragmentSnapshot snapshot;
  *snapshot.mutable_newest() = fragment.newest;
  snapshot.set_token_count(fragment.token_count);
  for (double norm : fragment.median_norms) snapshot.add_median_norms(norm);
  for (const StepNorm& one : fragment.step_norms) {
    snapshot.add_step_norms(one.norm_by_steps);
    snapshot.add_step_norm_step_counts(one.step_count);
  }
  *snapshot.mutable_guard() = fragment.guard;
  return snapshot;
}

storage::v1::FragmentSnapshot ToFragmentSnapshot(
    const FragmentState& fragment) {
  storage::v1::FragmentSnapshot snapshot = ToPoint(fragment);
  snapshot.set_attempt(fragment.attempt);
  for (const auto& [slot, plan] : fragment.standing_plans) {
    *snapshot.add_standing_plans() = plan;
  }
  if (fragment.phase != RoundPhase::kIdle) {
    *snapshot.mutable_open() = fragment.open;
    *snapshot.mutable_open_time() = ToProto(fragment.open_time);
  }
  if (fragment.phase == RoundPhase::kSealed) {
    *snapshot.mutable_sealed() = fragment.sealed;
    *snapshot.mutable_seal_time() = ToProto(fragment.seal_time);
  }
  return snapshot;
}

google::protobuf::RepeatedPtrField<v1::DataPosition> ToPositions(
    const std::map<int32_t, int64_t>& by_shard) {
  google::protobuf::RepeatedPtrField<v1::DataPosition> positions;
  for (const auto& [data_shard, position] : by_shard) {
    v1::DataPosition& added = *positions.Add();
    added.set_data_shard(data_shard);
    added.set_position(position);
  }
  return positions;
}

}  // namespace

storage::v1::RestorePoint RunState::MakeRestorePoint() const {
  storage::v1::RestorePoint point;
  for (const FragmentState& fragment : fragments_) {
    *point.add_fragments() = ToPoint(fragment);
  }
  *point.mutable_data_positions() = ToPositions(data_positions_);
  for (const Member& member : members_) {
    point.add_local_positions(member.local_position);
  }
  point.set_fragment_token_count(fragment_token_count_);
  return point;
}

storage::v1::RunSnapshot RunState::ToSnapshot() const {
  using coordinator::ToSnapshot;
  storage::v1::RunSnapshot snapshot;
  *snapshot.mutable_created() = created_;
  *snapshot.mutable_created()->mutable_spec() = *spec_;
  *snapshot.mutable_create_time() = ToProto(create_time_);
  *snapshot.mutable_state() = state_;
  if (ended()) *snapshot.mutable_end_time() = ToProto(end_time_);
  if (!server_ids().empty()) *snapshot.mutable_placed() = placed_;
  if (started()) *snapshot.mutable_started() = started_;
  for (const Member& member : members_) {
    *snapshot.add_members() = ToSnapshot(member);
  }
  for (const FragmentState& fragment : fragments_) {
    *snapshot.add_fragments() = ToFragmentSnapshot(fragment);
  }
  snapshot.set_commit_seq(commit_seq_);
  if (commit_seq_ > 0) {
    *snapshot.mutable_last_commit_time() = ToProto(last_commit_time_);
  }
  for (const auto& recent : recent_commits_) {
    *snapshot.add_recent_commits() = recent;
  }
  for (const int64_t persisted : persisted_commit_seqs_) {
    snapshot.add_persisted_commit_seqs(persisted);
  }
  for (storage::v1::OutcomesSnapshot& row : outcomes_.ToSnapshot()) {
    *snapshot.add_outcomes() = std::move(row);
  }
  for (const v1::ContributionOutcome& outcome : dropped_) {
    *snapshot.add_dropped() = outcome;
  }
  *snapshot.mutable_data_positions() = ToPositions(data_positions_);
  snapshot.set_fragment_token_count(fragment_token_count_);
  for (const auto& [id, pin] : pins_) *snapshot.add_pins() = pin;
  for (const v1::Restore& restore : restores_) {
    *snapshot.add_restores() = restore;
  }
  for (const v1::FragmentVersion& version : restored_cut_) {
    *snapshot.add_restored_cut() = version;
  }
  for (const auto& [version, evaluation] : evaluations_) {
    *snapshot.add_evaluations() = evaluation;
  }
  snapshot.set_evaluations_begin(evaluations_begin_);
  snapshot.set_history_begin(history_begin_);
  for (const int32_t slot : evaluator_slots_) {
    snapshot.add_evaluator_slots(slot);
  }
  for (const auto& [version, slot] : evaluator_by_version_) {
    auto* const evaluator = snapshot.add_evaluators();
    evaluator->set_version(version);
    evaluator->set_slot(slot);
  }
  for (const auto& point : loss_points_) *snapshot.add_loss_points() = point;
  for (const auto& point : norm_points_) *snapshot.add_norm_points() = point;
  for (const auto& point : evaluation_points_) {
    *snapshot.add_evaluation_points() = point;
  }
  return snapshot;
}

absl::Status RunState::RestoreFragment(
    const storage::v1::FragmentSnapshot& snapshot) {
  FragmentState* fragment = FindFragment(snapshot.newest().fragment());
  if (fragment == nullptr) return Broken();
  fragment->newest = snapshot.newest();
  fragment->attempt = snapshot.attempt();
  fragment->token_count = snapshot.token_count();
  fragment->median_norms.assign(snapshot.median_norms().begin(),
                                snapshot.median_norms().end());
  const auto& step_counts = snapshot.step_norm_step_counts();
  for (int i = 0; i < snapshot.step_norms_size(); ++i) {
    fragment->step_norms.push_back(
        {snapshot.step_norms(i), i < step_counts.size() ? step_counts[i] : 0});
  }
  fragment->guard = snapshot.guard();
  for (const v1::SlotPlan& plan : snapshot.standing_plans()) {
    fragment->standing_plans[plan.slot()] = plan;
  }
  if (!snapshot.has_open()) return absl::OkStatus();
  fragment->phase = RoundPhase::kOpen;
  fragment->open = snapshot.open();
  fragment->open_time = FromProto(snapshot.open_time());
  if (!snapshot.has_sealed()) return absl::OkStatus();
  fragment->phase = RoundPhase::kSealed;
  fragment->sealed = snapshot.sealed();
  fragment->seal_time = FromProto(snapshot.seal_time());
  return absl::OkStatus();
}

absl::Status RunState::Restore(const storage::v1::RunSnapshot& snapshot,
                               int64_t revision) {
  if (created() || revision < 1) return Broken();
  absl::Status created =
      ApplyCreated(snapshot.created(), FromProto(snapshot.create_time()));
  if (!created.ok()) return created;
  if (snapshot.fragments_size() != fragments_.size()) return Broken();
  revision_ = revision;
  state_ = snapshot.state();
  if (snapshot.has_end_time()) end_time_ = FromProto(snapshot.end_time());
  placed_ = snapshot.placed();
  started_ = snapshot.started();
  for (const storage::v1::MemberSnapshot& member : snapshot.members()) {
    if (member.member().slot() != members_.size()) return Broken();
    slots_[member.member().island_id()] = member.member().slot();
    Member& added = members_.emplace_back();
    added.record = member.member();
    added.local_position = member.local_position();
    added.merged_count = member.merged_count();
    added.unmerged_count = member.unmerged_count();
    added.set_time = FromProto(member.set_time());
    added.totals = member.totals();
    for (const v1::UnpushedWork& work : member.newest_unpushed()) {
      added.KeepUnpushed(work);
    }
    if (member.refused_count() == 0) continue;
    added.refused_count = member.refused_count();
    added.refusal = member.refusal();
    added.refusal_time = FromProto(member.refusal_time());
    added.sits_out_until = member.sits_out_until();
  }
  for (const storage::v1::FragmentSnapshot& fragment : snapshot.fragments()) {
    absl::Status restored = RestoreFragment(fragment);
    if (!restored.ok()) return restored;
  }
  commit_seq_ = snapshot.commit_seq();
  if (snapshot.has_last_commit_time()) {
    last_commit_time_ = FromProto(snapshot.last_commit_time());
  }
  recent_commits_.assign(snapshot.recent_commits().begin(),
                         snapshot.recent_commits().end());
  persisted_commit_seqs_.assign(snapshot.persisted_commit_seqs().begin(),
                                snapshot.persisted_commit_seqs().end());
  for (const auto& row : snapshot.outcomes()) outcomes_.Restore(row);
  dropped_.assign(snapshot.dropped().begin(), snapshot.dropped().end());
  for (const v1::DataPosition& position : snapshot.data_positions()) {
    data_positions_[position.data_shard()] = position.position();
  }
  fragment_token_count_ = snapshot.fragment_token_count();
  for (const storage::v1::PinSnapshot& pin : snapshot.pins()) {
    pins_[pin.pin_set().pin().pin_id()] = pin;
  }
  restores_.assign(snapshot.restores().begin(), snapshot.restores().end());
  restored_cut_.assign(snapshot.restored_cut().begin(),
                       snapshot.restored_cut().end());
  for (const v1::Evaluation& evaluation : snapshot.evaluations()) {
    evaluations_[evaluation.version()] = evaluation;
  }
  evaluations_begin_ = snapshot.evaluations_begin();
  history_begin_ = snapshot.history_begin();
  evaluator_slots_.assign(snapshot.evaluator_slots().begin(),
                          snapshot.evaluator_slots().end());
  for (const auto& evaluator : snapshot.evaluators()) {
    evaluator_by_version_[evaluator.version()] = evaluator.slot();
  }
  loss_points_.assign(snapshot.loss_points().begin(),
                      snapshot.loss_points().end());
  norm_points_.assign(snapshot.norm_points().begin(),
                      snapshot.norm_points().end());
  evaluation_points_.assign(snapshot.evaluation_points().begin(),
                            snapshot.evaluation_points().end());
  return absl::OkStatus();
}

}  // namespace atl::coordinator
