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

  // Payload of the next chunk, in [kBytesMin, kBytesMax]. (A chunk has whole
  // blocks, and at least one.)
  int64_t bytes() const { return bytes_; }

  // The transport took `span` to take a chunk over. A few may be quick because
  // a buffer had room, so the size doubles only after four in a row.
  void Moved(absl::Duration span) {
    if (span > kSlow) {
      Failed();
    } else if (span > kQuick) {
      quick_count_ = 0;
    } else if (++quick_count_ == kQuickCount) {
      quick_count_ = 0;
      bytes_ = std::min(2 * bytes_, kBytesMax);
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

  int64_t bytes_ = kBytesStart;
  int quick_count_ = 0;  // In a row.
};

}  // namespace atl::rpc

#endif  // BASE_RPC_CHUNK_SIZER_H_
