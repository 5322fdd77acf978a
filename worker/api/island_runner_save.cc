#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/api/island_runner.h"

// What an island keeps for its next life: the SAVE, both ways.

namespace atl::worker {

std::string IslandRunner::SavePath() const {
  return absl::StrCat(
      options_.work_directory.empty() ? "." : options_.work_directory, "/",
      options_.run_id, ".", options_.island_id, ".save");
}

std::optional<SaveSummary> IslandRunner::LoadSave() {
  absl::StatusOr<Save> save = ReadSave(*links_.file_system, SavePath());
  if (absl::IsNotFound(save.status())) return std::nullopt;
  if (!save.ok()) {
    LOG(WARNING) << SavePath() << " is not used, training goes on from the "
                 << "servers' parameters: " << save.status();
    return std::nullopt;
  }
  const codec::Codec& codec = UpCodec(spec_);
  std::vector<Outbox::Item> items;
  for (EncodedContribution& contribution : save->contributions) {
    const v1::ContributionInfo& info = contribution.info;
    const int32_t f = info.key().fragment();
    if (f < 0 || f >= state_->layout().fragment_count() ||
        info.codec() != ProtoOf(codec) ||
        static_cast<int64_t>(contribution.bytes.size()) !=
            EncodedLayout(state_->layout(), f, codec).byte_count()) {
      LOG(WARNING) << SavePath() << " is of another layout and not used";
      return std::nullopt;
    }
    items.push_back(
        std::make_shared<EncodedContribution>(std::move(contribution)));
  }
  save->contributions.clear();
  outbox_.Set(std::move(items));
  save_ = *std::move(save);
  return save_->header.summary;
}

absl::Status IslandRunner::RestoreSave() {
  if (!save_.has_value()) return absl::InternalError("there is no save");
  const engine::OptimizerState state =
      state_->trainer().optimizer_state();
  const SaveArrays<std::vector<float>>& arrays = save_->arrays;
  if (state.first_moment.size() != arrays.first_moment.size() ||
      state.second_moment.size() != arrays.second_moment.size()) {
    return absl::DataLossError("the save is of another optimizer");
  }
  for (SavedFeedback& feedback : save_->feedback) {
    const absl::Status restored = encoder_->Restore(feedback.View());
    if (!restored.ok()) {
      encoder_.emplace(state_->layout(), spec_);
      return restored;
    }
  }
  save_->feedback.clear();
  if (streaming_) RETURN_IF_ERROR(RestoreLocal());
  absl::c_copy(arrays.first_moment, state.first_moment.begin());
  absl::c_copy(arrays.second_moment, state.second_moment.begin());
  state_->trainer().set_optimizer_step_count(
      save_->header.optimizer_step_count);
  state_->set_restart_step_count(save_->header.restart_step_count);
  progress_.step = save_->header.step;
  save_.reset();
  return absl::OkStatus();
}

absl::Status IslandRunner::RestoreLocal() {
  const SaveArrays<std::vector<float>>& arrays = save_->arrays;
  const std::pair<const std::vector<float>&, absl::Span<float>> parts[] = {
      {arrays.local, state_->mutable_local()},
      {arrays.eager_momentum, state_->eager_momentum()},
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

SaveHeader IslandRunner::DescribeSave(const Action& action) const {
  SaveHeader header;
  SaveSummary& summary = header.summary;
  {
    MutexLock lock(&mutex_);
    if (streaming_) {
      summary = loop_.StreamSave(action);
    } else if (action.contributions[0].fragment == 0) {
      summary = loop_.EvaluatorOf(action.contributions[0].anchor_version + 1);
    }
  }
  summary.run_id = options_.run_id;
  summary.run_epoch = action.run_epoch;
  summary.slot = action.slot;
  summary.seq = action.seq;
  summary.data_shard = action.data_shard;
  summary.data_position = action.data_position;
  header.step = progress_.step;
  header.restart_step_count = state_->restart_step_count();
  header.optimizer_step_count =
      state_->trainer().optimizer_state().step_count;
  return header;
}

absl::Status IslandRunner::WriteSaveOf(const SaveHeader& header,
                                       const std::vector<Outbox::Item>& items) {
  const engine::OptimizerState optimizer = state_->trainer().optimizer_state();
  const std::vector<FeedbackView> feedback = encoder_->Feedback();
  SaveView view;
  view.feedback = feedback;
  view.arrays.first_moment = optimizer.first_moment;
  view.arrays.second_moment = optimizer.second_moment;
  if (streaming_) {
    view.arrays.local = state_->local();
    view.arrays.eager_momentum = state_->eager_momentum();
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
