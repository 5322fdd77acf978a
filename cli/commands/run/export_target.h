// The directory of an export: its flags, and its result as output.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/flags/flags.h"
#include "cli/context.h"
#include "cli/output/output.h"
#include "worker/api/model_files.h"

namespace atl::cli {

struct ExportTarget {
  // Created; an export of the same run and commit is replaced.
  std::string directory;
  bool force = false;  // Replaces another run's or commit's export too.
  int64_t weight_file_mb_max =  // Largest weight file.
      worker::kWeightFileBytesMax / 1000000;
  // A directory of worker/checkpoint/model_template.h; empty: none.
  std::string template_directory;
};

struct Exported {
  std::string directory;  // Absolute.
  std::string parameters_sha256;
  int64_t commit_seq = 0;
  int64_t size_bytes = 0;      // Sum over all files.
  int64_t received_bytes = 0;  // Payload pulled.
  worker::TemplateUse template_use;
};

// Adds OUTPUT (or --output), --force, --template and --weight-file-mb.
// `target` must outlive the parse.
void AddExportTarget(flags::Command& command, ExportTarget& target);

// The fields of `target`; others have their defaults.
worker::ExportModelOptions MakeModelOptions(const ExportTarget& target);

// Adds a hint to an error of worker::ExportModel.
absl::Status WithExportHint(const absl::Status& status);

Exported MakeExported(const worker::ExportModelOptions& options,
                      int64_t commit_seq, const worker::ExportedModel& model);

// `data` has the command's first fields.
void PrintExported(Context& context, Json data, const Exported& exported,
                   bool has_template);

// "export spring  1.2 GB of 3.4 GB".
std::string DescribeExport(absl::string_view run_id, int64_t done_bytes,
                           int64_t total_bytes);

}  // namespace atl::cli
