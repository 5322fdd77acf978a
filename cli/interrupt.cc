#include "cli/interrupt.h"

#include <signal.h>

#include <future>
#include <utility>

#include "absl/time/time.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);

}  // namespace

Interrupt::Interrupt(std::function<void(int number)> on_first, int kill_at)
    : on_first_(std::move(on_first)), kill_at_(kill_at) {
  Resume();
}

void Interrupt::Pause() { thread_ = std::jthread(); }

void Interrupt::Resume() {
  thread_ = std::jthread([this](std::stop_token stop) { Run(stop); });
}

void Interrupt::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const int number = signals_.Next(kTick);
    if (number == 0) continue;
    if (++count_ >= kill_at_) signals_.DieBy(number);
    if (number != SIGINT) terminated_.request_stop();
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
