#include "cli/enrol/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::cli {
namespace {

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return ErrnoToStatus(errno, "write");
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : ErrnoToStatus(errno, "fsync");
}

}  // namespace

absl::Status MakePrivateDirectory(const std::string& path) {
  FileSystem& fs = PosixFileSystem();
  RETURN_IF_ERROR(fs.CreateDirectories(ParentDirectory(path)));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoToStatus(errno, absl::StrCat("make directory ", path));
  }
  return absl::OkStatus();
}

absl::Status WriteFileWithMode(const std::string& path, absl::string_view text,
                               mode_t mode) {
  const std::string temporary = path + ".tmp";
  ::unlink(temporary.c_str());
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return ErrnoToStatus(errno, temporary);
  absl::Status status = Annotate(WriteAll(fd, text), temporary);
  ::close(fd);
  FileSystem& fs = PosixFileSystem();
  if (status.ok()) status = fs.Rename(temporary, path);
  if (status.ok()) return fs.SyncDirectory(ParentDirectory(path));
  ::unlink(temporary.c_str());
  return status;
}

}  // namespace atl::cli
