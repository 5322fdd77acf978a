#include "base/codec/f32_values.h"

#include <immintrin.h>

namespace atl::codec {
namespace {

constexpr size_t kLanes = 8;

}  // namespace

bool AllFinite(absl::Span<const float> x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most[4] = {};
  size_t i = 0;
  for (; i + 4 * kLanes <= x.size(); i += 4 * kLanes) {
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      const __m256i bits = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(x.data() + i + j * kLanes));
      most[j] = _mm256_max_epi32(most[j], _mm256_and_si256(bits, magnitude));
    }
  }
  const __m256i all = _mm256_max_epi32(_mm256_max_epi32(most[0], most[1]),
                                       _mm256_max_epi32(most[2], most[3]));
  const __m256i infinite =
      _mm256_cmpgt_epi32(all, _mm256_set1_epi32(0x7f800000 - 1));
  return _mm256_testz_si256(infinite, infinite) != 0 &&
         AllFinitePlain(x.subspan(i));
}

void Subtract(size_t n, const float* a, const float* b, float* difference) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_ps(
        difference + i,
        _mm256_sub_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
  }
  for (; i < n; ++i) difference[i] = a[i] - b[i];
}

}  // namespace atl::codec
