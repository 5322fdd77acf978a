#include "worker/island/local_checkpoint.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/failpoint/failpoint.h"
#include "base/io/files.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

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
               << set.newest().summary.seq << " by " << set.process_count
               << " processes is ignored: " << why;
}

absl::Status Explain(const absl::Status& status) {
  return Annotate(status,
                  "cannot write the local checkpoint; free some space in the "
                  "work directory");
}

}  // namespace

LocalCheckpoint::LocalCheckpoint(FileSystem& files, SavePlace place,
                                 IslandGroup* group, const HeldLayout& held,
                                 const codec::Codec& codec)
    : files_(files),
      place_(std::move(place)),
      group_(group),
      held_(held),
      codec_(codec) {}

absl::Status LocalCheckpoint::Agree(Lane lane,
                                    const absl::Status& status) const {
  return group_ == nullptr ? status : group_->Agree(lane, status);
}

absl::StatusOr<std::vector<std::string>> LocalCheckpoint::OfAllProcesses(
    const std::string& own) {
  if (group_ == nullptr) return std::vector<std::string>{own};
  return group_->Exchange(Lane::kTraining, own);
}

int LocalCheckpoint::process_index() const {
  return group_ == nullptr ? 0 : group_->process_index();
}

int LocalCheckpoint::process_count() const {
  return group_ == nullptr ? 1 : group_->process_count();
}

// Each of several processes writes its next file under another name and renames
// it once all have written theirs: after any crash all have one in common. Then
// files of another number of processes are out of date.
absl::StatusOr<int64_t> LocalCheckpoint::WriteWhole(Lane lane,
                                                    SaveHeader header,
                                                    const SaveView& view) {
  failpoint::Hit("island.save.before");
  // Until this save is whole, no save exists that a record could follow.
  base_.clear();
  if (header.summary.records_follow) {
    SaveOutline outline = {.header = header};
    for (const EncodedContribution* contribution : view.contributions) {
      outline.contributions.push_back(contribution->info);
    }
    header.name = NameOfSave(outline);
  }
  const std::string path = SavePath(place_, process_index(), process_count());
  const std::string next = group_ == nullptr ? path
                                             : SavePath(place_, process_index(),
                                                        process_count(), true);
  const absl::StatusOr<int64_t> bytes = WriteSave(files_, next, header, view);
  RETURN_IF_ERROR(Agree(lane, Explain(bytes.status())));
  failpoint::Hit("island.save.agreed");
  if (group_ != nullptr) {
    absl::Status replaced = files_.Rename(next, path);
    if (replaced.ok()) replaced = files_.SyncDirectory(ParentDirectory(path));
    RETURN_IF_ERROR(Agree(lane, Explain(replaced)));
  }
  base_ = header.name;
  record_count_ = 0;
  record_bytes_ = 0;
  if (!others_removed_) RemoveOtherSaves(files_, place_, process_count());
  others_removed_ = true;
  return *bytes;
}

absl::StatusOr<int64_t> LocalCheckpoint::WriteRecord(Lane lane,
                                                     SaveHeader header,
                                                     const SaveView& view) {
  failpoint::Hit("island.save.before");
  if (base_.empty()) {
    return absl::InternalError("a record without a whole save before it");
  }
  header.base = base_;
  header.record_index = record_count_;
  const absl::StatusOr<int64_t> bytes = worker::WriteRecord(
      files_, RecordsPath(place_, process_index(), process_count()),
      record_bytes_, header, view);
  RETURN_IF_ERROR(Agree(lane, Explain(bytes.status())));
  failpoint::Hit("island.save.agreed");
  ++record_count_;
  record_bytes_ += *bytes;
  return *bytes;
}

absl::Status LocalCheckpoint::Sync(const SaveSet& set) const {
  if (!set.records.empty()) {
    for (const SaveSet::File& file : set.files) {
      const std::string path =
          RecordsPath(place_, file.process_index, set.process_count);
      if (!files_.Exists(path)) continue;
      ASSIGN_OR_RETURN(const auto records, files_.OpenForWrite(path));
      RETURN_IF_ERROR(records->Sync());
    }
  }
  return files_.SyncDirectory(place_.directory);
}

bool LocalCheckpoint::CheckFiles(SaveSet& set) const {
  const absl::Status whole =
      ReadSaveSet(files_, place_, set, held_, codec_, kVerify).status();
  if (!whole.ok()) {
    LogUnused(set, whole);
    return false;
  }
  for (size_t i = 0; i < set.records.size(); ++i) {
    const absl::Status status =
        ReadRecordOfSet(files_, place_, set, i, held_, codec_, kVerify)
            .status();
    if (status.ok()) continue;
    LOG(WARNING) << "the local checkpoint's record " << i
                 << " and later ones are ignored: " << status;
    set.records.resize(i);
  }
  return true;
}

