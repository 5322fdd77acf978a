#include "coordinator/core/state/run_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/layout/digest.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/layout/run_timing.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/state/guard.h"
#include "coordinator/core/state/mirrored_run.h"

namespace atl::coordinator {
namespace {

// Disk space of a contribution's file on a shard besides its content.
constexpr int64_t kFilePageBytes = 4096;

absl::Status Misfit(absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the log is inconsistent: ", what));
}

// The last data position that `plan` lets an island read. A claim beyond it
// would make the data shard's next reader skip data.
int64_t DataEndMax(const v1::RunSpec& spec, const v1::SlotPlan& plan) {
  int64_t steps = std::max<int64_t>(1, plan.step_count());
  int64_t end = 0;
  if (spec.schedule().timing() == v1::TIMING_ELASTIC) {
    steps += spec.schedule().max_ahead_steps();
  }
  if (__builtin_mul_overflow(steps, spec.inner().batch_size(), &end) ||
      __builtin_add_overflow(end, plan.data_position(), &end)) {
    return INT64_MAX;
  }
  return end;
}

// Counts are claims: a sum does not overflow.
int64_t Sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, std::max<int64_t>(0, b), &sum) ? INT64_MAX
                                                                  : sum;
}

// Another counter has the work.
void TakeUnpushedFrom(v1::IslandTotals& totals, int64_t step_count,
                      int64_t token_count) {
  totals.set_unpushed_step_count(
      std::max<int64_t>(0, totals.unpushed_step_count() - step_count));
  totals.set_unpushed_token_count(
      std::max<int64_t>(0, totals.unpushed_token_count() - token_count));
}

template <typename T>
void PushBounded(std::deque<T>& queue, T value, size_t size_max) {
  queue.push_back(std::move(value));
  while (queue.size() > size_max) queue.pop_front();
}

}  // namespace

void Member::KeepUnpushed(const v1::UnpushedWork& work) {
  newest_unpushed[{work.fragment(), work.seq()}] = work;
  // From the first contribution of the fragment to its last.
  const auto begin = newest_unpushed.lower_bound({work.fragment(), 1});
  const auto end = newest_unpushed.lower_bound({work.fragment() + 1, 0});
  if (std::distance(begin, end) <= kUnpushedKeptMax) return;
  newest_unpushed.erase(
      std::min_element(begin, end, [](const auto& a, const auto& b) {
        return std::pair(a.second.island_epoch(), a.second.number()) <
               std::pair(b.second.island_epoch(), b.second.number());
      }));
}

int FindSlotPlan(const v1::OpenRound& open, int32_t slot) {
  const auto plan = std::lower_bound(
      open.slots().begin(), open.slots().end(), slot,
      [](const v1::SlotPlan& one, int32_t s) { return one.slot() < s; });
  return plan == open.slots().end() || plan->slot() != slot
             ? -1
             : static_cast<int>(plan - open.slots().begin());
}

void PushPoint(std::deque<v1::MetricPoint>& points, absl::Time time,
               int64_t commit_seq, double value) {
  v1::MetricPoint point;
  *point.mutable_time() = ToProto(time);
  point.set_commit_seq(commit_seq);
  point.set_value(value);
  PushBounded(points, std::move(point), kMetricPointsMax);
}

