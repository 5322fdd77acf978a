// The f32 codec without a copy: elements in memory are their own encoding.
// Pure.

#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace atl::codec {

// The bytes of `elements`, which must outlive them.
inline absl::string_view F32Bytes(absl::Span<const float> elements) {
  return {reinterpret_cast<const char*>(elements.data()),
          elements.size() * sizeof(float)};
}

}  // namespace atl::codec
