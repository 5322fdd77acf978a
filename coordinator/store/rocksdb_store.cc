#include "coordinator/store/rocksdb_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "coordinator/store/revisions.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"

namespace atl::coordinator {
namespace {

constexpr char kFormatKey[] = "format";
constexpr char kFormat[] = "1";
constexpr char kLogPrefix[] = "log/";

absl::Status ToStatus(const rocksdb::Status& status,
                      absl::string_view directory) {
  if (status.ok()) return absl::OkStatus();
  const std::string message =
      absl::StrCat("store ", directory, ": ", status.ToString());
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  if (status.IsCorruption()) {
    return absl::DataLossError(
        absl::StrCat(message, "; restore the directory from a copy"));
  }
  return absl::DataLossError(message);
}

std::string RevisionBytes(int64_t revision) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) {
    bytes[i] =
        static_cast<char>(static_cast<uint64_t>(revision) >> (56 - 8 * i));
  }
  return bytes;
}

std::string LogPrefix(absl::string_view run_id) {
  return absl::StrCat(kLogPrefix, run_id, "/");
}

std::string RecordKey(absl::string_view run_id, int64_t revision) {
  return absl::StrCat(LogPrefix(run_id), RevisionBytes(revision));
}

class RocksdbStore : public Store {
 public:
  RocksdbStore(std::string directory, std::unique_ptr<rocksdb::DB> db)
      : directory_(std::move(directory)), db_(std::move(db)) {}

  // Reads or writes the format, and finds the last revision of every log.
  absl::Status Recover();

  absl::Status Append(absl::Span<const LogAppend> appends) override;
  absl::StatusOr<std::vector<std::string>> ListLogs() const override;
  absl::StatusOr<std::vector<storage::v1::Record>> Read(
      absl::string_view run_id, int64_t after_revision,
      int64_t record_count_max) const override;
  int64_t LastRevision(absl::string_view run_id) const override;

 private:
  absl::Status CheckFormat();

  const std::string directory_;
  const std::unique_ptr<rocksdb::DB> db_;
  mutable Mutex mutex_;  // Held while appending, so that revisions stay dense.
  Revisions revisions_ ABSL_GUARDED_BY(mutex_);
};

absl::Status RocksdbStore::CheckFormat() {
  std::string format;
  const rocksdb::Status found =
      db_->Get(rocksdb::ReadOptions(), kFormatKey, &format);
  if (found.IsNotFound()) {
    rocksdb::WriteOptions synced;
    synced.sync = true;
    return ToStatus(db_->Put(synced, kFormatKey, kFormat), directory_);
  }
  RETURN_IF_ERROR(ToStatus(found, directory_));
  if (format != kFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", directory_, " has format ", format,
                     " and this program reads format ", kFormat,
                     ": start the program that wrote it, or a newer one"));
  }
  return absl::OkStatus();
}

absl::Status RocksdbStore::Recover() {
  RETURN_IF_ERROR(CheckFormat());
  MutexLock lock(&mutex_);
  std::unique_ptr<rocksdb::Iterator> at(
      db_->NewIterator(rocksdb::ReadOptions()));
  // From each log to the last key of it, then to the first key of the next.
  for (at->Seek(kLogPrefix); at->Valid();) {
    const std::string key = at->key().ToString();
    if (!absl::StartsWith(key, kLogPrefix)) break;
    const size_t slash = key.find('/', sizeof(kLogPrefix) - 1);
    if (slash == std::string::npos || key.size() != slash + 9) {
      return absl::DataLossError(
          absl::StrCat("store ", directory_,
                       " has a key that is not a record's; "
                       "restore the directory from a copy"));
    }
    const std::string run_id =
        key.substr(sizeof(kLogPrefix) - 1, slash + 1 - sizeof(kLogPrefix));
    at->SeekForPrev(RecordKey(run_id, -1));
    uint64_t revision = 0;
    const std::string last = at->key().ToString();
    for (int i = 8; i > 0; --i) {
      revision = revision << 8 | static_cast<uint8_t>(last[last.size() - i]);
    }
    revisions_.Set(run_id, static_cast<int64_t>(revision));
    at->Next();
  }
  return ToStatus(at->status(), directory_);
}

absl::Status RocksdbStore::Append(absl::Span<const LogAppend> appends) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(revisions_.Check(appends));
  rocksdb::WriteBatch batch;
  for (const LogAppend& append : appends) {
    for (const storage::v1::Record& record : append.records) {
      RETURN_IF_ERROR(
          ToStatus(batch.Put(RecordKey(append.run_id, record.revision()),
                             record.SerializeAsString()),
                   directory_));
    }
  }
  rocksdb::WriteOptions synced;
  synced.sync = true;
  RETURN_IF_ERROR(ToStatus(db_->Write(synced, &batch), directory_));
  revisions_.Advance(appends);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> RocksdbStore::ListLogs() const {
  std::vector<std::string> names;
  std::unique_ptr<rocksdb::Iterator> at(
      db_->NewIterator(rocksdb::ReadOptions()));
  for (at->Seek(kLogPrefix); at->Valid();) {
    const std::string key = at->key().ToString();
    if (!absl::StartsWith(key, kLogPrefix)) break;
    const size_t begin = sizeof(kLogPrefix) - 1;
    names.push_back(key.substr(begin, key.find('/', begin) - begin));
    at->Seek(absl::StrCat(RecordKey(names.back(), -1), "\xff"));
  }
  RETURN_IF_ERROR(ToStatus(at->status(), directory_));
  // Keys put "a-b/" before "a/".
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::vector<storage::v1::Record>> RocksdbStore::Read(
    absl::string_view run_id, int64_t after_revision,
    int64_t record_count_max) const {
  std::vector<storage::v1::Record> records;
  const std::string prefix = LogPrefix(run_id);
  std::unique_ptr<rocksdb::Iterator> at(
      db_->NewIterator(rocksdb::ReadOptions()));
  int64_t revision = std::max<int64_t>(after_revision, 0);
  for (at->Seek(RecordKey(run_id, revision + 1));
       at->Valid() && at->key().starts_with(prefix) &&
       static_cast<int64_t>(records.size()) < record_count_max;
       at->Next()) {
    ++revision;
    storage::v1::Record record;
    if (at->key() != rocksdb::Slice(RecordKey(run_id, revision)) ||
        !record.ParseFromArray(at->value().data(),
                               static_cast<int>(at->value().size())) ||
        record.revision() != revision) {
      return absl::DataLossError(absl::StrCat(
          "store ", directory_, ": record ", revision, " of run \"", run_id,
          "\" is damaged or missing; restore the directory from a copy"));
    }
    records.push_back(std::move(record));
  }
  RETURN_IF_ERROR(ToStatus(at->status(), directory_));
  return records;
}

int64_t RocksdbStore::LastRevision(absl::string_view run_id) const {
  MutexLock lock(&mutex_);
  return revisions_.Last(run_id);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> OpenRocksdbStore(
    const std::string& directory) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.keep_log_file_num = 4;
  options.max_open_files = 64;
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, directory, &opened);
  std::unique_ptr<rocksdb::DB> db(opened);
  if (status.IsIOError() && absl::StrContains(status.ToString(), "lock")) {
    return absl::UnavailableError(
        absl::StrCat("store ", directory,
                     " is open in another process: stop that one, or "
                     "give this one another directory"));
  }
  RETURN_IF_ERROR(ToStatus(status, directory));
  auto store = std::make_unique<RocksdbStore>(directory, std::move(db));
  RETURN_IF_ERROR(store->Recover());
  return store;
}

}  // namespace atl::coordinator
