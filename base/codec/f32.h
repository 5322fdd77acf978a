// The f32 codec: values as IEEE 754 binary32, little-endian, one after another.
//
// Pure.

#ifndef BASE_CODEC_F32_H_
#define BASE_CODEC_F32_H_

#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace atl::codec {

// Bytes of `element_count` encoded values.
constexpr size_t F32EncodedBytes(size_t element_count) {
  return 4 * element_count;
}

// Writes `values`, shape [n], to `encoded`, of F32EncodedBytes(n) bytes.
//
// Requires: the sizes fit.
void EncodeF32(absl::Span<const float> values, absl::Span<char> encoded);

// Reads `values`, shape [n], from `encoded`, and looks for NaN and infinity in
// the same pass. Every bit pattern comes back as it was written.
//
// Returns false, with `values` unspecified, if `encoded` has not
// F32EncodedBytes(n) bytes or a value is not finite.
[[nodiscard]] bool DecodeF32(absl::string_view encoded,
                             absl::Span<float> values);

// A pointer would be read as a C string.
bool DecodeF32(const char* encoded, absl::Span<float> values) = delete;

// Whether all of `values` are finite.
[[nodiscard]] bool AllFinite(absl::Span<const float> values);

// AllFinite as its definition says, a value at a time.
[[nodiscard]] bool AllFinitePlain(absl::Span<const float> values);

}  // namespace atl::codec

#endif  // BASE_CODEC_F32_H_
