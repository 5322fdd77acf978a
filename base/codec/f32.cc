#include "base/codec/f32.h"

#include <immintrin.h>

#include <cmath>
#include <cstring>

namespace atl::codec {

bool AllFinitePlain(absl::Span<const float> x) {
  for (const float value : x) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

bool AllFinite(absl::Span<const float> x) {
  // Not finite: all exponent bits are set.
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256i bad = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 8 <= x.size(); i += 8) {
    const __m256i bits = _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(x.data() + i));
    bad = _mm256_or_si256(
        bad, _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent));
  }
  return _mm256_testz_si256(bad, bad) && AllFinitePlain(x.subspan(i));
}

bool DecodeF32(const char* bytes, absl::Span<float> x) {
  // In pieces that stay in the first cache, so that the check costs no pass.
  constexpr size_t kPiece = 2048;
  bool finite = true;
  for (size_t begin = 0; begin < x.size(); begin += kPiece) {
    const absl::Span<float> piece = x.subspan(begin, kPiece);
    std::memcpy(piece.data(), bytes + begin * sizeof(float),
                piece.size() * sizeof(float));
    finite = AllFinite(piece) && finite;
  }
  return finite;
}

}  // namespace atl::codec
