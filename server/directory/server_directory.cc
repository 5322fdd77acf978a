#include "server/directory/server_directory.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/io/files.h"
#include "base/obs/log.h"
#include "base/random_id/random_id.h"
#include "base/status/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/directory/deleted_runs.h"
#include "server/store/records/run_records.h"
#include "server/store/shard_files.h"
#include "server/store/shard_names.h"

namespace atl::server {
namespace {

using google::protobuf::util::MessageDifferencer;

absl::Status CheckRecord(const FoundShard& found,
                         const std::string& directory) {
  const v1::Run& run = found.record.run();
  const std::string run_uid =
      run.run_uid().empty() ? kNoRunUid : run.run_uid();
  if (run.run_id() == found.run_id && found.record.shard() == found.shard &&
      run_uid == found.run_uid) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      directory, " has the records of run ", run.run_id(), ".", run_uid,
      ", shard ", found.record.shard(), "; give it the name of its run"));
}

absl::StatusOr<std::unique_ptr<IdentityFile>> OpenIdentity(
    FileSystem& fs, const std::string& data_dir,
    const std::string& server_id) {
  const std::string path = absl::StrCat(data_dir, "/identity");
  absl::StatusOr<std::unique_ptr<IdentityFile>> file =
      IdentityFile::Open(fs, path);
  if (file.ok()) {
    records::Identity identity = (*file)->identity();
    if (identity.server_id() != server_id) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the data directory belongs to server ", identity.server_id(),
          ", not ", server_id, "; give --server-id=", identity.server_id(),
          " or another --data-dir"));
    }
    // A damaged slot may have had the newest incarnation.
    identity.set_incarnation(identity.incarnation() +
                             ((*file)->had_damaged_slot() ? 2 : 1));
    failpoint::Hit("server.incarnation.before");
    RETURN_IF_ERROR((*file)->Write(identity));
    failpoint::Hit("server.incarnation.after");
    return file;
  }
  if (!absl::IsNotFound(file.status())) return file.status();
  records::Identity identity;
  identity.set_server_id(server_id);
  identity.set_directory_id(RandomId());
  identity.set_incarnation(1);
  failpoint::Hit("server.incarnation.before");
  file = IdentityFile::Create(fs, path, identity);
  RETURN_IF_ERROR(file.status());
  failpoint::Hit("server.incarnation.after");
  return file;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerDirectory>> ServerDirectory::Open(
    FileSystem& fs, const std::string& data_dir,
    const std::string& server_id) {
  RETURN_IF_ERROR(fs.CreateDirectories(absl::StrCat(data_dir, "/runs")));
  absl::StatusOr<std::unique_ptr<FileLock>> lock =
      fs.Lock(absl::StrCat(data_dir, "/lock"));
  if (absl::IsFailedPrecondition(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(data_dir,
                     " is in use by another process: stop it, or choose "
                     "another --data-dir"));
  }
  RETURN_IF_ERROR(lock.status());
  ASSIGN_OR_RETURN(std::unique_ptr<IdentityFile> identity,
                   OpenIdentity(fs, data_dir, server_id));
  return std::unique_ptr<ServerDirectory>(new ServerDirectory(
      fs, data_dir, *std::move(lock), std::move(identity)));
}

ServerDirectory::ServerDirectory(FileSystem& fs, std::string data_dir,
                                 std::unique_ptr<FileLock> lock,
                                 std::unique_ptr<IdentityFile> identity)
    : fs_(fs),
      data_dir_(std::move(data_dir)),
      lock_(std::move(lock)),
      identity_(std::move(identity)),
      incarnation_(identity_->identity().incarnation()),
      directory_id_(identity_->identity().directory_id()),
      log_(identity_->identity().log()),
      coordinator_epoch_(identity_->identity().coordinator_epoch()) {}

// --- The coordinator's log ---------------------------------------------------

void ServerDirectory::NoteLog(const v1::LogPosition& log,
                              int64_t coordinator_epoch) {
  MutexLock lock(&mutex_);
  coordinator_epoch_ = std::max(coordinator_epoch_, coordinator_epoch);
  if (log.cluster_id().empty()) return;
  if (log_.cluster_id().empty() || (log.cluster_id() == log_.cluster_id() &&
                                    log.index() > log_.index())) {
    log_ = log;
  }
}

v1::LogPosition ServerDirectory::log_seen() const {
  MutexLock lock(&mutex_);
  return log_;
}

int64_t ServerDirectory::coordinator_epoch() const {
  MutexLock lock(&mutex_);
  return coordinator_epoch_;
}

