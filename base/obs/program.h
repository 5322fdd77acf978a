// The parts that all servers share: open-file limit, exit code, stop signals.

#pragma once

#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/obs/signals.h"
#include "base/sync/mutex.h"

namespace atl {

// Raises the process's limit of open files to the hard limit, and returns it.
// Logs a warning if it is low for a server: each connection, log segment and
// version's file needs one.
uint64_t RaiseOpenFileLimit();

// Reports an error in `status` of the program `name` to stderr, and returns the
// exit code (base/status/exit_code.h).
int EndProgram(absl::string_view name, const absl::Status& status);

// Writes what stdout still buffers. UNKNOWN: some of this program's output could
// not be written, now or earlier.
absl::Status FlushOutput();

// The signals of EndSignals, for a server whose acknowledged data survives an
// abrupt end. Thread-safe.
//
//   while it starts          the first signal ends the process at once, with 0
//   from Started() on        the first signal makes IsStopping() true
//   a second signal          ends the process at once, by that signal
//   `stop_max` after the     ends the process with 1, for example because a
//   first signal             disk hangs
class StopSignals {
 public:
  // Make it before any other thread starts (EndSignals).
  explicit StopSignals(absl::Duration stop_max);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void Started();
  bool IsStopping() const;
  // Returns IsStopping() once it is true or `timeout` is over.
  bool WaitFor(absl::Duration timeout);

 private:
  void Run(std::stop_token stop);
  void Receive(int number);

  const absl::Duration stop_max_;
  EndSignals signals_;  // The constructor's, then the thread's.
  mutable Mutex mutex_;
  CondVar changed_;
  bool has_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace atl
