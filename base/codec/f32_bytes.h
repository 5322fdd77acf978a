// The f32 codec without a copy: elements in memory are their own encoding.
// Pure.

#ifndef BASE_CODEC_F32_BYTES_H_
#define BASE_CODEC_F32_BYTES_H_

#include "absl/types/span.h"

namespace atl::codec {

// The bytes of `elements`, which must outlive them.
inline absl::Span<const char> F32Bytes(absl::Span<const float> elements) {
  return {reinterpret_cast<const char*>(elements.data()),
          elements.size() * sizeof(float)};
}

}  // namespace atl::codec

#endif  // BASE_CODEC_F32_BYTES_H_
