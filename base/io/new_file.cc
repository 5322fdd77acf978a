#include "base/io/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/io/unique_fd.h"
#include "base/status/annotate.h"

namespace atl {

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return ErrnoToStatus(errno, "write");
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : ErrnoToStatus(errno, "fsync");
}

absl::Status WriteNewFile(const std::string& path, absl::string_view bytes,
                          mode_t mode) {
  const UniqueFd fd(::open(path.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd.valid() && errno == EEXIST) {
    return absl::AlreadyExistsError(absl::StrCat(path, " exists"));
  }
  if (!fd.valid()) return ErrnoToStatus(errno, path);
  const absl::Status status = Annotate(WriteAll(fd.get(), bytes), path);
  if (!status.ok()) ::unlink(path.c_str());
  return status;
}

}  // namespace atl
