// What is done to the values of a block while they are in the first-level
// cache: small loops that the compiler does not vectorise by itself.
//
// Pure. Thread-safe. No allocation.

#ifndef BASE_CODEC_F32_VALUES_H_
#define BASE_CODEC_F32_VALUES_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace atl::codec {

// Plain definition: no value is NaN or infinite.
inline bool AllFinitePlain(absl::Span<const float> x) {
  for (const float value : x) {
    if ((std::bit_cast<uint32_t>(value) & 0x7fffffffu) >= 0x7f800000u) {
      return false;
    }
  }
  return true;
}

bool AllFinite(absl::Span<const float> x);

// difference = a - b, shape [n]; `difference` may be either.
void Subtract(size_t n, const float* a, const float* b, float* difference);

}  // namespace atl::codec

#endif  // BASE_CODEC_F32_VALUES_H_