absl::Status RunState::Apply(const storage::v1::Record& record) {
  if (record.revision() != revision_ + 1) {
    return Misfit(
        absl::StrCat("record ", record.revision(), " follows ", revision_));
  }
  if (created() == (record.body_case() == storage::v1::Record::kRunCreated)) {
    return Misfit("the first record, and no other, must create the run");
  }
  revision_ = record.revision();
  const absl::Time time = FromProto(record.time());
  switch (record.body_case()) {
    case storage::v1::Record::kRunCreated:
      return ApplyCreated(record.run_created(), time);
    case storage::v1::Record::kRunPlaced:
      placed_ = record.run_placed();
      return absl::OkStatus();
    case storage::v1::Record::kRunStarted:
      return ApplyStarted(record.run_started());
    case storage::v1::Record::kRunStateSet:
      state_ = record.run_state_set();
      if (ended()) end_time_ = time;
      if (!state_.guard_accepted()) return absl::OkStatus();
      for (FragmentState& fragment : fragments_) {
        fragment.guard.Clear();
        fragment.guard.set_evaluations_begin(fragment.newest.version() + 1);
      }
      return absl::OkStatus();
    case storage::v1::Record::kMemberSet:
      return ApplyMember(record.member_set(), time);
    case storage::v1::Record::kRoundOpened:
      return ApplyOpened(record.round_opened(), time);
    case storage::v1::Record::kRoundSealed:
      return ApplySealed(record.round_sealed(), time);
    case storage::v1::Record::kRoundJudged:
      return ApplyJudged(record.round_judged());
    case storage::v1::Record::kRoundCommitted:
      return ApplyCommitted(record.round_committed(), time);
    case storage::v1::Record::kRunRestored:
      return ApplyRestored(record.run_restored(), time);
    case storage::v1::Record::kRoundAborted:
      return ApplyAborted(record.round_aborted(), time);
    case storage::v1::Record::kOutcomesSet:
      ApplyOutcomes(record.outcomes_set().outcomes(),
                    record.outcomes_set().work(), time);
      return absl::OkStatus();
    case storage::v1::Record::kWorkUnpushed:
      return ApplyUnpushed(record.work_unpushed());
    case storage::v1::Record::kPinSet: {
      const storage::v1::PinSet& body = record.pin_set();
      const auto [pin, is_new] = pins_.try_emplace(body.pin().pin_id());
      *pin->second.mutable_pin_set() = body;
      if (is_new) *pin->second.mutable_create_time() = ToProto(time);
      return absl::OkStatus();
    }
    case storage::v1::Record::kPinReleased:
      pins_.erase(record.pin_released().pin_id());
      return absl::OkStatus();
    case storage::v1::Record::kEvaluated:
      ApplyEvaluated(record.evaluated().evaluation(), time);
      return absl::OkStatus();
    case storage::v1::Record::kCoordinatorStarted:
    case storage::v1::Record::kServerSet:
    case storage::v1::Record::kRunDeleted:
    case storage::v1::Record::kRunForgotten:
    case storage::v1::Record::kTokenSet:
    case storage::v1::Record::kTokenForgotten:
    case storage::v1::Record::kIdentitySet:
    case storage::v1::Record::kIdentityForgotten:
    case storage::v1::Record::kAudited:
    case storage::v1::Record::BODY_NOT_SET:
      break;
  }
  return Misfit(
      absl::StrCat("record ", record.revision(), " has an unknown type"));
}

const Member* RunState::FindMember(const std::string& island_id) const {
  const auto slot = slots_.find(island_id);
  return slot == slots_.end() ? nullptr : &members_[slot->second];
}

FragmentState* RunState::FindFragment(int32_t fragment) {
  if (fragment < 0 || fragment >= fragments_.size()) return nullptr;
  return &fragments_[fragment];
}

int64_t RunState::MergedTokenCountWith(int64_t more) const {
  return fragments_.empty() ? 0
                            : (fragment_token_count_ + more) /
                                  static_cast<int64_t>(fragments_.size());
}

int64_t RunState::DataPosition(int32_t data_shard, int32_t slot) const {
  if (spec().data().fingerprint().empty()) {
    return slot < members_.size() ? members_[slot].local_position : 0;
  }
  const auto position = data_positions_.find(data_shard);
  return position == data_positions_.end() ? 0 : position->second;
}

absl::Status RunState::ApplyCreated(const storage::v1::RunCreated& body,
                                    absl::Time time) {
  if (body.has_mirrored()) {
    return Restore(MakeRunSnapshot(body, time), revision_);
  }
  absl::StatusOr<RunLayout> layout = RunLayout::Create(body.spec().layout());
  if (!layout.ok()) return Misfit(layout.status().message());
  layout_ = std::make_shared<const RunLayout>(*std::move(layout));
  created_ = body;
  spec_ = std::make_shared<const v1::RunSpec>(
      std::move(*created_.mutable_spec()));
  created_.clear_spec();
  state_.set_state(v1::RUN_STATE_STARTING);
  create_time_ = time;
  fragments_.resize(layout_->fragment_count());
  for (int32_t f = 0; f < fragments_.size(); ++f) {
    fragments_[f].newest.set_fragment(f);
  }
  return absl::OkStatus();
}

absl::Status RunState::ApplyStarted(const storage::v1::RunStarted& body) {
  if (started() || body.version0_size() != fragments_.size()) {
    return Misfit("a second start, or one of other fragments");
  }
  started_ = body;
  if (body.version0_norms_size() != body.version0_size()) {
    started_.clear_version0_norms();
  }
  for (int32_t f = 0; f < fragments_.size(); ++f) {
    fragments_[f].newest = body.version0(f);
  }
  return absl::OkStatus();
}

absl::Status RunState::ApplyMember(const storage::v1::MemberSet& body,
                                   absl::Time time) {
  if (body.slot() < 0 || body.slot() > members_.size()) {
    return Misfit(absl::StrCat("member with slot ", body.slot()));
  }
  const bool is_new_slot = body.slot() == members_.size();
  if (is_new_slot) members_.emplace_back();
  Member& member = members_[body.slot()];
  const bool is_taken_over =
      !is_new_slot && member.record.island_id() != body.island_id();
  if (is_taken_over) {
    if (member.present() || member.removed() ||
        body.island_epoch() <= member.record.island_epoch() ||
        body.next_seq() <= member.record.next_seq()) {
      return Misfit(absl::StrCat("island ", body.island_id(),
                                 " takes over slot ", body.slot(), " of ",
                                 member.record.island_id()));
    }
    slots_.erase(member.record.island_id());
    member = Member();
  }
  if ((is_new_slot || is_taken_over) &&
      !slots_.emplace(body.island_id(), body.slot()).second) {
    return Misfit(absl::StrCat("island ", body.island_id(),
                               " with a second slot, ", body.slot()));
  }
  member.record = body;
  member.set_time = time;
  if (is_taken_over || !member.present()) {
    for (FragmentState& fragment : fragments_) {
      fragment.standing_plans.erase(body.slot());
    }
  }
  return absl::OkStatus();
}

