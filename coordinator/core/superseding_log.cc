#include "coordinator/core/superseding_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/codec/sha256.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/state/mirrored_run.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

absl::Status CheckLogSecret(const storage::v1::ClusterObject& cluster,
                            const std::string& secret) {
  const codec::Sha256Digest digest = codec::ComputeSha256(secret);
  if (cluster.log_secret_sha256().empty() ||
      cluster.log_secret_sha256() ==
          std::string(digest.begin(), digest.end())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("it is not the secret of the log of cluster ",
                   cluster.cluster_id()));
}

absl::StatusOr<std::vector<LogEntry>> ContinueRecords(
    const storage::v1::ClusterRun& run,
    const storage::v1::MirrorManifest& manifest, absl::Time now) {
  if (manifest.run_uid() != run.run_uid() ||
      manifest.run_id() != run.run_id()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest is of run ", manifest.run_id(), " (",
                     manifest.run_uid(), "), not of ", run.run_id(), " (",
                     run.run_uid(), ")"));
  }
  std::vector<std::string> wrong;
  for (const FieldViolation& violation : ValidateSpec(manifest.spec())) {
    wrong.push_back(absl::StrCat(violation.field, " ", violation.description));
  }
  if (!wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest's spec cannot continue a run: ",
                     absl::StrJoin(wrong, "; ")));
  }
  std::vector<storage::v1::Record> records;
  ASSIGN_OR_RETURN(*records.emplace_back().mutable_run_created(),
                   ContinueRun(manifest, now,
                               {.run_epoch = run.run_epoch(),
                                .commit_seq = run.restore_commit_seq()}));
  // Without owners the coordinator places the shards anew.
  const bool has_owners =
      run.placed().server_ids_size() == manifest.shard_count() &&
      manifest.shard_count() > 0;
  if (has_owners) {
    storage::v1::RunPlaced& placed =
        *records.emplace_back().mutable_run_placed();
    placed = run.placed();
    placed.set_placement_epoch(placed.placement_epoch() + kEpochJump);
  }
  if (run.cancelled()) {
    records.push_back(MakeStateRecord(v1::RUN_STATE_CANCELLED,
                                      "an operator cancelled it"));
  } else if (has_owners) {
    records.push_back(MakeStateRecord(v1::RUN_STATE_ACTIVE, ""));
  }
  RunState state;
  std::vector<LogEntry> entries;
  for (storage::v1::Record& record : records) {
    record.set_revision(static_cast<int64_t>(entries.size()) + 1);
    *record.mutable_time() = ToProto(now);
    const absl::Status fits = state.Apply(record);
    if (!fits.ok()) return absl::InvalidArgumentError(fits.message());
    entries.push_back({run.run_id(), std::move(record)});
  }
  return entries;
}

absl::StatusOr<SupersedingLog> MakeSupersedingLog(
    const storage::v1::ClusterObject& cluster, std::vector<LogEntry> runs,
    const SupersedingStart& start, absl::Time now) {
  SupersedingLog made;
  Batch& batch = made.batch;
  storage::v1::Record& record =
      batch.entries.emplace_back(LogEntry{"", {}}).record;
  record.set_revision(1);
  *record.mutable_time() = ToProto(now);
  storage::v1::CoordinatorStarted& started =
      *record.mutable_coordinator_started();
  started.set_coordinator_epoch(cluster.coordinator_epoch() + kEpochJump);
  started.set_cluster_id(cluster.cluster_id());
  started.set_start_id(start.start_id);
  started.set_log_index(start.log_index);
  started.set_log_secret(start.log_secret);
  started.set_supersedes(true);
  started.set_has_new_secret(start.has_new_secret);

  LogSnapshot& log = batch.snapshots.emplace_back();
  log.snapshot.set_format(kSnapshotFormat);
  log.snapshot.set_revision(1);
  *log.snapshot.mutable_time() = record.time();
  storage::v1::CoordinatorSnapshot& own = *log.snapshot.mutable_coordinator();
  own.set_coordinator_epoch(started.coordinator_epoch());
  *own.mutable_servers() = cluster.servers();
  *own.mutable_starts() = cluster.starts();
  *own.add_starts() = started;
  *own.mutable_deleted() = cluster.deleted();
  *own.mutable_tokens() = cluster.tokens();
  *own.mutable_identities() = cluster.identities();

  for (LogEntry& entry : runs) batch.entries.push_back(std::move(entry));
  // As a start would read it.
  Coordinator coordinator{CoordinatorOptions()};
  RETURN_IF_ERROR(coordinator.Restore(log));
  for (const LogEntry& entry : batch.entries) {
    if (!entry.run_id.empty()) RETURN_IF_ERROR(coordinator.Replay(entry));
  }
  made.claim = coordinator.DescribeForMirror();
  made.claim.set_log_index(start.log_index);
  // Those without a checkpoint.
  for (const storage::v1::ClusterRun& run : cluster.runs()) {
    if (!coordinator.FindRun(run.run_id()).ok()) *made.claim.add_runs() = run;
  }
  return made;
}

}  // namespace atl::coordinator
