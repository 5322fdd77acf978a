#include "coordinator/service/restore_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/failpoint/failpoint.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/io/unique_fd.h"
#include "base/mirror/cluster_object.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "base/mirror/run_owner.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/state/mirrored_run.h"
#include "coordinator/core/superseding_log.h"
#include "coordinator/service/log_secret.h"
#include "coordinator/service/replay_logs.h"
#include "coordinator/store/log_directory.h"
#include "coordinator/store/rocksdb_store.h"

namespace atl::coordinator {
namespace {

namespace fs = std::filesystem;
using storage::v1::ClusterObject;
using storage::v1::ClusterRun;

constexpr int64_t kPage = 1024;
// In a directory that this program fills, until the log in it is whole.
constexpr char kMarkName[] = "restoring";
// In a copy: the number of logs that were made from it.
constexpr char kCountName[] = "restore-count";
constexpr int64_t kCountMax = 1000;

// --- Reading a log -----------------------------------------------------------

absl::Status Replay(const Store& store, Coordinator& coordinator) {
  ASSIGN_OR_RETURN(const Replayed replayed, ReplayLogs(store, coordinator));
  return replayed.damage;
}

// The log's newest start, if no record of the coordinator follows it.
absl::StatusOr<std::optional<storage::v1::CoordinatorStarted>> FindStartAtEnd(
    const Store& store) {
  std::optional<storage::v1::CoordinatorStarted> start;
  int64_t revision = 0;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<storage::v1::Record> records,
                     store.Scan("", revision, kPage));
    if (records.empty()) return start;
    start.reset();
    if (records.back().has_coordinator_started()) {
      start = records.back().coordinator_started();
    }
    revision = records.back().revision();
  }
}

RestoredRun Describe(const RunState& state) {
  RestoredRun run;
  run.run_id = state.run_id();
  const bool continues =
      state.just_restored() && state.state() != v1::RUN_STATE_CANCELLED;
  const auto pin = continues
                       ? state.pins().find(state.restores().back().pin_id())
                       : state.pins().end();
  if (pin == state.pins().end()) {
    run.why_not = state.state_reason();
    return run;
  }
  const v1::Pin& source = pin->second.pin_set().pin();
  run.pin_id = source.pin_id();
  run.commit = source.commit_seq() - 1;
  run.checkpoint_time = FromProto(source.has_mirror()
                                      ? source.mirror().create_time()
                                      : pin->second.create_time());
  return run;
}

// The answer for a log that RestoreLog has made.
absl::StatusOr<RestoreResult> Describe(const Store& store) {
  Coordinator coordinator{CoordinatorOptions()};
  RETURN_IF_ERROR(Replay(store, coordinator));
  RestoreResult result;
  ASSIGN_OR_RETURN(const LogOwner owner, ReadLogOwner(store));
  result.cluster_id = owner.cluster_id;
  for (const auto& [id, run] : coordinator.runs()) {
    result.runs.push_back(Describe(run->state()));
  }
  return result;
}

// The answer for a data directory that has a log.
absl::StatusOr<RestoreResult> Found(const RestoreSpec& spec,
                                    const Store& store) {
  ASSIGN_OR_RETURN(const LogOwner owner, ReadLogOwner(store));
  ASSIGN_OR_RETURN(const auto start, FindStartAtEnd(store));
  if (start.has_value() && start->supersedes() &&
      (spec.cluster_id.empty() || spec.cluster_id == owner.cluster_id)) {
    return Describe(store);
  }
  return absl::AlreadyExistsError(absl::StrCat(
      spec.data_dir, " has a log, which stays. It is of cluster\n  ",
      owner.cluster_id.empty() ? "(unknown)" : owner.cluster_id,
      "\nGive a new --data-dir, or move this one away."));
}

// --- From the mirror ---------------------------------------------------------