absl::Status RunState::ApplyOpened(const v1::OpenRound& body, absl::Time time) {
  FragmentState* fragment = FindFragment(body.fragment());
  if (fragment == nullptr || fragment->phase != RoundPhase::kIdle ||
      body.version() != fragment->newest.version() ||
      body.attempt() != fragment->attempt) {
    return Misfit(absl::StrCat("OPEN of fragment ", body.fragment(),
                               ", version ", body.version()));
  }
  fragment->phase = RoundPhase::kOpen;
  fragment->open = body;
  fragment->open_time = time;
  if (IsAsync(spec().schedule())) {
    fragment->standing_plans.clear();
    for (const v1::SlotPlan& plan : body.slots()) {
      fragment->standing_plans[plan.slot()] = plan;
    }
  }
  return absl::OkStatus();
}

absl::Status RunState::ApplySealed(const storage::v1::RoundSealed& body,
                                   absl::Time time) {
  FragmentState* fragment = FindFragment(body.seal().fragment());
  if (fragment == nullptr || fragment->phase != RoundPhase::kOpen ||
      body.seal().version() != fragment->newest.version() ||
      body.seal().attempt() != fragment->attempt ||
      body.infos_size() != body.seal().contributions_size()) {
    return Misfit(absl::StrCat("SEAL of fragment ", body.seal().fragment(),
                               ", version ", body.seal().version()));
  }
  fragment->phase = RoundPhase::kSealed;
  fragment->sealed = body;
  fragment->seal_time = time;
  return absl::OkStatus();
}

absl::Status RunState::ApplyJudged(const storage::v1::RoundJudged& body) {
  FragmentState* fragment = FindFragment(body.fragment());
  if (fragment == nullptr || fragment->phase != RoundPhase::kSealed ||
      body.version() != fragment->newest.version() ||
      body.attempt() != fragment->attempt ||
      fragment->sealed.seal().has_verdict()) {
    return Misfit(absl::StrCat("VERDICT of fragment ", body.fragment(),
                               ", version ", body.version()));
  }
  *fragment->sealed.mutable_seal()->mutable_verdict() = body.verdict();
  return absl::OkStatus();
}

absl::Status RunState::ApplyCommitted(const storage::v1::RoundCommitted& body,
                                      absl::Time time) {
  const v1::Commit& commit = body.commit();
  FragmentState* fragment = FindFragment(commit.fragment());
  if (fragment == nullptr || fragment->phase != RoundPhase::kSealed ||
      commit.version() != fragment->newest.version() + 1 ||
      commit.attempt() != fragment->attempt ||
      commit.commit_seq() != commit_seq_ + 1) {
    return Misfit(absl::StrCat("COMMIT ", commit.commit_seq(), " of fragment ",
                               commit.fragment(), ", version ",
                               commit.version()));
  }
  AdvanceData(*fragment);
  for (const v1::SealedContribution& merged :
       fragment->sealed.seal().contributions()) {
    fragment_token_count_ += merged.token_count();
    fragment->token_count += merged.token_count();
  }
  CountKept(*fragment);
  commit_seq_ = commit.commit_seq();
  for (int i = 0; i < commit.outcomes_size(); ++i) {
    storage::v1::OutcomeWork work;
    // They are in the same order.
    if (i < body.round().contributions_size()) {
      const v1::ContributionInfo& info = body.round().contributions(i).info();
      work.set_step_count(info.step_count());
      work.set_token_count(info.token_count());
    }
    ApplyOutcome(commit.outcomes(i), work, time);
  }
  for (const storage::v1::SealedInfo& merged : fragment->sealed.infos()) {
    // An older record has no steps.
    if (merged.counted_step_count() < 1 || !std::isfinite(merged.norm())) {
      continue;
    }
    const int64_t steps = merged.counted_step_count();
    PushBounded(fragment->step_norms,
                StepNorm{merged.norm() / static_cast<double>(steps), steps},
                kStepNormsMax);
  }
  const std::string& outside = body.round().outside_band();
  NoteCommit(body.round().outer_gradient_norm(),
             body.has_guard_loss() ? std::optional(body.guard_loss())
                                   : std::nullopt,
             outside.empty() ? ""
                             : absl::StrCat("commit ", commit.commit_seq(),
                                            " (round ", commit.version(),
                                            fragments_.size() > 1
                                                ? absl::StrCat(
                                                      " of fragment ",
                                                      commit.fragment())
                                                : "",
                                            ") is outside the run's band: ",
                                            outside),
             fragment->guard);
  last_commit_time_ = time;
  storage::v1::CommitSnapshot recent;
  *recent.mutable_commit() = commit;
  *recent.mutable_seal() = fragment->sealed.seal();
  PushBounded(recent_commits_, std::move(recent), kCommitsAheadMax);
  persisted_commit_seqs_.assign(body.persisted_commit_seqs().begin(),
                                body.persisted_commit_seqs().end());
  if (body.round().has_training_loss()) {
    PushPoint(loss_points_, time, commit_seq_, body.round().training_loss());
  }
  PushPoint(norm_points_, time, commit_seq_,
            body.round().outer_gradient_norm());
  if (fragment->sealed.seal().has_verdict()) {
    PushBounded(fragment->median_norms,
                fragment->sealed.seal().verdict().median_norm(),
                kMedianNormsMax);
  }
  fragment->newest.set_version(commit.version());
  fragment->newest.set_commit_seq(commit.commit_seq());
  *fragment->newest.mutable_digest() = commit.digest();
  if (commit.fragment() == 0) NoteEvaluators(fragment->open);
  fragment->phase = RoundPhase::kIdle;
  fragment->attempt = 0;
  fragment->open.Clear();
  fragment->sealed.Clear();
  return absl::OkStatus();
}

