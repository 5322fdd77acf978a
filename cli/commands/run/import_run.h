// Gives a run its version 0: reads a model directory, checks it against the
// run, and pushes to the servers what they do not have yet.

#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/context.h"
#include "coordinator/client/operator_client.h"

namespace atl::cli {

struct ImportOptions {
  std::string directory;  // config.json and safetensors.
  // How long nothing may move, nor the run start, before it is given up.
  absl::Duration patience = absl::Minutes(5);
  std::stop_token stop;
  // Where it stands, as a line; about once a second. May be empty.
  std::function<void(const std::string&)> on_progress;
};

struct Imported {
  std::string directory;  // Absolute.
  std::string parameters_sha256;
  int64_t size_bytes = 0;  // Of the parameters.
  int64_t sent_bytes = 0;  // Payload pushed; 0 if the servers had it all.
  v1::RunState state = v1::RUN_STATE_UNSPECIFIED;  // Not STARTING.
};

// Imports into `run`, which RunService.GetRun gave, and returns when it has
// started. Nothing is sent before the model was checked whole. Cut at any
// point, the same call goes on from what the servers have; after the run has
// started from this model it does nothing.
//
// NOT_FOUND, INVALID_ARGUMENT, DATA_LOSS: the model cannot be read, or is not
// of the run's shape. FAILED_PRECONDITION: the run makes its version 0 itself,
// or has ended. ALREADY_EXISTS: it was created for another model.
// DEADLINE_EXCEEDED: `patience` is over. CANCELLED: stopped.
absl::StatusOr<Imported> ImportRun(const Context& context,
                                   coordinator::OperatorClient& client,
                                   const v1::Run& run,
                                   const ImportOptions& options);

}  // namespace atl::cli
