// A restore to an earlier cut: checks its versions, then makes them the newest
// ones.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "server/store/version_store.h"

namespace atl::server {
namespace {

// DATA_LOSS unless `cut` names each of `count` fragments once, in order.
absl::Status CheckShape(const v1::RestoredCut& cut, int32_t count) {
  bool is_whole = cut.cut_size() == count;
  for (int32_t f = 0; is_whole && f < count; ++f) {
    is_whole = cut.cut(f).fragment() == f && cut.cut(f).version() >= 0;
  }
  if (is_whole) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the plan restores the run to ", cut.pin_id(),
                   " and does not name a version of each of its ", count,
                   " fragments; restore it to another checkpoint"));
}

}  // namespace

absl::StatusOr<bool> VersionStore::AddRestored(int64_t run_epoch,
                                               const v1::RestoredCut& restored,
                                               const v1::LogPosition& log,
                                               RecordBatch* batch) {
  RETURN_IF_ERROR(RecoverState());
  records::StateRecord state;
  {
    MutexLock lock(&mutex_);
    state = state_;
  }
  if (state.run_epoch() >= run_epoch) return false;
  RETURN_IF_ERROR(CheckShape(restored, context_.layout.fragment_count()));
  for (const v1::FragmentVersion& wanted : restored.cut()) {
    records::FragmentState& fragment =
        *state.mutable_fragments(wanted.fragment());
    fragment.set_version(wanted.version());
    fragment.set_commit_seq(wanted.commit_seq());
    if (context_.ranges[wanted.fragment()].empty()) continue;
    const absl::StatusOr<VersionIdentity> found = CheckWhole(wanted);
    if (!found.ok()) {
      return absl::DataLossError(absl::StrCat(
          "version ", wanted.version(), " of fragment ", wanted.fragment(),
          ", which the restore to ", restored.pin_id(),
          " needs, is not here whole: ", found.status().message(),
          "; nothing is deleted; restore the run to another checkpoint, or "
          "bring the file back from a copy and start the server again"));
    }
    *fragment.mutable_digest() = found->digest.ToProto();
    // A directory that is new never made version 0.
    if (wanted.version() == 0) {
      *fragment.mutable_version0_digest() = found->digest.ToProto();
    }
  }
  state.set_run_epoch(run_epoch);
  state.set_persisted_commit_seq(restored.commit_seq());
  if (!log.cluster_id().empty()) *state.mutable_log() = log;
  batch->Put("state", state.SerializeAsString());
  batch->DeletePrefix("prepared/");
  return true;
}

std::vector<int32_t> VersionStore::ListLost(const v1::RestoredCut& restored) {
  std::vector<int32_t> lost;
  for (const v1::FragmentVersion& wanted : restored.cut()) {
    if (!context_.HoldsBlocks(wanted.fragment())) continue;
    if (!CheckWhole(wanted).ok()) lost.push_back(wanted.fragment());
  }
  return lost;
}

absl::StatusOr<VersionIdentity> VersionStore::CheckWhole(
    const v1::FragmentVersion& wanted) {
  const int32_t f = wanted.fragment();
  const ShardRange& range = context_.ranges[f];
  const std::string path = context_.names.VersionPath(f, wanted.version());
  ASSIGN_OR_RETURN(const std::shared_ptr<VersionFile> file,
                   OpenVersion(path, f, wanted.version()));
  const VersionIdentity& identity = file->identity();
  // Another run_epoch may have a version of the same number; a commit_seq is
  // unique.
  if (identity.commit_seq != wanted.commit_seq()) {
    return absl::DataLossError(
        absl::StrCat(path, " is of commit ", identity.commit_seq, ", not ",
                     wanted.commit_seq()));
  }
  if (range.block_count() == context_.layout.fragment_block_count(f) &&
      wanted.has_digest() &&
      identity.digest != Digest128::FromProto(wanted.digest())) {
    return absl::DataLossError(
        absl::StrCat(path, " has digest ", identity.digest.ToHex(), ", not ",
                     Digest128::FromProto(wanted.digest()).ToHex()));
  }
  if (identity.replica_left_out) {
    const std::string before_path =
        context_.names.VersionPath(f, wanted.version() - 1);
    ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> before,
                     OpenVersion(before_path, f, wanted.version() - 1));
    if (before->replica_left_out()) {
      return absl::DataLossError(
          absl::StrCat(before_path, " has no replica, from which that of ",
                       path, " is made"));
    }
    file->LeaveOutReplica(
        MakerOfReplica(f, wanted.version(), *file, std::move(before)));
  }
  // Read checks each block, and a replica that is made again.
  std::vector<float> elements;
  for (int64_t b = range.blocks().begin; b < range.blocks().end;
       b += kReadBlocks) {
    const IndexRange blocks = {b,
                               std::min(b + kReadBlocks, range.blocks().end)};
    elements.resize(static_cast<size_t>(range.ElementCount(blocks)));
    for (int array = 0; array <= state_count_; ++array) {
      RETURN_IF_ERROR(file->Read(array, blocks, elements.data()));
    }
  }
  return identity;
}

}  // namespace atl::server
