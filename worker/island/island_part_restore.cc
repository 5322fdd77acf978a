#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "base/failpoint/failpoint.h"
#include "base/status/status_macros.h"
#include "worker/core/data_awaited.h"
#include "worker/island/island_part.h"

// The local checkpoint, loaded and restored. Its arrays are read one after the
// other when they are restored, so the process never holds the model twice.

namespace atl::worker {
namespace {

absl::Status OfAnotherSchedule() {
  return absl::DataLossError("the local checkpoint is of another schedule");
}

}  // namespace

SavePlace MakeSavePlace(const RunIslandOptions& options) {
  return {options.work_directory.empty() ? "." : options.work_directory,
          options.run_id, options.island_id};
}

absl::Status IslandPart::LoadSave(PartResult& result) {
  replay_.reset();
  record_.reset();
  ASSIGN_OR_RETURN(std::optional<SaveSummary> found,
                   checkpoint_->Find(run_epoch_));
  if (!found.has_value()) return absl::OkStatus();
  auto contributions = checkpoint_->ReadContributions();
  const absl::Status read = Agree(Lane::kTraining, contributions.status());
  if (!read.ok()) {
    checkpoint_->Forget();
    return read;
  }
  std::vector<Outbox::Item> items;
  for (EncodedContribution& contribution : *contributions) {
    items.push_back(
        std::make_shared<EncodedContribution>(std::move(contribution)));
  }
  outbox_.Set(std::move(items), /*pushed=*/true);
  result.save = *std::move(found);
  return absl::OkStatus();
}

// One call restores the whole save; each further one repeats some steps, an
// answer or a push.
absl::Status IslandPart::RestoreSave(PartResult& result) {
  if (!checkpoint_->found()) return absl::InternalError("no local checkpoint");
  absl::Status status;
  if (!replay_.has_value()) {
    status = RestoreWhole(result);
  } else {
    const SaveReplay::Unit unit = replay_->Next();
    result.repeats_steps = unit.kind == SaveReplay::Kind::kTrain;
    status = Agree(Lane::kTraining, Repeat(unit, result));
    if (IsDataAwaited(status)) return status;  // The same unit, later.
    if (status.ok()) replay_->OnDone(unit, result.step.step_count);
    result.saved_step = replay_->step();
  }
  result.unfinished =
      status.ok() && replay_->Next().kind != SaveReplay::Kind::kDone;
  if (result.unfinished) return absl::OkStatus();
  if (!status.ok()) {
    ResetEncoder();
    const absl::Span<float> momentum = state_->eager_momentum();
    std::fill(momentum.begin(), momentum.end(), 0.0f);
  }
  checkpoint_->Forget();
  replay_.reset();
  record_.reset();
  return status;
}

absl::Status IslandPart::RestoreWhole(PartResult& result) {
  RETURN_IF_ERROR(state_->AcquireAll(LocalAccess::kReplace));
  RETURN_IF_ERROR(Agree(Lane::kTraining, RestoreWholeHere()));
  result.saved_step = checkpoint_->whole().step;
  return absl::OkStatus();
}

absl::Status IslandPart::RestoreWholeHere() {
  replay_ = checkpoint_->MakeReplay(spec_.inner().batch_size());
  if (!replay_->IsSound()) {
    return absl::DataLossError(
        "the records of the local checkpoint do not follow each other");
  }
  {
    ASSIGN_OR_RETURN(const Save save, checkpoint_->ReadWhole(kFeedback));
    for (const SavedFeedback& feedback : save.feedback) {
      RETURN_IF_ERROR(encoder_->Restore(feedback.View()));
    }
  }
  const SaveHeader& header = checkpoint_->whole();
  {
    ASSIGN_OR_RETURN(const Save save, checkpoint_->ReadWhole(kMoments));
    RETURN_IF_ERROR(
        state_->trainer().Load({.first_moment = save.arrays.first_moment,
                                .second_moment = save.arrays.second_moment,
                                .step_count = header.optimizer_step_count,
                                .save_id = header.trainer_save_id}));
  }
  if (streaming_) RETURN_IF_ERROR(RestoreLocal());
  token_counts_ = header.token_counts;
  token_counts_.resize(state_->layout().fragment_count());
  losses_ = header.losses;
  losses_.resize(token_counts_.size());
  state_->set_restart_step_count(header.restart_step_count);
  return absl::OkStatus();
}

absl::Status IslandPart::RestoreLocal() {
  {
    ASSIGN_OR_RETURN(const Save save, checkpoint_->ReadWhole(kLocal));
    if (static_cast<int64_t>(save.arrays.local.size()) !=
        state_->held().element_count()) {
      return OfAnotherSchedule();
    }
    state_->SetLocalFrom(save.arrays.local);
  }
  ASSIGN_OR_RETURN(const Save save, checkpoint_->ReadWhole(kEager));
  const auto& [momentum, foreseen] =
      std::tie(save.arrays.eager_momentum, save.arrays.eager_foreseen);
  if (momentum.size() != state_->eager_momentum().size() ||
      foreseen.size() != state_->eager_foreseen().size()) {
    return OfAnotherSchedule();
  }
  absl::c_copy(momentum, state_->eager_momentum().begin());
  absl::c_copy(foreseen, state_->eager_foreseen().begin());
  return absl::OkStatus();
}

absl::Status IslandPart::Repeat(const SaveReplay::Unit& unit,
                                PartResult& result) {
  if (unit.kind == SaveReplay::Kind::kTrain) return RepeatSteps(unit, result);
  if (!record_.has_value()) {
    auto record = checkpoint_->ReadRecord(unit.record, kFeedback | kAnswers);
    // Before ranks exchange anything.
    RETURN_IF_ERROR(Agree(Lane::kTraining, record.status()));
    record_ = *std::move(record);
  }
  return unit.kind == SaveReplay::Kind::kAnswer ? RepeatAnswer(unit)
                                                : RepeatPush();
}

absl::Status IslandPart::RepeatSteps(const SaveReplay::Unit& unit,
                                     PartResult& result) {
  ASSIGN_OR_RETURN(result.step,
                   state_->Train({.step = unit.step,
                                  .step_count_max = unit.step_count,
                                  .version = unit.version,
                                  .data_shard = unit.data_shard,
                                  .data_position = unit.data_position}));
  CountSteps(result.step);
  failpoint::Hit("island.trained.after");
  return absl::OkStatus();
}

absl::Status IslandPart::RepeatAnswer(const SaveReplay::Unit& unit) {
  const auto& [answer, values] = record_->answers[unit.answer];
  absl::c_copy(values, state_->FragmentBuffer(answer.fragment).begin());
  state_->SetAnchor(answer.fragment);
  return state_->ApplyAnchor(answer.fragment, answer.adopt);
}

absl::Status IslandPart::RepeatPush() {
  RETURN_IF_ERROR(Agree(Lane::kTraining, RepeatPushHere()));
  for (const auto& [fragment, foreseen, momentum] : record_->foreseen) {
    RETURN_IF_ERROR(state_->SetForeseen(fragment, foreseen, momentum));
  }
  record_.reset();
  return absl::OkStatus();
}

absl::Status IslandPart::RepeatPushHere() {
  for (const AnchoredFragment& at : record_->header.summary.contributions) {
    token_counts_[at.fragment] = 0;
    losses_[at.fragment] = LossSum();
  }
  if (!record_->foreseen.empty() && state_->eager_momentum().empty()) {
    return OfAnotherSchedule();
  }
  for (const SavedFeedback& feedback : record_->feedback) {
    RETURN_IF_ERROR(encoder_->Restore(feedback.View()));
  }
  return absl::OkStatus();
}

}  // namespace atl::worker
