#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/failpoint/failpoint.h"
#include "base/io/files.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/layout/run_length.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "worker/island/island_part.h"

// Contributions, and the local checkpoint: written and restored.

namespace atl::worker {
namespace {

// The names that all lists have, in the order of the first.
std::vector<std::string> FindCommon(const std::vector<std::string>& lists) {
  std::vector<std::vector<std::string>> names;
  for (const std::string& list : lists) {
    names.push_back(absl::StrSplit(list, ' ', absl::SkipEmpty()));
  }
  std::vector<std::string> common;
  for (const std::string& name : names.front()) {
    if (absl::c_all_of(names, [&](const std::vector<std::string>& of_one) {
          return absl::c_linear_search(of_one, name);
        })) {
      common.push_back(name);
    }
  }
  return common;
}

void LogUnused(const SaveSet& set, const absl::Status& why) {
  LOG(WARNING) << "the local checkpoint of contribution "
               << set.outline.header.summary.seq << " by " << set.process_count
               << " processes is ignored: " << why;
}

}  // namespace

SavePlace MakeSavePlace(const RunIslandOptions& options) {
  return {options.work_directory.empty() ? "." : options.work_directory,
          options.run_id, options.island_id};
}

std::string IslandPart::OwnSavePath(bool is_next) const {
  return group_ == nullptr ? SavePath(Place(), 0, 1)
                           : SavePath(Place(), group_->process_index(),
                                      group_->process_count(), is_next);
}

// Loads the newest local checkpoint, of any process count, that is complete for
// all processes. After a crash some may lack the newest; all have the previous.
absl::Status IslandPart::LoadSave(PartResult& result) {
  save_.reset();
  const FoundSaves found = FindSaves(*links_.file_system, Place());
  for (const std::string& note : found.notes) {
    LOG(WARNING) << "a local checkpoint is ignored: " << note;
  }
  std::vector<std::string> names;  // The newest first.
  for (const SaveSet& set : found.sets) {
    const absl::Status status = CheckSaveSet(Place(), set, state_->held());
    if (status.ok()) {
      names.push_back(set.name);
    } else {
      LogUnused(set, status);
    }
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> lists,
                   OfAllProcesses(absl::StrJoin(names, " ")));
  const std::vector<std::string> common = FindCommon(lists);
  for (const std::string& name : common) {
    const SaveSet& set = *absl::c_find_if(
        found.sets, [&](const SaveSet& of) { return of.name == name; });
    absl::StatusOr<Save> save = ReadSaveSet(*links_.file_system, Place(), set,
                                            state_->held(), UpCodec(spec_));
    if (!save.ok()) LogUnused(set, save.status());
    ASSIGN_OR_RETURN(const std::vector<std::string> read,
                     OfAllProcesses(save.ok() ? name : ""));
    if (absl::c_linear_search(read, "")) continue;
    save_ = *std::move(save);
    break;
  }
  if (!save_.has_value()) {
    if (!found.sets.empty()) {
      // If all have some, the process that could not read it has logged why.
      const bool is_lacked = !names.empty() && common.empty();
      LOG(WARNING)
          << "no local checkpoint in " << Place().directory
          << " is used; training continues from the servers' parameters"
          << (is_lacked ? ": another process of the island lacks files "
                          "that it needs"
                        : "");
    }
    return absl::OkStatus();
  }
  std::vector<Outbox::Item> items;
  for (EncodedContribution& contribution : save_->contributions) {
    items.push_back(
        std::make_shared<EncodedContribution>(std::move(contribution)));
  }
  save_->contributions.clear();
  outbox_.Set(std::move(items), /*pushed=*/true);
  result.save = save_->header.summary;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> IslandPart::OfAllProcesses(
    const std::string& own) {
  if (group_ == nullptr) return std::vector<std::string>{own};
  return group_->Exchange(Lane::kTraining, own);
}

absl::Status IslandPart::RestoreSave(PartResult& result) {
  RETURN_IF_ERROR(state_->AcquireAll(LocalAccess::kReplace));
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
  if (!save_.has_value()) return absl::InternalError("no local checkpoint");
  for (SavedFeedback& feedback : save_->feedback) {
    RETURN_IF_ERROR(encoder_->Restore(feedback.View()));
  }
  save_->feedback.clear();
  const SaveHeader& header = save_->header;
  RETURN_IF_ERROR(state_->trainer().Load(
      {.first_moment = save_->arrays.first_moment,
       .second_moment = save_->arrays.second_moment,
       .step_count = header.optimizer_step_count,
       .save_id = header.trainer_save_id}));
  if (streaming_) RETURN_IF_ERROR(RestoreLocal());
  token_counts_ = header.token_counts;
  token_counts_.resize(state_->layout().fragment_count());
  state_->set_restart_step_count(header.restart_step_count);
  return absl::OkStatus();
}

absl::Status IslandPart::RestoreLocal() {
  const SaveArrays<std::vector<float>>& arrays = save_->arrays;
  if (static_cast<int64_t>(arrays.local.size()) !=
          state_->held().element_count() ||
      arrays.eager_momentum.size() != state_->eager_momentum().size() ||
      arrays.eager_foreseen.size() != state_->eager_foreseen().size()) {
    return absl::DataLossError("the local checkpoint is of another schedule");
  }
  state_->SetLocalFrom(arrays.local);
  absl::c_copy(arrays.eager_momentum, state_->eager_momentum().begin());
  absl::c_copy(arrays.eager_foreseen, state_->eager_foreseen().begin());
  return absl::OkStatus();
}

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
  return info;
}

// Computes the outer gradient, and in an eager run the foreseen step: once a
// key, because Foresee() changes the local parameters.
IslandPart::TakenContribution IslandPart::TakeOne(const Action& action,
                                                  const AnchoredFragment& at) {
  v1::ContributionInfo info = Describe(action, at);
  for (const TakenContribution& taken : taken_.contributions) {
    const v1::ContributionInfo& own = taken.contribution->info;
    if (own.key().fragment() == at.fragment && own.key().seq() == action.seq &&
        own.anchor_version() == at.anchor_version &&
        own.data_end() == info.data_end()) {
      return taken;
    }
  }
  TakenContribution taken = {.contribution = outbox_.MakeItem()};
  taken.contribution->info = std::move(info);
  state_->OuterGradient(at.fragment,
                        encoder_->GradientRoom(*taken.contribution));
  state_->Foresee(at.fragment, action.weight);
  token_counts_[at.fragment] = 0;
  return taken;
}

void IslandPart::Take(const PartCommand& command) {
  const Action& action = command.action;
  std::vector<TakenContribution> contributions;
  for (const AnchoredFragment& at : action.contributions) {
    contributions.push_back(TakeOne(action, at));
  }
  taken_.seq = action.seq;
  taken_.contributions = std::move(contributions);
  taken_.header = command.save;
  if (!has_own_trainer_) taken_.header.token_counts = token_counts_;
  taken_.header.restart_step_count = state_->restart_step_count();
  if (!state_->held().is_all()) taken_.header.held = state_->held().spans();
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

// A streaming run saves all local parameters.
absl::Status IslandPart::AcquireForContribution(const Action& action) {
  if (streaming_) return state_->AcquireAll(LocalAccess::kRead);
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
  save_.reset();
  // In a run in rounds the previous contributions are decided: frees them.
  if (!streaming_ && taken_.contributions.empty()) outbox_.Set({});
  Take(command);
  ASSIGN_OR_RETURN(const SaveSpans arrays, SaveState(command.action));
  if (!command.action.in_background) {
    return EncodeAndSave(Lane::kTraining, arrays, result);
  }
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
  RETURN_IF_ERROR(Encode(lane));
  std::vector<Outbox::Item> items;
  // Other contributions in flight stay in the local checkpoint.
  for (const SavedTrack& track : taken_.header.summary.tracks) {
    Outbox::Item item = outbox_.Find(track.fragment, track.seq);
    if (track.seq != taken_.seq && item != nullptr) items.push_back(item);
  }
  for (const TakenContribution& taken : taken_.contributions) {
    items.push_back(taken.contribution);
    const int32_t fragment = taken.contribution->info.key().fragment();
    result.byte_count += state_->layout().fragment_element_count(fragment) *
                         static_cast<int64_t>(sizeof(float));
  }
  RETURN_IF_ERROR(WriteSaveWith(lane, items, arrays));
  taken_.contributions.clear();
  outbox_.Set(std::move(items));
  failpoint::Hit("island.save.after");
  return absl::OkStatus();
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

// Each of several processes writes its next file under another name and renames
// it once all have written theirs: after any crash all have one in common. Then
// files of another number of processes are out of date.
absl::Status IslandPart::WriteSaveWith(Lane lane,
                                       const std::vector<Outbox::Item>& items,
                                       const SaveSpans& arrays) {
  const std::vector<FeedbackView> feedback = encoder_->Feedback();
  SaveView view;
  view.feedback = feedback;
  view.arrays = arrays;
  for (const Outbox::Item& item : items) {
    view.contributions.push_back(item.get());
  }
  failpoint::Hit("island.save.before");
  FileSystem& files = *links_.file_system;
  const auto explain = [](const absl::Status& status) {
    return Annotate(
        status,
        "cannot write the local checkpoint; free some space in the work "
        "directory");
  };
  const std::string next = OwnSavePath(/*is_next=*/true);
  RETURN_IF_ERROR(
      Agree(lane, explain(WriteSave(files, next, taken_.header, view))));
  failpoint::Hit("island.save.agreed");
  if (group_ != nullptr) {
    const std::string path = OwnSavePath(/*is_next=*/false);
    absl::Status replaced = files.Rename(next, path);
    if (replaced.ok()) replaced = files.SyncDirectory(ParentDirectory(path));
    RETURN_IF_ERROR(Agree(lane, explain(replaced)));
  }
  if (others_removed_) return absl::OkStatus();
  RemoveOtherSaves(files, Place(),
                   group_ == nullptr ? 1 : group_->process_count());
  others_removed_ = true;
  return absl::OkStatus();
}

}  // namespace atl::worker
