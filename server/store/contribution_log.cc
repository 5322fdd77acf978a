#include "server/store/contribution_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/failpoint/failpoint.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

constexpr int64_t kReadBlocks = 64;  // At most 1 MiB.

// DATA_LOSS if a block does not match its checksum.
absl::Status CheckBytes(const Contribution& contribution) {
  const ShardRange& range = contribution.range();
  std::vector<char> bytes;
  for (int64_t b = range.blocks().begin; b < range.blocks().end;
       b += kReadBlocks) {
    const IndexRange blocks = {b,
                               std::min(b + kReadBlocks, range.blocks().end)};
    bytes.resize(contribution.encoded().ByteCount(blocks));
    RETURN_IF_ERROR(contribution.ReadEncoded(blocks, bytes.data()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Contribution>> ContributionLog::Bind(
    const v1::ContributionInfo& info) {
  const auto key = ContributionKey::FromProto(info.key());
  if (auto found = Find(key)) return found;
  if (!keeps_contributions() && !key.is_import()) {
    MutexLock lock(&mutex_);
    std::shared_ptr<Contribution>& bound = contributions_[key];
    if (bound == nullptr) {
      bound = std::make_shared<Contribution>(info, context_.FindEncoded(key),
                                             nullptr);
    }
    return bound;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, TakeSegment(key));
  records::BoundRecord bound;
  *bound.mutable_info() = info;
  bound.set_segment(segment->number);
  RecordBatch batch;
  batch.Put(context_.names.KeyedName("bound", key), bound.SerializeAsString());
  std::shared_ptr<Contribution> contribution;
  Freed freed;
  {
    MutexLock lock(&mutex_);
    while (deleting_.contains(key)) deleted_.Wait(&mutex_);
    if (lost_.erase(key) > 0)
      batch.Delete(context_.names.KeyedName("stored", key));
    const auto it = contributions_.find(key);
    if (it != contributions_.end()) {  // Another stream was faster.
      contribution = it->second;
    } else {
      freed = TakeUndeleted(key, &batch);
      contribution = std::make_shared<Contribution>(
          info, context_.FindEncoded(key), std::move(segment));
      contributions_[key] = contribution;
    }
  }
  if (segment != nullptr) {
    Recycle(key.fragment, std::move(segment));
    return contribution;
  }
  failpoint::Hit("server.bound.before");
  const absl::Status written =
      WriteAndRecycle(batch, Sync::kProcess, std::move(freed));
  if (!written.ok()) {
    {
      MutexLock lock(&mutex_);
      contributions_.erase(key);
    }
    Recycle(key.fragment, contribution->ReleaseSegment());
    return written;
  }
  failpoint::Hit("server.bound.after");
  return contribution;
}

std::vector<std::shared_ptr<Contribution>> ContributionLog::Renew(
    absl::Span<const ContributionKey> keys, int64_t live_set_id) {
  std::vector<std::shared_ptr<Contribution>> renewed;
  MutexLock lock(&mutex_);
  for (const ContributionKey& key : keys) {
    const auto it = contributions_.find(key);
    if (it == contributions_.end()) continue;
    it->second = std::make_shared<Contribution>(
        it->second->info(), context_.FindEncoded(key), nullptr, live_set_id);
    renewed.push_back(it->second);
  }
  return renewed;
}

std::shared_ptr<Contribution> ContributionLog::Find(
    const ContributionKey& key) const {
  MutexLock lock(&mutex_);
  const auto it = contributions_.find(key);
  return it == contributions_.end() ? nullptr : it->second;
}

absl::StatusOr<bool> ContributionLog::WriteBlocks(
    Contribution& contribution, IndexRange blocks,
    absl::Span<const absl::string_view> pieces,
    absl::Span<const BlockFact> facts) {
  const Contribution::SegmentUse use(contribution);
  absl::Status status = contribution.Write(blocks, pieces);
  if (status.ok() && contribution.keeps_bytes()) {
    records::ChunkRecord record;
    for (const BlockFact& fact : facts) {
      record.add_block_crc32c(fact.crc32c);
      record.add_block_norm_squared(fact.norm_squared);
    }
    RecordBatch batch;
    batch.Put(
        absl::StrCat(context_.names.KeyedName("chunk", contribution.key()), "/",
                     absl::StrFormat("%020d", blocks.begin)),
        record.SerializeAsString());
    failpoint::Hit("server.chunk.before");
    status = context_.records.Write(batch, Sync::kProcess);
  }
  if (!status.ok()) {
    contribution.Settle(blocks, {});
    return status;
  }
  failpoint::Hit("server.chunk.after");
  return contribution.Settle(blocks, facts);
}

absl::StatusOr<double> ContributionLog::Finish(Contribution& contribution) {
  const ContributionKey& key = contribution.key();
  absl::Status synced;
  {
    const Contribution::SegmentUse use(contribution);
    if (!use.ok()) {
      return absl::AbortedError(absl::StrCat(key.ToString(), " was dropped"));
    }
    const bool to_sync =
        context_.durability == Sync::kMachine && contribution.keeps_bytes();
    if (to_sync) synced = contribution.Sync();
    if (synced.ok()) return RecordStored(contribution);
  }
  // Its bytes are in doubt, and a later sync that succeeds proves nothing: the
  // island must push it again, into another file.
  const ContributionKey keys[] = {key};
  if (!Lose(keys).ok()) {
    contribution.Unsettle(contribution.range().blocks());
    contribution.Reopen();
  }
  return synced;
}

absl::StatusOr<double> ContributionLog::RecordStored(
    Contribution& contribution) {
  const ContributionKey& key = contribution.key();
  const double norm_squared = contribution.NormSquared();
  std::vector<uint32_t> crcs = contribution.BlockCrcs();
  if (!contribution.keeps_bytes()) {
    failpoint::Hit("server.stored.before");
    contribution.MarkStored(norm_squared, std::move(crcs));
    failpoint::Hit("server.stored.after");
    return norm_squared;
  }
  records::StoredRecord record;
  *record.mutable_info() = contribution.info();
  record.set_segment(contribution.segment_number());
  record.set_norm_squared(norm_squared);
  record.mutable_block_crc32c()->Add(crcs.begin(), crcs.end());
  RecordBatch batch;
  batch.Put(context_.names.KeyedName("stored", key),
            record.SerializeAsString());
  batch.Delete(context_.names.KeyedName("bound", key));
  batch.DeletePrefix(absl::StrCat(context_.names.KeyedName("chunk", key), "/"));
  failpoint::Hit("server.stored.before");
  const absl::Status written =
      context_.records.Write(batch, context_.durability);
  if (!written.ok()) {
    contribution.Reopen();
    return written;
  }
  failpoint::Hit("server.stored.after");
  contribution.MarkStored(norm_squared, std::move(crcs));
  return norm_squared;
}

absl::Status ContributionLog::SyncSegments() {
  std::vector<std::shared_ptr<Contribution>> kept;
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, contribution] : contributions_) {
      if (contribution->keeps_bytes()) kept.push_back(contribution);
    }
  }
  if (kept.empty()) return absl::OkStatus();
  for (const auto& contribution : kept) {
    const Contribution::SegmentUse use(*contribution);
    if (use.ok()) RETURN_IF_ERROR(contribution->Sync());
  }
  return context_.fs.SyncDirectory(context_.names.log());
}

absl::Status ContributionLog::Refuse(const v1::ContributionInfo& info,
                                     const std::string& reason) {
  const auto key = ContributionKey::FromProto(info.key());
  records::RefusedRecord record;
  *record.mutable_key() = key.ToProto();
  record.set_reason(reason);
  record.set_anchor_version(info.anchor_version());
  RecordBatch batch;
  const std::vector<ContributionKey> keys = {key};
  if (const auto contribution = Find(key)) contribution->MarkRefused(reason);
  Freed freed = TakeOut(keys, &batch);
  batch.Put(context_.names.KeyedName("refused", key),
            record.SerializeAsString());
  {
    MutexLock lock(&mutex_);
    refused_[key] = {reason, info.anchor_version()};
  }
  failpoint::Hit("server.refused.before");
  RETURN_IF_ERROR(
      WriteAndRecycle(batch, context_.durability, std::move(freed)));
  failpoint::Hit("server.refused.after");
  return absl::OkStatus();
}

absl::Status ContributionLog::Drop(absl::Span<const ContributionKey> keys) {
  RecordBatch batch;
  Freed freed = TakeOut(keys, &batch);
  failpoint::Hit("server.drop.before");
  RETURN_IF_ERROR(WriteAndRecycle(batch, Sync::kProcess, std::move(freed)));
  failpoint::Hit("server.drop.after");
  return absl::OkStatus();
}

ContributionLog::Freed ContributionLog::TakeOut(
    absl::Span<const ContributionKey> keys, RecordBatch* batch,
    int64_t commit_seq) {
  std::vector<std::shared_ptr<Contribution>> taken;
  Freed freed;
  freed.keys.assign(keys.begin(), keys.end());
  {
    MutexLock lock(&mutex_);
    std::vector<FreedSegment> left;
    for (FreedSegment& earlier : undeleted_) {
      const bool is_free = earlier.commit_seq <= commit_seq;
      if (is_free) freed.keys.push_back(earlier.key);
      (is_free ? freed.segments : left).push_back(std::move(earlier));
    }
    undeleted_ = std::move(left);
    deleting_.insert(freed.keys.begin(), freed.keys.end());
    for (const ContributionKey& key : keys) {
      refused_.erase(key);
      lost_.erase(key);
      const auto it = contributions_.find(key);
      if (it == contributions_.end()) continue;
      taken.push_back(std::move(it->second));
      contributions_.erase(it);
    }
  }
  for (const auto& contribution : taken) {
    freed.segments.push_back(
        {contribution->key(), contribution->ReleaseSegment(), commit_seq});
  }
  for (const ContributionKey& key : freed.keys) DeleteRecords(key, batch);
  return freed;
}

ContributionLog::Freed ContributionLog::TakeUndeleted(
    const ContributionKey& key, RecordBatch* batch) {
  Freed taken;
  for (auto it = undeleted_.begin(); it != undeleted_.end();) {
    if (!(it->key == key)) {
      ++it;
      continue;
    }
    taken.segments.push_back(std::move(*it));
    it = undeleted_.erase(it);
  }
  if (taken.segments.empty()) return taken;
  // The batch overwrites its bound record.
  batch->Delete(context_.names.KeyedName("stored", key));
  batch->DeletePrefix(
      absl::StrCat(context_.names.KeyedName("chunk", key), "/"));
  return taken;
}

absl::Status ContributionLog::WriteAndRecycle(const RecordBatch& batch,
                                              Sync sync, Freed freed) {
  const absl::Status written = context_.records.Write(batch, sync);
  {
    MutexLock lock(&mutex_);
    for (const ContributionKey& key : freed.keys) {
      deleting_.erase(deleting_.find(key));
    }
    for (FreedSegment& segment : freed.segments) {
      if (written.ok() || segment.segment == nullptr) continue;
      undeleted_.push_back(std::move(segment));
    }
  }
  deleted_.SignalAll();
  if (written.ok()) {
    for (FreedSegment& segment : freed.segments) {
      Recycle(segment.key.fragment, std::move(segment.segment));
    }
  }
  return written;
}

void ContributionLog::DeleteRecords(const ContributionKey& key,
                                    RecordBatch* batch) const {
  batch->Delete(context_.names.KeyedName("stored", key));
  batch->Delete(context_.names.KeyedName("bound", key));
  batch->Delete(context_.names.KeyedName("refused", key));
  batch->DeletePrefix(
      absl::StrCat(context_.names.KeyedName("chunk", key), "/"));
}

void ContributionLog::HandOver(
    const std::shared_ptr<Contribution>& contribution) {
  {
    MutexLock lock(&mutex_);
    contributions_.erase(contribution->key());
  }
  contribution->ReleaseSegment();
}

std::vector<ContributionKey> ContributionLog::FindDamaged(
    const v1::Seal& seal) const {
  std::vector<ContributionKey> damaged;
  for (const v1::SealedContribution& sealed : seal.contributions()) {
    const auto contribution = Find(ContributionKey::FromProto(sealed.key()));
    if (contribution == nullptr || !contribution->keeps_bytes()) continue;
    const absl::Status checked = CheckBytes(*contribution);
    if (!absl::IsDataLoss(checked)) continue;
    LOG(ERROR) << "run " << context_.run.run_id() << ": "
               << contribution->key().ToString()
               << " is lost here: " << checked.ToString();
    damaged.push_back(contribution->key());
  }
  return damaged;
}

absl::Status ContributionLog::Lose(absl::Span<const ContributionKey> keys) {
  // Records first: a segment must exist while a record names it.
  RecordBatch batch;
  for (const ContributionKey& key : keys) DeleteRecords(key, &batch);
  failpoint::Hit("server.lost.before");
  RETURN_IF_ERROR(context_.records.Write(batch, context_.durability));
  failpoint::Hit("server.lost.after");
  for (const ContributionKey& key : keys) {
    std::shared_ptr<Contribution> lost;
    {
      MutexLock lock(&mutex_);
      const auto it = contributions_.find(key);
      if (it == contributions_.end()) continue;
      lost = std::move(it->second);
      contributions_.erase(it);
    }
    const std::unique_ptr<Segment> segment = lost->ReleaseSegment();
    if (segment != nullptr) context_.fs.Remove(segment->path).IgnoreError();
  }
  return absl::OkStatus();
}

}  // namespace atl::server
