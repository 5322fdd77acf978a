#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/digest.h"
#include "base/layout/run_length.h"
#include "base/obs/log.h"
#include "base/status/not_finite.h"
#include "base/status/status_macros.h"
#include "worker/core/acknowledged_seq.h"
#include "worker/island/island_part.h"

// Contributions, and the local checkpoint that is written before their push.

namespace atl::worker {

v1::ContributionInfo IslandPart::Describe(const Action& action,
                                          const AnchoredFragment& at) const {
  v1::ContributionInfo info;
  info.mutable_key()->set_run_epoch(action.run_epoch);
  info.mutable_key()->set_fragment(at.fragment);
  info.mutable_key()->set_slot(action.slot);
  info.mutable_key()->set_seq(action.seq);
  info.set_anchor_version(at.anchor_version);
  info.set_step_count(action.step_count);
  info.set_token_count(has_own_trainer_
                           ? TokensOfSteps(spec_, action.step_count)
                           : token_counts_[at.fragment]);
  info.set_data_shard(action.data_shard);
  info.set_data_begin(action.data_begin);
  info.set_data_end(action.data_position);
  // A trainer's own loss may be negative; a header's is not.
  const std::optional<double> loss = losses_[at.fragment].mean();
  if (loss.has_value() && std::isfinite(*loss) && *loss >= 0) {
    info.set_training_loss(*loss);
  }
  return info;
}

// A trainer may step other tensors than those that it sends. The first value
// that is not zero ends the look.
void IslandPart::WarnIfZero(const v1::ContributionInfo& info,
                            absl::Span<const float> gradient) {
  if (info.step_count() == 0 || !state_->held().is_all() ||
      !absl::c_all_of(gradient, [](float value) { return value == 0; })) {
    return;
  }
  if (std::exchange(told_zero_, true)) return;
  const std::string line = absl::StrCat(
      "contribution ", info.key().seq(), " of fragment ", info.key().fragment(),
      " has changed nothing (norm 0): after ", info.step_count(),
      " steps the parameters are as they were. Is the learning rate 0, or does "
      "the optimizer step other tensors?");
  LOG(WARNING) << line;
  Notify(line);
}

// Computes the outer gradient, and in an eager run the foreseen step: once a
// key, because Foresee() changes the local parameters.
IslandPart::TakenContribution IslandPart::TakeOne(const Action& action,
                                                  const AnchoredFragment& at) {
  for (const TakenContribution& taken : taken_.contributions) {
    const v1::ContributionInfo& own = taken.contribution->info;
    if (own.key().fragment() != at.fragment || own.key().seq() != action.seq ||
        own.anchor_version() != at.anchor_version ||
        own.data_begin() != action.data_begin) {
      continue;
    }
    if (own.data_end() == action.data_position) return taken;
    // Steps followed that try: they go together.
    token_counts_[at.fragment] += own.token_count();
    losses_[at.fragment].sum += taken.losses.sum;
    losses_[at.fragment].step_count += taken.losses.step_count;
  }
  TakenContribution taken = {.contribution = outbox_.MakeItem(),
                             .losses = losses_[at.fragment]};
  taken.contribution->info = Describe(action, at);
  const absl::Span<float> gradient =
      encoder_->GradientRoom(*taken.contribution);
  state_->OuterGradient(at.fragment, gradient);
  WarnIfZero(taken.contribution->info, gradient);
  state_->Foresee(at.fragment, action.weight);
  token_counts_[at.fragment] = 0;
  losses_[at.fragment] = LossSum();
  return taken;
}

void IslandPart::Take(const PartCommand& command) {
  const Action& action = command.action;
  std::vector<TakenContribution> contributions;
  for (const AnchoredFragment& at : action.contributions) {
    contributions.push_back(TakeOne(action, at));
  }
  // A retry keeps what the first try took.
  if (taken_.seq != action.seq) taken_.answers.clear();
  std::move(answers_.begin(), answers_.end(),
            std::back_inserter(taken_.answers));
  answers_.clear();
  taken_.seq = action.seq;
  taken_.contributions = std::move(contributions);
  taken_.header = command.save;
  taken_.is_whole = action.whole_save;
  TakeForeseen();
  if (!has_own_trainer_) taken_.header.token_counts = token_counts_;
  if (streaming_) taken_.header.losses = losses_;
  taken_.header.restart_step_count = state_->restart_step_count();
  if (!state_->held().is_all()) taken_.header.held = state_->held().spans();
}

// For a record: P and m of the pushed fragments, before they change again.
void IslandPart::TakeForeseen() {
  const bool is_needed = !taken_.is_whole && !state_->eager_momentum().empty();
  taken_.foreseen.resize(is_needed ? taken_.contributions.size() : 0);
  for (size_t i = 0; i < taken_.foreseen.size(); ++i) {
    auto& [fragment, foreseen, momentum] = taken_.foreseen[i];
    fragment = taken_.contributions[i].contribution->info.key().fragment();
    state_->ReadForeseen(fragment, foreseen, momentum);
  }
}

// A contribution's digest is the sum of those of all processes' parts.
absl::Status IslandPart::Encode(Lane lane) {
  absl::Status status;
  std::vector<TakenContribution*> made;
  std::string digests;
  for (TakenContribution& taken : taken_.contributions) {
    if (taken.encoded) continue;
    status = encoder_->Encode(*taken.contribution);
    if (!status.ok()) break;
    made.push_back(&taken);
    absl::StrAppend(
        &digests,
        Digest128::FromProto(taken.contribution->info.digest()).ToHex());
  }
  RETURN_IF_ERROR(Agree(lane, status));
  std::vector<std::string> all;
  if (group_ != nullptr) {
    ASSIGN_OR_RETURN(all, group_->Exchange(lane, digests));
  }
  for (size_t i = 0; i < made.size(); ++i) {
    made[i]->encoded = true;
    if (group_ == nullptr) continue;
    Digest128 sum;
    for (const std::string& of_one : all) {
      const auto part = of_one.size() == digests.size()
                            ? Digest128::FromHex(of_one.substr(32 * i, 32))
                            : std::nullopt;
      if (!part.has_value()) {
        return absl::InternalError(
            "processes encoded different numbers of contributions");
      }
      sum += *part;
    }
    *made[i]->contribution->info.mutable_digest() = sum.ToProto();
  }
  return absl::OkStatus();
}

// A whole save of a streaming run has all local parameters.
absl::Status IslandPart::AcquireForContribution(const Action& action) {
  if (streaming_ && action.whole_save) {
    return state_->AcquireAll(LocalAccess::kRead);
  }
  std::vector<int32_t> fragments;
  for (const AnchoredFragment& at : action.contributions) {
    fragments.push_back(at.fragment);
  }
  return state_->Acquire(fragments, LocalAccess::kRead);
}

// Arrays that do not change before they are written are not copied.
absl::Status IslandPart::Contribute(const PartCommand& command,
                                    PartResult& result) {
  RETURN_IF_ERROR(AcquireForContribution(command.action));
  checkpoint_->Forget();
  // In a run in rounds the previous contributions are decided: frees them.
  if (!streaming_ && taken_.contributions.empty()) outbox_.Set({});
  Take(command);
  const v1::ContributionInfo& first =
      taken_.contributions.front().contribution->info;
  if (first.has_training_loss()) result.loss = first.training_loss();
  SaveSpans arrays;
  if (taken_.is_whole) {
    ASSIGN_OR_RETURN(arrays, SaveState(command.action));
  }
  if (!command.action.in_background) {
    return EncodeAndSave(Lane::kTraining, arrays, result);
  }
  if (!taken_.is_whole) return absl::OkStatus();
  copy_.Begin([this, arrays] {
    const auto copy = [](absl::Span<const float> from, std::vector<float>& to) {
      to.assign(from.begin(), from.end());
    };
    copy(arrays.first_moment, taken_.arrays.first_moment);
    copy(arrays.second_moment, taken_.arrays.second_moment);
    copy(arrays.local, taken_.arrays.local);
    copy(arrays.eager_momentum, taken_.arrays.eager_momentum);
    copy(arrays.eager_foreseen, taken_.arrays.eager_foreseen);
  });
  return absl::OkStatus();
}

absl::Status IslandPart::SaveTaken(const Action& action, PartResult& result) {
  if (taken_.seq != action.seq || taken_.contributions.empty()) {
    return absl::InternalError("kSave without a kContribute of the same seq");
  }
  copy_.Finish();
  const SaveArrays<std::vector<float>>& arrays = taken_.arrays;
  return EncodeAndSave(Lane::kSave,
                       {.first_moment = arrays.first_moment,
                        .second_moment = arrays.second_moment,
                        .local = arrays.local,
                        .eager_momentum = arrays.eager_momentum,
                        .eager_foreseen = arrays.eager_foreseen},
                       result);
}

absl::Status IslandPart::EncodeAndSave(Lane lane, const SaveSpans& arrays,
                                       PartResult& result) {
  failpoint::Hit("island.encode.before");
  const absl::Status encoded = Encode(lane);
  // No retry follows.
  if (FindNotFinite(encoded).has_value()) taken_.contributions.clear();
  RETURN_IF_ERROR(encoded);
  std::vector<Outbox::Item> made, in_flight;
  for (const TakenContribution& taken : taken_.contributions) {
    made.push_back(taken.contribution);
    const int32_t fragment = taken.contribution->info.key().fragment();
    result.byte_count += state_->layout().fragment_element_count(fragment) *
                         static_cast<int64_t>(sizeof(float));
  }
  for (const SavedTrack& track : taken_.header.summary.tracks) {
    Outbox::Item item = outbox_.Find(track.fragment, track.seq);
    if (track.seq != taken_.seq && item != nullptr) in_flight.push_back(item);
  }
  in_flight.insert(in_flight.end(), made.begin(), made.end());
  // A whole save has all that are in flight; earlier records have the others.
  ASSIGN_OR_RETURN(result.saved_bytes,
                   Write(lane, taken_.is_whole ? in_flight : made, arrays));
  if (taken_.is_whole) {
    result.acknowledged_seq =
        AcknowledgedSeq(taken_.header.summary, encoder_->Pending());
  }
  taken_.contributions.clear();
  outbox_.Set(std::move(in_flight));
  failpoint::Hit("island.save.after");
  return absl::OkStatus();
}

// An answer is on disk with the next push: before that it can be pulled again.
absl::Status IslandPart::Apply(const Action& action) {
  if (!action.whole_save) {
    AnswerValues<std::vector<float>>& kept = answers_.emplace_back();
    kept.answer = {action.clock, action.fragment, action.version, action.adopt};
    state_->ReadAnchor(action.fragment, kept.values);
  }
  return state_->ApplyAnchor(action.fragment, action.adopt);
}

absl::StatusOr<IslandPart::SaveSpans> IslandPart::SaveState(
    const Action& action) {
  SaveSpans arrays;
  if (streaming_) {
    arrays.local = state_->local();
    arrays.eager_momentum = state_->eager_momentum();
    arrays.eager_foreseen = state_->eager_foreseen();
  }
  ASSIGN_OR_RETURN(const TrainerState state,
                   state_->trainer().Save(absl::StrCat(
                       action.run_epoch, "-", action.slot, "-", action.seq)));
  arrays.first_moment = state.first_moment;
  arrays.second_moment = state.second_moment;
  taken_.header.optimizer_step_count = state.step_count;
  taken_.header.trainer_save_id = state.save_id;
  return arrays;
}

absl::StatusOr<int64_t> IslandPart::Write(
    Lane lane, const std::vector<Outbox::Item>& items,
    const SaveSpans& arrays) {
  SaveView view;
  for (const Outbox::Item& item : items) {
    view.contributions.push_back(item.get());
  }
  const std::vector<FeedbackView> feedback = encoder_->Feedback();
  if (taken_.is_whole) {
    view.arrays = arrays;
    view.feedback = feedback;
    return checkpoint_->WriteWhole(lane, taken_.header, view);
  }
  for (const FeedbackView& of_fragment : feedback) {
    if (absl::c_any_of(items, [&](const Outbox::Item& item) {
          return item->info.key().fragment() == of_fragment.key.fragment();
        })) {
      view.feedback.push_back(of_fragment);
    }
  }
  for (const auto& [answer, values] : taken_.answers) {
    view.answers.push_back({answer, values});
  }
  for (const auto& [fragment, foreseen, momentum] : taken_.foreseen) {
    view.foreseen.push_back({fragment, foreseen, momentum});
  }
  return checkpoint_->WriteRecord(lane, taken_.header, view);
}

}  // namespace atl::worker
