// Recovery of contributions: the segments, then the records that name them.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "server/store/contribution_log.h"
#include "server/store/header_page.h"
#include "server/store/records/parse_record.h"
#include "server/store/shard_files.h"

namespace atl::server {

absl::Status ContributionLog::Recover(const std::set<std::string>& kept_paths,
                                      int64_t last_segment) {
  {
    MutexLock lock(&mutex_);
    next_segment_ = last_segment + 1;
  }
  RETURN_IF_ERROR(RecoverSegments(kept_paths));
  RETURN_IF_ERROR(RecoverStored());
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> bound,
                   context_.records.Scan("bound/"));
  for (const RecordStore::Record& value : bound) {
    ASSIGN_OR_RETURN(const records::BoundRecord record,
                     ParseRecord<records::BoundRecord>(value));
    const auto key = ContributionKey::FromProto(record.info().key());
    if (!context_.HoldsBlocks(key.fragment)) continue;
    std::unique_ptr<Segment> segment = TakeFreeSegment(key, record.segment());
    // It was never acknowledged: without its segment it is pushed again.
    if (segment == nullptr) continue;
    RETURN_IF_ERROR(RecoverPartial(record, std::move(segment)));
  }
  RETURN_IF_ERROR(RecoverRefused());
  DropUselessSegments();
  return absl::OkStatus();
}

void ContributionLog::AddRecovered(RecoveredShard& recovered) const {
  MutexLock lock(&mutex_);
  for (const auto& [key, contribution] : contributions_) {
    const bool is_stored =
        contribution->state() == Contribution::State::kStored;
    if (key.is_import()) {
      if (is_stored) recovered.imported.insert(key.fragment);
    } else if (is_stored) {
      recovered.stored.push_back(
          {contribution->info(), contribution->NormSquared()});
    } else {
      recovered.partial.push_back(contribution->info());
    }
  }
  recovered.refused = refused_;
  recovered.lost = lost_;
}

absl::Status ContributionLog::RecoverSegments(
    const std::set<std::string>& kept_paths) {
  const std::string directory = context_.names.log();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListShardFiles(context_.fs, directory, "log"));
  for (const std::string& name : names) {
    auto segment = std::make_unique<Segment>();
    segment->path = absl::StrCat(directory, "/", name);
    // KeptLog opens it for its readers.
    if (kept_paths.count(segment->path) != 0) continue;
    ASSIGN_OR_RETURN(segment->file, context_.fs.OpenForWrite(segment->path));
    std::string page(kHeaderPageBytes, '\0');
    records::SegmentHeader header;
    const absl::StatusOr<int64_t> page_bytes =
        segment->file->ReadAt(0, absl::MakeSpan(page));
    if (!page_bytes.ok()) {
      // A later start may be able to read it, so the file stays, and no other
      // segment gets its name. Its contribution is lost until then.
      LOG(ERROR) << "run " << context_.run.run_id()
                 << ": a segment cannot be read: " << page_bytes.status();
      long long number = 0;
      std::sscanf(name.c_str(), "%lld.seg", &number);
      MutexLock lock(&mutex_);
      next_segment_ = std::max<int64_t>(next_segment_, number + 1);
      continue;
    }
    // The rest of a short page is zeros.
    absl::Status read =
        DecodeHeaderPage(page, "ATOLLSEG", segment->path, &header);
    if (read.ok() &&
        (header.fragment() < 0 ||
         header.fragment() >= context_.layout.fragment_count() ||
         context_.names.SegmentPath(header.segment()) != segment->path)) {
      read = absl::DataLossError("misplaced segment");
    }
    if (read.ok()) {
      ASSIGN_OR_RETURN(const int64_t size, segment->file->Size());
      if (size <
          static_cast<int64_t>(kHeaderPageBytes) + header.payload_bytes()) {
        read = absl::DataLossError("short segment");
      }
    }
    if (!read.ok()) {
      // The process died before it wrote a record for the segment. If a record
      // does name it, RecoverStored reports the contribution as lost.
      segment->file.reset();
      RETURN_IF_ERROR(context_.fs.Remove(segment->path));
      continue;
    }
    segment->number = header.segment();
    segment->payload_bytes = header.payload_bytes();
    MutexLock lock(&mutex_);
    next_segment_ = std::max(next_segment_, segment->number + 1);
    free_segments_[header.fragment()].push_back(std::move(segment));
  }
  return absl::OkStatus();
}

