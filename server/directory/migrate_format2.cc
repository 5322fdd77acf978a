#include "server/directory/migrate_format2.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/layout/ids.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "server/store/records/format2_database.h"
#include "server/store/records/log_record_store.h"
#include "server/store/records/run_records.h"
#include "server/store/shard_files.h"
#include "server/store/shard_names.h"

namespace atl::server {
namespace {

using Records = std::map<std::string, std::string>;

constexpr size_t kBatchBytes = 1 << 20;

std::string DatabasePath(const std::string& data_dir) {
  return absl::StrCat(data_dir, "/records");
}

std::string KeptDatabasePath(const std::string& data_dir) {
  return absl::StrCat(data_dir, "/records.format2");
}

bool IsDatabase(FileSystem& fs, const std::string& path) {
  return fs.Exists(absl::StrCat(path, "/CURRENT"));
}

// Removes the files of a records directory, if it exists.
absl::Status Clear(FileSystem& fs, const std::string& directory) {
  if (!fs.Exists(directory)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ListShardFiles(fs, directory, "records"));
  for (const std::string& name : names) {
    RETURN_IF_ERROR(fs.Remove(absl::StrCat(directory, "/", name)));
  }
  return absl::OkStatus();
}

// Writes the records of one shard to its directory.
absl::Status WriteShard(FileSystem& fs, const Records& all,
                        const std::string& shard_directory,
                        const std::string& run_record,
                        const std::string& prefix) {
  const std::string directory = absl::StrCat(shard_directory, "/records");
  // Removes the files that an interrupted start left.
  RETURN_IF_ERROR(Clear(fs, directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<LogRecordStore> store,
                   LogRecordStore::Open(fs, directory));
  RecordBatch batch;
  size_t batch_bytes = 0;
  for (auto it = all.lower_bound(prefix);
       it != all.end() && absl::StartsWith(it->first, prefix); ++it) {
    batch.Put(absl::StripPrefix(it->first, prefix), it->second);
    batch_bytes += it->second.size();
    if (batch_bytes < kBatchBytes) continue;
    RETURN_IF_ERROR(store->Write(batch, Sync::kProcess));
    batch = RecordBatch();
    batch_bytes = 0;
  }
  batch.Put(kRunRecordName, run_record);
  RETURN_IF_ERROR(store->Write(batch, Sync::kMachine));
  return fs.SyncDirectory(shard_directory);
}

// Moves the shards of one run. `shards`: values of their run records by number.
absl::Status MigrateRun(FileSystem& fs, const std::string& data_dir,
                        const Records& all, const std::string& run_id,
                        const std::map<int32_t, std::string>& shards) {
  const std::string runs = absl::StrCat(data_dir, "/runs");
  const std::string from = absl::StrCat(runs, "/", run_id);
  // The whole run gets its new name at once.
  const std::string to = ShardNames(data_dir, run_id, "", 0).run_directory();
  if (fs.Exists(to)) return absl::OkStatus();
  if (!fs.Exists(from)) {
    LOG(WARNING) << "run " << run_id << " has records, but " << from
                 << " does not exist: the run is left out";
    return absl::OkStatus();
  }
  for (const auto& [shard, run_record] : shards) {
    const std::string directory = absl::StrCat(from, "/shard-", shard);
    if (!fs.Exists(directory)) continue;
    RETURN_IF_ERROR(WriteShard(fs, all, directory, run_record,
                               absl::StrCat("data/", run_id, "/", shard, "/")));
  }
  RETURN_IF_ERROR(fs.SyncDirectory(from));
  RETURN_IF_ERROR(fs.Rename(from, to));
  return fs.SyncDirectory(runs);
}

}  // namespace

absl::Status OtherServer(const std::string& owner,
                         const std::string& server_id) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the data directory belongs to server ", owner, ", not ", server_id,
      "; give --server-id=", owner, " or another --data-dir"));
}

bool HasFormat2(FileSystem& fs, const std::string& data_dir) {
  return IsDatabase(fs, DatabasePath(data_dir)) ||
         IsDatabase(fs, KeptDatabasePath(data_dir));
}

absl::StatusOr<int64_t> MigrateFormat2(FileSystem& fs,
                                       const std::string& data_dir,
                                       const std::string& server_id) {
  const std::string path = DatabasePath(data_dir);
  const std::string kept = KeptDatabasePath(data_dir);
  // It has its new name if only the identity file was not made.
  const bool is_renamed = !IsDatabase(fs, path);
  ASSIGN_OR_RETURN(std::unique_ptr<Format2Database> database,
                   Format2Database::Open(is_renamed ? kept : path));
  const Records& all = database->records();
  int64_t incarnation = 0;
  const auto owner = all.find("server/id");
  if (owner != all.end()) {
    if (owner->second != server_id) return OtherServer(owner->second, server_id);
    const auto text = all.find("server/incarnation");
    if (text == all.end() || !absl::SimpleAtoi(text->second, &incarnation)) {
      return absl::DataLossError("record server/incarnation is damaged");
    }
  }
  std::map<std::string, std::map<int32_t, std::string>> runs;
  for (const auto& [name, value] : all) {
    if (!absl::StartsWith(name, "runs/")) continue;
    absl::StatusOr<records::RunRecord> record = ParseRun(value);
    if (record.ok()) {
      const absl::Status valid =
          ValidateId("run_id", record->run().run_id());
      if (!valid.ok()) record = absl::DataLossError(valid.message());
    }
    RETURN_IF_ERROR(Annotate(record.status(), name));
    runs[record->run().run_id()][record->shard()] = value;
  }
  LOG(INFO) << data_dir << " has format 2; moving the records of "
            << runs.size() << " runs to their directories";
  for (const auto& [run_id, shards] : runs) {
    RETURN_IF_ERROR(Annotate(MigrateRun(fs, data_dir, all, run_id, shards),
                             absl::StrCat("cannot move run ", run_id)));
  }
  database.reset();
  if (!is_renamed) {
    RETURN_IF_ERROR(fs.Rename(path, kept));
    RETURN_IF_ERROR(fs.SyncDirectory(data_dir));
  }
  return incarnation;
}

}  // namespace atl::server
