#include "base/io/unique_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/status/annotate.h"

namespace atl {

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<UniqueFd> MakeWaker() {
  UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, "eventfd");
  return fd;
}

void SetWaker(int fd) {
  const uint64_t one = 1;
  (void)!write(fd, &one, sizeof(one));  // Full: it is set already.
}

void ClearWaker(int fd) {
  uint64_t count;
  (void)!read(fd, &count, sizeof(count));
}

}  // namespace atl
