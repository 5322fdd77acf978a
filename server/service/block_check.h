// Checks and decodes an encoded block of a contribution. Pure, thread-safe, no
// allocation.

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/codec/codec.h"

namespace atl::server {

struct CheckedBlock {
  codec::BlockFault fault = codec::BlockFault::kNone;
  double sum_of_squares = 0;  // The decoded elements'; valid without a fault.
};

// `encoded`: any bytes, unaligned; faulty unless they decode to `element_count`
// elements, 1 to 4096. Decodes onto the stack, in the first-level cache.
CheckedBlock CheckBlock(const codec::Codec& codec, absl::string_view encoded,
                        int64_t element_count);

}  // namespace atl::server
