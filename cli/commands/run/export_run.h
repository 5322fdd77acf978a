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
#include "coordinator/client/client.h"
#include "worker/api/model_files.h"

namespace atl::cli {

struct ExportOptions {
  std::string run_id;
  // Created; an export of the same run and commit is replaced.
  std::string directory;
  bool force = false;      // Replaces another run's or commit's export too.
  std::string checkpoint;  // Pin to read; empty: pins the newest cut meanwhile.
  int64_t weight_file_mb_max =  // Largest weight file.
      worker::kWeightFileBytesMax / 1000000;
  // A directory of worker/checkpoint/model_template.h; empty: none.
  std::string template_directory;
  // Longest time without a byte from the servers.
  absl::Duration patience = absl::Minutes(1);
  std::stop_token stop;
  // Receives a line on the progress about once a second. May be empty.
  std::function<void(const std::string&)> on_progress;
  // Receives a line on what the export waits for, as ServerWait's Show.
  std::function<void(const std::string&)> on_notice;
};

struct Exported {
  std::string directory;  // Absolute.
  std::string parameters_sha256;
  int64_t commit_seq = 0;
  int64_t size_bytes = 0;      // Sum over all files.
  int64_t received_bytes = 0;  // Payload pulled.
  worker::TemplateUse template_use;
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
