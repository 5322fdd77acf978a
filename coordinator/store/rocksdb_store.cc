#include "coordinator/store/rocksdb_store.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/codec/crc32c.h"
#include "base/obs/rocksdb_log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "coordinator/store/batch_check.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "rocksdb/db.h"
#include "rocksdb/iterator.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

namespace atl::coordinator {
namespace {

constexpr char kFormatKey[] = "format";

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
  return absl::StrCat(table == HistoryTable::kRounds ? "round/" : "evaluation/",
                      run_id, "/");
}

std::string HistoryKey(const std::string& run_id, HistoryTable table,
                       int64_t number) {
  return absl::StrCat(HistoryPrefix(run_id, table),
                      absl::StrFormat("%016x", number));
}

absl::string_view ToView(const rocksdb::Slice& slice) {
  return absl::string_view(slice.data(), slice.size());
}

std::string Seal(std::string bytes) {
  const uint32_t crc = codec::Crc32c(bytes);
  char tail[4];
  std::memcpy(tail, &crc, 4);
  bytes.append(tail, 4);
  return bytes;
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

bool Unseal(absl::string_view value, absl::string_view& bytes) {
  if (value.size() < 4) return false;
  bytes = value.substr(0, value.size() - 4);
  uint32_t crc;
  std::memcpy(&crc, value.data() + bytes.size(), 4);
  return crc == codec::Crc32c(bytes);
}

absl::Status ToStatus(const rocksdb::Status& status,
                      const std::string& directory) {
  if (status.ok()) return absl::OkStatus();
  const std::string text =
      absl::StrCat("the store in ", directory, ": ", status.ToString());
  if (status.IsNoSpace() || text.find("No space left") != std::string::npos) {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, "; free space on its disk"));
  }
  if (status.IsCorruption()) return absl::DataLossError(text);
  return absl::UnavailableError(text);
}

}  // namespace

RocksDbStore::RocksDbStore(std::string directory,
                           std::unique_ptr<rocksdb::DB> db)
    : directory_(std::move(directory)), db_(std::move(db)) {}

RocksDbStore::~RocksDbStore() = default;

absl::StatusOr<std::unique_ptr<RocksDbStore>> RocksDbStore::Open(
    const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return ErrnoToStatus(error.value(),
                         absl::StrCat("--data-dir: cannot make ", directory));
  }
  if (std::filesystem::exists(directory + "/records", error)) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory,
                     " is a parameter server's data directory; give another "
                     "--data-dir"));
  }
  rocksdb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  // A crash leaves a torn tail of RocksDB's log; any other damage is an error.
  options.wal_recovery_mode =
      rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.write_buffer_size = 8 << 20;
  options.max_total_wal_size = 64 << 20;
  options.max_open_files = 256;
  options.info_log = RocksDbLog();
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(options, directory, &raw);
  if (!opened.ok()) {
    const std::string text = opened.ToString();
    if (text.find("lock") != std::string::npos ||
        text.find("LOCK") != std::string::npos) {
      return absl::FailedPreconditionError(
          absl::StrCat(directory,
                       " is in use by another process: stop it, or choose "
                       "another --data-dir"));
    }
    const absl::Status status = ToStatus(opened, directory);
    if (absl::IsResourceExhausted(status)) return status;
    return absl::DataLossError(absl::StrCat(
        directory, " cannot be opened as a coordinator's store: ", text,
        "; restore it from a copy, or choose an empty --data-dir"));
  }
  std::unique_ptr<RocksDbStore> store(
      new RocksDbStore(directory, std::unique_ptr<rocksdb::DB>(raw)));
  RETURN_IF_ERROR(store->CheckFormat());
  return store;
}

