#include "cli/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <future>
#include <utility>

namespace atl::cli {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

// Ends the process by the default action of signal `number`.
void DieBySignal(int number) {
  signal(number, SIG_DFL);
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(number);
}

}  // namespace

Interrupt::Interrupt(std::function<void(int number)> on_first, int kill_at)
    : on_first_(std::move(on_first)), kill_at_(kill_at) {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  Resume();
}

void Interrupt::Pause() { thread_ = std::jthread(); }

void Interrupt::Resume() {
  thread_ = std::jthread([this](std::stop_token stop) { Run(stop); });
}

void Interrupt::Run(std::stop_token stop) {
  const sigset_t set = StopSignals();
  const timespec tick = {.tv_sec = 0, .tv_nsec = 50'000'000};
  int count = 0;
  while (!stop.stop_requested()) {
    const int number = sigtimedwait(&set, nullptr, &tick);
    if (number < 0) continue;
    if (++count >= kill_at_) DieBySignal(number);
    if (number == SIGTERM) terminated_.request_stop();
    if (first_.request_stop()) {
      if (on_first_) on_first_(number);
    } else {
      second_.request_stop();
    }
  }
}

void WaitForStop(const std::stop_token& stop) {
  std::promise<void> stopped;
  const std::stop_callback wake(stop, [&stopped] { stopped.set_value(); });
  stopped.get_future().wait();
}

}  // namespace atl::cli
