// How a run is opened: records first, then the files that they name, then what
// nothing names is removed.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/codec/codec.h"
#include "base/layout/exchange.h"
#include "base/obs/log.h"
#include "base/status/cut_utf8.h"
#include "base/status/status_macros.h"
#include "server/core/shard_machine.h"
#include "server/store/header_page.h"
#include "server/store/run_store.h"

namespace atl::server {
namespace {

template <typename Message>
absl::StatusOr<Message> Parse(const RecordStore::Record& record) {
  Message message;
  if (!message.ParseFromString(record.second)) {
    return absl::DataLossError(
        absl::StrCat("record ", record.first, " is damaged"));
  }
  return message;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunStore>> RunStore::Open(
    FileSystem& fs, RecordStore& records, const std::string& data_dir,
    const records::RunRecord& record, int state_count,
    std::shared_ptr<ImagePool> images) {
  ASSIGN_OR_RETURN(RunLayout layout,
                   RunLayout::Create(record.run().spec().layout()));
  const v1::ExchangeSpec& exchange = record.run().spec().exchange();
  if (exchange.down() != v1::CODEC_UNSPECIFIED &&
      codec::FindCodec(exchange.down()) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange.down is ", static_cast<int>(exchange.down()),
                     ", which this program does not know"));
  }
  const std::string directory =
      ShardNames(data_dir, record.run().run_id()).directory();
  RETURN_IF_ERROR(fs.CreateDirectories(absl::StrCat(directory, "/versions")));
  RETURN_IF_ERROR(fs.CreateDirectories(absl::StrCat(directory, "/log")));
  RETURN_IF_ERROR(
      fs.CreateDirectories(absl::StrCat(directory, "/checkpoints")));
  for (const std::string& parent :
       {data_dir, absl::StrCat(data_dir, "/runs"), directory}) {
    RETURN_IF_ERROR(fs.SyncDirectory(parent));
  }
  std::unique_ptr<RunStore> store(new RunStore(fs, records, data_dir, record,
                                               std::move(layout), state_count,
                                               std::move(images)));
  RETURN_IF_ERROR(store->RecoverState());
  RETURN_IF_ERROR(store->RecoverVersions());
  RETURN_IF_ERROR(store->RecoverSums());
  RETURN_IF_ERROR(store->RecoverDeltas());
  RETURN_IF_ERROR(store->manifests_.Recover());
  RETURN_IF_ERROR(store->kept_.Recover());
  {
    MutexLock lock(&store->mutex_);
    store->next_segment_ = store->kept_.last_segment() + 1;
  }
  RETURN_IF_ERROR(store->RecoverSegments());
  RETURN_IF_ERROR(store->RecoverContributions());
  store->DropUselessSegments();
  return store;
}

absl::Status RunStore::RecoverState() {
  const std::string name = names_.RecordName("state");
  const absl::StatusOr<std::string> value = records_.Get(name);
  if (value.ok()) {
    ASSIGN_OR_RETURN(records::StateRecord state,
                     Parse<records::StateRecord>({name, *value}));
    if (state.fragments_size() != layout_.fragment_count()) {
      return absl::DataLossError(
          absl::StrCat("record ", name, " does not fit the layout"));
    }
    MutexLock lock(&mutex_);
    state_ = std::move(state);
  } else if (absl::IsNotFound(value.status())) {
    MutexLock lock(&mutex_);
    state_.set_run_epoch(run_.run_epoch());
    for (const ShardRange& range : ranges_) {
      // Of what it has no block, it has version 0.
      state_.add_fragments()->set_version(range.empty() ? 0 : -1);
    }
  } else {
    return value.status();
  }
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> prepared,
                   records_.Scan(names_.RecordName("prepared/")));
  for (const RecordStore::Record& record : prepared) {
    ASSIGN_OR_RETURN(const records::PreparedRecord fact,
                     Parse<records::PreparedRecord>(record));
    if (fact.fragment() < 0 || fact.fragment() >= layout_.fragment_count()) {
      return absl::DataLossError(
          absl::StrCat("record ", record.first, " does not fit the layout"));
    }
    MutexLock lock(&mutex_);
    prepared_.push_back({fact.fragment(), fact.version(), fact.attempt(),
                         Digest128::FromProto(fact.digest()), fact.finite(),
                         fact.norm_squared(),
                         Digest128::FromProto(fact.replica_digest())});
  }
  return absl::OkStatus();
}

