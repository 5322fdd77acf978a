#include "server/directory/deleted_runs.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/io/files.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "server/store/shard_files.h"

namespace atl::server {
namespace {

// Names below a run's directory: of a shard, a folder and a file.
using Place = std::vector<std::string>;
constexpr size_t kFileDepth = 3;

bool IsOurs(const Place& place) {
  switch (place.size()) {
    case 0:
      return true;
    case 1:
      return ParseShardDirectory(place[0]).has_value();
    case 2:
      return IsShardFolder(place[1]);
    default:
      return IsShardFile(place[1], place[2]);
  }
}

// Removes what a server made at `path`, which is `place` in a run's directory.
// OK if there is nothing. FAILED_PRECONDITION: something else is there; it
// stays, and the rest is removed.
absl::Status RemoveOwn(FileSystem& fs, const std::string& path,
                       const Place& place = {}) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is a link, and links are not followed: remove the files behind "
        "it and the link"));
  }
  if (!IsOurs(place)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no file of a server: move it away"));
  }
  if (place.size() < kFileDepth) {
    const absl::StatusOr<std::vector<std::string>> names = fs.List(path);
    if (absl::IsNotFound(names.status())) return absl::OkStatus();
    RETURN_IF_ERROR(names.status());
    absl::Status first;
    for (const std::string& name : *names) {
      Place below = place;
      below.push_back(name);
      first.Update(RemoveOwn(fs, absl::StrCat(path, "/", name), below));
    }
    RETURN_IF_ERROR(first);
  }
  const absl::Status removed = fs.Remove(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace

absl::Status MarkDeleted(FileSystem& fs, const std::string& run_directory) {
  if (fs.Exists(run_directory)) {
    const std::string marked = absl::StrCat(run_directory, kDeletedSuffix);
    RETURN_IF_ERROR(RemoveOwn(fs, marked));
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
    absl::string_view run = name;
    if (!absl::ConsumeSuffix(&run, kDeletedSuffix) ||
        !ParseRunDirectory(run).has_value()) {
      continue;
    }
    const std::string path = absl::StrCat(runs, "/", name);
    const absl::Status removed = RemoveOwn(fs, path);
    if (removed.ok()) {
      LOG(INFO) << path << " is removed";
    } else {
      LOG(WARNING) << path << " is not removed until the next start: "
                   << removed.ToString();
    }
  }
}

}  // namespace atl::server
