#include "coordinator/store/rocksdb_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/status/status_macros.h"
#include "coordinator/store/batch_check.h"
#include "coordinator/store/log_directory.h"
#include "coordinator/store/range_compactor.h"
#include "coordinator/store/sealed_value.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

namespace atl::coordinator {
namespace {

std::string LogPrefix(const std::string& run_id) {
  return absl::StrCat("log/", run_id, "/");
}

std::string LogKey(const std::string& run_id, int64_t revision) {
  return absl::StrCat(LogPrefix(run_id), absl::StrFormat("%016x", revision));
}

std::string SnapshotKey(const std::string& run_id) {
  return absl::StrCat("snapshot/", run_id);
}

std::string HistoryPrefix(const std::string& run_id, HistoryTable table) {
  const auto name = [table]() -> absl::string_view {
    switch (table) {
      case HistoryTable::kRounds:
        return "round/";
      case HistoryTable::kEvaluations:
        return "evaluation/";
      case HistoryTable::kAudit:
        return "audit/";
      case HistoryTable::kEnrolments:
        return "enrolment/";
    }
    return "unknown/";
  };
  return absl::StrCat(name(), run_id, "/");
}

std::string HistoryKey(const std::string& run_id, HistoryTable table,
                       int64_t number) {
  return absl::StrCat(HistoryPrefix(run_id, table),
                      absl::StrFormat("%016x", number));
}

absl::string_view ToView(const rocksdb::Slice& slice) {
  return absl::string_view(slice.data(), slice.size());
}

// Equal snapshots give equal bytes.
std::string SerializeDeterministically(const storage::v1::Snapshot& snapshot) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    snapshot.SerializeToCodedStream(&coded);
  }
  return bytes;
}

// Deletes the rows with keys in [begin, end): a few one by one, as RocksDB
// reads slowly where many ranges are deleted, more of them as a range.
rocksdb::Status DeleteRows(rocksdb::DB& db, const std::string& begin,
                           const std::string& end, rocksdb::WriteBatch& write) {
  constexpr int kSingleMax = 64;
  std::unique_ptr<rocksdb::Iterator> it(db.NewIterator(rocksdb::ReadOptions()));
  int count = 0;
  for (it->Seek(begin); it->Valid() && it->key().compare(end) < 0; it->Next()) {
    if (count++ == kSingleMax) {
      write.DeleteRange(it->key(), end);
      break;
    }
    write.Delete(it->key());
  }
  return it->status();
}

// The rows of a run in tables that have many.
std::vector<RangeCompactor::Range> RunRanges(const std::string& run_id) {
  std::vector<RangeCompactor::Range> ranges;
  for (const std::string& prefix :
       {LogPrefix(run_id), HistoryPrefix(run_id, HistoryTable::kRounds),
        HistoryPrefix(run_id, HistoryTable::kEvaluations)}) {
    // '0' comes after the '/' that ends the prefix.
    ranges.push_back({prefix, prefix.substr(0, prefix.size() - 1) + "0"});
  }
  return ranges;
}

bool IsTrimmed(const Batch& batch, const HistoryRow& row) {
  return std::any_of(batch.trims.begin(), batch.trims.end(),
                     [&row](const HistoryTrim& trim) {
                       return trim.run_id == row.run_id &&
                              trim.table == row.table && row.number < trim.end;
                     });
}

}  // namespace

RocksDbStore::RocksDbStore(std::string directory,
                           std::unique_ptr<LogDatabase> database)
    : directory_(std::move(directory)),
      database_(std::move(database)),
      compactor_(std::make_unique<RangeCompactor>(
          [database = database_.get()] { return database->Peek(); })) {}

RocksDbStore::~RocksDbStore() = default;

