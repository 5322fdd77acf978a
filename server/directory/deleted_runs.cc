#include "server/directory/deleted_runs.h"

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"

namespace atl::server {
namespace {

// Removes a file, or a directory with all that is in it. OK if it is gone.
absl::Status RemoveTree(FileSystem& fs, const std::string& path) {
  // Fails for a file.
  const absl::StatusOr<std::vector<std::string>> names = fs.List(path);
  if (names.ok()) {
    for (const std::string& name : *names) {
      RETURN_IF_ERROR(RemoveTree(fs, absl::StrCat(path, "/", name)));
    }
  }
  const absl::Status removed = fs.Remove(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace

absl::Status MarkDeleted(FileSystem& fs, const std::string& run_directory) {
  if (fs.Exists(run_directory)) {
    const std::string marked = absl::StrCat(run_directory, kDeletedSuffix);
    RETURN_IF_ERROR(RemoveTree(fs, marked));
    RETURN_IF_ERROR(fs.Rename(run_directory, marked));
  }
  // Also if an earlier call could not.
  return fs.SyncDirectory(ParentDirectory(run_directory));
}

void RemoveDeletedRuns(FileSystem& fs, const std::string& data_dir) {
  const std::string runs = absl::StrCat(data_dir, "/runs");
  const absl::StatusOr<std::vector<std::string>> names = fs.List(runs);
  if (!names.ok()) {
    LOG(WARNING) << "deleted runs stay until the next start: "
                 << names.status().ToString();
    return;
  }
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, kDeletedSuffix)) continue;
    const std::string path = absl::StrCat(runs, "/", name);
    const absl::Status removed = RemoveTree(fs, path);
    if (removed.ok()) {
      LOG(INFO) << path << " is removed";
    } else {
      LOG(WARNING) << path << " is not removed until the next start: "
                   << removed.ToString();
    }
  }
}

}  // namespace atl::server