absl::Status ContributionLog::RecoverPartial(const records::BoundRecord& bound,
                                             std::unique_ptr<Segment> segment) {
  const auto key = ContributionKey::FromProto(bound.info().key());
  const ShardRange& range = context_.ranges[key.fragment];
  auto contribution = std::make_shared<Contribution>(
      bound.info(), context_.FindEncoded(key), std::move(segment));
  const std::string prefix =
      absl::StrCat(context_.names.KeyedName("chunk", key), "/");
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> chunks,
                   context_.records.Scan(prefix));
  std::vector<char> bytes;
  for (const RecordStore::Record& record : chunks) {
    ASSIGN_OR_RETURN(const records::ChunkRecord chunk,
                     ParseRecord<records::ChunkRecord>(record));
    const int64_t first =
        std::strtoll(record.first.c_str() + prefix.size(), nullptr, 10);
    for (int i = 0; i < chunk.block_crc32c_size(); ++i) {
      const IndexRange block = {first + i, first + i + 1};
      if (block.begin < range.blocks().begin ||
          block.end > range.blocks().end ||
          i >= chunk.block_norm_squared_size()) {
        break;
      }
      if (contribution->Claim(block).empty()) continue;
      const BlockFact fact = {chunk.block_crc32c(i),
                              chunk.block_norm_squared(i)};
      contribution->Settle(block, absl::MakeConstSpan(&fact, 1));
      // After a power loss the bytes may not be on the disk.
      bytes.resize(context_.FindEncoded(key).ByteCount(block));
      if (!contribution->ReadEncoded(block, bytes.data()).ok()) {
        contribution->Unsettle(block);
      }
    }
  }
  contribution->Reopen();
  MutexLock lock(&mutex_);
  contributions_[key] = std::move(contribution);
  return absl::OkStatus();
}

std::unique_ptr<Segment> ContributionLog::TakeFreeSegment(
    const ContributionKey& key, int64_t number) {
  const int64_t payload_bytes = context_.FindEncoded(key).byte_count();
  MutexLock lock(&mutex_);
  auto& free = free_segments_[key.fragment];
  for (auto it = free.begin(); it != free.end(); ++it) {
    if ((*it)->number != number) continue;
    if ((*it)->payload_bytes != payload_bytes) return nullptr;
    std::unique_ptr<Segment> segment = std::move(*it);
    free.erase(it);
    return segment;
  }
  return nullptr;
}

absl::Status ContributionLog::RecoverStored() {
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> stored,
                   context_.records.Scan("stored/"));
  for (const RecordStore::Record& value : stored) {
    ASSIGN_OR_RETURN(const records::StoredRecord record,
                     ParseRecord<records::StoredRecord>(value));
    if (!context_.HoldsBlocks(record.info().key().fragment())) {
      return absl::DataLossError(
          absl::StrCat("record ", value.first, " does not fit the layout"));
    }
    const auto key = ContributionKey::FromProto(record.info().key());
    std::unique_ptr<Segment> segment = TakeFreeSegment(key, record.segment());
    if (segment == nullptr || record.block_crc32c_size() !=
                                  context_.ranges[key.fragment].block_count()) {
      const std::string why =
          absl::StrCat(context_.names.SegmentPath(record.segment()),
                       " is missing or damaged");
      LOG(ERROR) << "run " << context_.run.run_id() << ": " << key.ToString()
                 << " is lost here: " << why;
      MutexLock lock(&mutex_);
      lost_[key] = why;
      // While a record names it, no other contribution may have this number.
      next_segment_ = std::max(next_segment_, record.segment() + 1);
      continue;
    }
    auto contribution = std::make_shared<Contribution>(
        record.info(), context_.FindEncoded(key), std::move(segment));
    contribution->MarkStored(
        record.norm_squared(),
        std::vector<uint32_t>(record.block_crc32c().begin(),
                              record.block_crc32c().end()));
    MutexLock lock(&mutex_);
    contributions_[key] = std::move(contribution);
  }
  return absl::OkStatus();
}

absl::Status ContributionLog::RecoverRefused() {
  ASSIGN_OR_RETURN(
      const std::vector<RecordStore::Record> refused,
      context_.records.Scan("refused/"));
  for (const RecordStore::Record& value : refused) {
    ASSIGN_OR_RETURN(const records::RefusedRecord record,
                     ParseRecord<records::RefusedRecord>(value));
    MutexLock lock(&mutex_);
    RefusedFact& fact = refused_[ContributionKey::FromProto(record.key())];
    fact.reason = record.reason();
    if (record.has_anchor_version()) {
      fact.anchor_version = record.anchor_version();
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::server
