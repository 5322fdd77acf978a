// The rules of all our programs for signals, and for standard streams that are
// closed.
//
//   SIGPIPE  is ignored: a write whose reader has gone fails with EPIPE
//   SIGXFSZ  too: a write beyond the process's limit (RLIMIT_FSIZE) fails with
//            EFBIG
//   SIGTERM, SIGINT
//            ask a program to end; the second one ends it at once
//   SIGHUP   the terminal was closed: asks as SIGTERM does, but only first.
//            Shells and the kernel both send it, and systemd may send it after
//            a SIGTERM. A program that was started to ignore it (nohup) does

#pragma once

#include <signal.h>

#include "absl/time/time.h"

namespace atl {

// Ignores SIGPIPE and SIGXFSZ. A standard stream that is closed becomes one that
// cannot be used; otherwise the next file that is opened would take its number,
// and messages would go there. The first call of `main`.
void PrepareProcess();

// The signals that ask this program to end. Thread-compatible.
class EndSignals {
 public:
  // Blocks them in the calling thread; threads that start later inherit this.
  // Make it before any other thread starts.
  EndSignals();

  // Waits for the next signal that counts, and returns its number; 0: none came
  // within `timeout`.
  int Next(absl::Duration timeout);

  // Ends the process by the default action of signal `number`.
  void DieBy(int number) const;

 private:
  sigset_t signals_;
  bool has_come_ = false;  // One that counts.
};

}  // namespace atl
