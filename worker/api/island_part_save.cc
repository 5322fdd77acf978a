#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/api/island_part.h"

// Contributions, and what a process keeps for its next life: the SAVE, both
// ways.

namespace atl::worker {
namespace {

// What the saves of all processes have to say alike.
std::string SharedText(const Save& save) {
  SaveHeader header = save.header;
  header.held.clear();
  std::string text = SaveHeaderText(header);
  for (const EncodedContribution& contribution : save.contributions) {
    text += contribution.info.SerializeAsString();
  }
  return text;
}

}  // namespace

std::string IslandPart::SavePath() const {
  std::string path = absl::StrCat(
      options_.work_directory.empty() ? "." : options_.work_directory, "/",
      options_.run_id, ".", options_.island_id);
  if (group_ != nullptr) {
    absl::StrAppend(&path, ".", group_->process_index(), "-of-",
                    group_->process_count());
  }
  return path + ".save";
}

// What is in flight when a process dies between two saves is in some saves and
// not in others: then none is used.
absl::Status IslandPart::LoadSave(PartResult& result) {
  absl::StatusOr<Save> save = ReadSaveHere();
  if (!save.ok() && !absl::IsNotFound(save.status())) {
    LOG(WARNING) << SavePath() << " is not used, training goes on from the "
                 << "servers' parameters: " << save.status();
  }
  absl::Status lost;
  const bool same = SameForAll(save, lost);
  RETURN_IF_ERROR(lost);
  if (!save.ok()) return absl::OkStatus();
  if (!same) {
    LOG(WARNING) << SavePath() << " is not used, training goes on from the "
                 << "servers' parameters: another process of the island has "
                 << "no save, or one of another contribution";
    return absl::OkStatus();
  }
  std::vector<Outbox::Item> items;
  for (EncodedContribution& contribution : save->contributions) {
    items.push_back(
        std::make_shared<EncodedContribution>(std::move(contribution)));
  }
  save->contributions.clear();
  outbox_.Set(std::move(items));
  save_ = *std::move(save);
  result.save = save_->header.summary;
  return absl::OkStatus();
}

absl::StatusOr<Save> IslandPart::ReadSaveHere() {
  ASSIGN_OR_RETURN(Save save, ReadSave(*links_.file_system, SavePath()));
  RETURN_IF_ERROR(CheckSave(save));
  return save;
}

absl::Status IslandPart::CheckSave(const Save& save) const {
  const HeldLayout& held = state_->held();
  if (!(save.header.held ==
        (held.is_all() ? std::vector<IndexRange>() : held.spans()))) {
    return absl::DataLossError("it is of another part of the model");
  }
  for (const EncodedContribution& contribution : save.contributions) {
    const v1::ContributionInfo& info = contribution.info;
    const int32_t f = info.key().fragment();
    if (f < 0 || f >= state_->layout().fragment_count() ||
        info.codec() != ProtoOf(UpCodec(spec_)) ||
        static_cast<int64_t>(contribution.bytes.size()) !=
            encoder_->byte_count(f)) {
      return absl::DataLossError("it is of another layout");
    }
  }
  return absl::OkStatus();
}

bool IslandPart::SameForAll(const absl::StatusOr<Save>& save,
                            absl::Status& lost) const {
  if (group_ == nullptr) return true;
  const auto texts = group_->Exchange(Lane::kTraining,
                                      save.ok() ? SharedText(*save) : "");
  lost = texts.status();
  return texts.ok() &&
         absl::c_all_of(*texts, [&](const std::string& text) {
           return text == texts->front();
         });
}

absl::Status IslandPart::RestoreSave(PartResult& result) {
  const absl::Status restored = Agree(Lane::kTraining, RestoreSaveHere());
  if (!restored.ok()) {
    encoder_.emplace(state_->held(), spec_);
    return restored;
  }
  result.saved_step = save_->header.step;
  save_.reset();
  return absl::OkStatus();
}

absl::Status IslandPart::RestoreSaveHere() {
  if (!save_.has_value()) return absl::InternalError("there is no save");
  const engine::OptimizerState state = state_->optimizer();
  const SaveArrays<std::vector<float>>& arrays = save_->arrays;
  if (state.first_moment.size() != arrays.first_moment.size() ||
      state.second_moment.size() != arrays.second_moment.size()) {
    return absl::DataLossError("the save is of another optimizer");
  }
  for (SavedFeedback& feedback : save_->feedback) {
    RETURN_IF_ERROR(encoder_->Restore(feedback.View()));
  }
  save_->feedback.clear();
  if (streaming_) RETURN_IF_ERROR(RestoreLocal());
  absl::c_copy(arrays.first_moment, state.first_moment.begin());
  absl::c_copy(arrays.second_moment, state.second_moment.begin());
  state_->SetOptimizerStepCount(save_->header.optimizer_step_count);
  state_->set_restart_step_count(save_->header.restart_step_count);
  return absl::OkStatus();
}

absl::Status IslandPart::RestoreLocal() {
  const SaveArrays<std::vector<float>>& arrays = save_->arrays;
  const std::pair<const std::vector<float>&, absl::Span<float>> parts[] = {
      {arrays.local, state_->mutable_local()},
      {arrays.eager_momentum, state_->eager_momentum()},
      {arrays.eager_others, state_->eager_others()},
      {arrays.eager_foreseen, state_->eager_foreseen()},
  };
  for (const auto& [saved, to] : parts) {
    if (saved.size() != to.size()) {
      return absl::DataLossError("the save is of another schedule");
    }
  }
  for (const auto& [saved, to] : parts) absl::c_copy(saved, to.begin());
  return absl::OkStatus();
}

namespace {

v1::ContributionInfo Describe(const v1::RunSpec& spec, const Action& action,
                              const AnchoredFragment& at) {
  v1::ContributionInfo info;
  info.mutable_key()->set_run_epoch(action.run_epoch);
  info.mutable_key()->set_fragment(at.fragment);
  info.mutable_key()->set_slot(action.slot);
  info.mutable_key()->set_seq(action.seq);
  info.set_anchor_version(at.anchor_version);
  info.set_step_count(action.step_count);
  info.set_token_count(action.step_count * spec.inner().batch_size() *
                       spec.model().sequence_length());
  info.set_data_shard(action.data_shard);
  info.set_data_begin(action.data_begin);
  info.set_data_end(action.data_position);
  return info;
}

}  // namespace

// Outer gradient, encoding and what an eager island foresees: once for a key,
// for error feedback and local parameters move on with it.
absl::StatusOr<Outbox::Item> IslandPart::MakeContribution(
    const Action& action, const AnchoredFragment& at) {
  v1::ContributionInfo info = Describe(spec_, action, at);
  for (const Outbox::Item& made : made_) {
    if (made->info.key().fragment() == at.fragment &&
        made->info.key().seq() == action.seq &&
        made->info.anchor_version() == at.anchor_version &&
        made->info.data_end() == info.data_end()) {
      return made;
    }
  }
  std::shared_ptr<EncodedContribution> item = outbox_.MakeItem();
  item->info = std::move(info);
  state_->OuterGradient(at.fragment, encoder_->GradientRoom(*item));
  RETURN_IF_ERROR(encoder_->Encode(*item));
  state_->Foresee(at.fragment, action.weight);
  return item;
}

// Each names its contribution by the digests of all processes' parts of it.
absl::StatusOr<std::vector<Outbox::Item>> IslandPart::MakeContributions(
    const Action& action) {
  std::vector<Outbox::Item> items;
  absl::Status status;
  std::string digests;
  for (const AnchoredFragment& at : action.contributions) {
    const absl::StatusOr<Outbox::Item> item = MakeContribution(action, at);
    status.Update(item.status());
    if (!item.ok()) break;
    items.push_back(*item);
    absl::StrAppend(
        &digests, Digest128::FromProto((*item)->info.digest()).ToHex());
  }
  RETURN_IF_ERROR(Agree(Lane::kTraining, status));
  if (group_ == nullptr) return items;
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   group_->Exchange(Lane::kTraining, digests));
  for (size_t i = 0; i < items.size(); ++i) {
    if (absl::c_linear_search(made_, items[i])) continue;  // Has it already.
    Digest128 sum;
    for (const std::string& of_one : all) {
      const auto part = of_one.size() == digests.size()
                            ? Digest128::FromHex(of_one.substr(32 * i, 32))
                            : std::nullopt;
      if (!part.has_value()) {
        return absl::InternalError("a process's digests are not as many");
      }
      sum += *part;
    }
    // It was made just now, and nobody else has it.
    *std::const_pointer_cast<EncodedContribution>(items[i])
         ->info.mutable_digest() = sum.ToProto();
  }
  return items;
}