absl::Status CheckSecretFlags(const RestoreSpec& spec) {
  if (!spec.secret_file.empty() && spec.without_secret) {
    return absl::InvalidArgumentError(
        "--secret-file and --without-secret exclude each other");
  }
  if (!spec.secret_file.empty() || spec.without_secret) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "the mirror does not have the lost log's secret. Give one of\n"
      "  --secret-file FILE   as `atoll-coordinator init --secret-file` or\n"
      "                       `atoll-coordinator secret` has written it\n"
      "  --without-secret     makes a new one: then the lost coordinator, if it\n"
      "                       comes back, refuses its peers one by one, but is\n"
      "                       not stopped by the first of them");
}

absl::StatusOr<mirror::FoundCluster> ReadOnlyCluster(const RestoreSpec& spec,
                                                     ObjectStore& store) {
  if (!spec.cluster_id.empty()) {
    return mirror::ReadCluster(store, spec.cluster_id);
  }
  ASSIGN_OR_RETURN(const std::vector<mirror::ClusterPlace> clusters,
                   mirror::ListClusters(store));
  if (clusters.empty()) {
    return absl::NotFoundError(absl::StrCat(
        spec.from, " has no cluster: is it the --mirror of the lost "
                   "coordinator? One of an earlier program wrote none; then "
                   "make a new cluster, and `atoll run restore ",
        spec.from, " --run-id RUN` continues a run there"));
  }
  if (clusters.size() == 1) {
    return mirror::ReadCluster(store, clusters.front().cluster_id);
  }
  std::string text =
      absl::StrCat(spec.from, " has several clusters. Give one of");
  for (const mirror::ClusterPlace& place : clusters) {
    absl::StrAppend(&text, "\n  --cluster-id ", place.cluster_id);
  }
  return absl::InvalidArgumentError(text);
}

// The records of a run from its newest checkpoint that can be used; a suspect
// one only if there is no other. Empty: none can be used. `places`: the run's,
// in order.
absl::StatusOr<std::vector<LogEntry>> ContinueNewest(
    ObjectStore& store, const ClusterRun& run,
    const std::vector<mirror::CheckpointPlace>& places, absl::Time now,
    std::vector<std::string>& warnings) {
  std::vector<LogEntry> suspect;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const auto opened = mirror::MirroredCheckpoint::Open(store, *place);
    absl::Status status = opened.status();
    if (status.ok()) {
      const storage::v1::MirrorManifest& manifest = (*opened)->manifest();
      absl::StatusOr<std::vector<LogEntry>> records =
          ContinueRecords(run, manifest, now);
      status = records.status();
      if (status.ok() && !manifest.pin().suspect()) return records;
      if (status.ok() && suspect.empty()) suspect = *std::move(records);
    } else if (!absl::IsDataLoss(status) && !absl::IsNotFound(status) &&
               !absl::IsResourceExhausted(status)) {
      return status;
    }
    if (!status.ok()) {
      warnings.push_back(absl::StrCat(
          store.GetUrl(mirror::ManifestName(*place)), " cannot be used: ",
          status.message()));
    }
  }
  return suspect;
}

// The first run_epoch whose checkpoints are another cluster's.
absl::StatusOr<int64_t> FindOthers(ObjectStore& store,
                                   absl::string_view cluster_id,
                                   const ClusterRun& run,
                                   std::vector<std::string>& warnings) {
  // One of an earlier program has no run_uid.
  if (!IsRandomId(run.run_uid())) return INT64_MAX;
  const auto owner = mirror::ReadOwner(store, run.run_uid());
  if (absl::IsDataLoss(owner.status())) {
    warnings.emplace_back(owner.status().message());
    return INT64_MAX;
  }
  RETURN_IF_ERROR(owner.status());
  if (!owner->has_value() || (*owner)->cluster_id() == cluster_id) {
    return INT64_MAX;
  }
  warnings.push_back(absl::StrCat(
      "run ", run.run_id(), ": cluster ", (*owner)->cluster_id(),
      " owns its checkpoints in the mirror since run epoch ",
      (*owner)->since_run_epoch(), ", and those of that cluster are not used"));
  return (*owner)->since_run_epoch();
}

