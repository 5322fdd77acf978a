// Gives a run its version 0: reads a model directory, checks it against the
// run, and pushes what the servers lack.

#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/context.h"
#include "coordinator/client/client.h"

namespace atl::cli {

struct ImportOptions {
  std::string directory;  // config.json and safetensors.
  // Longest time without progress, and for the run to start after the push.
  absl::Duration patience = absl::Minutes(5);
  std::stop_token stop;
  // Receives a line on the progress about once a second. May be empty.
  std::function<void(const std::string&)> on_progress;
  // Receives a line on what the import waits for, when rpc::WaitNotice is due.
  std::function<void(const std::string&)> on_notice;
};

struct Imported {
  std::string directory;  // Absolute.
  std::string parameters_sha256;
  int64_t size_bytes = 0;  // Size of the parameters.
  int64_t sent_bytes = 0;  // Payload pushed; 0: the servers had it all.
  v1::RunState state = v1::RUN_STATE_UNSPECIFIED;  // Not STARTING.
};

// Imports into `run` (from GetRun) and returns when the run has started. Sends
// nothing before the whole model was checked. After an interruption the same
// call continues from what the servers have; once the run has started from this
// model it does nothing.
//
// NOT_FOUND, INVALID_ARGUMENT, DATA_LOSS: the model cannot be read, or does not
// fit the run. FAILED_PRECONDITION: the run makes its version 0 itself, or is
// cancelled. UNAVAILABLE: a shard has stopped. ALREADY_EXISTS: the run was
// created for another model. DEADLINE_EXCEEDED: nothing has moved for
// `patience`. CANCELLED: stopped.
absl::StatusOr<Imported> ImportRun(const Context& context,
                                   coordinator::Client& client,
                                   const v1::Run& run,
                                   const ImportOptions& options);

}  // namespace atl::cli
