#include "cli/dev/dev_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "cli/output/output.h"

namespace atl::cli {
namespace {

constexpr int64_t kReadBytesMax = 1 << 20;

// The text at `key` of a JSON file; empty if the file or the key is missing.
std::string ReadJsonText(const OpenDirectory& directory, const char* name,
                         const char* key) {
  const Json json =
      Json::parse(directory.Read(name, kReadBytesMax).value_or(""), nullptr,
                  /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains(key) || !json[key].is_string()) {
    return "";
  }
  return json[key].get<std::string>();
}

// Checks that the directory is empty, or of this run.
absl::Status CheckRun(const OpenDirectory& directory, const std::string& path,
                      absl::string_view run_id) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, directory.List());
  const auto has = [&](absl::string_view name) {
    return absl::c_linear_search(names, name);
  };
  // Another `dev up` may have just made its lock.
  if (names.empty() || (names.size() == 1 && has("lock"))) {
    return absl::OkStatus();
  }
  std::string owner(absl::StripAsciiWhitespace(
      directory.Read("run", kReadBytesMax).value_or("")));
  if (owner.empty() && has("lock") && has("coordinator")) {
    owner = ReadJsonText(directory, "endpoints.json", "run");
    if (owner.empty()) {
      owner = ReadJsonText(directory, "result.json", "run_id");
    }
    // It ended before its servers served.
    if (owner.empty()) return absl::OkStatus();
  }
  if (!has("lock") || owner.empty()) {
    return WithHint(
        WithReason(absl::AlreadyExistsError(absl::StrCat(
                       path, " has files that no `atoll dev up` made")),
                   "NOT_OURS"),
        "Give a new or an empty directory with --dir.");
  }
  if (owner == run_id) return absl::OkStatus();
  return WithHint(
      WithReason(absl::AlreadyExistsError(absl::StrCat(
                     path, " has the run ", owner, ", not ", run_id)),
                 "DIRECTORY_OF_OTHER_RUN"),
      absl::StrCat("Give another --dir for ", run_id, "; or resume ", owner,
                   " with its own run file."));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DevDirectory>> DevDirectory::Open(
    const std::string& path, absl::string_view run_id) {
  const std::string absolute = AbsolutePath(path);
  ASSIGN_OR_RETURN(std::unique_ptr<OpenDirectory> opened,
                   OpenDirectory::MakePrivate(PosixFileSystem(), absolute));
  RETURN_IF_ERROR(CheckRun(*opened, absolute, run_id));
  RETURN_IF_ERROR(opened->MakePrivateAgain());
  // The programs find their directories by path.
  std::error_code error;
  const std::string real = std::filesystem::canonical(absolute, error).string();
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("follow ", absolute));
  }
  RETURN_IF_ERROR(CheckPathOwners(real));
  ASSIGN_OR_RETURN(UniqueFd fd, opened->OpenTrusted("lock", O_RDWR | O_CREAT));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    const std::string holder(absl::StripAsciiWhitespace(
        opened->Read("lock", kReadBytesMax).value_or("")));
    return WithHint(WithReason(absl::AlreadyExistsError(absl::StrCat(
                                   "another `atoll dev up` (process ", holder,
                                   ") runs in ", absolute)),
                               "DIRECTORY_IN_USE"),
                    "Stop it with Ctrl-C, or give another --dir.");
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), pid.data(), pid.size(), 0) !=
          static_cast<ssize_t>(pid.size())) {
    return ErrnoToStatus(errno, absl::StrCat("write ", opened->PathOf("lock")));
  }
  // Another process may have taken it before the lock was ours.
  RETURN_IF_ERROR(CheckRun(*opened, absolute, run_id));
  RETURN_IF_ERROR(opened->Replace("run", absl::StrCat(run_id, "\n")));
  return std::unique_ptr<DevDirectory>(
      new DevDirectory(real, std::move(opened), std::move(fd)));
}

std::string DevDirectory::File(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

absl::StatusOr<std::string> DevDirectory::MakeChildDirectory(
    absl::string_view name) const {
  RETURN_IF_ERROR(opened_->MakeSubdirectory(std::string(name)).status());
  return File(name);
}

int ReadPortFile(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text) || file.eof()) return 0;
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos) text.erase(0, colon + 1);
  int port = 0;
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &port) ? port : 0;
}

}  // namespace atl::cli