// Merged contributions advance the data position, by what their plan allows at
// most. Data of unmerged contributions is read again. A contribution that names
// another data shard than its plan advances nothing.
void RunState::AdvanceData(const FragmentState& fragment) {
  const bool is_local = spec().data().fingerprint().empty();
  for (const storage::v1::SealedInfo& sealed : fragment.sealed.infos()) {
    const v1::ContributionInfo& info = sealed.info();
    for (const v1::SlotPlan& plan : fragment.open.slots()) {
      if (plan.slot() != info.key().slot() ||
          plan.data_shard() != info.data_shard()) {
        continue;
      }
      int64_t& position = is_local ? members_[plan.slot()].local_position
                                   : data_positions_[plan.data_shard()];
      position = std::max(position,
                          std::min(info.data_end(), DataEndMax(spec(), plan)));
    }
  }
}

void RunState::CountKept(const FragmentState& fragment) {
  int64_t bytes = 0;
  for (auto& [pin_id, state] : pins_) {
    v1::Pin& pin = *state.mutable_pin_set()->mutable_pin();
    if (pin.keep_bytes_max() == 0 || pin.keep_end() != 0) continue;
    if (bytes == 0) {
      bytes =
          fragment.sealed.seal().contributions_size() *
          (EncodedLayout(*layout_, fragment.newest.fragment(), UpCodec(spec()))
               .byte_count() +
           kFilePageBytes * std::max(spec().server_count(), 1));
    }
    if (bytes > pin.keep_bytes_max() - pin.kept_bytes()) {
      pin.set_keep_end(commit_seq_ + 1);
    } else {
      pin.set_kept_bytes(pin.kept_bytes() + bytes);
    }
  }
}

absl::Status RunState::ApplyRestored(const storage::v1::RunRestored& body,
                                     absl::Time time) {
  const v1::Restore& restore = body.restore();
  const int64_t cut = restore.cut_commit_seq();
  // Both jump in a log that supersedes a lost one.
  if (!started() || restore.run_epoch() <= run_epoch() ||
      restore.commit_seq() <= commit_seq_ || cut < 1 ||
      cut > restore.commit_seq() || body.cut_size() != fragments_.size() ||
      body.point().fragments_size() != fragments_.size()) {
    return Misfit(absl::StrCat("RESTORE ", restore.commit_seq(), " to ", cut));
  }
  created_.set_run_epoch(restore.run_epoch());
  commit_seq_ = restore.commit_seq();
  last_commit_time_ = time;
  state_.set_state(v1::RUN_STATE_ACTIVE);
  state_.clear_reason();
  state_.clear_by_guard();
  end_time_ = absl::InfiniteFuture();
  AddRestore(restore, restores_);
  restored_cut_.assign(body.cut().begin(), body.cut().end());
  for (int32_t f = 0; f < fragments_.size(); ++f) {
    fragments_[f] = FragmentState();
    storage::v1::FragmentSnapshot snapshot = body.point().fragments(f);
    *snapshot.mutable_newest() = body.cut(f);
    if (body.cut(f).fragment() != f || !RestoreFragment(snapshot).ok()) {
      return Misfit(absl::StrCat("RESTORE ", restore.commit_seq(),
                                 " names fragment ", body.cut(f).fragment(),
                                 " in place of ", f));
    }
  }
  recent_commits_.clear();
  persisted_commit_seqs_.clear();
  // Their keys hold the old run_epoch. Only the seqs still matter.
  outcomes_.ForgetAll();
  dropped_.clear();
  data_positions_.clear();
  for (const v1::DataPosition& position : body.point().data_positions()) {
    data_positions_[position.data_shard()] = position.position();
  }
  fragment_token_count_ = body.point().fragment_token_count();
  const auto& positions = body.point().local_positions();
  for (Member& member : members_) {
    const int32_t slot = member.record.slot();
    // Another island may have taken the slot since: never forwards.
    member.local_position =
        slot < positions.size()
            ? std::min(member.local_position, positions[slot])
            : 0;
    if (!member.present()) continue;
    member.record.set_state(v1::ISLAND_STATE_JOINING);
    member.set_time = time;
  }
  std::erase_if(pins_, [&](const auto& pin) {
    return pin.second.pin_set().pin().commit_seq() > cut;
  });
  v1::Pin* newest = nullptr;
  for (auto& [pin_id, state] : pins_) {
    v1::Pin& pin = *state.mutable_pin_set()->mutable_pin();
    // The shards let go of the contributions: the commits end.
    if (pin.keep_bytes_max() > 0) pin.set_keep_end(pin.commit_seq());
    if (pin.checkpoint() &&
        (newest == nullptr || pin.commit_seq() > newest->commit_seq())) {
      newest = &pin;
    }
  }
  // The newest checkpoint goes to the mirror again, under the new epoch.
  // Without that, the newest one there would be of the past that ends now.
  if (newest != nullptr && newest->has_mirror()) {
    newest->mutable_mirror()->set_must_repeat(true);
  }
  DropSuperseded();
  return absl::OkStatus();
}

