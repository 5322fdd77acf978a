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
#include "base/status/status_macros.h"
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
    return absl::UnavailableError(
        absl::StrCat("cannot make ", directory, ": ", error.message()));
  }
  rocksdb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  // A torn tail of the log is what a crash leaves; anything else is not.
  options.wal_recovery_mode =
      rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.write_buffer_size = 8 << 20;
  options.max_total_wal_size = 64 << 20;
  options.keep_log_file_num = 2;
  options.max_open_files = 256;
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(options, directory, &raw);
  if (!opened.ok()) {
    const std::string text = opened.ToString();
    if (text.find("lock") != std::string::npos ||
        text.find("LOCK") != std::string::npos) {
      return absl::FailedPreconditionError(
          absl::StrCat(directory,
                       " is in use by another process: stop it, or choose "
                       "another --data_dir"));
    }
    const absl::Status status = ToStatus(opened, directory);
    if (absl::IsResourceExhausted(status)) return status;
    return absl::DataLossError(absl::StrCat(
        directory, " cannot be opened as a coordinator's store: ", text,
        "; restore it from a copy, or choose an empty --data_dir"));
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
                       "another --data_dir"));
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
  if (format > kStoreFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory_, " has format ", format, ", newer than this program's ",
        kStoreFormat, ": use the program that wrote it, or a newer one"));
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

absl::Status RocksDbStore::Append(absl::Span<const LogEntry> entries) {
  MutexLock lock(&mutex_);
  // After an error of its disk RocksDB refuses writes until it is told to try.
  RETURN_IF_ERROR(ToStatus(db_->Resume(), directory_));
  std::map<std::string, int64_t> newest;
  rocksdb::WriteBatch batch;
  for (const LogEntry& entry : entries) {
    if (!newest.contains(entry.run_id)) {
      const auto known = newest_.find(entry.run_id);
      if (known != newest_.end()) {
        newest[entry.run_id] = known->second;
      } else {
        ASSIGN_OR_RETURN(newest[entry.run_id], NewestRevision(entry.run_id));
      }
    }
    int64_t& revision = newest[entry.run_id];
    if (entry.record.revision() != ++revision) {
      return absl::InvalidArgumentError(
          absl::StrCat("record ", entry.record.revision(), " of run \"",
                       entry.run_id, "\" does not follow"));
    }
    batch.Put(LogKey(entry.run_id, revision),
              Seal(entry.record.SerializeAsString()));
  }
  rocksdb::WriteOptions options;
  options.sync = true;
  const absl::Status status = ToStatus(db_->Write(options, &batch), directory_);
  if (!status.ok()) {
    newest_.clear();
    return status;
  }
  for (const auto& [run_id, revision] : newest) newest_[run_id] = revision;
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
  for (it->Seek(LogKey(run_id, begin + 1));
       it->Valid() && it->key().starts_with(prefix) &&
       static_cast<int64_t>(records.size()) < count_max;
       it->Next()) {
    absl::string_view bytes;
    storage::v1::Record record;
    if (!Unseal(ToView(it->value()), bytes) ||
        !record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
        record.revision() != begin + 1 + records.size()) {
      return absl::DataLossError(absl::StrCat(
          directory_, ": record ", begin + 1 + records.size(), " of run \"",
          run_id, "\" is damaged: restore the store from a copy"));
    }
    records.push_back(std::move(record));
  }
  RETURN_IF_ERROR(ToStatus(it->status(), directory_));
  return records;
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
