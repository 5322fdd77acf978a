#include "coordinator/store/log_directory.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace atl::coordinator {
namespace {

namespace fs = std::filesystem;

// Entries of a directory that are looked at for another log.
constexpr int kNearbyMax = 1000;

// RocksDB makes these before CURRENT. It deletes tables and logs that CURRENT
// does not know, so those count as somebody's.
bool IsOfInterruptedMaking(const std::string& name) {
  for (const char* const ours :
       {"lock", "mark", "LOCK", "IDENTITY", "MANIFEST-000001", "000000.dbtmp",
        "000001.dbtmp", kSecretExportedName}) {
    if (name == ours) return true;
  }
  return false;
}

bool HasLog(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "CURRENT", ignored) &&
         fs::exists(directory / "mark", ignored);
}

// The first directory in `directory`, by name, that has a log.
std::optional<fs::path> FindLogIn(const fs::path& directory) {
  std::optional<fs::path> found;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (int i = 0; !error && entry != fs::directory_iterator() && i < kNearbyMax;
       ++i) {
    const fs::path path = entry->path();
    if (HasLog(path) && (!found || path < *found)) found = path;
    entry.increment(error);
  }
  return found;
}

std::optional<fs::path> FindLogNear(const std::string& directory) {
  std::error_code error;
  const fs::path absolute = fs::absolute(directory, error).lexically_normal();
  if (error) return std::nullopt;
  // "/a/b/" has an empty name after its last slash.
  const fs::path path =
      absolute.has_filename() ? absolute : absolute.parent_path();
  if (const auto child = FindLogIn(path)) return child;
  if (HasLog(path.parent_path())) return path.parent_path();
  return FindLogIn(path.parent_path());
}

}  // namespace

absl::Status CheckFreeForLog(const std::string& directory) {
  std::error_code error;
  if (fs::exists(fs::path(directory) / "CURRENT", error)) {
    return absl::OkStatus();
  }
  fs::recursive_directory_iterator entry(directory, error);
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  for (; !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    const fs::path path = entry->path();
    const bool is_at_top = entry.depth() == 0;
    if (entry->symlink_status(error).type() == fs::file_type::directory) {
      if (is_at_top && path.filename() == "lost+found") {
        entry.disable_recursion_pending();
      }
      continue;
    }
    if (is_at_top && IsOfInterruptedMaking(path.filename())) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " has files of another program:\n  ",
                     path.string(), "\nGive a new or empty --data-dir."));
  }
  if (!error) return absl::OkStatus();
  const std::string text = absl::StrCat("--data-dir: cannot read ", directory,
                                        ": ", error.message());
  return error == std::errc::permission_denied
             ? absl::PermissionDeniedError(text)
             : absl::FailedPreconditionError(text);
}

absl::Status NoLogError(const std::string& directory) {
  std::string text =
      absl::StrCat(directory, " has no coordinator's log\n",
                   "For a new cluster, make its log once, then start again:\n",
                   "  atoll-coordinator init --data-dir ", directory, "\n",
                   "If this cluster exists already, the directory is the wrong "
                   "one, or its\n",
                   "volume is not mounted.");
  if (const auto found = FindLogNear(directory)) {
    absl::StrAppend(&text, " This directory has a log:\n  ", found->string());
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace atl::coordinator
