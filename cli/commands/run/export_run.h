// Reads the parameters of a cut from the servers and writes them as a model
// directory.

#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/context.h"
#include "coordinator/client/operator_client.h"
#include "worker/api/model_files.h"

namespace atl::cli {

struct ExportOptions {
  std::string run_id;
  std::string directory;   // Made; replaced if it is an export already.
  std::string checkpoint;  // Pin to read; empty pins the newest cut for now.
  int64_t weight_file_mb_max =  // Longest weight file.
      worker::kWeightFileBytesMax / 1000000;
  // How long no byte may come from the servers before it is given up.
  absl::Duration patience = absl::Minutes(1);
  std::stop_token stop;
  // Where it stands, or what it waits for, as a line; about once a second. May
  // be empty.
  std::function<void(const std::string&)> on_progress;
};

struct Exported {
  std::string directory;  // Absolute.
  std::string parameters_sha256;
  int64_t commit_seq = 0;
  int64_t size_bytes = 0;      // Of all files.
  int64_t received_bytes = 0;  // Payload pulled.
};

// Pins, reads, writes and releases the pin.
//
// NOT_FOUND, FAILED_PRECONDITION, RESOURCE_EXHAUSTED: as ExportCheckpoint.
// UNAVAILABLE, DEADLINE_EXCEEDED: a server does not answer for long. CANCELLED:
// stopped.
absl::StatusOr<Exported> ExportRun(const Context& context,
                                   coordinator::OperatorClient& client,
                                   const ExportOptions& options);

}  // namespace atl::cli