void RunState::DropSuperseded() {
  const int64_t newest = fragments_[0].newest.version();
  std::erase_if(evaluations_, [&](const auto& entry) {
    return entry.first > newest ||
           IsSuperseded(restores_, entry.second.commit_seq());
  });
  evaluations_begin_ = std::min(evaluations_begin_, newest + 1);
  evaluator_by_version_.erase(evaluator_by_version_.upper_bound(newest),
                              evaluator_by_version_.end());
  for (auto* points : {&loss_points_, &norm_points_, &evaluation_points_}) {
    std::erase_if(*points, [&](const v1::MetricPoint& point) {
      return IsSuperseded(restores_, point.commit_seq());
    });
  }
}

absl::Status RunState::ApplyAborted(const storage::v1::RoundAborted& body,
                                    absl::Time time) {
  FragmentState* fragment = FindFragment(body.fragment());
  if (fragment == nullptr || fragment->phase == RoundPhase::kIdle ||
      body.attempt() != fragment->attempt) {
    return Misfit(absl::StrCat("ABORT of fragment ", body.fragment(),
                               ", version ", body.version()));
  }
  ApplyOutcomes(body.outcomes(), body.work(), time);
  fragment->phase = RoundPhase::kIdle;
  fragment->attempt += 1;
  fragment->open.Clear();
  fragment->sealed.Clear();
  return absl::OkStatus();
}

void RunState::ApplyOutcomes(
    const google::protobuf::RepeatedPtrField<v1::ContributionOutcome>& outcomes,
    const google::protobuf::RepeatedPtrField<storage::v1::OutcomeWork>& work,
    absl::Time time) {
  for (int i = 0; i < outcomes.size(); ++i) {
    ApplyOutcome(outcomes[i],
                 i < work.size() ? work[i] : storage::v1::OutcomeWork(), time);
  }
}

void RunState::ApplyOutcome(const v1::ContributionOutcome& outcome,
                            const storage::v1::OutcomeWork& work,
                            absl::Time time) {
  if (!outcomes_.Add(outcome)) return;
  NoteRefusal(outcome, time);
  const bool merged = outcome.outcome() == v1::OUTCOME_MERGED;
  if (outcome.key().slot() < members_.size()) {
    Member& member = members_[outcome.key().slot()];
    (merged ? member.merged_count : member.unmerged_count) += 1;
    const auto told =
        member.newest_unpushed.find(
            {outcome.key().fragment(), outcome.key().seq()});
    // The island may not know that shards have it, or push it after all.
    const bool is_counted =
        told != member.newest_unpushed.end() &&
        told->second.run_epoch() == outcome.key().run_epoch();
    v1::IslandTotals& totals = member.totals;
    const bool is_known = merged || work.step_count() > 0;
    if (is_counted && is_known) {
      // The outcome counts in its place.
      TakeUnpushedFrom(totals, told->second.step_count(),
                       told->second.token_count());
      told->second.clear_step_count();
      told->second.clear_token_count();
    }
    if (merged) {
      totals.set_merged_step_count(
          Sum(totals.merged_step_count(), work.step_count()));
      totals.set_merged_token_count(
          Sum(totals.merged_token_count(), work.token_count()));
    } else if (!is_counted || is_known) {
      totals.set_unmerged_step_count(
          Sum(totals.unmerged_step_count(), work.step_count()));
      totals.set_unmerged_token_count(
          Sum(totals.unmerged_token_count(), work.token_count()));
    }
  }
  if (FragmentState* fragment = FindFragment(outcome.key().fragment())) {
    fragment->standing_plans.erase(outcome.key().slot());
  }
  if (!merged) PushBounded(dropped_, outcome, kDroppedMax);
}

