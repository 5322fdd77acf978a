#include "base/codec/f32.h"

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/status/check.h"

namespace atl::codec {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the codec copies floats as the machine holds them");

// A value is not finite when all bits of its exponent are set.
constexpr int32_t kExponentBits = 0x7f800000;

// Copies `count` floats and returns whether all are finite. `to` may be null:
// then nothing is copied.
template <bool kCopy>
bool Scan(const char* from, char* to, size_t count) {
  const __m256i exponent = _mm256_set1_epi32(kExponentBits);
  __m256i bad = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i value =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 4 * i));
    bad = _mm256_or_si256(
        bad, _mm256_cmpeq_epi32(_mm256_and_si256(value, exponent), exponent));
    if constexpr (kCopy) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 4 * i), value);
    }
  }
  bool finite = _mm256_testz_si256(bad, bad) != 0;
  for (; i < count; ++i) {
    int32_t value;
    std::memcpy(&value, from + 4 * i, sizeof(value));
    finite = finite && (value & kExponentBits) != kExponentBits;
    if constexpr (kCopy) std::memcpy(to + 4 * i, &value, sizeof(value));
  }
  return finite;
}

}  // namespace

void EncodeF32(absl::Span<const float> values, absl::Span<char> encoded) {
  CHECK_EQ(encoded.size(), F32EncodedBytes(values.size()));
  if (values.empty()) return;
  std::memcpy(encoded.data(), values.data(), encoded.size());
}

bool DecodeF32(absl::string_view encoded, absl::Span<float> values) {
  if (encoded.size() != F32EncodedBytes(values.size())) return false;
  return Scan<true>(encoded.data(), reinterpret_cast<char*>(values.data()),
                    values.size());
}

bool AllFinite(absl::Span<const float> values) {
  return Scan<false>(reinterpret_cast<const char*>(values.data()), nullptr,
                     values.size());
}

bool AllFinitePlain(absl::Span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

}  // namespace atl::codec
