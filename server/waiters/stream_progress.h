// How far a stream of chunks has come, as its watchdog sees it.

#ifndef SERVER_WAITERS_STREAM_PROGRESS_H_
#define SERVER_WAITERS_STREAM_PROGRESS_H_

#include <atomic>
#include <cstdint>

namespace atl::server {

// How far a stream is; written by the stream, read by the watchdog.
struct StreamProgress {
  std::atomic<int64_t> payload_bytes{0};
  // True while the peer is not expected to send anything.
  std::atomic<bool> waits_for_us{false};
  // The turn with which it waits for room in memory, each with a number of its
  // own; 0 while it does not. It waits for us then, too.
  std::atomic<int64_t> room_turn{0};
  // True while an answer is on its way, which the peer has to take.
  std::atomic<bool> answering{false};
  // Set once it was told to end, and has a moment to say why.
  std::atomic<bool> ending{false};
};

}  // namespace atl::server

#endif  // SERVER_WAITERS_STREAM_PROGRESS_H_