void RunState::NoteRefusal(const v1::ContributionOutcome& outcome,
                           absl::Time time) {
  const FragmentState* const fragment =
      FindFragment(outcome.key().fragment());
  if (spec().schedule().timing() != v1::TIMING_ELASTIC || fragment == nullptr ||
      outcome.key().slot() >= members_.size()) {
    return;
  }
  Member& member = members_[outcome.key().slot()];
  // Whether the round was opened after the newest refusal, so that this outcome
  // is of later work. Other fragments of the refused round are not.
  const bool is_later = member.refused_count == 0 ||
                        (fragment->phase != RoundPhase::kIdle &&
                         fragment->open_time >= member.refusal_time);
  if (outcome.outcome() == v1::OUTCOME_MERGED && is_later) {
    member.refused_count = 0;
    member.refusal.clear();
    member.refusal_time = absl::Time();
    member.sits_out_until = 0;
  }
  if (outcome.outcome() != v1::OUTCOME_REJECTED) return;
  member.refusal = outcome.reason();
  if (!is_later && commit_seq_ < member.sits_out_until) return;
  member.refused_count = std::min(member.refused_count, INT32_MAX - 1) + 1;
  member.refusal_time = time;
  const int64_t rounds =
      member.refused_count > 6 ? kSitOutRoundsMax
                               : int64_t{1} << (member.refused_count - 1);
  // Commits of a round: one a fragment; async, about one an island.
  const int64_t commits_a_round =
      !IsAsync(spec().schedule())
          ? static_cast<int64_t>(fragments_.size())
          : std::count_if(members_.begin(), members_.end(),
                          [](const Member& one) { return one.present(); });
  member.sits_out_until =
      commit_seq_ + rounds * std::max<int64_t>(1, commits_a_round);
}

std::vector<int32_t> RunState::ListEvaluators(const v1::OpenRound& open) const {
  std::vector<int32_t> asked;
  std::vector<int32_t> trusted;
  for (const v1::SlotPlan& plan : open.slots()) {
    if (plan.slot() < 0 || plan.slot() >= members_.size()) continue;
    asked.push_back(plan.slot());
    if (!members_[plan.slot()].enrolled()) trusted.push_back(plan.slot());
  }
  if (!trusted.empty()) return trusted;
  for (const Member& member : members_) {
    if (member.present() && !member.enrolled()) {
      trusted.push_back(member.record.slot());
    }
  }
  return trusted.empty() ? asked : trusted;
}

void RunState::NoteEvaluators(const v1::OpenRound& open) {
  evaluator_slots_ = ListEvaluators(open);
  if (evaluator_slots_.empty()) return;
  const int64_t version = open.version() + 1;
  const auto count = static_cast<int64_t>(evaluator_slots_.size());
  evaluator_by_version_[version] = evaluator_slots_[version % count];
  if (evaluator_by_version_.size() > kEvaluationsMax) {
    evaluator_by_version_.erase(evaluator_by_version_.begin());
  }
}

bool RunState::IsAskedToEvaluate(const Member& member, int64_t version) const {
  const int32_t slot = member.record.slot();
  if (version < 1) return false;
  if (evaluator_by_version_.empty()) {
    return !member.enrolled() ||
           std::none_of(members_.begin(), members_.end(), [](const Member& m) {
             return m.present() && !m.enrolled();
           });
  }
  const auto asked = evaluator_by_version_.find(version);
  if (asked != evaluator_by_version_.end() && asked->second == slot) {
    return true;
  }
  if (!IsAsync(spec().schedule())) return false;
  const auto at =
      std::find(evaluator_slots_.begin(), evaluator_slots_.end(), slot);
  if (at == evaluator_slots_.end()) return false;
  const auto count = static_cast<int64_t>(evaluator_slots_.size());
  const int64_t every =
      std::max<int64_t>(1, spec().evaluation().every_round_count());
  int64_t last = 0;
  for (const auto& [evaluated, evaluation] : evaluations_) {
    if (evaluation.island_id() == member.record.island_id()) last = evaluated;
  }
  // The newest period, up to the version's, that is the slot's turn.
  const int64_t index = at - evaluator_slots_.begin();
  const int64_t period = version / every;
  return period - (period + count - index) % count > last / every;
}

void RunState::ApplyEvaluated(const v1::Evaluation& evaluation,
                              absl::Time time) {
  const bool failed = !evaluation.failure().empty();
  if (!evaluation.outside_band().empty()) {
    NoteEvaluation(absl::StrCat("version ", evaluation.version(), " of commit ",
                                evaluation.commit_seq(),
                                " is outside the run's band: ",
                                evaluation.outside_band()),
                   fragments_[0].guard);
  } else if (!failed && IsInsideAndNewest(evaluation)) {
    NoteEvaluation("", fragments_[0].guard);
  }
  evaluations_[evaluation.version()] = evaluation;
  if (evaluations_.size() > kEvaluationsMax) {
    evaluations_begin_ = evaluations_.begin()->first + 1;
    evaluations_.erase(evaluations_.begin());
  }
  if (failed) return;
  PushPoint(evaluation_points_, time, evaluation.commit_seq(),
            evaluation.loss());
}

