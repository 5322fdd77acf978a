// The names that a server makes below DATA_DIR/runs (DESIGN.md). Removals and
// recoveries touch no other name: it is a person's.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"

namespace atl::server {

// The run_id and run_uid of a run's directory RUN_ID.RUN_UID; nullopt for other
// names.
std::optional<std::pair<std::string, std::string>> ParseRunDirectory(
    absl::string_view name);

// N of shard-N; nullopt for other names.
std::optional<int32_t> ParseShardDirectory(absl::string_view name);

// True for "records", "versions" and the other folders of a shard.
bool IsShardFolder(absl::string_view name);

// True if the folder of a shard can have this file, also one that a crash left
// incomplete.
bool IsShardFile(absl::string_view folder, absl::string_view name);

// The names of such files in the folder of a shard. The log names the others:
// they are left alone. Errors as of FileSystem::List.
absl::StatusOr<std::vector<std::string>> ListShardFiles(
    FileSystem& fs, const std::string& directory, absl::string_view folder);

}  // namespace atl::server