absl::StatusOr<std::unique_ptr<RocksDbStore>> RocksDbStore::OpenIn(
    LogDatabase::Mode mode, const std::string& directory, FileSystem& files,
    std::shared_ptr<rocksdb::FileSystem> database_files) {
  for (const char* name : {"/records", "/identity"}) {
    if (!files.Exists(directory + name)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(directory,
                     " is a parameter server's data directory; give another "
                     "--data-dir"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<LogDatabase> database,
                   LogDatabase::Open(directory, files,
                                     database_files != nullptr
                                         ? std::move(database_files)
                                         : rocksdb::FileSystem::Default(),
                                     mode));
  return std::unique_ptr<RocksDbStore>(
      new RocksDbStore(directory, std::move(database)));
}

absl::StatusOr<bool> RocksDbStore::HasLog() const {
  if (!damage().ok()) return true;
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, ListLogs());
  return !ids.empty();
}

absl::StatusOr<std::unique_ptr<RocksDbStore>> RocksDbStore::OpenExisting(
    LogDatabase::Mode mode, const std::string& directory, FileSystem& files,
    std::shared_ptr<rocksdb::FileSystem> database_files) {
  auto store = OpenIn(mode, directory, files, std::move(database_files));
  if (absl::IsNotFound(store.status())) return NoLogError(directory);
  RETURN_IF_ERROR(store.status());
  ASSIGN_OR_RETURN(const bool has_log, (*store)->HasLog());
  if (!has_log) return NoLogError(directory);
  return store;
}

absl::StatusOr<std::unique_ptr<RocksDbStore>> RocksDbStore::Open(
    const std::string& directory, FileSystem& files,
    std::shared_ptr<rocksdb::FileSystem> database_files) {
  return OpenExisting(LogDatabase::Mode::kOpen, directory, files,
                      std::move(database_files));
}

absl::StatusOr<std::unique_ptr<RocksDbStore>> RocksDbStore::OpenToRead(
    const std::string& directory, FileSystem& files) {
  return OpenExisting(LogDatabase::Mode::kRead, directory, files, nullptr);
}

absl::StatusOr<std::unique_ptr<RocksDbStore>> RocksDbStore::Create(
    const std::string& directory, FileSystem& files,
    std::shared_ptr<rocksdb::FileSystem> database_files) {
  RETURN_IF_ERROR(CheckFreeForLog(directory));
  ASSIGN_OR_RETURN(std::unique_ptr<RocksDbStore> store,
                   OpenIn(LogDatabase::Mode::kCreate, directory, files,
                          std::move(database_files)));
  ASSIGN_OR_RETURN(const bool has_log, store->HasLog());
  if (!has_log) return store;
  return absl::AlreadyExistsError(
      absl::StrCat(directory, " has a coordinator's log"));
}

absl::Status RocksDbStore::JumpTo(int64_t index) {
  MutexLock lock(&mutex_);
  return database_->JumpTo(index);
}

int64_t RocksDbStore::index() const { return database_->index(); }

absl::Status RocksDbStore::damage() const { return database_->damage(); }

absl::StatusOr<int64_t> RocksDbStore::NewestRevision(
    rocksdb::DB& db, const std::string& run_id) const {
  std::unique_ptr<rocksdb::Iterator> it(db.NewIterator(rocksdb::ReadOptions()));
  const std::string prefix = LogPrefix(run_id);
  it->SeekForPrev(LogKey(run_id, INT64_MAX));
  RETURN_IF_ERROR(database_->ToStatus(it->status()));
  if (!it->Valid() || !it->key().starts_with(prefix)) return 0;
  int64_t revision = 0;
  if (!absl::SimpleHexAtoi(ToView(it->key()).substr(prefix.size()),
                           &revision)) {
    return absl::DataLossError(
        absl::StrCat(directory_, ": a key of run \"", run_id, "\" is wrong"));
  }
  return revision;
}

absl::Status RocksDbStore::Append(const Batch& batch) {
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const std::shared_ptr<rocksdb::DB> db,
                   database_->GetForWrite());
  if (batch.empty()) return absl::OkStatus();
  const auto& known = newest_;
  const auto newest =
      [&](const std::string& run_id) -> absl::StatusOr<int64_t> {
    const auto found = known.find(run_id);
    if (found != known.end()) return found->second;
    return NewestRevision(*db, run_id);
  };
  ASSIGN_OR_RETURN(const auto revisions, RevisionsAfter(batch, newest));
  rocksdb::WriteBatch write;
  std::vector<std::pair<RangeCompactor::Range, int64_t>> freed;
  for (const std::string& run_id : batch.deleted_runs) {
    const std::vector<RangeCompactor::Range> ranges = RunRanges(run_id);
    for (const RangeCompactor::Range& range : ranges) {
      RETURN_IF_ERROR(
          database_->ToStatus(DeleteRows(*db, range.begin, range.end, write)));
    }
    write.Delete(SnapshotKey(run_id));
    auto measured = RangeCompactor::Measure(*db, ranges);
    std::move(measured.begin(), measured.end(), std::back_inserter(freed));
  }
  for (const LogEntry& entry : batch.entries) {
    write.Put(LogKey(entry.run_id, entry.record.revision()),
              Seal(entry.record.SerializeAsString()));
  }
  for (const HistoryTrim& trim : batch.trims) {
    RETURN_IF_ERROR(database_->ToStatus(DeleteRows(
        *db, HistoryKey(trim.run_id, trim.table, 0),
        HistoryKey(trim.run_id, trim.table, std::max<int64_t>(trim.end, 0)),
        write)));
  }
  for (const HistoryRow& row : batch.history) {
    if (IsTrimmed(batch, row)) continue;
    write.Put(HistoryKey(row.run_id, row.table, row.number), Seal(row.value));
  }
  for (const LogSnapshot& taken : batch.snapshots) {
    write.Put(SnapshotKey(taken.run_id),
              Seal(SerializeDeterministically(taken.snapshot)));
    write.DeleteRange(
        LogKey(taken.run_id, 0),
        LogKey(taken.run_id, taken.snapshot.compacted_revision() + 1));
  }
  const absl::Status status = database_->Write(*db, write);
  if (!status.ok()) {
    newest_.clear();
    return status;
  }
  for (const auto& [run_id, revision] : revisions) {
    if (revision > 0) {
      newest_[run_id] = revision;
    } else {
      newest_.erase(run_id);
    }
  }
  compactor_->Compact(std::move(freed));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<storage::v1::Snapshot>> RocksDbStore::ReadSnapshot(
    const std::string& run_id) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<rocksdb::DB> db, database_->Get());
  std::string value;
  const rocksdb::Status read =
      db->Get(rocksdb::ReadOptions(), SnapshotKey(run_id), &value);
  if (read.IsNotFound()) return std::nullopt;
  RETURN_IF_ERROR(database_->ToStatus(read));
  absl::string_view bytes;
  storage::v1::Snapshot snapshot;
  if (!Unseal(value, bytes) ||
      !snapshot.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError(
        absl::StrCat(directory_, ": the snapshot of run \"", run_id,
                     "\" is damaged: restore the store from a copy"));
  }
  return snapshot;
}

