// Loads a run file from the disk, or a preset by its name.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flags/flags.h"
#include "cli/run_file/run_file.h"

namespace atl::cli {

// Overrides from the command line. Empty or 0: as the file says.
struct RunFileChanges {
  std::string run_id;
  int32_t server_count = 0;
  // Sets island_count_min and limits min_quorum to it. data_shard_count follows
  // if it was equal to island_count_min.
  int32_t island_count = 0;
  // Sets token_count ("1.8M"); replaces the file's length.
  std::string tokens;
  std::string data_path;
  std::string model_directory;
  std::string tensors_path;
};

// Applies `changes` to `run`, except model_directory and tensors_path: the
// parser needs these (RunFileOptions). Pure.
//
// INVALID_ARGUMENT: `changes.tokens` is not a count, or an external model or
// a run with data by URL is given data; `run` is then undefined.
absl::Status ApplyChanges(const RunFileChanges& changes, RunFile* run);

// An id of a run: `name` itself if it may be one. Otherwise other characters
// become '-', and 8 digits of the name's SHA-256 follow, so that two names never
// share an id. It never begins with '-'. Pure.
std::string IdFromName(const std::string& name);

// Reads the run file `path`, or else the preset of that name ("laptop"). The
// default run id is IdFromName of the file's name without its extension.
//
// NOT_FOUND: no such file or preset. INVALID_ARGUMENT: it cannot be read, or is
// a directory, a pipe or "-"; or as ParseRunFile.
absl::StatusOr<RunFile> LoadRunFile(const std::string& path,
                                    const RunFileChanges& changes);

// Adds FILE and the overriding flags to `command`. `file` and `changes` must
// outlive the parse.
void AddRunFileFlags(flags::Command& command, std::string& file,
                     RunFileChanges& changes);

}  // namespace atl::cli