const v1::Evaluation* RunState::newest_evaluation() const {
  for (auto one = evaluations_.rbegin(); one != evaluations_.rend(); ++one) {
    if (one->second.failure().empty()) return &one->second;
  }
  return nullptr;
}

const v1::Evaluation* RunState::newest_failed_evaluation() const {
  if (evaluations_.empty()) return nullptr;
  const v1::Evaluation& newest = evaluations_.rbegin()->second;
  return newest.failure().empty() ? nullptr : &newest;
}

const storage::v1::FragmentGuard* RunState::FindHeld() const {
  const storage::v1::FragmentGuard* longest = nullptr;
  for (const FragmentState& fragment : fragments_) {
    if (fragment.guard.held_count() >
        (longest == nullptr ? 0 : longest->held_count())) {
      longest = &fragment.guard;
    }
  }
  return longest;
}

bool RunState::IsEvaluationTrusted(const v1::Evaluation& evaluation) const {
  const Member* const member = FindMember(evaluation.island_id());
  return member != nullptr && !member->enrolled() && !fragments_.empty() &&
         evaluation.version() >= fragments_[0].guard.evaluations_begin();
}

bool RunState::IsUncounted(const Member& member,
                           const v1::UnpushedWork& work) const {
  if (work.fragment() < 0 || work.fragment() >= fragments_.size() ||
      work.run_epoch() < 1 || work.run_epoch() > run_epoch() ||
      work.version() < 0 || work.version() > commit_seq_ + 1) {
    return false;
  }
  // In a streaming run steps for the next version begin before it is there.
  if (work.run_epoch() == run_epoch() &&
      work.version() > fragments_[work.fragment()].newest.version() + 1) {
    return false;
  }
  if (work.island_epoch() > member.record.island_epoch()) return false;
  for (const auto& [place, counted] : member.newest_unpushed) {
    // A leave told of it, and the island pushed it in vain after its return.
    if (work.seq() > 0 && work.seq() == counted.seq() &&
        work.run_epoch() == counted.run_epoch() &&
        work.fragment() == place.first) {
      return false;
    }
    if (work.number() > 0) {
      if (std::pair(work.island_epoch(), work.number()) <=
          std::pair(counted.island_epoch(), counted.number())) {
        return false;
      }
      continue;
    }
    // From an older program. An ended epoch's versions are not known here.
    if (place.first == work.fragment() &&
        (std::pair(work.run_epoch(), work.version()) <=
             std::pair(counted.run_epoch(), counted.version()) ||
         (work.run_epoch() != run_epoch() &&
          work.run_epoch() == counted.run_epoch()))) {
      return false;
    }
  }
  if (work.seq() == 0) return true;
  // In an ended epoch every seq up to the newest outcome's has one.
  v1::ContributionKey key;
  key.set_run_epoch(work.run_epoch());
  key.set_fragment(work.fragment());
  key.set_slot(member.record.slot());
  key.set_seq(work.seq());
  return !outcomes_.Contains(key);
}

absl::Status RunState::ApplyUnpushed(const storage::v1::WorkUnpushed& body) {
  if (body.slot() < 0 || body.slot() >= members_.size()) {
    return Misfit(absl::StrCat("unpushed work of slot ", body.slot()));
  }
  Member& member = members_[body.slot()];
  for (const v1::UnpushedWork& work : body.work()) {
    if (FindFragment(work.fragment()) == nullptr) {
      return Misfit(absl::StrCat("unpushed work of slot ", body.slot(),
                                 ", fragment ", work.fragment()));
    }
    v1::IslandTotals& totals = member.totals;
    totals.set_unpushed_step_count(
        Sum(totals.unpushed_step_count(), work.step_count()));
    totals.set_unpushed_token_count(
        Sum(totals.unpushed_token_count(), work.token_count()));
    // The island is back, and has a part of what its leave told.
    const auto told = member.newest_unpushed.find({work.fragment(), 0});
    if (told != member.newest_unpushed.end() &&
        told->second.run_epoch() == work.run_epoch() &&
        told->second.version() == work.version() &&
        told->second.island_epoch() >= work.restored_island_epoch() &&
        told->second.step_count() >= work.restored_step_count()) {
      TakeUnpushedFrom(totals, work.restored_step_count(),
                       work.restored_token_count());
    }
    member.KeepUnpushed(work);
  }
  return absl::OkStatus();
}

bool RunState::IsInsideAndNewest(const v1::Evaluation& evaluation) const {
  for (auto one = evaluations_.upper_bound(evaluation.version());
       one != evaluations_.end(); ++one) {
    if (!one->second.outside_band().empty()) return false;
  }
  return IsEvaluationTrusted(evaluation) &&
         ListLossesBy(evaluation.island_id()).size() >= kBandEvaluationsMin;
}