// Writes to the mirror that a log takes the cluster's place.
absl::Status Claim(ObjectStore& store, storage::v1::ClusterObject claim,
                   absl::Time now) {
  *claim.mutable_create_time() = ToProto(now);
  return Annotate(mirror::WriteCluster(store, claim),
                  "a restore notes in the mirror which numbers it uses");
}

absl::StatusOr<RestoreResult> FromMirror(const RestoreSpec& spec,
                                         const Clock& clock) {
  RETURN_IF_ERROR(CheckSecretFlags(spec));
  SupersedingStart start;
  start.start_id = RandomId();
  start.has_new_secret = spec.without_secret;
  start.log_secret = RandomId();
  if (!spec.without_secret) {
    ASSIGN_OR_RETURN(start.log_secret, ReadSecretFile(spec.secret_file));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> mirror,
                   spec.open_mirror(Waiting()));
  ASSIGN_OR_RETURN(mirror::FoundCluster found, ReadOnlyCluster(spec, *mirror));
  const ClusterObject& cluster = found.object;
  if (!spec.without_secret) {
    RETURN_IF_ERROR(Annotate(CheckLogSecret(cluster, start.log_secret),
                             spec.secret_file));
  }
  const absl::Time now =
      std::max(clock.Now(), FromProto(cluster.create_time()));
  ASSIGN_OR_RETURN(const std::vector<mirror::CheckpointPlace> places,
                   mirror::ListCheckpoints(*mirror));
  std::vector<LogEntry> entries;
  std::vector<RestoredRun> lost;
  for (const ClusterRun& run : cluster.runs()) {
    std::vector<mirror::CheckpointPlace> of_run;
    ASSIGN_OR_RETURN(
        const int64_t others,
        FindOthers(*mirror, cluster.cluster_id(), run, found.warnings));
    for (const mirror::CheckpointPlace& place : places) {
      if (place.run_uid == run.run_uid() && place.run_epoch < others) {
        of_run.push_back(place);
      }
    }
    ASSIGN_OR_RETURN(
        const std::vector<LogEntry> records,
        ContinueNewest(*mirror, run, of_run, now, found.warnings));
    entries.insert(entries.end(), records.begin(), records.end());
    if (!records.empty()) continue;
    RestoredRun& without = lost.emplace_back();
    without.run_id = run.run_id();
    without.why_not = absl::StrCat(
        "the mirror has no whole checkpoint of it. Its servers keep its files, "
        "in DATA_DIR/runs/",
        run.run_id(), ".", run.run_uid(), "; a new run needs another id");
  }

  RETURN_IF_ERROR(Annotate(PrepareDataDirectory(spec.data_dir), "--data-dir"));
  ASSIGN_OR_RETURN(const std::unique_ptr<RocksDbStore> store,
                   RocksDbStore::Create(spec.data_dir));
  start.log_index = JumpSeq(std::max(cluster.log_index(), store->index()));
  ASSIGN_OR_RETURN(
      SupersedingLog log,
      MakeSupersedingLog(cluster, std::move(entries), start, now));
  RETURN_IF_ERROR(Claim(*mirror, std::move(log.claim), now));
  failpoint::Hit("restore_log.jump.before");
  if (store->index() < start.log_index - 1) {
    RETURN_IF_ERROR(store->JumpTo(start.log_index - 1));
  }
  failpoint::Hit("restore_log.jump.after");
  RETURN_IF_ERROR(store->Append(log.batch));
  failpoint::Hit("restore_log.batch.after");
  if (!spec.without_secret) {
    RETURN_IF_ERROR(MarkSecretExported(spec.data_dir));
  }
  ASSIGN_OR_RETURN(RestoreResult result, Describe(*store));
  result.warnings = std::move(found.warnings);
  result.runs.insert(result.runs.end(), lost.begin(), lost.end());
  std::sort(result.runs.begin(), result.runs.end(),
            [](const RestoredRun& a, const RestoredRun& b) {
              return a.run_id < b.run_id;
            });
  return result;
}

