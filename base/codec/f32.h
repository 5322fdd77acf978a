// The f32 codec: elements as little-endian binary32, 4 bytes each.
//
//   x  [n] f32, the elements
//
// Encoding and decoding are exact. Pure. Thread-safe.

#ifndef BASE_CODEC_F32_H_
#define BASE_CODEC_F32_H_

#include <cstdint>

#include "absl/types/span.h"

namespace atl::codec {

// True if no element is NaN or infinite.
bool AllFinite(absl::Span<const float> x);

// The plain definition of AllFinite.
bool AllFinitePlain(absl::Span<const float> x);

// Copies 4n little-endian bytes, aligned or not, to x [n]. False if an element
// is NaN or infinite; x then holds what was decoded.
bool DecodeF32(const char* bytes, absl::Span<float> x);

}  // namespace atl::codec

#endif  // BASE_CODEC_F32_H_