std::vector<double> RunState::ListLossesBy(const std::string& island_id) const {
  std::vector<double> losses;
  for (const auto& [version, evaluation] : evaluations_) {
    if (version < fragments_[0].guard.evaluations_begin()) continue;
    if (evaluation.failure().empty() && evaluation.outside_band().empty() &&
        evaluation.island_id() == island_id) {
      losses.push_back(evaluation.loss());
    }
  }
  return losses;
}

std::string RunState::DebugString() const {
  std::string text = absl::StrCat(
      run_id(), " ", run_uid(), " state ", state(), " (", state_reason(),
      ") revision ", revision_, " epoch ", run_epoch(), " placement ",
      placement_epoch(),
      " commit_seq ", commit_seq_, " tokens ", fragment_token_count_,
      " created ", absl::FormatTime(create_time_), " end ",
      absl::FormatTime(end_time_), " last commit ",
      absl::FormatTime(last_commit_time_), "\n");
  for (const std::string& id : server_ids()) absl::StrAppend(&text, id, "\n");
  for (const auto& v : version0()) absl::StrAppend(&text, v.DebugString());
  for (const double norm : version0_norms()) {
    absl::StrAppend(&text, "version 0 norm ", norm, "\n");
  }
  for (const Member& member : members_) {
    absl::StrAppend(&text, member.record.DebugString(), " ",
                    member.local_position, " ", member.merged_count, " ",
                    member.unmerged_count, " ",
                    absl::FormatTime(member.set_time), " refused ",
                    member.refused_count, " ", member.refusal, " ",
                    absl::FormatTime(member.refusal_time), " until ",
                    member.sits_out_until, " totals ",
                    member.totals.ShortDebugString(), "\n");
    for (const auto& [place, work] : member.newest_unpushed) {
      absl::StrAppend(&text, "unpushed ", work.ShortDebugString(), "\n");
    }
  }
  for (const FragmentState& fragment : fragments_) {
    absl::StrAppend(&text, fragment.newest.DebugString(), "phase ",
                    static_cast<int>(fragment.phase), " attempt ",
                    fragment.attempt, " tokens ", fragment.token_count, "\n",
                    fragment.open.DebugString(), fragment.sealed.DebugString());
    for (double norm : fragment.median_norms) {
      absl::StrAppend(&text, "median norm ", norm, "\n");
    }
    for (const StepNorm& one : fragment.step_norms) {
      absl::StrAppend(&text, "step norm ", one.norm_by_steps, " of ",
                      one.step_count, "\n");
    }
    absl::StrAppend(&text, "guard ", fragment.guard.ShortDebugString(), "\n");
    for (const auto& [slot, plan] : fragment.standing_plans) {
      absl::StrAppend(&text, "plan ", plan.ShortDebugString(), "\n");
    }
    if (fragment.phase != RoundPhase::kIdle) {
      absl::StrAppend(&text, absl::FormatTime(fragment.open_time), "\n");
    }
    if (fragment.phase == RoundPhase::kSealed) {
      absl::StrAppend(&text, absl::FormatTime(fragment.seal_time), "\n");
    }
  }
  for (const auto& recent : recent_commits_) {
    absl::StrAppend(&text, recent.DebugString());
  }
  absl::StrAppend(&text, outcomes_.DebugString());
  for (const auto& d : dropped_) absl::StrAppend(&text, d.DebugString());
  for (const auto& [shard, position] : data_positions_) {
    absl::StrAppend(&text, "data ", shard, "=", position, "\n");
  }
  for (const auto& [id, pin] : pins_) {
    absl::StrAppend(&text, pin.DebugString());
  }
  for (const v1::Restore& restore : restores_) {
    absl::StrAppend(&text, "restore ", restore.ShortDebugString(), "\n");
  }
  for (const v1::FragmentVersion& version : restored_cut_) {
    absl::StrAppend(&text, "restored ", version.ShortDebugString(), "\n");
  }
  for (const auto& [version, evaluation] : evaluations_) {
    absl::StrAppend(&text, evaluation.DebugString());
  }
  absl::StrAppend(&text, "evaluations from ", evaluations_begin_,
                  ", history from ", history_begin_, "\n");
  for (const auto& [version, slot] : evaluator_by_version_) {
    absl::StrAppend(&text, "evaluator of ", version, ": ", slot, "\n");
  }
  absl::StrAppend(&text, "evaluators ", absl::StrJoin(evaluator_slots_, ","),
                  "\n");
  for (const auto* points :
       {&loss_points_, &norm_points_, &evaluation_points_}) {
    absl::StrAppend(&text, points->size(), " points\n");
    for (const v1::MetricPoint& point : *points) {
      absl::StrAppend(&text, point.ShortDebugString(), "\n");
    }
  }
  return text;
}

}  // namespace atl::coordinator
