// Turns Ctrl-C into a stop request. The first signal asks the command to end
// cleanly; the second kills the process. With `kill_at` 3 the second asks it to
// end at once, and the third kills. SIGTERM and SIGHUP count like SIGINT, as
// base/obs/signals.h says, and terminated() tells them apart.
//
// Create it before other threads (EndSignals).

#pragma once

#include <functional>
#include <stop_token>
#include <thread>

#include "base/obs/signals.h"

namespace atl::cli {

class Interrupt {
 public:
  // The second signal kills.
  Interrupt() : Interrupt(nullptr, 2) {}
  // The first signal calls `on_first` with its number, on another thread.
  // Signal `kill_at`, counted from 1, kills the process.
  Interrupt(std::function<void(int number)> on_first, int kill_at);
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Leaves signals that come from now on to Resume(), or to the program that
  // this process executes next: they stay blocked and pending.
  void Pause();
  void Resume();

  // Requested at the first and at the second signal.
  std::stop_token first() const { return first_.get_token(); }
  std::stop_token second() const { return second_.get_token(); }
  // Requested at a SIGTERM or SIGHUP, before the two above.
  std::stop_token terminated() const { return terminated_.get_token(); }

 private:
  void Run(std::stop_token stop);

  EndSignals signals_;  // The constructor's, then the thread's.
  const std::function<void(int number)> on_first_;
  const int kill_at_;
  std::stop_source first_;
  std::stop_source second_;
  std::stop_source terminated_;
  int count_ = 0;  // Signals.
  std::jthread thread_;  // Last: it uses the others.
};

// Returns once a stop is requested.
void WaitForStop(const std::stop_token& stop);

}  // namespace atl::cli