absl::Status RocksDbStore::CheckKept(const std::string& run_id,
                                     int64_t after_revision) const {
  ASSIGN_OR_RETURN(const auto snapshot, ReadSnapshot(run_id));
  if (snapshot.has_value() && after_revision < snapshot->compacted_revision()) {
    return Compacted(run_id, snapshot->compacted_revision());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<storage::v1::Record>> RocksDbStore::Scan(
    const std::string& run_id, int64_t after_revision,
    int64_t count_max) const {
  std::vector<storage::v1::Record> records;
  const std::string prefix = LogPrefix(run_id);
  ASSIGN_OR_RETURN(const std::shared_ptr<rocksdb::DB> db, database_->Get());
  std::unique_ptr<rocksdb::Iterator> it(
      db->NewIterator(rocksdb::ReadOptions()));
  const int64_t begin = std::max<int64_t>(after_revision, 0);
  if (begin == INT64_MAX) return records;
  int64_t expected = begin + 1;
  for (it->Seek(LogKey(run_id, begin + 1));
       it->Valid() && it->key().starts_with(prefix) &&
       static_cast<int64_t>(records.size()) < count_max;
       it->Next()) {
    absl::string_view bytes;
    storage::v1::Record record;
    const bool is_whole =
        Unseal(ToView(it->value()), bytes) &&
        record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    if (is_whole && records.empty() && record.revision() > expected) {
      if (begin > 0) RETURN_IF_ERROR(CheckKept(run_id, begin));
      if (begin == 0) expected = record.revision();
    }
    if (!is_whole || record.revision() != expected) {
      return absl::DataLossError(
          absl::StrCat(directory_, ": record ", expected, " of run \"", run_id,
                       "\" is damaged: restore the store from a copy"));
    }
    records.push_back(std::move(record));
    ++expected;
  }
  RETURN_IF_ERROR(database_->ToStatus(it->status()));
  return records;
}

absl::StatusOr<std::vector<HistoryRow>> RocksDbStore::ReadHistory(
    const std::string& run_id, HistoryTable table, int64_t begin, int64_t end,
    int64_t bytes_max) const {
  std::vector<HistoryRow> rows;
  const std::string prefix = HistoryPrefix(run_id, table);
  ASSIGN_OR_RETURN(const std::shared_ptr<rocksdb::DB> db, database_->Get());
  std::unique_ptr<rocksdb::Iterator> it(
      db->NewIterator(rocksdb::ReadOptions()));
  int64_t byte_count = 0;
  for (it->Seek(HistoryKey(run_id, table, std::max<int64_t>(begin, 0)));
       it->Valid() && it->key().starts_with(prefix) && byte_count < bytes_max;
       it->Next()) {
    HistoryRow row = {run_id, table, 0, ""};
    absl::string_view bytes;
    const bool has_number = absl::SimpleHexAtoi(
        ToView(it->key()).substr(prefix.size()), &row.number);
    if (has_number && row.number >= end) break;
    if (!has_number || !Unseal(ToView(it->value()), bytes)) {
      return absl::DataLossError(
          absl::StrCat(directory_, ": \"", ToView(it->key()),
                       "\" is damaged: restore the store from a copy"));
    }
    row.value = std::string(bytes);
    byte_count += static_cast<int64_t>(bytes.size());
    rows.push_back(std::move(row));
  }
  RETURN_IF_ERROR(database_->ToStatus(it->status()));
  return rows;
}

absl::StatusOr<std::vector<std::string>> RocksDbStore::ListLogs() const {
  std::vector<std::string> ids;
  ASSIGN_OR_RETURN(const std::shared_ptr<rocksdb::DB> db, database_->Get());
  std::unique_ptr<rocksdb::Iterator> it(
      db->NewIterator(rocksdb::ReadOptions()));
  for (it->Seek("log/"); it->Valid() && it->key().starts_with("log/");) {
    const absl::string_view rest = ToView(it->key()).substr(4);
    const size_t slash = rest.find('/');
    if (slash == absl::string_view::npos) {
      return absl::DataLossError(
          absl::StrCat(directory_, ": a key of it is wrong"));
    }
    ids.emplace_back(rest.substr(0, slash));
    it->Seek(LogKey(ids.back(), INT64_MAX));
    if (it->Valid() && it->key().starts_with(LogPrefix(ids.back()))) it->Next();
  }
  RETURN_IF_ERROR(database_->ToStatus(it->status()));
  // '-' sorts before the '/' that ends an id.
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace atl::coordinator
