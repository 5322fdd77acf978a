// How large the next chunk of a stream should be: what the transport takes over
// in a tenth of a second or less.
//
// Large chunks cost the least, but a slow stream with large ones looks dead to
// whoever counts whole messages, keeps a cap only roughly, and loses much to a
// cut.
//
// Pure. Thread-compatible.

#ifndef BASE_RPC_CHUNK_SIZER_H_
#define BASE_RPC_CHUNK_SIZER_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace atl::rpc {

class ChunkSizer {
 public:
  static constexpr int64_t kBytesMin = 16 << 10;
  static constexpr int64_t kBytesStart = kBytesMin;
  static constexpr int64_t kBytesMax = 1 << 20;
  // Of a pull: together with what its reader lets through beside it, a window
  // and a frame (server/client/DESIGN.md), no more than kBytesMax.
  static constexpr int64_t kPullBytesMax = 3 << 18;

  // `bytes_max`: a multiple of kBytesMin, at most kBytesMax. Begins with
  // `bytes_start`, or what is nearest to it.
  explicit ChunkSizer(int64_t bytes_max = kBytesMax,
                      int64_t bytes_start = kBytesStart)
      : bytes_max_(bytes_max),
        bytes_(std::clamp(bytes_start, kBytesMin, bytes_max)) {}

  // Payload of the next chunk, in [kBytesMin, bytes_max]. (A chunk has whole
  // blocks, and at least one.)
  int64_t bytes() const { return bytes_; }

  // The transport took `span` to take a chunk over. A few may be quick because
  // a buffer had room, so the size doubles only after four in a row. A chunk
  // that waits for a window takes a `round_trip`, if it is known, whatever its
  // size is: that does not count.
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

  // The stream broke or was ended.
  void Failed() {
    quick_count_ = 0;
    bytes_ = std::max(bytes_ / 2, kBytesMin);
  }

 private:
  static constexpr absl::Duration kSlow = absl::Milliseconds(100);
  static constexpr absl::Duration kQuick = absl::Milliseconds(25);
  static constexpr int kQuickCount = 4;
  // What looks longer is a link that is busy.
  static constexpr absl::Duration kRoundTripMax = absl::Milliseconds(200);

  int64_t bytes_max_;
  int64_t bytes_;
  int quick_count_ = 0;  // In a row.
};

}  // namespace atl::rpc

#endif  // BASE_RPC_CHUNK_SIZER_H_
