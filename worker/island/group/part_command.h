// What all processes of an island do at a time, as a value and as a message.
//
// Pure.

#ifndef WORKER_ISLAND_GROUP_PART_COMMAND_H_
#define WORKER_ISLAND_GROUP_PART_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "server/client/parameter_client.h"
#include "worker/core/action.h"
#include "worker/save/save_file.h"

namespace atl::worker {

struct PartCommand {
  Action action;
  // kContribute: what the SAVE says; what is held is each process's own.
  SaveHeader save;
  // Known since the command before, of the training lane alone.
  std::vector<v1::ContributionOutcome> resolved;
  // kPush, kPull, kEvaluate. The island's id is known to all.
  int64_t island_epoch = 0;
  std::string session_secret;
  server::ShardRoutes routes;
};

// True if it is about the servers.
bool NeedsSession(ActionKind kind);

// All but what other processes do not need: the reason, evaluator and so on.
std::string EncodeCommand(const PartCommand& command);

// INTERNAL: it is none; the processes are of different versions.
absl::StatusOr<PartCommand> DecodeCommand(absl::string_view message);

// What process 0 says first: the run, or why there is none to work on.
std::string EncodeSetup(const absl::StatusOr<v1::Run>& run);
// The run. INTERNAL: as DecodeCommand. Else the error of process 0.
absl::StatusOr<v1::Run> DecodeSetup(absl::string_view message);

}  // namespace atl::worker

#endif  // WORKER_ISLAND_GROUP_PART_COMMAND_H_