// --- From a copy of the directory --------------------------------------------

absl::Status ToStatus(const std::error_code& error, absl::string_view path) {
  if (!error) return absl::OkStatus();
  return ErrnoToStatus(error.value(), std::string(path));
}

// Holds off a coordinator that runs on the copy. A copy without a lock file has
// none.
absl::StatusOr<UniqueFd> LockCopy(const std::string& directory) {
  const std::string path = directory + "/lock";
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return fd;
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) {
    return ErrnoToStatus(errno, absl::StrCat("lock ", path));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a coordinator runs on ", directory, ": stop it, or give a copy"));
}

absl::Status CopyFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  RETURN_IF_ERROR(ToStatus(error, absl::StrCat("copy ", from.string())));
  // The copy of a read-only file can be written.
  fs::permissions(to, fs::perms::owner_read | fs::perms::owner_write, error);
  RETURN_IF_ERROR(ToStatus(error, to.string()));
  const UniqueFd fd(::open(to.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("sync ", to.string()));
  }
  return absl::OkStatus();
}

absl::Status CopyFiles(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::directory_iterator entry(from, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (entry->symlink_status(error).type() != fs::file_type::regular ||
        name == "lock" || name == "LOCK" || name == kMarkName ||
        name == kCountName) {
      continue;
    }
    RETURN_IF_ERROR(CopyFile(entry->path(), fs::path(to) / name));
  }
  RETURN_IF_ERROR(ToStatus(error, from));
  return PosixFileSystem().SyncDirectory(to);
}

// Makes `work` empty, with the mark. Files of an interrupted call go.
absl::Status BeginWork(const std::string& work) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(work, error))) {
    if (!fs::is_directory(fs::symlink_status(work, error)) ||
        !(fs::exists(fs::path(work) / kMarkName, error) ||
          fs::is_empty(work, error))) {
      return absl::FailedPreconditionError(
          absl::StrCat(work, " is in the way: move it away"));
    }
    fs::remove_all(work, error);
    RETURN_IF_ERROR(ToStatus(error, work));
  }
  RETURN_IF_ERROR(MakePrivateDirectory(work));
  return WriteFileAtomically(PosixFileSystem(),
                             absl::StrCat(work, "/", kMarkName), "");
}

// Counts in the copy that one more log is made from it, and returns the count. A
// copy that cannot be written stays, with a warning.
absl::StatusOr<int64_t> CountRestore(const std::string& copy,
                                     std::vector<std::string>& warnings) {
  FileSystem& files = PosixFileSystem();
  const std::string path = absl::StrCat(copy, "/", kCountName);
  int64_t count = 0;
  if (files.Exists(path)) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(files, path, 64));
    if (!absl::SimpleAtoi(text, &count) || count < 0 || count >= kCountMax) {
      return absl::DataLossError(absl::StrCat(
          path, " does not hold a number of restores below ", kCountMax,
          ": restore from the mirror, or from another copy"));
    }
  }
  ++count;
  const absl::Status counted =
      WriteFileAtomically(files, path, absl::StrCat(count, "\n"));
  if (!counted.ok()) {
    warnings.push_back(absl::StrCat(
        "another restore from this copy would repeat this log's numbers, and "
        "this could not be noted there: ", counted.message()));
  }
  return count;
}

