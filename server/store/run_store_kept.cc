// Merged contributions that pins keep: their segments stay, under records of
// their own, until the last pin that wants them is gone.

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/status/status_macros.h"
#include "server/store/header_page.h"
#include "server/store/run_store.h"

namespace atl::server {
namespace {

absl::Status Damaged(const RecordStore::Record& record) {
  return absl::DataLossError(
      absl::StrCat("record ", record.first, " is damaged"));
}

}  // namespace

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
    batch->Put(KeyedName("kept", key), record.SerializeAsString());
    DeleteRecords(key, batch);
    kept.push_back(std::move(contribution));
  }
  return kept;
}

void RunStore::PutKept(int64_t commit_seq,
                       absl::Span<const std::shared_ptr<Contribution>> kept) {
  for (const std::shared_ptr<Contribution>& contribution : kept) {
    {
      MutexLock lock(&mutex_);
      contributions_.erase(contribution->key());
      kept_[commit_seq].push_back(
          {contribution->key(), contribution->segment_number()});
    }
    contribution->ReleaseSegment();
  }
}

std::set<std::string> RunStore::KeptPaths() const {
  MutexLock lock(&mutex_);
  std::set<std::string> paths;
  for (const auto& [commit_seq, all] : kept_) {
    for (const Kept& kept : all) paths.insert(SegmentPath(kept.segment));
  }
  return paths;
}

bool RunStore::HasKept(const ContributionKey& key) const {
  MutexLock lock(&mutex_);
  for (const auto& [commit_seq, all] : kept_) {
    for (const Kept& kept : all) {
      if (kept.key == key) return true;
    }
  }
  return false;
}

absl::StatusOr<RunStore::KeptContribution> RunStore::FindKept(
    const ContributionKey& key) const {
  const std::string name = KeyedName("kept", key);
  ASSIGN_OR_RETURN(const std::string value, records_.Get(name));
  records::KeptRecord record;
  if (!record.ParseFromString(value) ||
      record.stored().block_crc32c_size() !=
          ranges_[key.fragment].block_count()) {
    return Damaged({name, value});
  }
  auto segment = std::make_unique<Segment>();
  segment->number = record.stored().segment();
  segment->payload_bytes = FindEncoded(key).byte_count();
  segment->path = SegmentPath(segment->number);
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file =
      fs_.OpenForRead(segment->path);
  if (!file.ok()) {
    if (!HasKept(key)) {
      return absl::NotFoundError(absl::StrCat(name, " was dropped meanwhile"));
    }
    return absl::DataLossError(absl::StrCat(segment->path, " with ",
                                            key.ToString(),
                                            " cannot be opened: ",
                                            file.status().message()));
  }
  segment->file = *std::move(file);
  KeptContribution kept;
  kept.contribution = std::make_shared<Contribution>(
      record.stored().info(), FindEncoded(key), std::move(segment));
  kept.contribution->MarkStored(
      record.stored().norm_squared(),
      std::vector<uint32_t>(record.stored().block_crc32c().begin(),
                            record.stored().block_crc32c().end()));
  kept.digest = Digest128::FromProto(record.digest());
  kept.replica_digest = Digest128::FromProto(record.replica_digest());
  return kept;
}

void RunStore::RemoveKept(absl::Span<const int64_t> commit_seqs,
                          RecordBatch* batch) {
  for (const int64_t commit_seq : commit_seqs) {
    std::vector<Kept> freed;
    {
      MutexLock lock(&mutex_);
      auto found = kept_.extract(commit_seq);
      if (!found.empty()) freed = std::move(found.mapped());
    }
    for (const Kept& kept : freed) {
      fs_.Remove(SegmentPath(kept.segment)).IgnoreError();
      batch->Delete(KeyedName("kept", kept.key));
    }
  }
}

absl::Status RunStore::DropKept(absl::Span<const int64_t> commit_seqs,
                                absl::Span<const std::string> pins) {
  RecordBatch batch;
  failpoint::Hit("server.kept.before");
  RemoveKept(commit_seqs, &batch);
  for (const std::string& pin : pins) {
    batch.Delete(RecordName(absl::StrCat("given_up/", pin)));
  }
  RETURN_IF_ERROR(records_.Write(batch, Sync::kProcess));
  failpoint::Hit("server.kept.after");
  return absl::OkStatus();
}

absl::Status RunStore::GiveUpKept(absl::Span<const int64_t> commit_seqs,
                                  absl::Span<const std::string> pins,
                                  const std::string& reason) {
  records::KeepEndRecord record;
  record.set_reason(reason);
  const auto note = [&](RecordBatch* batch) {
    for (const std::string& pin : pins) {
      batch->Put(RecordName(absl::StrCat("given_up/", pin)),
                 record.SerializeAsString());
    }
  };
  failpoint::Hit("server.kept.before");
  // First, or a start would take what is removed for damaged; and again after,
  // for there may be room only then.
  RecordBatch noted;
  note(&noted);
  records_.Write(noted, Sync::kMachine).IgnoreError();
  RecordBatch batch;
  RemoveKept(commit_seqs, &batch);
  note(&batch);
  RETURN_IF_ERROR(records_.Write(batch, Sync::kMachine));
  failpoint::Hit("server.kept.after");
  return absl::OkStatus();
}

absl::Status RunStore::RecoverKept() {
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> kept,
                   records_.Scan(RecordName("kept/")));
  for (const RecordStore::Record& value : kept) {
    records::KeptRecord record;
    if (!record.ParseFromString(value.second) ||
        !Fits(record.stored().info().key())) {
      return Damaged(value);
    }
    const int64_t segment = record.stored().segment();
    MutexLock lock(&mutex_);
    kept_[record.commit_seq()].push_back(
        {ContributionKey::FromProto(record.stored().info().key()), segment});
    next_segment_ = std::max(next_segment_, segment + 1);
  }
  const std::string prefix = RecordName("given_up/");
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> given_up,
                   records_.Scan(prefix));
  for (const RecordStore::Record& value : given_up) {
    records::KeepEndRecord record;
    if (!record.ParseFromString(value.second)) return Damaged(value);
    MutexLock lock(&mutex_);
    given_up_[value.first.substr(prefix.size())] = record.reason();
  }
  return absl::OkStatus();
}

}  // namespace atl::server
