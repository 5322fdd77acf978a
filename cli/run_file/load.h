// Reads a run file, or a preset by its name, from the disk.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/run_file/run_file.h"

namespace atl::cli {

// What the command line changes of a run file.
struct RunFileChanges {
  std::string run_id;        // Empty: as the file says.
  int32_t server_count = 0;  // 0: as the file says.
  // 0: as the file says. Else island_count_min; min_quorum is at most it, and
  // data_shard_count follows where it was island_count_min.
  int32_t island_count = 0;
  // Empty: as the file says. Else token_count ("1.8M"), in place of whatever
  // length the file has.
  std::string tokens;
  std::string data_path;        // Empty: as the file says.
  std::string model_directory;  // Empty: as the file says.
};

// Applies `changes` to `run`, but for model_directory, which tells what a file
// has to say. Pure.
//
// INVALID_ARGUMENT: `changes.tokens` is no count. `run` is undefined then.
absl::Status ApplyChanges(const RunFileChanges& changes, RunFile* run);

// Reads the run file `path`; a name without a slash or a dot that is no file
// is a preset's ("laptop"). The run's id is by default the file's name without
// its ending, what an id may not hold replaced by '-'.
//
// NOT_FOUND: there is neither such a file nor such a preset. INVALID_ARGUMENT:
// as ParseRunFile.
absl::StatusOr<RunFile> LoadRunFile(const std::string& path,
                                    const RunFileChanges& changes);

}  // namespace atl::cli