// After a crash some processes may lack the newest; all have the previous. The
// newest record, too, may be in some files only: nothing of it was pushed.
absl::StatusOr<std::optional<SaveSummary>> LocalCheckpoint::Find(
    int64_t run_epoch) {
  set_.reset();
  FoundSaves found = FindSaves(files_, place_);
  for (const std::string& note : found.notes) {
    LOG(WARNING) << "a local checkpoint is ignored: " << note;
  }
  const auto is_fenced = [&](const SaveSet& set) {
    return set.outline.header.summary.run_epoch < run_epoch;
  };
  if (absl::c_any_of(found.sets, is_fenced)) {
    LOG(INFO) << "the run was restored: local checkpoints from before are not "
                 "used, and the next one replaces them";
  }
  found.sets.erase(
      std::remove_if(found.sets.begin(), found.sets.end(), is_fenced),
      found.sets.end());
  std::vector<std::string> names;  // The newest first.
  for (const SaveSet& set : found.sets) {
    const absl::Status status = CheckSaveSet(place_, set, held_);
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
    SaveSet& set = *absl::c_find_if(
        found.sets, [&](const SaveSet& of) { return of.name == name; });
    const bool is_sound = CheckFiles(set);
    // Empty: this process cannot use it.
    ASSIGN_OR_RETURN(
        const std::vector<std::string> counts,
        OfAllProcesses(is_sound ? absl::StrCat(set.records.size()) : ""));
    if (absl::c_linear_search(counts, "")) continue;
    for (const std::string& text : counts) {
      size_t count = 0;
      if (!absl::SimpleAtoi(text, &count)) {
        return absl::InternalError("processes of different versions");
      }
      set.records.resize(std::min(set.records.size(), count));
    }
    RETURN_IF_ERROR(Agree(Lane::kTraining, Sync(set)));
    set_ = std::move(set);
    return set_->newest().summary;
  }
  if (!found.sets.empty()) {
    // If all have some, the process that could not read it has logged why.
    const bool is_lacked = !names.empty() && common.empty();
    LOG(WARNING)
        << "no local checkpoint in " << place_.directory
        << " is used; training continues from the servers' parameters"
        << (is_lacked ? ": another process of the island lacks files that it "
                        "needs"
                      : "");
  }
  return std::nullopt;
}

SaveReplay LocalCheckpoint::MakeReplay(int64_t batch_size) const {
  std::vector<SavedPush> pushes;
  for (const SaveOutline& record : set_->records) {
    pushes.push_back({record.header.summary, record.answers});
  }
  return SaveReplay(whole().summary, std::move(pushes), batch_size);
}

absl::StatusOr<Save> LocalCheckpoint::ReadWhole(uint32_t parts) const {
  return ReadSaveSet(files_, place_, *set_, held_, codec_, parts);
}

absl::StatusOr<Save> LocalCheckpoint::ReadRecord(size_t index,
                                                 uint32_t parts) const {
  return ReadRecordOfSet(files_, place_, *set_, index, held_, codec_, parts);
}

absl::StatusOr<std::vector<EncodedContribution>>
LocalCheckpoint::ReadContributions() const {
  ASSIGN_OR_RETURN(Save save, ReadWhole(kContributions));
  // A run in rounds has no tracks: all of them may have to be pushed.
  const std::vector<SavedTrack>& tracks = set_->newest().summary.tracks;
  if (tracks.empty()) return std::move(save.contributions);
  std::vector<EncodedContribution> kept;
  const auto keep = [&](std::vector<EncodedContribution>& contributions) {
    for (EncodedContribution& contribution : contributions) {
      const v1::ContributionKey& key = contribution.info.key();
      if (absl::c_any_of(tracks, [&](const SavedTrack& track) {
            return track.fragment == key.fragment() && track.seq == key.seq();
          })) {
        kept.push_back(std::move(contribution));
      }
    }
  };
  keep(save.contributions);
  for (size_t i = 0; i < set_->records.size(); ++i) {
    ASSIGN_OR_RETURN(Save record, ReadRecord(i, kContributions));
    keep(record.contributions);
  }
  const auto in_flight = absl::c_count_if(
      tracks, [](const SavedTrack& track) { return track.seq > 0; });
  if (static_cast<int64_t>(kept.size()) != in_flight) {
    return absl::DataLossError(
        "the local checkpoint lacks a contribution in flight");
  }
  return kept;
}

}  // namespace atl::worker
