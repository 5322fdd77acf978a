// Small loops over the values of a block in the L1 cache, written with SIMD
// because the compiler does not vectorise them. Pure. Thread-safe. No
// allocation.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace atl::codec {

// Plain definition of AllFinite: no value is NaN or infinite.
inline bool AllFinitePlain(absl::Span<const float> x) {
  for (const float value : x) {
    if ((std::bit_cast<uint32_t>(value) & 0x7fffffffu) >= 0x7f800000u) {
      return false;
    }
  }
  return true;
}

bool AllFinite(absl::Span<const float> x);

// difference = a - b, shape [n]. `difference` may be `a` or `b`.
void Subtract(size_t n, const float* a, const float* b, float* difference);

}  // namespace atl::codec