absl::Status RunStore::RecoverVersions() {
  const std::string directory = absl::StrCat(names_.directory(), "/versions");
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(directory));
  records::StateRecord state;
  {
    MutexLock lock(&mutex_);
    state = state_;
  }
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    long long fragment = -1, version = -1;
    char end = 0;
    const bool parsed = std::sscanf(name.c_str(), "f%lld-v%lld.ve%c", &fragment,
                                    &version, &end) == 3 &&
                        end == 'r' && absl::EndsWith(name, ".ver") &&
                        fragment >= 0 && fragment < layout_.fragment_count();
    // What is not in STATE may be prepared, and its contributions gone.
    if (merges_live_ && end == 'r' && fragment >= 0 &&
        fragment < layout_.fragment_count() &&
        version == state.fragments(fragment).version() + 1) {
      ASSIGN_OR_RETURN(
          const bool adopted,
          AdoptPrepared(path, static_cast<int32_t>(fragment), version));
      if (adopted) continue;
    }
    // What a crash left half made, and what was renamed but is not in STATE.
    if (!parsed || version > state.fragments(fragment).version()) {
      RETURN_IF_ERROR(fs_.Remove(path));
      continue;
    }
    absl::StatusOr<std::shared_ptr<VersionFile>> opened =
        VersionFile::Open(fs_, path, ranges_[fragment], state_count_);
    if (opened.ok()) {
      const VersionIdentity& found = (*opened)->identity();
      if (found.run_id != run_.run_id() || found.shard != shard_ ||
          found.version != version) {
        opened = absl::DataLossError(
            absl::StrCat(path, " is another version than its name says"));
      }
    }
    if (!opened.ok()) {
      if (version == state.fragments(fragment).version()) {
        return opened.status();
      }
      // Nothing is made from it any more. Who asks for it learns that it is
      // not held; the file stays for whoever wants to look at it.
      LOG(ERROR) << "run " << run_.run_id()
                 << ": an old version is lost: " << opened.status().ToString();
      continue;
    }
    const std::shared_ptr<VersionFile> file = *std::move(opened);
    const VersionIdentity& identity = file->identity();
    HeldVersion held = {file, identity.commit_seq, identity.digest,
                        identity.replica_digest};
    PublishVersion(static_cast<int32_t>(fragment), version, std::move(held));
  }
  for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
    const records::FragmentState& fragment = state.fragments(f);
    if (ranges_[f].empty() || fragment.version() < 0) continue;
    const std::optional<HeldVersion> held = FindVersion(f, fragment.version());
    if (!held) {
      return absl::DataLossError(absl::StrCat(
          names_.VersionPath(f, fragment.version()), " is missing"));
    }
    if (held->digest != Digest128::FromProto(fragment.digest())) {
      return absl::DataLossError(
          absl::StrCat(names_.VersionPath(f, fragment.version()),
                       " has another digest than its record"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RunStore::AdoptPrepared(const std::string& path,
                                             int32_t fragment,
                                             int64_t version) {
  std::optional<PreparedFact> recorded;
  {
    MutexLock lock(&mutex_);
    for (const PreparedFact& fact : prepared_) {
      if (fact.fragment == fragment && fact.version + 1 == version) {
        recorded = fact;
      }
    }
  }
  const ShardRange& range = ranges_[fragment];
  if (!recorded || range.empty()) return false;
  absl::StatusOr<std::unique_ptr<VersionFile>> opened =
      VersionFile::Open(fs_, path, range, state_count_, /*writable=*/true);
  if (absl::IsUnavailable(opened.status())) return opened.status();
  if (!opened.ok()) return false;
  const VersionIdentity& identity = (*opened)->identity();
  if (identity.run_id != run_.run_id() || identity.shard != shard_ ||
      identity.version != version || identity.digest != recorded->digest ||
      identity.replica_digest != recorded->replica_digest) {
    return false;
  }
  // Every block, because not every one need have reached a disk that lost
  // power.
  Digest128 digest, replica_digest;
  std::vector<float> elements;
  for (int64_t b = range.blocks().begin; b < range.blocks().end; ++b) {
    const IndexRange block = {b, b + 1};
    elements.resize(range.ElementCount(block));
    for (int array = 0; array <= state_count_; ++array) {
      const absl::Status read =
          (*opened)->Read(array, block, elements.data());
      if ((*opened)->disk_has_failed()) {
        return absl::UnavailableError(read.message());
      }
      if (!read.ok()) return false;
      if (array == 0) digest += BlockDigest(b, elements);
    }
    // The last array.
    if (HasReplica(run_.spec())) replica_digest += BlockDigest(b, elements);
  }
  if (digest != recorded->digest ||
      replica_digest != recorded->replica_digest) {
    return false;
  }
  PublishVersion(fragment, version,
                 {*std::move(opened), 0, digest, replica_digest});
  MutexLock lock(&mutex_);
  prepared_here_.insert(fragment);
  return true;
}

absl::Status RunStore::RecoverSegments() {
  const std::string directory = absl::StrCat(names_.directory(), "/log");
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(directory));
  const std::set<std::string> kept = kept_.Paths();
  for (const std::string& name : names) {
    auto segment = std::make_unique<Segment>();
    segment->path = absl::StrCat(directory, "/", name);
    // Opened when it is asked for.
    if (kept.count(segment->path) != 0) continue;
    ASSIGN_OR_RETURN(segment->file, fs_.OpenForWrite(segment->path));
    std::string page(kHeaderPageBytes, '\0');
    records::SegmentHeader header;
    const absl::StatusOr<int64_t> page_bytes =
        segment->file->ReadAt(0, absl::MakeSpan(page));
    if (!page_bytes.ok()) {
      // What the disk does not give now it may give at another start: it stays,
      // and nobody else gets its name. What is in it is lost until then.
      LOG(ERROR) << "run " << run_.run_id()
                 << ": a segment cannot be read: " << page_bytes.status();
      long long number = 0;
      std::sscanf(name.c_str(), "%lld.seg", &number);
      MutexLock lock(&mutex_);
      next_segment_ = std::max<int64_t>(next_segment_, number + 1);
      continue;
    }
    // Of a short one the rest is zeros.
    absl::Status read =
        DecodeHeaderPage(page, "ATOLLSEG", segment->path, &header);
    if (read.ok() && (header.fragment() < 0 ||
                      header.fragment() >= layout_.fragment_count() ||
                      names_.SegmentPath(header.segment()) != segment->path)) {
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
      // Made by a process that died: no record can name it. If one does, the
      // contribution is lost, and RecoverStored says so.
      segment->file.reset();
      RETURN_IF_ERROR(fs_.Remove(segment->path));
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

absl::Status RunStore::RecoverPartial(const records::BoundRecord& bound,
                                      std::unique_ptr<Segment> segment) {
  const auto key = ContributionKey::FromProto(bound.info().key());
  const ShardRange& range = ranges_[key.fragment];
  auto contribution = std::make_shared<Contribution>(
      bound.info(), FindEncoded(key), std::move(segment));
  const std::string prefix = absl::StrCat(names_.KeyedName("chunk", key), "/");
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> chunks,
                   records_.Scan(prefix));
  std::vector<char> bytes;
  for (const RecordStore::Record& record : chunks) {
    ASSIGN_OR_RETURN(const records::ChunkRecord chunk,
                     Parse<records::ChunkRecord>(record));
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
      // Power may have been cut before the bytes reached the disk.
      bytes.resize(FindEncoded(key).ByteCount(block));
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

std::unique_ptr<Segment> RunStore::TakeFreeSegment(const ContributionKey& key,
                                                   int64_t number) {
  const int64_t payload_bytes = FindEncoded(key).byte_count();
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

bool RunStore::Fits(const v1::ContributionKey& key) const {
  return key.fragment() >= 0 && key.fragment() < layout_.fragment_count() &&
         !ranges_[key.fragment()].empty();
}

absl::Status RunStore::RecoverStored() {
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> stored,
                   records_.Scan(names_.RecordName("stored/")));
  for (const RecordStore::Record& value : stored) {
    ASSIGN_OR_RETURN(const records::StoredRecord record,
                     Parse<records::StoredRecord>(value));
    if (!Fits(record.info().key())) {
      return absl::DataLossError(
          absl::StrCat("record ", value.first, " does not fit the layout"));
    }
    const auto key = ContributionKey::FromProto(record.info().key());
    std::unique_ptr<Segment> segment = TakeFreeSegment(key, record.segment());
    if (segment == nullptr ||
        record.block_crc32c_size() != ranges_[key.fragment].block_count()) {
      const std::string why = absl::StrCat(names_.SegmentPath(record.segment()),
                                           " is missing or damaged");
      LOG(ERROR) << "run " << run_.run_id() << ": " << key.ToString()
                 << " is lost here: " << why;
      MutexLock lock(&mutex_);
      lost_[key] = why;
      // While the record names it, no other contribution may have it.
      next_segment_ = std::max(next_segment_, record.segment() + 1);
      continue;
    }
    auto contribution = std::make_shared<Contribution>(
        record.info(), FindEncoded(key), std::move(segment));
    contribution->MarkStored(
        record.norm_squared(),
        std::vector<uint32_t>(record.block_crc32c().begin(),
                              record.block_crc32c().end()));
    MutexLock lock(&mutex_);
    contributions_[key] = std::move(contribution);
  }
  return absl::OkStatus();
}

absl::Status RunStore::RecoverContributions() {
  RETURN_IF_ERROR(RecoverStored());
  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> bound,
                   records_.Scan(names_.RecordName("bound/")));
  for (const RecordStore::Record& value : bound) {
    ASSIGN_OR_RETURN(const records::BoundRecord record,
                     Parse<records::BoundRecord>(value));
    if (!Fits(record.info().key())) continue;
    const auto key = ContributionKey::FromProto(record.info().key());
    std::unique_ptr<Segment> segment = TakeFreeSegment(key, record.segment());
    // Never acknowledged: without its segment it starts over.
    if (segment == nullptr) continue;
    RETURN_IF_ERROR(RecoverPartial(record, std::move(segment)));
  }

  ASSIGN_OR_RETURN(const std::vector<RecordStore::Record> refused,
                   records_.Scan(names_.RecordName("refused/")));
  for (const RecordStore::Record& value : refused) {
    ASSIGN_OR_RETURN(const records::RefusedRecord record,
                     Parse<records::RefusedRecord>(value));
    MutexLock lock(&mutex_);
    RefusedFact& fact = refused_[ContributionKey::FromProto(record.key())];
    // Older programs wrote it whole.
    fact.reason = std::string(CutUtf8(record.reason(), kRefusalBytesMax));
    if (record.has_anchor_version()) {
      fact.anchor_version = record.anchor_version();
    }
  }
  return absl::OkStatus();
}

}  // namespace atl::server
