// Copies bytes that are not read again soon. Pure. Thread-safe. No allocation.

#pragma once

#include <cstddef>

namespace atl::codec {

// Copies `size` bytes past the caches: cache lines of `to` are neither read
// first nor kept. Other threads see the bytes as after a memcpy.
void StreamCopy(size_t size, const char* from, char* to);

}  // namespace atl::codec
