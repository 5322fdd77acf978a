#include "base/obs/program.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/status/exit_code.h"

namespace atl {
namespace {

// Lower limits of open files are logged.
constexpr uint64_t kFewFiles = 4096;

// How often the thread looks at the time.
constexpr absl::Duration kLook = absl::Milliseconds(100);

}  // namespace

uint64_t RaiseOpenFileLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);  // Fails only for wrong arguments.
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  // The system may have a lower limit than the hard limit.
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  if (limit.rlim_cur < kFewFiles) {
    LOG(WARNING) << "may have " << limit.rlim_cur
                 << " open files at once, including connections; raise the "
                    "hard limit (`ulimit -Hn`) to allow more";
  }
  return limit.rlim_cur;
}

int EndProgram(absl::string_view name, const absl::Status& status) {
  if (!status.ok()) {
    std::fputs(absl::StrCat(name, ": ", status.message(), "\n").c_str(),
               stderr);
  }
  return static_cast<int>(CodeToExitCode(status.code()));
}

absl::Status FlushOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
    return absl::OkStatus();
  }
  // The reason of an earlier write's error is gone.
  return absl::UnknownError(absl::StrCat(
      "the output could not be written",
      errno == 0 ? "" : absl::StrCat(": ", std::strerror(errno))));
}

StopSignals::StopSignals(absl::Duration stop_max) : stop_max_(stop_max) {
  thread_ = std::jthread([this](std::stop_token stop) { Run(stop); });
}

StopSignals::~StopSignals() {
  thread_.request_stop();
  pthread_kill(thread_.native_handle(), SIGTERM);  // Wakes it.
  thread_.join();
}

void StopSignals::Started() {
  MutexLock lock(&mutex_);
  has_started_ = true;
}

bool StopSignals::IsStopping() const {
  MutexLock lock(&mutex_);
  return is_stopping_;
}

bool StopSignals::WaitFor(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  return changed_.AwaitWithTimeout(&mutex_, timeout,
                                   [this] { return is_stopping_; });
}

void StopSignals::Run(std::stop_token stop) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> deadline;
  while (!stop.stop_requested()) {
    const int number = signals_.Next(kLook);
    LogLeftOut();
    if (stop.stop_requested()) return;
    if (number > 0 && deadline.has_value()) signals_.DieBy(number);
    if (number > 0) {
      deadline = Clock::now() + absl::ToChronoNanoseconds(stop_max_);
      Receive(number);
    }
    if (deadline.has_value() && Clock::now() > *deadline) {
      LOG(ERROR) << "stopping takes longer than " << stop_max_
                 << ": the process ends now";
      ::_exit(1);
    }
  }
}

void StopSignals::Receive(int number) {
  LOG(INFO) << "signal " << number << ": stopping";
  MutexLock lock(&mutex_);
  if (!has_started_) ::_exit(0);
  is_stopping_ = true;
  changed_.SignalAll();
}

}  // namespace atl
