#include "server/store/records/rocksdb_record_store.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/obs/rocksdb_log.h"
#include "base/status/status_macros.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

namespace atl::server {
namespace {

// Format of the names and values in the database.
constexpr char kFormatName[] = "format";
constexpr char kFormat[] = "2";

rocksdb::Slice ToSlice(absl::string_view text) {
  return rocksdb::Slice(text.data(), text.size());
}

absl::Status ToStatus(const rocksdb::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", status.ToString());
  if (status.IsNotFound()) return absl::NotFoundError(text);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(text);
  if (status.IsCorruption()) return absl::DataLossError(text);
  if (status.IsIOError() &&
      absl::StrContains(status.ToString(), "No space left")) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::UnknownError(text);
}

rocksdb::Options DatabaseOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  // Records are few and small: little memory, few files, few threads.
  options.write_buffer_size = 8 << 20;
  options.max_write_buffer_number = 2;
  options.max_background_jobs = 2;
  options.max_open_files = 64;
  options.recycle_log_file_num = 0;
  options.info_log = RocksDbLog();
  options.max_total_wal_size = 64 << 20;
  options.wal_recovery_mode =
      rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RocksDbRecordStore>> RocksDbRecordStore::Open(
    const std::string& directory) {
  // RocksDB would create it too, but logs an error first.
  std::error_code error;
  std::filesystem::create_directory(directory, error);
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened =
      rocksdb::DB::Open(DatabaseOptions(), directory, &raw);
  if (!opened.ok()) {
    if (opened.IsIOError() && absl::StrContains(opened.ToString(), "lock")) {
      return absl::FailedPreconditionError(
          absl::StrCat(directory,
                       " is in use by another process: stop it, or choose "
                       "another --data-dir"));
    }
    return ToStatus(opened, absl::StrCat("cannot open ", directory));
  }
  std::unique_ptr<RocksDbRecordStore> store(
      new RocksDbRecordStore(std::unique_ptr<rocksdb::DB>(raw)));
  const absl::StatusOr<std::string> format = store->Get(kFormatName);
  if (format.ok()) {
    if (*format != kFormat) {
      return absl::DataLossError(
          absl::StrCat(directory, " has format ", *format,
                       "; choose another --data-dir, because this program "
                       "reads format ",
                       kFormat));
    }
  } else if (absl::IsNotFound(format.status())) {
    RecordBatch batch;
    batch.Put(kFormatName, kFormat);
    RETURN_IF_ERROR(store->Write(batch, Sync::kMachine));
  } else {
    return format.status();
  }
  return store;
}

RocksDbRecordStore::RocksDbRecordStore(std::unique_ptr<rocksdb::DB> db)
    : db_(std::move(db)) {}

RocksDbRecordStore::~RocksDbRecordStore() = default;

absl::Status RocksDbRecordStore::Write(const RecordBatch& batch, Sync sync) {
  rocksdb::WriteBatch writes;
  for (const RecordBatch::Change& change : batch.changes()) {
    rocksdb::Status added;
    switch (change.kind) {
      case RecordBatch::Change::Kind::kPut:
        added = writes.Put(change.name, change.value);
        break;
      case RecordBatch::Change::Kind::kDelete:
        added = writes.Delete(change.name);
        break;
      case RecordBatch::Change::Kind::kDeletePrefix:
        added = writes.DeleteRange(change.name, PrefixEnd(change.name));
        break;
    }
    RETURN_IF_ERROR(ToStatus(added, "cannot batch records"));
  }
  rocksdb::WriteOptions options;
  options.sync = sync == Sync::kMachine;
  rocksdb::Status written = db_->Write(options, &writes);
  if (!written.ok()) {
    // After a full disk RocksDB refuses writes until Resume.
    if (db_->Resume().ok()) written = db_->Write(options, &writes);
  }
  const absl::Status status = ToStatus(written, "cannot write records");
  // RocksDB refuses all writes until it is opened again.
  if (absl::IsUnknown(status) && written.IsIOError()) {
    return absl::DataLossError(status.message());
  }
  return status;
}

absl::StatusOr<std::string> RocksDbRecordStore::Get(
    absl::string_view name) const {
  std::string value;
  RETURN_IF_ERROR(
      ToStatus(db_->Get(rocksdb::ReadOptions(), ToSlice(name), &value),
               absl::StrCat("record ", name)));
  return value;
}

absl::StatusOr<std::vector<RecordStore::Record>> RocksDbRecordStore::Scan(
    absl::string_view prefix) const {
  std::vector<Record> found;
  std::unique_ptr<rocksdb::Iterator> it(
      db_->NewIterator(rocksdb::ReadOptions()));
  for (it->Seek(ToSlice(prefix)); it->Valid(); it->Next()) {
    if (!it->key().starts_with(ToSlice(prefix))) break;
    found.emplace_back(it->key().ToString(), it->value().ToString());
  }
  RETURN_IF_ERROR(ToStatus(it->status(), absl::StrCat("scan of ", prefix)));
  return found;
}

}  // namespace atl::server
