// Truncates text between characters, because protobuf strings must be valid
// UTF-8. Pure. Thread-safe.

#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace atl {

// The most characters of `text`, valid UTF-8, that fit in `bytes_max` bytes.
inline absl::string_view CutUtf8(absl::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  const auto continues = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (bytes_max > 0 && continues(bytes_max)) --bytes_max;
  return text.substr(0, bytes_max);
}

}  // namespace atl
