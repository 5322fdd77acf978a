// Reads the parameters of a cut from the servers and writes them as a model
// directory.

#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/commands/run/export_target.h"
#include "cli/context.h"
#include "coordinator/client/client.h"

namespace atl::cli {

struct ExportOptions : ExportTarget {
  std::string run_id;
  std::string checkpoint;  // Pin to read; empty: pins the newest cut meanwhile.
  // Longest time without a byte from the servers.
  absl::Duration patience = absl::Minutes(1);
  std::stop_token stop;
  // Receives a line on the progress about once a second. May be empty.
  std::function<void(const std::string&)> on_progress;
  // Receives a line on what the export waits for, as ServerWait's Show.
  std::function<void(const std::string&)> on_notice;
};

// Pins the cut, reads it, writes the directory and releases the pin.
//
// NOT_FOUND, FAILED_PRECONDITION, RESOURCE_EXHAUSTED: as ExportCheckpoint.
// ALREADY_EXISTS: as ExportDirectory::Open (worker/checkpoint).
// UNAVAILABLE, DEADLINE_EXCEEDED: no answer from a server for `patience`.
// CANCELLED: stopped.
absl::StatusOr<Exported> ExportRun(const Context& context,
                                   coordinator::Client& client,
                                   const ExportOptions& options);

}  // namespace atl::cli
