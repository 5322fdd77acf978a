#include "server/service/stream_watchdog.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/refusal.h"
#include "server/live_merge/receive_budget.h"

namespace atl::server {
namespace {

// Fewer bytes in a window: too slow.
constexpr int64_t kWindowBytesMin = 16 << 10;
// Longest wait for memory (level ISLAND); clients give up after a minute
// (ParameterClientOptions::stall_timeout).
constexpr absl::Duration kBudgetWaitMax = absl::Seconds(50);

absl::Status NoPlace(absl::string_view why) {
  return RefuseForNow(absl::StatusCode::kResourceExhausted, "TOO_MANY_STREAMS",
                      why, absl::Seconds(1));
}

}  // namespace

StreamWatchdog::StreamWatchdog(const StreamLimits& limits, const Clock& clock,
                               bool run_thread)
    : limits_(limits), clock_(clock), places_(limits.stream_count_max) {
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

absl::Status StreamWatchdog::Add(std::shared_ptr<WaiterGate> gate,
                                 std::shared_ptr<StreamProgress> progress,
                                 const std::string& caller) {
  const absl::Time now = clock_.Now();
  std::shared_ptr<WaiterGate> displaced;
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    const Places::Answer answer = places_.Take(++last_number_, caller);
    if (!answer.is_taken) {
      return NoPlace(
          "all places for streams are taken, and this caller has its share: "
          "call again later");
    }
    if (answer.displaced.has_value()) displaced = gates_[*answer.displaced];
    gates_[last_number_] = gate;
    const WaiterGate* key = gate.get();
    entries_[key] = {std::move(gate), std::move(progress), last_number_, now};
  }
  if (displaced != nullptr) {
    displaced->CallDisplaced(
        NoPlace("another caller needs the place, and this caller has more than "
                "its share: call again later, with fewer streams"));
  }
  return absl::OkStatus();
}

void StreamWatchdog::LimitTo(const WaiterGate* gate,
                             std::function<absl::Status()> check) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(gate);
  if (it != entries_.end()) it->second.check = std::move(check);
}

void StreamWatchdog::CheckAllowed() {
  std::vector<std::pair<std::shared_ptr<WaiterGate>, absl::Status>> ended;
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, entry] : entries_) {
      if (entry.check == nullptr || entry.progress->ending) continue;
      if (absl::Status allowed = entry.check(); !allowed.ok()) {
        ended.emplace_back(entry.gate, std::move(allowed));
      }
    }
  }
  for (const auto& [gate, status] : ended) gate->CallDisplaced(status);
}

void StreamWatchdog::LeavePlace(const WaiterGate* gate) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(gate);
  if (it != entries_.end()) places_.Leave(it->second.number);
}

void StreamWatchdog::Remove(const WaiterGate* gate) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(gate);
  if (it == entries_.end()) return;
  places_.Remove(it->second.number);
  gates_.erase(it->second.number);
  entries_.erase(it);
  if (entries_.empty()) emptied_.SignalAll();
}

void StreamWatchdog::Close(const absl::Status& status) {
  std::vector<std::shared_ptr<WaiterGate>> ended;
  {
    MutexLock lock(&mutex_);
    if (!closed_.ok()) return;
    closed_ = status;
    for (const auto& [key, entry] : entries_) {
      if (!entry.progress->is_complete) ended.push_back(entry.gate);
    }
  }
  for (const auto& gate : ended) gate->CallDisplaced(status);
}

bool StreamWatchdog::WaitUntilEmpty(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (!entries_.empty()) {
    if (emptied_.WaitWithDeadline(&mutex_, deadline)) return entries_.empty();
  }
  return true;
}

void StreamWatchdog::Check() {
  CheckAllowed();
  const absl::Time now = clock_.Now();
  std::vector<std::shared_ptr<WaiterGate>> slow, without_budget;
  {
    MutexLock lock(&mutex_);
    for (auto& [key, entry] : entries_) {
      const int64_t bytes = entry.progress->payload_bytes;
      if (entry.progress->ending) {
        if (entry.seen_ending) slow.push_back(entry.gate);
        entry.seen_ending = true;
        continue;
      }
      const int64_t turn = entry.progress->budget_turn;
      if (turn != std::exchange(entry.budget_turn, turn)) {
        entry.budget_wait_start = now;
      } else if (turn != 0 &&
                 now - entry.budget_wait_start >= kBudgetWaitMax) {
        without_budget.push_back(entry.gate);
      }
      if (entry.progress->waits_for_us && !entry.progress->answering) {
        entry.window_start = now;
        entry.bytes_at_start = bytes;
        continue;
      }
      if (now - entry.window_start < limits_.window) continue;
      if (bytes - entry.bytes_at_start < kWindowBytesMin) {
        slow.push_back(entry.gate);
      }
      entry.window_start = now;
      entry.bytes_at_start = bytes;
    }
  }
  for (const auto& gate : without_budget) gate->CallDisplaced(NoBudgetToWait());
  for (const auto& gate : slow) {
    gate->CallTooSlow(
        Refuse(absl::StatusCode::kDeadlineExceeded, "TOO_SLOW",
               absl::StrCat("the stream moved less than ", kWindowBytesMin,
                            " bytes in ", absl::FormatDuration(limits_.window),
                            ": call again to resume")));
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
