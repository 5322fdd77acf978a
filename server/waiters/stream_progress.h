// The progress of a stream of chunks, as its watchdog sees it.

#pragma once

#include <atomic>
#include <cstdint>

namespace atl::server {

// Written by the stream, read by the watchdog.
struct StreamProgress {
  std::atomic<int64_t> payload_bytes{0};
  std::atomic<bool> waits_for_us{false};
  // All blocks are here: the answer comes once they are stored.
  std::atomic<bool> is_complete{false};
  // The number of its ticket for memory, 0: none; waits_for_us is then true.
  std::atomic<int64_t> budget_turn{0};
  // True while an answer is written that the peer must read.
  std::atomic<bool> answering{false};
  // True once it was told to end; it has a moment to send its status.
  std::atomic<bool> ending{false};
};

}  // namespace atl::server
