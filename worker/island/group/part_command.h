// A command to all processes of an island, as a value and as a message. Pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "island_command.pb.h"
#include "server/client/parameter_client.h"
#include "worker/core/action.h"
#include "worker/save/save_file.h"

namespace atl::worker {

struct PartCommand {
  Action action;
  // kContribute: the local checkpoint's header; each process adds its `held`.
  SaveHeader save;
  // Outcomes since the previous command, in the training lane only.
  std::vector<v1::ContributionOutcome> resolved;
  // kPush, kPull, kEvaluate. All processes know the island's id.
  int64_t island_epoch = 0;
  std::string session_secret;
  server::ShardRoutes routes;
};

// Keeps the code, the message and the reason of `status`.
wire::Status ToWire(const absl::Status& status);
absl::Status FromWire(const wire::Status& message);

// True if the action talks to the servers.
bool NeedsSession(ActionKind kind);

// Omits what other processes do not need: the reason, the evaluator and so on.
std::string EncodeCommand(const PartCommand& command);

// INTERNAL: not a command; the processes have different versions.
absl::StatusOr<PartCommand> DecodeCommand(absl::string_view message);

// The first message of process 0: the run, or the error that prevents it.
std::string EncodeSetup(const absl::StatusOr<v1::Run>& run);
// The run, or the error of process 0. INTERNAL: as DecodeCommand.
absl::StatusOr<v1::Run> DecodeSetup(absl::string_view message);

}  // namespace atl::worker
