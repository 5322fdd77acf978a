#include "server/store/stream_copy.h"

#include <immintrin.h>

namespace atl::server {

void StreamCopy(int64_t n, const float* x, float* y) {
  constexpr int64_t kLineElements = 16;
  int64_t i = 0;
  // Whole lines of y.
  for (; i < n && reinterpret_cast<uintptr_t>(y + i) % 64 != 0; ++i) {
    y[i] = x[i];
  }
  for (; i + kLineElements <= n; i += kLineElements) {
    const __m256 low = _mm256_loadu_ps(x + i);
    const __m256 high = _mm256_loadu_ps(x + i + 8);
    _mm256_stream_ps(y + i, low);
    _mm256_stream_ps(y + i + 8, high);
  }
  for (; i < n; ++i) y[i] = x[i];
  // Stores of this kind are ordered by nothing else.
  _mm_sfence();
}

}  // namespace atl::server
