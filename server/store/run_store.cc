#include "server/store/run_store.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/layout/exchange.h"
#include "base/status/status_macros.h"
#include "server/store/delta_ring.h"

namespace atl::server {

absl::StatusOr<std::unique_ptr<RunStore>> RunStore::OpenStopped(
    FileSystem& fs, RecordStore& records, const std::string& data_dir,
    const records::RunRecord& record, int state_count) {
  ASSIGN_OR_RETURN(RunLayout layout,
                   RunLayout::Create(record.run().spec().layout()));
  RETURN_IF_ERROR(CheckCodecs(record.run().spec().exchange()));
  std::unique_ptr<RunStore> store(new RunStore(fs, records, data_dir, record,
                                               std::move(layout), state_count,
                                               /*images=*/nullptr));
  RETURN_IF_ERROR(store->versions_.RecoverDamaged());
  if (fs.Exists(store->context_.names.checkpoints())) {
    RETURN_IF_ERROR(store->manifests_.Recover(/*may_change=*/false));
  }
  return store;
}

absl::StatusOr<std::unique_ptr<RunStore>> RunStore::Open(
    FileSystem& fs, RecordStore& records, const std::string& data_dir,
    const records::RunRecord& record, int state_count,
    std::shared_ptr<ImagePool> images) {
  if (!records.damage().ok()) {
    absl::StatusOr<std::unique_ptr<RunStore>> stopped =
        OpenStopped(fs, records, data_dir, record, state_count);
    if (!stopped.ok()) return records.damage();
    return stopped;
  }
  ASSIGN_OR_RETURN(RunLayout layout,
                   RunLayout::Create(record.run().spec().layout()));
  RETURN_IF_ERROR(CheckCodecs(record.run().spec().exchange()));
  std::unique_ptr<RunStore> store(new RunStore(fs, records, data_dir, record,
                                               std::move(layout), state_count,
                                               std::move(images)));
  const ShardNames& names = store->context_.names;
  for (const std::string& directory :
       {names.versions(), names.log(), names.checkpoints()}) {
    RETURN_IF_ERROR(fs.CreateDirectories(directory));
  }
  for (const std::string& parent : {data_dir, absl::StrCat(data_dir, "/runs"),
                                    names.run_directory(), names.directory()}) {
    RETURN_IF_ERROR(fs.SyncDirectory(parent));
  }
  RETURN_IF_ERROR(store->versions_.Recover());
  if (store->merges_live()) {
    RETURN_IF_ERROR(store->sums_.Recover(store->versions_.FindUnmade()));
  }
  RETURN_IF_ERROR(store->manifests_.Recover());
  RETURN_IF_ERROR(store->kept_.Recover());
  RETURN_IF_ERROR(store->contributions_.Recover(store->kept_.Paths(),
                                                store->kept_.last_segment()));
  return store;
}

absl::Status RunStore::Rollback(FileSystem& fs, RecordStore& records,
                                const std::string& data_dir,
                                const records::RunRecord& record,
                                int state_count, int64_t run_epoch,
                                const v1::RestoredCut& restored,
                                const v1::LogPosition& log) {
  RETURN_IF_ERROR(records.damage());
  ASSIGN_OR_RETURN(RunLayout layout,
                   RunLayout::Create(record.run().spec().layout()));
  RETURN_IF_ERROR(CheckCodecs(record.run().spec().exchange()));
  RunStore store(fs, records, data_dir, record, std::move(layout), state_count,
                 /*images=*/nullptr);
  RecordBatch batch;
  ASSIGN_OR_RETURN(
      const bool is_due,
      store.versions_.AddRestored(run_epoch, restored, log, &batch));
  if (!is_due) return absl::OkStatus();
  int64_t newest_commit = 0;
  for (const v1::FragmentVersion& version : restored.cut()) {
    newest_commit = std::max(newest_commit, version.commit_seq());
  }
  RETURN_IF_ERROR(store.kept_.AddDropAfter(newest_commit, &batch));
  for (const char* const kind : {"bound/", "chunk/", "stored/", "refused/"}) {
    batch.DeletePrefix(kind);
  }
  failpoint::Hit("server.restore.before");
  // Before the versions that they name.
  RETURN_IF_ERROR(store.manifests_.DropAfter(restored.cut()));
  // Deltas are not synced: after a power cut an old one could pass for the
  // delta of a version that is made from now on.
  RETURN_IF_ERROR(DeltaRing::Clear(fs, store.context_.names.deltas()));
  failpoint::Hit("server.restore.cleared");
  RETURN_IF_ERROR(records.Write(batch, Sync::kMachine));
  failpoint::Hit("server.restore.after");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> RunStore::ListLost(
    FileSystem& fs, RecordStore& records, const std::string& data_dir,
    const records::RunRecord& record, int state_count,
    const v1::RestoredCut& restored) {
  ASSIGN_OR_RETURN(RunLayout layout,
                   RunLayout::Create(record.run().spec().layout()));
  RunStore store(fs, records, data_dir, record, std::move(layout), state_count,
                 /*images=*/nullptr);
  return store.versions_.ListLost(restored);
}

RunStore::RunStore(FileSystem& fs, RecordStore& records,
                   const std::string& data_dir,
                   const records::RunRecord& record, RunLayout layout,
                   int state_count, std::shared_ptr<ImagePool> images)
    : context_(fs, records, data_dir, record, std::move(layout)),
      versions_(context_, state_count, std::move(images)),
      sums_(context_),
      contributions_(context_),
      manifests_(context_,
                 [this](int32_t fragment, int64_t version) {
                   return versions_.Find(fragment, version);
                 }),
      kept_(context_) {}

RecoveredShard RunStore::Recovered() const {
  RecoveredShard recovered;
  versions_.AddRecovered(recovered);
  contributions_.AddRecovered(recovered);
  recovered.manifests = manifests_.found();
  recovered.kept_commits = kept_.Commits();
  recovered.given_up = kept_.given_up();
  return recovered;
}

absl::Status RunStore::Persist(int64_t run_epoch, const v1::Commit& commit,
                               absl::Span<const ContributionKey> keys,
                               bool keep, const v1::LogPosition& log) {
  failpoint::Hit("server.state.before");
  ASSIGN_OR_RETURN(const Digest128 digest, versions_.Seal(commit));
  RecordBatch batch;
  std::vector<std::shared_ptr<Contribution>> kept;
  if (keep) kept = AddKept(commit, &batch);
  std::set<ContributionKey> kept_keys;
  for (const auto& contribution : kept) kept_keys.insert(contribution->key());
  std::vector<ContributionKey> to_free(keys.begin(), keys.end());
  std::erase_if(to_free, [&](const ContributionKey& key) {
    return kept_keys.contains(key);
  });
  ContributionLog::Freed freed =
      contributions_.TakeOut(to_free, &batch, commit.commit_seq());
  versions_.AddState(run_epoch, commit, digest, log, &batch);
  RETURN_IF_ERROR(
      contributions_.WriteAndRecycle(batch, Sync::kMachine, std::move(freed)));
  failpoint::Hit("server.state.after");
  for (const auto& contribution : kept) {
    kept_.Put(commit.commit_seq(), *contribution);
    contributions_.HandOver(contribution);
  }
  sums_.Recycle(commit.fragment(), commit.version());
  return absl::OkStatus();
}

std::vector<std::shared_ptr<Contribution>> RunStore::AddKept(
    const v1::Commit& commit, RecordBatch* batch) const {
  std::vector<std::shared_ptr<Contribution>> kept;
  const std::optional<HeldVersion> made =
      versions_.Find(commit.fragment(), commit.version());
  if (!made) return kept;  // The shard has no block of the fragment.
  for (const v1::ContributionOutcome& outcome : commit.outcomes()) {
    if (outcome.outcome() != v1::OUTCOME_MERGED) continue;
    const auto key = ContributionKey::FromProto(outcome.key());
    std::shared_ptr<Contribution> contribution = contributions_.Find(key);
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
    if (versions_.replica_array() != 0) {
      *record.mutable_replica_digest() = made->replica_digest.ToProto();
    }
    batch->Put(context_.names.KeyedName("kept", key),
               record.SerializeAsString());
    contributions_.DeleteRecords(key, batch);
    kept.push_back(std::move(contribution));
  }
  return kept;
}

absl::Status RunStore::Flush() {
  // Records are always written at the run's durability. A damaged store has
  // none since its start.
  if (context_.durability == Sync::kMachine ||
      !context_.records.damage().ok()) {
    return absl::OkStatus();
  }
  // In this order: no durable record names bytes that a power cut can take.
  RETURN_IF_ERROR(contributions_.SyncSegments());
  return context_.records.Write(RecordBatch(), Sync::kMachine);
}

absl::Status RunStore::PublishPrepared(const PreparedFact& prepared,
                                       std::shared_ptr<VersionFile> file,
                                       std::shared_ptr<VersionFile> sum) {
  const int32_t fragment = prepared.fragment;
  const int64_t version = prepared.version + 1;
  VersionFile& recovers_from = sum != nullptr ? *sum : *file;
  RETURN_IF_ERROR(
      recovers_from.WriteHeader({run().run_id(), shard(), version, 0,
                                 prepared.digest, prepared.replica_digest}));
  if (sum != nullptr) sums_.Put(fragment, version, std::move(sum));
  versions_.Publish(
      fragment, version,
      {std::move(file), 0, prepared.digest, prepared.replica_digest});
  return absl::OkStatus();
}

void RunStore::Unpublish(int32_t fragment, int64_t version) {
  versions_.Unpublish(fragment, version);
  sums_.TakeBack(fragment, version);
}

void RunStore::DiscardVersion(int32_t fragment, int64_t version) {
  versions_.Discard(fragment, version);
  sums_.Recycle(fragment, version);
}

absl::Status RunStore::ReserveRound(int32_t fragment, int64_t version,
                                    int64_t count) {
  RETURN_IF_ERROR(contributions_.Reserve(fragment, version, count));
  return versions_.Reserve(fragment, version + 1);
}

void RunStore::DropSpares() {
  contributions_.DropSpares();
  versions_.DropSpares();
  sums_.DropSpares();
}

}  // namespace atl::server
