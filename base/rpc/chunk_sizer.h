// The size of a stream's next chunk: what the transport accepts in a tenth of a
// second or less.
//
// Large chunks cost least. But on a slow stream a watchdog that counts whole
// messages takes the stream for dead. They also exceed a bandwidth cap in
// bursts, and lose much when the connection breaks.
//
// Pure. Thread-compatible.

#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace atl::rpc {

class ChunkSizer {
 public:
  static constexpr int64_t kBytesMin = 16 << 10;
  static constexpr int64_t kBytesStart = kBytesMin;
  static constexpr int64_t kBytesMax = 1 << 20;
  // For a pull. With the receive window and one frame, which its reader also
  // accepts, it is at most kBytesMax (server/client/DESIGN.md, A download).
  static constexpr int64_t kPullBytesMax = 3 << 18;

  // `bytes_max`: a multiple of kBytesMin, at most kBytesMax. Starts at
  // `bytes_start`, clamped to [kBytesMin, bytes_max].
  explicit ChunkSizer(int64_t bytes_max = kBytesMax,
                      int64_t bytes_start = kBytesStart)
      : bytes_max_(bytes_max),
        bytes_(std::clamp(bytes_start, kBytesMin, bytes_max)) {}

  // Payload of the next chunk, in [kBytesMin, bytes_max]. (A chunk has whole
  // blocks, and at least one.)
  int64_t bytes() const { return bytes_; }

  // Records that the transport took `span` to accept a chunk. A free buffer can
  // make a few chunks fast, so the size doubles only after four in a row.
  // `round_trip`, if known, is subtracted: a chunk that waits for a window
  // takes that long, whatever its size.
  void Moved(absl::Duration span,
             absl::Duration round_trip = absl::ZeroDuration()) {
    span -= std::min(round_trip, kRoundTripMax);
    if (span > kSlow) {
      Failed();
    } else if (span > kQuick) {
      quick_count_ = 0;
    } else if (++quick_count_ == kQuickCount) {
      quick_count_ = 0;
      bytes_ = std::min(2 * bytes_, bytes_max_);
    }
  }

  // Records that the stream broke or was ended.
  void Failed() {
    quick_count_ = 0;
    bytes_ = std::max(bytes_ / 2, kBytesMin);
  }

 private:
  static constexpr absl::Duration kSlow = absl::Milliseconds(100);
  static constexpr absl::Duration kQuick = absl::Milliseconds(25);
  static constexpr int kQuickCount = 4;
  // A longer round trip is caused by a busy link.
  static constexpr absl::Duration kRoundTripMax = absl::Milliseconds(200);

  int64_t bytes_max_;
  int64_t bytes_;
  int quick_count_ = 0;  // In a row.
};

}  // namespace atl::rpc
