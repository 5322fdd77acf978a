#include "base/obs/signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

namespace atl {
namespace {

bool IsIgnored(int number) {
  struct sigaction action = {};
  return ::sigaction(number, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

}  // namespace

void PrepareProcess() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // Gets the lowest free number, which is `fd`. In the wrong direction, so
    // that its use is an error.
    ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

EndSignals::EndSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  if (!IsIgnored(SIGHUP)) sigaddset(&signals_, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

int EndSignals::Next(absl::Duration timeout) {
  const timespec span = absl::ToTimespec(timeout);
  const int number = ::sigtimedwait(&signals_, nullptr, &span);
  if (number <= 0 || (number == SIGHUP && has_come_)) return 0;
  has_come_ = true;
  return number;
}

void EndSignals::DieBy(int number) const {
  ::signal(number, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  ::raise(number);
}

}  // namespace atl
