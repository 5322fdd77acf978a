// Takes a run back to a pinned cut, in place, and waits for its shards. Not
// thread-safe.

#pragma once

#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "cli/context.h"
#include "cli/output/output.h"
#include "cli/output/progress.h"
#include "coordinator/client/client.h"

namespace atl::cli {

struct RestoreOptions {
  std::string run_id;
  std::string from;  // Empty: the newest durable checkpoint.
  bool dry_run = false;
  bool yes = false;  // Asks nothing.
  std::string patience = "5m";
};

struct RestoredRun {
  v1::Run run;  // After the restore; before it, if is_dry.
  v1::Checkpoint checkpoint;
  v1::RestoreRunResponse answer;
  std::string next_command;
  bool is_dry = false;
};

// Says what is lost, asks, restores the run, and waits until every shard is at
// the cut. After an interruption the same call continues.
//
// Errors: as RunService.RestoreRun. CANCELLED: the answer was not "yes", or
// `stop`. DEADLINE_EXCEEDED: a shard is not there yet. UNAVAILABLE: a shard has
// stopped.
absl::StatusOr<RestoredRun> RestoreRun(Context& context,
                                       coordinator::Client& client,
                                       const RestoreOptions& options,
                                       Progress& progress,
                                       const std::stop_token& stop);

// The command that shows how a restored run continues.
std::string NextCommand(const v1::Run& run);

// Asks the user to type "yes", unless `yes`.
//
// CANCELLED: the answer was another, or `stop`. A usage error: there is no
// terminal to ask.
absl::Status ConfirmRestore(Context& context, const std::string& run_id,
                            bool yes, const std::stop_token& stop);

// Waits until every shard is at the cut of `run`'s newest restore or beyond it,
// and returns the state then. Servers and the coordinator may restart meanwhile.
//
// DEADLINE_EXCEEDED, CANCELLED, UNAVAILABLE: as RestoreRun. ABORTED: the run
// was restored again.
absl::StatusOr<v1::GetRunStateResponse> WaitForShards(
    coordinator::Client& client, const v1::Run& run, absl::Duration patience,
    Progress& progress, const std::stop_token& stop);

Json ToJson(const RestoredRun& restored);
std::string ToText(const RestoredRun& restored);

}  // namespace atl::cli