// Appends to the log in `directory` that it supersedes the lost one, as the
// jump_count-th log that does.
absl::Status Supersede(const RestoreSpec& spec, const std::string& directory,
                       int64_t jump_count, const Clock& clock) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RocksDbStore> store,
                   RocksDbStore::Open(directory));
  RETURN_IF_ERROR(Annotate(store->damage(), spec.from));
  ASSIGN_OR_RETURN(const LogOwner owner, ReadLogOwner(*store));
  if (owner.cluster_id.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        spec.from, " has a log of an earlier program, without a cluster id, "
                   "which no peer compares: start a coordinator on it"));
  }
  if (!spec.cluster_id.empty() && spec.cluster_id != owner.cluster_id) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.from, " has a log of cluster ", owner.cluster_id,
                     ", not of --cluster-id ", spec.cluster_id));
  }
  Coordinator coordinator{CoordinatorOptions()};
  RETURN_IF_ERROR(Replay(*store, coordinator));
  const absl::Time now = std::max(clock.Now(), coordinator.newest_time());
  const int64_t before_start = JumpSeq(store->index(), jump_count) - 1;
  if (store->index() < before_start) {
    RETURN_IF_ERROR(store->JumpTo(before_start));
  }
  coordinator.Supersede(now, RandomId(), store->index(), jump_count);
  return store->Append(coordinator.TakeEffects(now).batch);
}

absl::StatusOr<RestoreResult> FromCopy(const RestoreSpec& spec,
                                       const Clock& clock) {
  if (!spec.secret_file.empty() || spec.without_secret) {
    return absl::InvalidArgumentError(
        "a copy of the directory has the log's secret: leave out --secret-file "
        "and --without-secret");
  }
  FileSystem& files = PosixFileSystem();
  if (!files.Exists(spec.from + "/CURRENT")) {
    return absl::NotFoundError(absl::StrCat(
        spec.from, " has no coordinator's log: give a copy of the lost "
                   "--data-dir, or the URL of the mirror"));
  }
  ASSIGN_OR_RETURN(const UniqueFd lock, LockCopy(spec.from));
  std::string data_dir = AbsolutePath(spec.data_dir);
  while (data_dir.size() > 1 && data_dir.back() == '/') data_dir.pop_back();
  const std::string parent = ParentDirectory(data_dir);
  RETURN_IF_ERROR(files.CreateDirectories(parent));
  // Not in place: a log that was copied in part must not start.
  const std::string work = data_dir + ".restoring";
  RETURN_IF_ERROR(BeginWork(work));
  std::vector<std::string> warnings;
  ASSIGN_OR_RETURN(const int64_t jump_count,
                   CountRestore(spec.from, warnings));
  failpoint::Hit("restore_log.copy.before");
  RETURN_IF_ERROR(CopyFiles(spec.from, work));
  failpoint::Hit("restore_log.copy.after");
  RETURN_IF_ERROR(Supersede(spec, work, jump_count, clock));
  failpoint::Hit("restore_log.supersede.after");
  const absl::Status moved = files.Rename(work, data_dir);
  if (!moved.ok()) {
    return Annotate(moved, absl::StrCat("--data-dir must be missing, or an "
                                        "empty directory that is no mount "
                                        "point; the log is made in ",
                                        work));
  }
  RETURN_IF_ERROR(files.SyncDirectory(parent));
  failpoint::Hit("restore_log.rename.after");
  RETURN_IF_ERROR(files.Remove(absl::StrCat(data_dir, "/", kMarkName)));
  ASSIGN_OR_RETURN(const std::unique_ptr<RocksDbStore> store,
                   RocksDbStore::OpenToRead(data_dir));
  ASSIGN_OR_RETURN(RestoreResult result, Describe(*store));
  result.warnings = std::move(warnings);
  return result;
}

}  // namespace

absl::StatusOr<RestoreResult> RestoreLog(const RestoreSpec& spec,
                                         const Clock& clock) {
  if (!spec.cluster_id.empty() && !IsRandomId(spec.cluster_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cluster-id \"", spec.cluster_id,
                     "\" must be 32 lower-case hex digits"));
  }
  if (const auto there = RocksDbStore::OpenToRead(spec.data_dir); there.ok()) {
    return Found(spec, **there);
  }
  RETURN_IF_ERROR(CheckFreeForLog(spec.data_dir));
  return spec.open_mirror ? FromMirror(spec, clock) : FromCopy(spec, clock);
}

}  // namespace atl::coordinator
