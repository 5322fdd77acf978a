// The files of deleted runs in a server's data directory. A run's directory
// first gets a name that no start opens; then its files can go in any order.
//
// Only names that a server makes are removed (server/store/shard_files.h). A
// link is never followed: it stays, with what lies behind it.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"

namespace atl::server {

// Ends the name of the directory of a deleted run.
inline constexpr absl::string_view kDeletedSuffix = ".deleted";

// Adds the suffix to the directory's name, durably. OK if there is no such
// directory. FAILED_PRECONDITION: the name is in use, by a file of a person.
// Others: the file system's.
absl::Status MarkDeleted(FileSystem& fs, const std::string& run_directory);

// Removes all marked directories of `data_dir`. Names that cannot be removed,
// or are no files of a server, stay; the log names them.
void RemoveDeletedRuns(FileSystem& fs, const std::string& data_dir);

}  // namespace atl::server
