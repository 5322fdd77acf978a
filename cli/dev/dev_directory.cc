#include "cli/dev/dev_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cannot create ", path, ": ", error.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DevDirectory>> DevDirectory::Open(
    const std::string& path) {
  std::error_code error;
  const std::string absolute =
      std::filesystem::absolute(path, error).lexically_normal().string();
  if (absl::Status made = MakeDirectories(absolute); !made.ok()) return made;
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
  return std::unique_ptr<DevDirectory>(new DevDirectory(absolute, fd));
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