absl::Status IslandPart::Contribute(const PartCommand& command,
                                    PartResult& result) {
  const Action& action = command.action;
  RETURN_IF_ERROR(state_->Gather());
  save_.reset();
  // In a run in rounds the contributions of the save before are decided: their
  // room is free.
  if (!streaming_ && made_.empty()) outbox_.Set({});
  ASSIGN_OR_RETURN(const std::vector<Outbox::Item> made,
                   MakeContributions(action));
  made_ = made;
  for (const AnchoredFragment& at : action.contributions) {
    result.byte_count += state_->layout().fragment_element_count(at.fragment) *
                         static_cast<int64_t>(sizeof(float));
  }
  SaveHeader header = command.save;
  header.optimizer_step_count = state_->optimizer().step_count;
  header.restart_step_count = state_->restart_step_count();
  // What else is in flight stays in the SAVE.
  std::vector<Outbox::Item> items;
  for (const SavedTrack& track : header.summary.tracks) {
    Outbox::Item item = outbox_.Find(track.fragment, track.seq);
    if (track.seq != action.seq && item != nullptr) items.push_back(item);
  }
  items.insert(items.end(), made.begin(), made.end());
  failpoint::Hit("island.save.before");
  RETURN_IF_ERROR(
      Agree(Lane::kTraining, WriteSaveOf(std::move(header), items)));
  made_.clear();
  outbox_.Set(std::move(items));
  failpoint::Hit("island.save.after");
  return absl::OkStatus();
}

absl::Status IslandPart::WriteSaveOf(SaveHeader header,
                                     const std::vector<Outbox::Item>& items) {
  if (!state_->held().is_all()) header.held = state_->held().spans();
  const engine::OptimizerState optimizer = state_->optimizer();
  const std::vector<FeedbackView> feedback = encoder_->Feedback();
  SaveView view;
  view.feedback = feedback;
  view.arrays.first_moment = optimizer.first_moment;
  view.arrays.second_moment = optimizer.second_moment;
  if (streaming_) {
    view.arrays.local = state_->local();
    view.arrays.eager_momentum = state_->eager_momentum();
    view.arrays.eager_others = state_->eager_others();
    view.arrays.eager_foreseen = state_->eager_foreseen();
  }
  for (const Outbox::Item& item : items) {
    view.contributions.push_back(item.get());
  }
  return Annotate(
      WriteSave(*links_.file_system, SavePath(), header, view),
      "cannot write the save; free some space in the work directory");
}

}  // namespace atl::worker
