#include "server/store/version_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/status/status_macros.h"
#include "server/store/delta_file.h"

namespace atl::server {
namespace {

// Two versions are released at once where the replica of one is made from the
// other.
constexpr size_t kSparesMax = 2;

}  // namespace

VersionStore::VersionStore(const StoreContext& context,
                           int optimizer_state_count,
                           std::shared_ptr<ImagePool> images)
    : context_(context),
      state_count_(optimizer_state_count +
                   (HasReplica(context.run.spec()) ? 1 : 0)),
      images_(images == nullptr ? nullptr : images->Share(ImageBytesMax())),
      maps_state_(images != nullptr &&
                  images->bytes_max() >= images_->bytes_max()) {}

bool VersionStore::has_replica() const {
  return HasReplica(context_.run.spec());
}

void VersionStore::AddRecovered(RecoveredShard& recovered) const {
  MutexLock lock(&mutex_);
  recovered.run_epoch = state_.run_epoch();
  recovered.persisted_commit_seq = state_.persisted_commit_seq();
  for (const records::FragmentState& fragment : state_.fragments()) {
    recovered.versions.push_back(fragment.version());
    recovered.version0_digests.push_back(
        Digest128::FromProto(fragment.version0_digest()));
    std::optional<double>& norm_squared =
        recovered.version0_norms_squared.emplace_back();
    if (fragment.has_version0_norm_squared()) {
      norm_squared = fragment.version0_norm_squared();
    }
  }
  for (const auto& [place, held] : versions_) recovered.held.insert(place);
  recovered.prepared = prepared_;
  recovered.prepared_here = prepared_here_;
}

absl::StatusOr<std::shared_ptr<VersionFile>> VersionStore::New(
    int32_t fragment, int64_t version) {
  std::shared_ptr<VersionFile> file;
  MutexLock making(&making_mutex_);
  newest_made_[fragment] = std::max(newest_made_[fragment], version);
  {
    MutexLock lock(&mutex_);
    const auto it = reserved_.find({fragment, version});
    if (it != reserved_.end()) {
      file = std::move(it->second);
      reserved_.erase(it);
    }
  }
  if (file == nullptr) {
    ASSIGN_OR_RETURN(file, MakeFile(fragment, version));
  }
  made_[fragment] = file.get();
  SetImages(fragment, version, *file);
  return file;
}

absl::StatusOr<std::shared_ptr<VersionFile>> VersionStore::MakeFile(
    int32_t fragment, int64_t version) {
  const std::string path =
      absl::StrCat(context_.names.VersionPath(fragment, version), ".tmp");
  std::shared_ptr<VersionFile> spare;
  {
    MutexLock lock(&mutex_);
    auto& spares = spares_[fragment];
    if (!spares.empty()) {
      spare = std::move(spares.back());
      spares.pop_back();
    }
  }
  if (spare != nullptr) {
    if (spare->Reuse(context_.fs, path)) return spare;
    context_.fs.Remove(spare->path()).IgnoreError();
  }
  return VersionFile::Create(context_.fs, path, context_.ranges[fragment],
                             state_count_);
}

absl::Status VersionStore::Reserve(int32_t fragment, int64_t version) {
  const Place place = {fragment, version};
  MutexLock making(&making_mutex_);
  // New was faster: its file has this name already.
  if (newest_made_[fragment] >= version) return absl::OkStatus();
  {
    MutexLock lock(&mutex_);
    if (reserved_.count(place)) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<VersionFile> file,
                   MakeFile(fragment, version));
  MutexLock lock(&mutex_);
  reserved_[place] = std::move(file);
  return absl::OkStatus();
}

void VersionStore::GiveUp(int32_t fragment, int64_t version,
                          const std::shared_ptr<VersionFile>& file) {
  if (file == nullptr) return;
  // While the lock is held, no file is made under the removed name.
  MutexLock making(&making_mutex_);
  if (made_[fragment] != file.get()) return;
  {
    MutexLock lock(&mutex_);
    const auto held = versions_.find({fragment, version});
    if (held != versions_.end() && held->second.file == file) return;
  }
  made_.erase(fragment);
  // If the removal fails, the next start removes the file.
  context_.fs.Remove(file->path()).IgnoreError();
}

void VersionStore::Publish(int32_t fragment, int64_t version,
                           HeldVersion held) {
  MutexLock lock(&mutex_);
  versions_[{fragment, version}] = std::move(held);
}

void VersionStore::Unpublish(int32_t fragment, int64_t version) {
  MutexLock lock(&mutex_);
  versions_.erase({fragment, version});
}

void VersionStore::Commit(int32_t fragment, int64_t version,
                          int64_t commit_seq) {
  {
    MutexLock lock(&mutex_);
    const auto it = versions_.find({fragment, version});
    if (it != versions_.end()) it->second.commit_seq = commit_seq;
  }
  DropOldImages(fragment);
  if (deltas_ != nullptr) deltas_->Commit(fragment, version);
}

std::optional<HeldVersion> VersionStore::Find(int32_t fragment,
                                              int64_t version) const {
  MutexLock lock(&mutex_);
  const auto it = versions_.find({fragment, version});
  if (it == versions_.end()) return std::nullopt;
  return it->second;
}

void VersionStore::Remove(int32_t fragment, int64_t version) {
  std::shared_ptr<VersionFile> file, base;
  {
    MutexLock lock(&mutex_);
    const auto it = versions_.find({fragment, version});
    if (it == versions_.end()) return;
    file = std::move(it->second.file);
    versions_.erase(it);
    const auto next = versions_.find({fragment, version + 1});
    if (next != versions_.end() && next->second.file->replica_left_out()) {
      replica_bases_[{fragment, version}] = std::move(file);
      return;
    }
    auto before = replica_bases_.extract({fragment, version - 1});
    if (!before.empty()) base = std::move(before.mapped());
  }
  Retire(fragment, version, std::move(file));
  if (base != nullptr) Retire(fragment, version - 1, std::move(base));
}

void VersionStore::Retire(int32_t fragment, int64_t version,
                          std::shared_ptr<VersionFile> file) {
  // The maps no longer have the file, so no new user can appear.
  bool is_ours = file.use_count() == 1;
  {
    MutexLock lock(&mutex_);
    is_ours &= spares_[fragment].size() < kSparesMax;
  }
  const std::string versions = context_.names.versions();
  // The old name must be gone before the bytes change.
  if (is_ours &&
      file->Reuse(context_.fs, absl::StrCat(versions, "/f", fragment, "-v",
                                            version, ".spare.tmp")) &&
      context_.fs.SyncDirectory(versions).ok()) {
    MutexLock lock(&mutex_);
    auto& spares = spares_[fragment];
    if (spares.size() < kSparesMax) {
      spares.push_back(std::move(file));
      return;
    }
  }
  // If the removal fails, the next start removes the file.
  context_.fs.Remove(file->path()).IgnoreError();
}

void VersionStore::Discard(int32_t fragment, int64_t version) {
  Remove(fragment, version);
  if (deltas_ != nullptr) deltas_->Remove(fragment, version);
}

void VersionStore::DropSpares() {
  std::vector<std::shared_ptr<VersionFile>> files;
  // While the lock is held, no file is made under a removed name.
  MutexLock making(&making_mutex_);
  {
    MutexLock lock(&mutex_);
    for (auto& [fragment, spares] : spares_) {
      for (auto& spare : spares) files.push_back(std::move(spare));
    }
    for (auto& [place, file] : reserved_) files.push_back(std::move(file));
    spares_.clear();
    reserved_.clear();
  }
  // If a removal fails, the next start removes the file.
  for (const auto& file : files) {
    context_.fs.Remove(file->path()).IgnoreError();
  }
  if (deltas_ != nullptr) deltas_->DropSpares();
}

// --- Records ----------------------------------------------------------------

absl::Status VersionStore::PersistVersion0(int32_t fragment,
                                           double norm_squared) {
  const std::optional<HeldVersion> held = Find(fragment, 0);
  if (!held) return absl::InternalError("version 0 was not published");
  RETURN_IF_ERROR(held->file->Seal({context_.run.run_id(), context_.shard, 0, 0,
                                    held->digest, held->replica_digest}));
  RETURN_IF_ERROR(context_.fs.Rename(held->file->path(),
                                     context_.names.VersionPath(fragment, 0)));
  held->file->set_path(context_.names.VersionPath(fragment, 0));
  RETURN_IF_ERROR(context_.fs.SyncDirectory(context_.names.versions()));
  RecordBatch batch;
  {
    MutexLock lock(&mutex_);
    records::FragmentState* state = state_.mutable_fragments(fragment);
    state->set_version(0);
    state->set_commit_seq(0);
    *state->mutable_digest() = held->digest.ToProto();
    *state->mutable_version0_digest() = held->digest.ToProto();
    state->set_version0_norm_squared(norm_squared);
    batch.Put("state", state_.SerializeAsString());
  }
  failpoint::Hit("server.version0.before");
  RETURN_IF_ERROR(context_.records.Write(batch, Sync::kMachine));
  failpoint::Hit("server.version0.after");
  return absl::OkStatus();
}

absl::Status VersionStore::RecordPrepared(const PreparedFact& prepared) {
  records::PreparedRecord record;
  record.set_fragment(prepared.fragment);
  record.set_version(prepared.version);
  record.set_attempt(prepared.attempt);
  *record.mutable_digest() = prepared.digest.ToProto();
  record.set_finite(prepared.finite);
  record.set_norm_squared(prepared.norm_squared);
  *record.mutable_replica_digest() = prepared.replica_digest.ToProto();
  RecordBatch batch;
  batch.Put(absl::StrCat("prepared/", prepared.fragment),
            record.SerializeAsString());
  failpoint::Hit("server.prepared.before");
  RETURN_IF_ERROR(context_.records.Write(batch, context_.durability));
  failpoint::Hit("server.prepared.after");
  return absl::OkStatus();
}

absl::StatusOr<Digest128> VersionStore::Seal(const v1::Commit& commit) {
  const int32_t f = commit.fragment();
  if (context_.ranges[f].empty()) return Digest128();
  const std::optional<HeldVersion> held = Find(f, commit.version());
  if (!held) return absl::InternalError("the version was not published");
  const std::string path = context_.names.VersionPath(f, commit.version());
  // First, so that the next delta can use the memory of this one.
  if (deltas_ != nullptr) deltas_->Persist(f, commit.version());
  LeaveOutReplica(f, commit.version(), *held->file);
  RETURN_IF_ERROR(held->file->Seal({context_.run.run_id(), context_.shard,
                                    commit.version(), commit.commit_seq(),
                                    held->digest, held->replica_digest}));
  DropOldImages(f);
  failpoint::Hit("server.state.sealed");
  if (held->file->path() != path) {
    RETURN_IF_ERROR(context_.fs.Rename(held->file->path(), path));
    held->file->set_path(path);
  }
  RETURN_IF_ERROR(context_.fs.SyncDirectory(context_.names.versions()));
  failpoint::Hit("server.state.renamed");
  return held->digest;
}

void VersionStore::AddState(int64_t run_epoch, const v1::Commit& commit,
                            const Digest128& digest,
                            const v1::LogPosition& log, RecordBatch* batch) {
  MutexLock lock(&mutex_);
  if (!log.cluster_id().empty()) *state_.mutable_log() = log;
  state_.set_run_epoch(std::max(state_.run_epoch(), run_epoch));
  state_.set_persisted_commit_seq(commit.commit_seq());
  records::FragmentState* state = state_.mutable_fragments(commit.fragment());
  state->set_version(commit.version());
  state->set_commit_seq(commit.commit_seq());
  *state->mutable_digest() = digest.ToProto();
  batch->Put("state", state_.SerializeAsString());
}

v1::LogPosition VersionStore::log_seen() const {
  MutexLock lock(&mutex_);
  return state_.log();
}

std::vector<PreparedFact> VersionStore::FindUnmade() const {
  std::vector<PreparedFact> unmade;
  MutexLock lock(&mutex_);
  for (const PreparedFact& fact : prepared_) {
    const int32_t f = fact.fragment;
    // A record may be older than what is durable.
    const bool is_next = state_.fragments(f).version() == fact.version;
    if (!context_.ranges[f].empty() && is_next &&
        versions_.count({f, fact.version + 1}) == 0) {
      unmade.push_back(fact);
    }
  }
  return unmade;
}

void VersionStore::AdoptUnmade(const PreparedFact& fact,
                               std::shared_ptr<VersionFile> file) {
  Publish(fact.fragment, fact.version + 1,
          {std::move(file), 0, fact.digest, fact.replica_digest});
  MutexLock lock(&mutex_);
  prepared_here_.insert(fact.fragment);
}

// --- Memory -----------------------------------------------------------------

int VersionStore::optimizer_count() const {
  return state_count_ - (has_replica() ? 1 : 0);
}

int64_t VersionStore::ImageBytesMax() const {
  // The next version is made in the arrays of the newest one. Theta has a
  // second array if islands pull it.
  const int64_t arrays = 1 + state_count_ + (has_replica() ? 0 : 1);
  int64_t bytes = 0;
  for (const ShardRange& range : context_.ranges) {
    bytes += arrays * ImagePool::AsBytes(VersionFile::ImageElementCount(range));
    if (!has_replica()) continue;
    const EncodedLayout delta(context_.layout, range.fragment(),
                              DownCodec(context_.run.spec()));
    bytes += 2 * ImagePool::AsBytes(
                     DeltaFile::ImageElementCount(delta, range.blocks()));
  }
  return bytes;
}

void VersionStore::SetImages(int32_t fragment, int64_t version,
                             VersionFile& file) {
  if (images_ == nullptr) return;
  const std::optional<HeldVersion> from = Find(fragment, version - 1);
  // The array that islands pull is not handed over, so that late pulls find the
  // version before in memory. In a run with a replica they pull deltas.
  std::vector<int> to_make;
  for (int array = 0; array <= state_count_; ++array) {
    VersionImage image;
    if (from && maps_state_ && (array > 0 || has_replica())) {
      image = from->file->TakeImage(array);
    }
    if (image != nullptr) {
      file.SetImage(array, std::move(image), /*carried=*/true);
    } else if (array == 0 || array > optimizer_count()) {
      to_make.push_back(array);
    }
  }
  // The optimizer's arrays come last: islands do not pull them.
  for (int array = 1; maps_state_ && array <= optimizer_count(); ++array) {
    if (!file.carries(array)) to_make.push_back(array);
  }
  const int64_t count =
      VersionFile::ImageElementCount(context_.ranges[fragment]);
  for (const int array : to_make) file.SetImage(array, images_->Take(count));
}

void VersionStore::DropOldImages(int32_t fragment) {
  MutexLock lock(&mutex_);
  VersionFile* newest = nullptr;
  for (const auto& [place, held] : versions_) {
    const bool committed = place.second == 0 || held.commit_seq > 0;
    if (place.first != fragment || !committed) continue;
    if (newest != nullptr) newest->DropImage();
    newest = held.file.get();
  }
}

}  // namespace atl::server
