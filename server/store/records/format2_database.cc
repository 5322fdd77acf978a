#include "server/store/records/format2_database.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/obs/rocksdb_log.h"
#include "base/status/status_macros.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"

namespace atl::server {
namespace {

constexpr char kFormatName[] = "format";
constexpr char kFormat[] = "2";

absl::Status ToStatus(const rocksdb::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", status.ToString());
  if (status.IsIOError() && absl::StrContains(status.ToString(), "lock")) {
    return absl::FailedPreconditionError(
        absl::StrCat(text, "; stop the server that uses it"));
  }
  if (status.IsNoSpace() ||
      absl::StrContains(status.ToString(), "No space left")) {
    return absl::ResourceExhaustedError(text);
  }
  if (status.IsCorruption() || status.IsIOError()) {
    return absl::DataLossError(text);
  }
  return absl::UnknownError(text);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Format2Database>> Format2Database::Open(
    const std::string& directory) {
  rocksdb::Options options;
  options.info_log = RocksDbLog();
  // As the programs that wrote it.
  options.wal_recovery_mode =
      rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  rocksdb::DB* raw = nullptr;
  const std::string what = absl::StrCat("cannot open ", directory);
  RETURN_IF_ERROR(ToStatus(rocksdb::DB::Open(options, directory, &raw), what));
  std::unique_ptr<Format2Database> database(
      new Format2Database(std::unique_ptr<rocksdb::DB>(raw)));
  std::unique_ptr<rocksdb::Iterator> it(
      raw->NewIterator(rocksdb::ReadOptions()));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    database->records_[it->key().ToString()] = it->value().ToString();
  }
  RETURN_IF_ERROR(ToStatus(it->status(), what));
  const auto format = database->records_.find(kFormatName);
  if (format == database->records_.end() || format->second != kFormat) {
    return absl::DataLossError(absl::StrCat(
        directory, " has format ",
        format == database->records_.end() ? "(none)" : format->second,
        "; choose another --data-dir, because this program reads formats 3 "
        "and ",
        kFormat));
  }
  return database;
}

Format2Database::Format2Database(std::unique_ptr<rocksdb::DB> db)
    : db_(std::move(db)) {}

Format2Database::~Format2Database() = default;

}  // namespace atl::server
