// Continues a run of a mirror in a cluster that does not have it, and waits for
// its shards. Not thread-safe.

#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "atoll/v1/run.pb.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "base/object_store/object_store.h"
#include "cli/context.h"
#include "cli/output/output.h"
#include "cli/output/progress.h"
#include "coordinator/client/client.h"

namespace atl::cli {

struct AdoptOptions {
  std::string url;      // The mirror's.
  std::string run_id;   // In the mirror.
  std::string run_uid;  // Empty: the only one with this run_id.
  // Checkpoint, commit:N or EPOCH/COMMIT; empty: the newest one.
  std::string from;
  int server_count = 0;  // 0: the run's own.
  bool dry_run = false;
  bool yes = false;  // Asks nothing.
  std::string patience = "5m";
};

struct AdoptedRun {
  storage::v1::MirrorManifest manifest;  // Without parts.
  int server_count = 0;
  v1::Run run;  // Not set if is_dry.
  std::string next_command;
  bool changed = false;
  bool is_dry = false;
};

// The checkpoint that `options` names. Its manifest is whole; its parts were
// not read.
//
// NOT_FOUND (NO_CHECKPOINT): no such one; the message says which it has.
// DATA_LOSS: its manifest is damaged, and `from` names no other. A usage error:
// several runs have the run_id.
absl::StatusOr<std::unique_ptr<mirror::MirroredCheckpoint>> FindToAdopt(
    ObjectStore& store, const AdoptOptions& options);

// Finds the checkpoint, says what continues, asks, calls AdoptRun, and waits
// until every shard is at the cut. After an interruption the same call
// continues. A dry run reads only the mirror.
//
// Errors: as FindToAdopt, RunService.AdoptRun and WaitForShards. CANCELLED: the
// answer was not "yes", or `stop`.
absl::StatusOr<AdoptedRun> AdoptRun(Context& context,
                                    const AdoptOptions& options,
                                    Progress& progress,
                                    const std::stop_token& stop);

Json ToJson(const AdoptedRun& adopted);
std::string ToText(const AdoptedRun& adopted);

}  // namespace atl::cli