absl::Status RocksDbStore::CheckFormat() {
  std::string value;
  const rocksdb::Status read =
      db_->Get(rocksdb::ReadOptions(), kFormatKey, &value);
  if (read.IsNotFound()) {
    std::unique_ptr<rocksdb::Iterator> any(
        db_->NewIterator(rocksdb::ReadOptions()));
    any->SeekToFirst();
    if (any->Valid()) {
      return absl::DataLossError(
          absl::StrCat(directory_,
                       " holds a database that is not a coordinator's: choose "
                       "another --data-dir"));
    }
    rocksdb::WriteOptions write;
    write.sync = true;
    return ToStatus(db_->Put(write, kFormatKey, absl::StrCat(kStoreFormat)),
                    directory_);
  }
  RETURN_IF_ERROR(ToStatus(read, directory_));
  int64_t format = 0;
  if (!absl::SimpleAtoi(value, &format) || format < 1) {
    return absl::DataLossError(
        absl::StrCat(directory_, ": its format cannot be read"));
  }
  if (format != kStoreFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory_, " has format ", format, ", not this program's ",
        kStoreFormat, ": use the program that wrote it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RocksDbStore::NewestRevision(
    const std::string& run_id) const {
  std::unique_ptr<rocksdb::Iterator> it(
      db_->NewIterator(rocksdb::ReadOptions()));
  const std::string prefix = LogPrefix(run_id);
  it->SeekForPrev(LogKey(run_id, INT64_MAX));
  RETURN_IF_ERROR(ToStatus(it->status(), directory_));
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
  // After a disk error RocksDB refuses writes until Resume.
  RETURN_IF_ERROR(ToStatus(db_->Resume(), directory_));
  const auto& known = newest_;
  const auto newest =
      [&](const std::string& run_id) -> absl::StatusOr<int64_t> {
    const auto found = known.find(run_id);
    if (found != known.end()) return found->second;
    return NewestRevision(run_id);
  };
  ASSIGN_OR_RETURN(const auto revisions, RevisionsAfter(batch, newest));
  rocksdb::WriteBatch write;
  for (const LogEntry& entry : batch.entries) {
    write.Put(LogKey(entry.run_id, entry.record.revision()),
              Seal(entry.record.SerializeAsString()));
  }
  for (const HistoryRow& row : batch.history) {
    write.Put(HistoryKey(row.run_id, row.table, row.number), Seal(row.value));
  }
  for (const LogSnapshot& taken : batch.snapshots) {
    write.Put(SnapshotKey(taken.run_id),
              Seal(SerializeDeterministically(taken.snapshot)));
    write.DeleteRange(
        LogKey(taken.run_id, 0),
        LogKey(taken.run_id, taken.snapshot.compacted_revision() + 1));
  }
  rocksdb::WriteOptions options;
  options.sync = true;
  const absl::Status status = ToStatus(db_->Write(options, &write), directory_);
  if (!status.ok()) {
    newest_.clear();
    return status;
  }
  for (const auto& [run_id, revision] : revisions) newest_[run_id] = revision;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<storage::v1::Snapshot>> RocksDbStore::ReadSnapshot(
    const std::string& run_id) const {
  std::string value;
  const rocksdb::Status read =
      db_->Get(rocksdb::ReadOptions(), SnapshotKey(run_id), &value);
  if (read.IsNotFound()) return std::nullopt;
  RETURN_IF_ERROR(ToStatus(read, directory_));
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
  std::unique_ptr<rocksdb::Iterator> it(
      db_->NewIterator(rocksdb::ReadOptions()));
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
  RETURN_IF_ERROR(ToStatus(it->status(), directory_));
  return records;
}

absl::StatusOr<std::vector<HistoryRow>> RocksDbStore::ReadHistory(
    const std::string& run_id, HistoryTable table, int64_t begin, int64_t end,
    int64_t bytes_max) const {
  std::vector<HistoryRow> rows;
  const std::string prefix = HistoryPrefix(run_id, table);
  std::unique_ptr<rocksdb::Iterator> it(
      db_->NewIterator(rocksdb::ReadOptions()));
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
  RETURN_IF_ERROR(ToStatus(it->status(), directory_));
  return rows;
}

absl::StatusOr<std::vector<std::string>> RocksDbStore::ListLogs() const {
  std::vector<std::string> ids;
  std::unique_ptr<rocksdb::Iterator> it(
      db_->NewIterator(rocksdb::ReadOptions()));
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
  RETURN_IF_ERROR(ToStatus(it->status(), directory_));
  // '-' sorts before the '/' that ends an id.
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace atl::coordinator
