// Makes the replicas and deltas of a run again.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/layout/exchange.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "server/core/replica.h"
#include "server/store/version_store.h"

namespace atl::server {
VersionFile::ArrayMaker VersionStore::MakerOfReplica(
    int32_t fragment, int64_t version, const VersionFile& file,
    std::shared_ptr<VersionFile> before) {
  const auto layout = std::make_shared<const EncodedLayout>(
      context_.layout, fragment, DownCodec(context_.run.spec()));
  const ReplicaStep step(*layout, context_.run.spec().exchange(), version);
  // The file has the maker, and so outlives it. The replica is the last array.
  return [&file, before = std::move(before), array = state_count_,
          &range = context_.ranges[fragment], layout,
          step](IndexRange blocks, float* replica) {
    std::vector<float> theta(static_cast<size_t>(range.ElementCount(blocks)));
    std::string delta(static_cast<size_t>(layout->ByteCount(blocks)), '\0');
    RETURN_IF_ERROR(file.Read(0, blocks, theta.data()));
    RETURN_IF_ERROR(before->Read(array, blocks, replica));
    // VersionFile::Read checks the result.
    step.Advance(blocks, theta.data(), replica, replica, delta.data());
    return absl::OkStatus();
  };
}

void VersionStore::LeaveOutReplica(int32_t fragment, int64_t version,
                                   VersionFile& file) {
  if (deltas_ == nullptr || !file.InMemory() || file.replica_left_out()) return;
  const std::optional<HeldVersion> before = Find(fragment, version - 1);
  if (!before || before->file->replica_left_out()) return;
  file.LeaveOutReplica(MakerOfReplica(fragment, version, file, before->file));
}

absl::Status VersionStore::RecoverReplicas() {
  std::map<Place, HeldVersion> versions;
  {
    MutexLock lock(&mutex_);
    versions = versions_;
  }
  for (const auto& [place, held] : versions) {
    if (!held.file->replica_left_out()) continue;
    const auto& [fragment, version] = place;
    const auto before = versions.find({fragment, version - 1});
    if (before != versions.end() && !before->second.file->replica_left_out()) {
      held.file->LeaveOutReplica(
          MakerOfReplica(fragment, version, *held.file, before->second.file));
      continue;
    }
    const std::string why =
        absl::StrCat("the replica of ", held.file->path(),
                     " is made from the replica of the version before, which "
                     "is missing or has none");
    MutexLock lock(&mutex_);
    if (version == state_.fragments(fragment).version()) {
      return absl::DataLossError(why);
    }
    LOG(ERROR) << "run " << context_.run.run_id()
               << ": an old version is lost: " << why;
    versions_.erase(place);
  }
  return absl::OkStatus();
}

absl::Status VersionStore::RecoverDeltas() {
  if (!has_replica()) return absl::OkStatus();
  const std::string directory = context_.names.deltas();
  RETURN_IF_ERROR(context_.fs.CreateDirectories(directory));
  std::vector<int64_t> persisted;
  {
    MutexLock lock(&mutex_);
    for (const records::FragmentState& fragment : state_.fragments()) {
      persisted.push_back(fragment.version());
    }
  }
  ASSIGN_OR_RETURN(
      deltas_, DeltaRing::Open(context_.fs, directory,
                               {context_.run.run_id(), context_.shard},
                               DownCodec(context_.run.spec()), context_.ranges,
                               persisted, images_));
  RETURN_IF_ERROR(RecoverReplicas());
  for (int32_t f = 0; f < context_.layout.fragment_count(); ++f) {
    if (context_.ranges[f].empty()) continue;
    // The newest persisted version, and one that an earlier process prepared.
    for (const int64_t version : {persisted[f], persisted[f] + 1}) {
      const absl::StatusOr<bool> made = MakeDeltaAgain(f, version);
      if (!made.ok()) {
        LOG(WARNING) << "run " << context_.run.run_id()
                     << ": no delta of version " << version << " of fragment "
                     << f
                     << ", islands get the whole replica: " << made.status();
      } else if (*made && version == persisted[f]) {
        deltas_->Persist(f, version);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> VersionStore::MakeDeltaAgain(int32_t fragment,
                                                  int64_t version) {
  const std::optional<HeldVersion> from = Find(fragment, version - 1);
  const std::optional<HeldVersion> to = Find(fragment, version);
  if (!from || !to || !deltas_->Chain(fragment, version - 1, version).empty()) {
    return false;
  }
  const ShardRange& range = context_.ranges[fragment];
  const EncodedLayout& layout = deltas_->layout(fragment);
  const ReplicaStep step(layout, context_.run.spec().exchange(), version);
  ASSIGN_OR_RETURN(const std::shared_ptr<DeltaFile> delta,
                   deltas_->New(fragment, version));
  std::vector<float> theta, replica_before, replica;
  std::string encoded;
  Digest128 digest;
  for (int64_t b = range.blocks().begin; b < range.blocks().end;
       b += kReadBlocks) {
    const IndexRange blocks = {b,
                               std::min(b + kReadBlocks, range.blocks().end)};
    for (std::vector<float>* values : {&theta, &replica_before, &replica}) {
      values->resize(range.ElementCount(blocks));
    }
    encoded.resize(layout.ByteCount(blocks));
    RETURN_IF_ERROR(to->file->Read(0, blocks, theta.data()));
    RETURN_IF_ERROR(
        from->file->Read(replica_array(), blocks, replica_before.data()));
    digest += step.Advance(blocks, theta.data(), replica_before.data(),
                           replica.data(), encoded.data())
                  .digest;
    RETURN_IF_ERROR(delta->Write(blocks, encoded.data()));
  }
  if (digest != to->replica_digest) {
    return absl::DataLossError("it does not lead to the replica that is held");
  }
  deltas_->Publish(fragment, version, delta);
  return true;
}

}  // namespace atl::server
