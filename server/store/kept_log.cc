#include "server/store/kept_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/status/status_macros.h"
#include "server/store/records/parse_record.h"
#include "server/store/records/server_records.pb.h"

namespace atl::server {

void KeptLog::Put(int64_t commit_seq, const Contribution& contribution) {
  MutexLock lock(&mutex_);
  kept_[commit_seq].push_back(
      {contribution.key(), contribution.segment_number()});
}

std::set<int64_t> KeptLog::Commits() const {
  MutexLock lock(&mutex_);
  std::set<int64_t> commits;
  for (const auto& [commit_seq, all] : kept_) commits.insert(commit_seq);
  return commits;
}

std::set<std::string> KeptLog::Paths() const {
  MutexLock lock(&mutex_);
  std::set<std::string> paths;
  for (const auto& [commit_seq, all] : kept_) {
    for (const Kept& kept : all)
      paths.insert(context_.names.SegmentPath(kept.segment));
  }
  return paths;
}

bool KeptLog::Has(const ContributionKey& key) const {
  MutexLock lock(&mutex_);
  for (const auto& [commit_seq, all] : kept_) {
    for (const Kept& kept : all) {
      if (kept.key == key) return true;
    }
  }
  return false;
}

absl::StatusOr<KeptContribution> KeptLog::Find(
    const ContributionKey& key) const {
  const std::string name = context_.names.KeyedName("kept", key);
  ASSIGN_OR_RETURN(const std::string value, context_.records.Get(name));
  records::KeptRecord record;
  if (!record.ParseFromString(value) ||
      record.stored().block_crc32c_size() !=
          context_.encoded_ranges[key.fragment].range().block_count()) {
    return DamagedRecord({name, value});
  }
  auto segment = std::make_unique<Segment>();
  segment->number = record.stored().segment();
  segment->payload_bytes = context_.encoded_ranges[key.fragment].byte_count();
  segment->path = context_.names.SegmentPath(segment->number);
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file =
      context_.fs.OpenForRead(segment->path);
  if (!file.ok()) {
    if (!Has(key)) {
      return absl::NotFoundError(absl::StrCat(name, " was dropped just now"));
    }
    return absl::DataLossError(
        absl::StrCat(segment->path, " with ", key.ToString(),
                     " cannot be opened: ", file.status().message()));
  }
  segment->file = *std::move(file);
  KeptContribution kept;
  kept.contribution = std::make_shared<Contribution>(
      record.stored().info(), context_.encoded_ranges[key.fragment],
      std::move(segment));
  kept.contribution->MarkStored(
      record.stored().norm_squared(),
      std::vector<uint32_t>(record.stored().block_crc32c().begin(),
                            record.stored().block_crc32c().end()));
  kept.digest = Digest128::FromProto(record.digest());
  kept.replica_digest = Digest128::FromProto(record.replica_digest());
  return kept;
}

void KeptLog::Remove(absl::Span<const int64_t> commit_seqs,
                     RecordBatch* batch) {
  for (const int64_t commit_seq : commit_seqs) {
    std::vector<Kept> freed;
    {
      MutexLock lock(&mutex_);
      auto found = kept_.extract(commit_seq);
      if (!found.empty()) freed = std::move(found.mapped());
    }
    for (const Kept& kept : freed) {
      context_.fs.Remove(context_.names.SegmentPath(kept.segment))
          .IgnoreError();
      batch->Delete(context_.names.KeyedName("kept", kept.key));
    }
  }
}

absl::Status KeptLog::Drop(absl::Span<const int64_t> commit_seqs,
                           absl::Span<const std::string> pins) {
  RecordBatch batch;
  failpoint::Hit("server.kept.before");
  Remove(commit_seqs, &batch);
  for (const std::string& pin : pins) {
    batch.Delete(absl::StrCat("given_up/", pin));
  }
  RETURN_IF_ERROR(context_.records.Write(batch, Sync::kProcess));
  failpoint::Hit("server.kept.after");
  return absl::OkStatus();
}

absl::Status KeptLog::GiveUp(absl::Span<const int64_t> commit_seqs,
                             absl::Span<const std::string> pins,
                             const std::string& reason) {
  records::KeepEndRecord record;
  record.set_reason(reason);
  const auto note = [&](RecordBatch* batch) {
    for (const std::string& pin : pins) {
      batch->Put(absl::StrCat("given_up/", pin), record.SerializeAsString());
    }
  };
  failpoint::Hit("server.kept.before");
  // Written before the removal, because otherwise a start would report removed
  // files as damaged. Written again after it, because the disk may be full
  // until then.
  RecordBatch noted;
  note(&noted);
  context_.records.Write(noted, Sync::kMachine).IgnoreError();
  RecordBatch batch;
  Remove(commit_seqs, &batch);
  note(&batch);
  RETURN_IF_ERROR(context_.records.Write(batch, Sync::kMachine));
  failpoint::Hit("server.kept.after");
  return absl::OkStatus();
}

absl::Status KeptLog::AddDropAfter(int64_t commit_seq,
                                   RecordBatch* batch) const {
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> kept,
                   context_.records.Scan("kept/"));
  for (const RecordStore::Record& value : kept) {
    records::KeptRecord record;
    if (!record.ParseFromString(value.second)) return DamagedRecord(value);
    if (record.commit_seq() > commit_seq) batch->Delete(value.first);
  }
  return absl::OkStatus();
}

absl::Status KeptLog::Recover() {
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> kept,
                   context_.records.Scan("kept/"));
  for (const RecordStore::Record& value : kept) {
    records::KeptRecord record;
    if (!record.ParseFromString(value.second) ||
        !context_.HoldsBlocks(record.stored().info().key().fragment())) {
      return DamagedRecord(value);
    }
    const int64_t segment = record.stored().segment();
    MutexLock lock(&mutex_);
    kept_[record.commit_seq()].push_back(
        {ContributionKey::FromProto(record.stored().info().key()), segment});
    last_segment_ = std::max(last_segment_, segment);
  }
  const std::string prefix = "given_up/";
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> given_up,
                   context_.records.Scan(prefix));
  for (const RecordStore::Record& value : given_up) {
    records::KeepEndRecord record;
    if (!record.ParseFromString(value.second)) return DamagedRecord(value);
    given_up_[value.first.substr(prefix.size())] = record.reason();
  }
  return absl::OkStatus();
}

}  // namespace atl::server
