#include "server/service/stream_watchdog.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"

namespace atl::server {

StreamWatchdog::StreamWatchdog(const StreamLimits& limits, const Clock& clock,
                               bool run_thread)
    : limits_(limits), clock_(clock) {
  if (run_thread) thread_ = std::thread([this] { Run(); });
}

StreamWatchdog::~StreamWatchdog() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool StreamWatchdog::Add(std::shared_ptr<WaiterGate> gate,
                         std::shared_ptr<StreamProgress> progress) {
  const absl::Time now = clock_.Now();
  MutexLock lock(&mutex_);
  if (place_count_ >= limits_.stream_count_max) return false;
  ++place_count_;
  const WaiterGate* key = gate.get();
  entries_[key] = {std::move(gate), std::move(progress), now, 0};
  return true;
}

void StreamWatchdog::LeavePlace(const WaiterGate* gate) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(gate);
  if (it == entries_.end() || !it->second.has_place) return;
  it->second.has_place = false;
  --place_count_;
}

void StreamWatchdog::Remove(const WaiterGate* gate) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(gate);
  if (it == entries_.end()) return;
  if (it->second.has_place) --place_count_;
  entries_.erase(it);
}

void StreamWatchdog::Check() {
  const absl::Time now = clock_.Now();
  std::vector<std::shared_ptr<WaiterGate>> slow;
  {
    MutexLock lock(&mutex_);
    for (auto& [key, entry] : entries_) {
      const int64_t bytes = entry.progress->payload_bytes;
      if (entry.progress->waits_for_us && !entry.progress->answering) {
        entry.window_start = now;
        entry.bytes_at_start = bytes;
        continue;
      }
      if (now - entry.window_start < limits_.window) continue;
      if (bytes - entry.bytes_at_start < limits_.window_bytes_min) {
        slow.push_back(entry.gate);
      }
      entry.window_start = now;
      entry.bytes_at_start = bytes;
    }
  }
  for (const auto& gate : slow) {
    gate->CallTooSlow(
        Refuse(absl::StatusCode::kDeadlineExceeded, "TOO_SLOW",
               absl::StrCat("the stream moved less than ",
                            limits_.window_bytes_min, " bytes in ",
                            absl::FormatDuration(limits_.window),
                            ": call again, it goes on where it was")));
  }
}

void StreamWatchdog::Run() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      changed_.WaitWithTimeout(&mutex_, absl::Seconds(1));
      if (stopping_) return;
    }
    Check();
  }
}

}  // namespace atl::server
