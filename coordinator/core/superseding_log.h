// The first batch of a log that takes the place of a lost one, from the cluster
// object and the checkpoints that the mirror has. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/cluster_object.pb.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "coordinator/core/outputs/batch.h"

namespace atl::coordinator {

// OK if `secret` is the one of the log that `cluster` describes, or if it does
// not say.
//
// INVALID_ARGUMENT: it is of another log.
absl::Status CheckLogSecret(const storage::v1::ClusterObject& cluster,
                            const std::string& secret);

// The records of `run`, which continues from the checkpoint of `manifest` on the
// servers that had its shards.
//
// INVALID_ARGUMENT: the manifest is of another run, or has a spec that CreateRun
// refuses, or as ContinueRun.
absl::StatusOr<std::vector<LogEntry>> ContinueRecords(
    const storage::v1::ClusterRun& run,
    const storage::v1::MirrorManifest& manifest, absl::Time now);

struct SupersedingStart {
  std::string start_id;    // Random.
  std::string log_secret;  // The lost log's, or a new one.
  bool has_new_secret = false;
  int64_t log_index = 0;  // The number of the batch.
};

struct SupersedingLog {
  // All that the cluster object has besides runs, the start, and the runs. A
  // Coordinator can recover from it.
  Batch batch;
  // The mirror must have it before the log exists: the next restore from there
  // then jumps above this log's numbers. Without create_time.
  storage::v1::ClusterObject claim;
};

// `runs`: of ContinueRecords.
//
// DATA_LOSS: `cluster` contradicts itself.
absl::StatusOr<SupersedingLog> MakeSupersedingLog(
    const storage::v1::ClusterObject& cluster, std::vector<LogEntry> runs,
    const SupersedingStart& start, absl::Time now);

}  // namespace atl::coordinator
