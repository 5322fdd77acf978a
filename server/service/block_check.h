// Looks at one encoded block of a contribution: whether it is what an encoder
// writes, and what it decodes to.
//
// Pure. Thread-safe. No allocation.

#ifndef SERVER_SERVICE_BLOCK_CHECK_H_
#define SERVER_SERVICE_BLOCK_CHECK_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/codec/codec.h"

namespace atl::server {

struct CheckedBlock {
  codec::BlockFault fault = codec::BlockFault::kNone;
  double sum_of_squares = 0;  // Of the decoded elements; without a fault.
};

// `encoded` is any bytes, anywhere; it decodes to `element_count` elements, 1 to
// 4096, or is faulty. They are decoded into memory of the caller's stack, which
// the first-level cache holds.
CheckedBlock CheckBlock(const codec::Codec& codec, absl::string_view encoded,
                        int64_t element_count);

}  // namespace atl::server

#endif  // SERVER_SERVICE_BLOCK_CHECK_H_
