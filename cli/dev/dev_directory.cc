#include "cli/dev/dev_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "cli/output/output.h"

namespace atl::cli {
namespace {

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cannot create ", path, ": ", error.message()));
}

// The text at `key` of a JSON file; empty if the file or the key is missing.
std::string ReadJsonText(const std::string& path, const char* key) {
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains(key) || !json[key].is_string()) {
    return "";
  }
  return json[key].get<std::string>();
}

// Checks that the directory is empty, or of this run.
absl::Status CheckOwner(const std::string& path, absl::string_view run_id) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   PosixFileSystem().List(path));
  const auto has = [&](absl::string_view name) {
    return absl::c_linear_search(names, name);
  };
  // Another `dev up` may have just made its lock.
  if (names.empty() || (names.size() == 1 && has("lock"))) {
    return absl::OkStatus();
  }
  std::string owner;
  std::ifstream(absl::StrCat(path, "/run")) >> owner;
  if (owner.empty() && has("lock") && has("coordinator")) {
    owner = ReadJsonText(absl::StrCat(path, "/endpoints.json"), "run");
    if (owner.empty()) {
      owner = ReadJsonText(absl::StrCat(path, "/result.json"), "run_id");
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
  std::error_code error;
  const std::string absolute =
      std::filesystem::absolute(path, error).lexically_normal().string();
  if (absl::Status made = MakeDirectories(absolute); !made.ok()) return made;
  RETURN_IF_ERROR(CheckOwner(absolute, run_id));
  const std::string lock_path = absl::StrCat(absolute, "/lock");
  const int fd = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::InternalError(
        absl::StrCat("cannot write ", lock_path, ": ", ::strerror(errno)));
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    std::string holder;
    std::ifstream(lock_path) >> holder;
    ::close(fd);
    return WithHint(WithReason(absl::AlreadyExistsError(absl::StrCat(
                                   "another `atoll dev up` (process ", holder,
                                   ") runs in ", absolute)),
                               "DIRECTORY_IN_USE"),
                    "Stop it with Ctrl-C, or give another --dir.");
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) !=
                                     static_cast<ssize_t>(pid.size())) {
    ::close(fd);
    return absl::InternalError(
        absl::StrCat("cannot write ", lock_path, ": ", ::strerror(errno)));
  }
  std::unique_ptr<DevDirectory> directory(new DevDirectory(absolute, fd));
  // Another process may have taken it before the lock was ours.
  RETURN_IF_ERROR(CheckOwner(absolute, run_id));
  RETURN_IF_ERROR(WriteFileAtomically(PosixFileSystem(), directory->File("run"),
                                      absl::StrCat(run_id, "\n")));
  return directory;
}

DevDirectory::~DevDirectory() { ::close(lock_fd_); }

std::string DevDirectory::File(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

absl::StatusOr<std::string> DevDirectory::MakeChildDirectory(
    absl::string_view name) const {
  const std::string path = File(name);
  if (absl::Status made = MakeDirectories(path); !made.ok()) return made;
  return path;
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
