// Copies what is not read again soon.
//
// Pure. Thread-safe. No allocation.

#ifndef SERVER_STORE_STREAM_COPY_H_
#define SERVER_STORE_STREAM_COPY_H_

#include <cstdint>

namespace atl::server {

// y = x, both of `n` elements, past the caches: lines of y are neither read
// first nor kept. Other threads see y as after a memcpy.
void StreamCopy(int64_t n, const float* x, float* y);

}  // namespace atl::server

#endif  // SERVER_STORE_STREAM_COPY_H_
