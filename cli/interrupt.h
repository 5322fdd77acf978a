// Ctrl-C as a request: the first one asks to end cleanly, and the second kills
// the process at once, whatever it does; or asks to end now, and the third
// kills. SIGTERM counts as SIGINT does.
//
// To be made before the process has other threads: it blocks the signals for
// the caller, and threads that are made later inherit that.

#pragma once

#include <functional>
#include <stop_token>
#include <thread>

namespace atl::cli {

class Interrupt {
 public:
  // The second signal kills.
  Interrupt() : Interrupt(nullptr, 2) {}
  // `on_first` is called in a thread of its own at the first signal. The
  // signal with the number `kill_at`, from 1, kills.
  Interrupt(std::function<void()> on_first, int kill_at);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Requested at the first and at the second signal.
  std::stop_token first() const { return first_.get_token(); }
  std::stop_token second() const { return second_.get_token(); }

 private:
  void Run(std::stop_token stop);

  const std::function<void()> on_first_;
  const int kill_at_;
  std::stop_source first_;
  std::stop_source second_;
  std::jthread thread_;
};

}  // namespace atl::cli
