#include "cli/volunteer/data_consent.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/io/private_directory.h"
#include "base/io/unique_fd.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_files.h"
#include "worker/api/run_data.h"

namespace atl::cli {
namespace {

constexpr char kFile[] = "data.consent";

// Reads, lets `change` change, and writes.
template <typename Change>
absl::Status Update(const std::string& config_directory, Change change) {
  if (config_directory.empty()) {
    return absl::FailedPreconditionError(
        "cannot store the allowed folders: set HOME or XDG_CONFIG_HOME");
  }
  RETURN_IF_ERROR(MakePrivateDirectory(config_directory));
  // Another program holds the lock for a moment at most.
  const std::string lock_path = FileIn(config_directory, "data.lock");
  const UniqueFd lock(
      ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
             0600));
  if (!lock.valid() || ::flock(lock.get(), LOCK_EX) != 0) {
    return absl::ErrnoToStatus(errno, lock_path);
  }
  ASSIGN_OR_RETURN(std::vector<std::string> folders,
                   ReadAllowedData(config_directory));
  RETURN_IF_ERROR(change(folders));
  absl::c_sort(folders);
  std::string text;
  for (const std::string& folder : folders) {
    absl::StrAppend(&text, absl::Utf8SafeCEscape(folder), "\n");
  }
  return WriteFileIn(config_directory, kFile, text);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadAllowedData(
    const std::string& config_directory) {
  std::vector<std::string> folders;
  if (config_directory.empty()) return folders;
  const absl::StatusOr<std::string> text = ReadFileIn(config_directory, kFile);
  if (absl::IsNotFound(text.status())) return folders;
  RETURN_IF_ERROR(text.status());
  for (absl::string_view line :
       absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    std::string folder;
    if (!absl::CUnescape(line, &folder) || folder[0] != '/') {
      return absl::DataLossError(
          absl::StrCat(FileIn(config_directory, kFile),
                       " is damaged: remove it, and allow each folder again "
                       "with `atoll data allow DIR`"));
    }
    folders.push_back(std::move(folder));
  }
  return folders;
}

absl::StatusOr<std::string> AllowData(const std::string& config_directory,
                                      const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string resolved, worker::ResolveLinks(folder));
  std::error_code error;
  if (!std::filesystem::is_directory(resolved, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(resolved, " is no folder: give the one that holds it"));
  }
  if (resolved == "/") {
    return absl::InvalidArgumentError(
        "/ is the whole machine: give the folder of the data");
  }
  RETURN_IF_ERROR(
      Update(config_directory, [&](std::vector<std::string>& folders) {
        if (!absl::c_linear_search(folders, resolved)) {
          folders.push_back(resolved);
        }
        return absl::OkStatus();
      }));
  return resolved;
}

absl::StatusOr<std::string> DisallowData(const std::string& config_directory,
                                         const std::string& folder) {
  std::error_code error;
  std::filesystem::path path =
      std::filesystem::weakly_canonical(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // A slash at the end.
  const std::string resolved = path.string();
  RETURN_IF_ERROR(
      Update(config_directory, [&](std::vector<std::string>& folders) {
        const auto found = absl::c_find(folders, resolved);
        if (found == folders.end()) {
          return absl::NotFoundError(
              absl::StrCat(resolved,
                           " is not allowed; `atoll data allow` "
                           "lists the folders that are"));
        }
        folders.erase(found);
        return absl::OkStatus();
      }));
  return resolved;
}

}  // namespace atl::cli