absl::Status ServerDirectory::PersistLog() {
  MutexLock persist(&persist_mutex_);
  records::Identity identity = identity_->identity();
  {
    MutexLock lock(&mutex_);
    if (!log_.cluster_id().empty()) *identity.mutable_log() = log_;
    identity.set_coordinator_epoch(coordinator_epoch_);
  }
  if (MessageDifferencer::Equals(identity, identity_->identity())) {
    return absl::OkStatus();
  }
  return identity_->Write(identity);
}

// --- Shards ------------------------------------------------------------------

absl::StatusOr<std::vector<FoundShard>> ServerDirectory::OpenShards() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   fs_.List(absl::StrCat(data_dir_, "/runs")));
  std::vector<FoundShard> shards;
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, kDeletedSuffix)) OpenRun(name, shards);
  }
  return shards;
}

void ServerDirectory::OpenRun(const std::string& name,
                              std::vector<FoundShard>& shards) {
  const std::string directory = absl::StrCat(data_dir_, "/runs/", name);
  const auto parsed = ParseRunDirectory(name);
  if (!parsed.has_value()) {
    LOG(WARNING) << directory << " is no run's directory; it is left alone";
    return;
  }
  FoundShard run;
  std::tie(run.run_id, run.run_uid) = *parsed;
  const absl::StatusOr<std::vector<std::string>> entries = fs_.List(directory);
  if (!entries.ok()) {
    run.status = entries.status();
    shards.push_back(std::move(run));
    return;
  }
  for (const std::string& entry : *entries) {
    const std::string path = absl::StrCat(directory, "/", entry);
    FoundShard shard;
    shard.run_id = run.run_id;
    shard.run_uid = run.run_uid;
    const std::optional<int32_t> number = ParseShardDirectory(entry);
    shard.shard = number.value_or(0);
    if (!number.has_value()) {
      LOG(WARNING) << path << " is no shard's directory; it is left alone";
    } else if (OpenShard(path, shard)) {
      shards.push_back(std::move(shard));
    }
  }
}

bool ServerDirectory::OpenShard(const std::string& directory,
                                FoundShard& found) {
  const std::string path = absl::StrCat(directory, "/records");
  // They are made after the run's record is durable.
  const bool was_complete = fs_.Exists(absl::StrCat(directory, "/versions"));
  const auto without_record = [&] {
    if (!was_complete) {
      LOG(INFO) << directory << " was never complete; it is left alone";
      return false;
    }
    found.status = absl::DataLossError(
        absl::StrCat(path, " has no record of the run, and ", directory,
                     " has versions; restore the directory from a copy"));
    found.records.reset();
    return true;
  };
  if (!fs_.Exists(path)) return without_record();
  absl::StatusOr<std::unique_ptr<LogRecordStore>> store =
      LogRecordStore::Open(fs_, path);
  if (absl::IsDataLoss(store.status())) {
    absl::StatusOr<std::unique_ptr<LogRecordStore>> damaged =
        LogRecordStore::OpenDamaged(fs_, path);
    if (damaged.ok()) store = std::move(damaged);
  }
  if (!store.ok()) {
    found.status = store.status();
    return true;
  }
  absl::StatusOr<records::RunRecord> record = ReadRun(**store);
  if (!record.ok()) {
    const absl::Status damage = (*store)->damage();
    if (absl::IsNotFound(record.status()) && damage.ok()) {
      return without_record();
    }
    found.status = damage.ok() ? record.status() : damage;
    return true;
  }
  found.record = *std::move(record);
  found.status = CheckRecord(found, directory);
  if (found.status.ok()) found.records = *std::move(store);
  return true;
}

absl::StatusOr<FoundShard> ServerDirectory::CreateShard(const v1::Run& run,
                                                        int32_t shard,
                                                        int32_t shard_count) {
  const ShardNames names(data_dir_, run.run_id(), run.run_uid(), shard);
  FoundShard found;
  found.run_id = run.run_id();
  found.run_uid = run.run_uid().empty() ? kNoRunUid : run.run_uid();
  found.shard = shard;
  ASSIGN_OR_RETURN(found.records, LogRecordStore::Open(fs_, names.records()));
  // RunStore::Open makes the names of the parents durable before the shard is
  // used.
  RETURN_IF_ERROR(CreateRun(*found.records, run, shard, shard_count));
  ASSIGN_OR_RETURN(found.record, ReadRun(*found.records));
  RETURN_IF_ERROR(CheckRecord(found, names.directory()));
  return found;
}

}  // namespace atl::server
