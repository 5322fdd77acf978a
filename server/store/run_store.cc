#include "server/store/run_store.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/codec/codec.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/exchange.h"
#include "base/status/status_macros.h"
#include "server/store/header_page.h"

namespace atl::server {
namespace {

// Two are released at once where the view of one is made from the other.
constexpr size_t kSpareVersionsMax = 2;

Sync ToSync(v1::Durability durability) {
  return durability == v1::DURABILITY_PROCESS ||
                 durability == v1::DURABILITY_ISLAND
             ? Sync::kProcess
             : Sync::kMachine;
}

std::vector<EncodedRange> EncodedRanges(const std::vector<ShardRange>& ranges,
                                        const codec::Codec& codec) {
  std::vector<EncodedRange> encoded;
  for (const ShardRange& range : ranges) encoded.emplace_back(range, codec);
  return encoded;
}

std::vector<ShardRange> ComputeRanges(const RunLayout& layout, int32_t shard,
                                      int32_t shard_count) {
  std::vector<ShardRange> ranges;
  for (int32_t f = 0; f < layout.fragment_count(); ++f) {
    ranges.emplace_back(layout, f, shard, shard_count);
  }
  return ranges;
}

}  // namespace

RunStore::RunStore(FileSystem& fs, RecordStore& records,
                   absl::string_view data_dir, const records::RunRecord& record,
                   RunLayout layout, int state_count,
                   std::shared_ptr<ImagePool> images)
    : fs_(fs),
      records_(records),
      names_(data_dir, record.run().run_id()),
      run_(record.run()),
      layout_(std::move(layout)),
      shard_(record.shard()),
      shard_count_(record.shard_count()),
      state_count_(state_count + (HasReplica(record.run().spec()) ? 1 : 0)),
      durability_(ToSync(record.run().spec().durability())),
      merges_live_(record.run().spec().durability() == v1::DURABILITY_ISLAND),
      ranges_(ComputeRanges(layout_, shard_, shard_count_)),
      encoded_ranges_(EncodedRanges(ranges_, UpCodec(run_.spec()))),
      import_ranges_(
          EncodedRanges(ranges_, codec::GetCodec(codec::CodecId::kF32))),
      images_(images == nullptr ? nullptr : images->Share(ImageBytesMax())),
      maps_state_(images != nullptr &&
                  images->bytes_max() >= images_->bytes_max()),
      manifests_(fs, names_, layout_, shard_, shard_count_,
                 [this](int32_t fragment, int64_t version) {
                   return FindVersion(fragment, version);
                 }),
      kept_(fs, records, names_, encoded_ranges_) {}

RecoveredShard RunStore::Recovered() const {
  MutexLock lock(&mutex_);
  RecoveredShard recovered;
  recovered.run_epoch = state_.run_epoch();
  recovered.persisted_commit_seq = state_.persisted_commit_seq();
  for (const records::FragmentState& fragment : state_.fragments()) {
    recovered.versions.push_back(fragment.version());
    recovered.version0_digests.push_back(
        Digest128::FromProto(fragment.version0_digest()));
  }
  for (const auto& [place, held] : versions_) recovered.held.insert(place);
  for (const auto& [key, contribution] : contributions_) {
    if (key.is_import()) {
      if (contribution->state() == Contribution::State::kStored) {
        recovered.imported.insert(key.fragment);
      }
    } else if (contribution->state() == Contribution::State::kStored) {
      recovered.stored.push_back(
          {contribution->info(), contribution->NormSquared()});
    } else {
      recovered.partial.push_back(contribution->info());
    }
  }
  recovered.refused = refused_;
  recovered.lost = lost_;
  recovered.prepared = prepared_;
  recovered.manifests = manifests_.found();
  recovered.prepared_here = prepared_here_;
  recovered.kept_commits = kept_.Commits();
  recovered.given_up = kept_.given_up();
  return recovered;
}

// --- Versions ---------------------------------------------------------------

absl::StatusOr<std::shared_ptr<VersionFile>> RunStore::NewVersion(
    int32_t fragment, int64_t version) {
  std::shared_ptr<VersionFile> file;
  MutexLock making(&making_mutex_);
  newest_made_[fragment] = std::max(newest_made_[fragment], version);
  {
    MutexLock lock(&mutex_);
    const auto it = reserved_versions_.find({fragment, version});
    if (it != reserved_versions_.end()) {
      file = std::move(it->second);
      reserved_versions_.erase(it);
    }
  }
  if (file == nullptr) {
    ASSIGN_OR_RETURN(file, MakeVersionFile(fragment, version));
  }
  made_[fragment] = file.get();
  SetImages(fragment, version, *file);
  return file;
}

absl::StatusOr<std::shared_ptr<VersionFile>> RunStore::MakeVersionFile(
    int32_t fragment, int64_t version) {
  const std::string path =
      absl::StrCat(names_.VersionPath(fragment, version), ".tmp");
  std::shared_ptr<VersionFile> spare;
  {
    MutexLock lock(&mutex_);
    auto& spares = spare_versions_[fragment];
    if (!spares.empty()) {
      spare = std::move(spares.back());
      spares.pop_back();
    }
  }
  if (spare != nullptr) {
    if (spare->Reuse(fs_, path)) return spare;
    fs_.Remove(spare->path()).IgnoreError();
  }
  return VersionFile::Create(fs_, path, ranges_[fragment], state_count_);
}

void RunStore::GiveUp(int32_t fragment, int64_t version,
                      const std::shared_ptr<VersionFile>& file,
                      const std::shared_ptr<VersionFile>& sum) {
  // Nobody makes a file under a name that is removed here.
  MutexLock making(&making_mutex_);
  const std::pair<int32_t, int64_t> place = {fragment, version};
  bool drops_file = file != nullptr && made_[fragment] == file.get();
  bool drops_sum = sum != nullptr && made_sums_[fragment] == sum.get();
  {
    MutexLock lock(&mutex_);
    const auto held = versions_.find(place);
    drops_file &= held == versions_.end() || held->second.file != file;
    const auto held_sum = sums_.find(place);
    drops_sum &= held_sum == sums_.end() || held_sum->second != sum;
  }
  // A file that stays is removed at the next start.
  if (drops_file) {
    made_.erase(fragment);
    fs_.Remove(file->path()).IgnoreError();
  }
  if (drops_sum) {
    made_sums_.erase(fragment);
    fs_.Remove(sum->path()).IgnoreError();
  }
}

void RunStore::Unpublish(int32_t fragment, int64_t version) {
  MutexLock lock(&mutex_);
  versions_.erase({fragment, version});
  sums_.erase({fragment, version});
}

void RunStore::PublishVersion(int32_t fragment, int64_t version,
                              HeldVersion held) {
  MutexLock lock(&mutex_);
  versions_[{fragment, version}] = std::move(held);
}

void RunStore::CommitVersion(int32_t fragment, int64_t version,
                             int64_t commit_seq) {
  {
    MutexLock lock(&mutex_);
    const auto it = versions_.find({fragment, version});
    if (it != versions_.end()) it->second.commit_seq = commit_seq;
  }
  DropOldImages(fragment);
  if (deltas_ != nullptr) deltas_->Commit(fragment, version);
}

std::optional<HeldVersion> RunStore::FindVersion(int32_t fragment,
                                                 int64_t version) const {
  MutexLock lock(&mutex_);
  const auto it = versions_.find({fragment, version});
  if (it == versions_.end()) return std::nullopt;
  return it->second;
}

void RunStore::RemoveVersion(int32_t fragment, int64_t version) {
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
  RetireVersion(fragment, version, std::move(file));
  if (base != nullptr) RetireVersion(fragment, version - 1, std::move(base));
}

void RunStore::RetireVersion(int32_t fragment, int64_t version,
                             std::shared_ptr<VersionFile> file) {
  // Out of the maps nobody can get hold of it any more.
  bool is_ours = file.use_count() == 1;
  {
    MutexLock lock(&mutex_);
    is_ours &= spare_versions_[fragment].size() < kSpareVersionsMax;
  }
  const std::string versions = absl::StrCat(names_.directory(), "/versions");
  // The old name has to be gone before the bytes change.
  if (is_ours &&
      file->Reuse(fs_, absl::StrCat(versions, "/f", fragment, "-v", version,
                                    ".spare.tmp")) &&
      fs_.SyncDirectory(versions).ok()) {
    MutexLock lock(&mutex_);
    auto& spares = spare_versions_[fragment];
    if (spares.size() < kSpareVersionsMax) {
      spares.push_back(std::move(file));
      return;
    }
  }
  // A file that stays is removed at the next start.
  fs_.Remove(file->path()).IgnoreError();
}

void RunStore::DiscardVersion(int32_t fragment, int64_t version) {
  RemoveVersion(fragment, version);
  RecycleSum(fragment, version);
  if (deltas_ != nullptr) deltas_->Remove(fragment, version);
}

void RunStore::AddState(RecordBatch* batch) {
  MutexLock lock(&mutex_);
  batch->Put(names_.RecordName("state"), state_.SerializeAsString());
}

absl::Status RunStore::PersistVersion0(int32_t fragment) {
  const std::optional<HeldVersion> held = FindVersion(fragment, 0);
  if (!held) return absl::InternalError("version 0 was not published");
  RETURN_IF_ERROR(held->file->Seal(
      {run_.run_id(), shard_, 0, 0, held->digest, held->replica_digest}));
  RETURN_IF_ERROR(
      fs_.Rename(held->file->path(), names_.VersionPath(fragment, 0)));
  held->file->set_path(names_.VersionPath(fragment, 0));
  RETURN_IF_ERROR(
      fs_.SyncDirectory(absl::StrCat(names_.directory(), "/versions")));
  {
    MutexLock lock(&mutex_);
    records::FragmentState* state = state_.mutable_fragments(fragment);
    state->set_version(0);
    state->set_commit_seq(0);
    *state->mutable_digest() = held->digest.ToProto();
    *state->mutable_version0_digest() = held->digest.ToProto();
  }
  RecordBatch batch;
  AddState(&batch);
  failpoint::Hit("server.version0.before");
  RETURN_IF_ERROR(records_.Write(batch, Sync::kMachine));
  failpoint::Hit("server.version0.after");
  return absl::OkStatus();
}

absl::Status RunStore::RecordPrepared(const PreparedFact& prepared) {
  records::PreparedRecord record;
  record.set_fragment(prepared.fragment);
  record.set_version(prepared.version);
  record.set_attempt(prepared.attempt);
  *record.mutable_digest() = prepared.digest.ToProto();
  record.set_finite(prepared.finite);
  record.set_norm_squared(prepared.norm_squared);
  *record.mutable_replica_digest() = prepared.replica_digest.ToProto();
  RecordBatch batch;
  batch.Put(names_.RecordName(absl::StrCat("prepared/", prepared.fragment)),
            record.SerializeAsString());
  failpoint::Hit("server.prepared.before");
  RETURN_IF_ERROR(records_.Write(batch, durability_));
  failpoint::Hit("server.prepared.after");
  return absl::OkStatus();
}

absl::Status RunStore::Persist(int64_t run_epoch, const v1::Commit& commit,
                               absl::Span<const ContributionKey> keys,
                               bool keep) {
  const int32_t f = commit.fragment();
  Digest128 digest;
  failpoint::Hit("server.state.before");
  if (!ranges_[f].empty()) {
    const std::optional<HeldVersion> held = FindVersion(f, commit.version());
    if (!held) return absl::InternalError("the version was not published");
    digest = held->digest;
    const std::string path = names_.VersionPath(f, commit.version());
    // First, so that its memory can be had for the next one.
    if (deltas_ != nullptr) deltas_->Persist(f, commit.version());
    LeaveOutReplica(f, commit.version(), *held->file);
    RETURN_IF_ERROR(
        held->file->Seal({run_.run_id(), shard_, commit.version(),
                          commit.commit_seq(), digest, held->replica_digest}));
    DropOldImages(f);
    failpoint::Hit("server.state.sealed");
    if (held->file->path() != path) {
      RETURN_IF_ERROR(fs_.Rename(held->file->path(), path));
      held->file->set_path(path);
    }
    RETURN_IF_ERROR(
        fs_.SyncDirectory(absl::StrCat(names_.directory(), "/versions")));
    failpoint::Hit("server.state.renamed");
  }
  {
    MutexLock lock(&mutex_);
    state_.set_run_epoch(std::max(state_.run_epoch(), run_epoch));
    state_.set_persisted_commit_seq(commit.commit_seq());
    records::FragmentState* state = state_.mutable_fragments(f);
    state->set_version(commit.version());
    state->set_commit_seq(commit.commit_seq());
    *state->mutable_digest() = digest.ToProto();
  }
  RecordBatch batch;
  std::vector<std::shared_ptr<Contribution>> kept;
  if (keep) kept = AddKept(commit, &batch);
  std::set<ContributionKey> kept_keys;
  for (const auto& contribution : kept) kept_keys.insert(contribution->key());
  std::vector<ContributionKey> to_free(keys.begin(), keys.end());
  std::erase_if(to_free, [&](const ContributionKey& key) {
    return kept_keys.contains(key);
  });
  Freed freed = TakeOut(to_free, &batch, commit.commit_seq());
  AddState(&batch);
  RETURN_IF_ERROR(
      WriteAndRecycle(batch, Sync::kMachine, std::move(freed)));
  failpoint::Hit("server.state.after");
  PutKept(commit.commit_seq(), kept);
  RecycleSum(f, commit.version());
  return absl::OkStatus();
}

// --- Contributions ----------------------------------------------------------

std::vector<std::shared_ptr<Contribution>> RunStore::AddKept(
    const v1::Commit& commit, RecordBatch* batch) const {
  std::vector<std::shared_ptr<Contribution>> kept;
  const std::optional<HeldVersion> made =
      FindVersion(commit.fragment(), commit.version());
  if (!made) return kept;  // No block of the fragment is here.
  for (const v1::ContributionOutcome& outcome : commit.outcomes()) {
    if (outcome.outcome() != v1::OUTCOME_MERGED) continue;
    const auto key = ContributionKey::FromProto(outcome.key());
    std::shared_ptr<Contribution> contribution = Find(key);
    if (contribution == nullptr) continue;
    records::KeptRecord record;
    records::StoredRecord& stored = *record.mutable_stored();
    *stored.mutable_info() = contribution->info();
    stored.set_segment(contribution->segment_number());
    stored.set_norm_squared(contribution->NormSquared());
    const std::vector<uint32_t> crcs = contribution->BlockCrcs();
    stored.mutable_block_crc32c()->Add(crcs.begin(), crcs.end());
    record.set_commit_seq(commit.commit_seq());
    *record.mutable_digest() = made->digest.ToProto();
    if (deltas_ != nullptr) {
      *record.mutable_replica_digest() = made->replica_digest.ToProto();
    }
    batch->Put(names_.KeyedName("kept", key), record.SerializeAsString());
    DeleteRecords(key, batch);
    kept.push_back(std::move(contribution));
  }
  return kept;
}

void RunStore::PutKept(int64_t commit_seq,
                       absl::Span<const std::shared_ptr<Contribution>> kept) {
  for (const std::shared_ptr<Contribution>& contribution : kept) {
    kept_.Put(commit_seq, *contribution);
    {
      MutexLock lock(&mutex_);
      contributions_.erase(contribution->key());
    }
    contribution->ReleaseSegment();
  }
}

}  // namespace atl::server
