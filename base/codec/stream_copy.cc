#include "base/codec/stream_copy.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace atl::codec {

void StreamCopy(size_t size, const char* from, char* to) {
  constexpr size_t kLineBytes = 64;
  // Copies the bytes before the first whole line of `to`.
  const size_t before =
      std::min(size, -reinterpret_cast<uintptr_t>(to) % kLineBytes);
  if (before > 0) std::memcpy(to, from, before);
  size_t i = before;
  for (; i + kLineBytes <= size; i += kLineBytes) {
    const __m256i low =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i high =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), high);
  }
  if (i < size) std::memcpy(to + i, from + i, size - i);
  // Without the fence non-temporal stores have no order.
  _mm_sfence();
}

}  // namespace atl::codec
