// Makes text of unknown origin fit for protobuf strings, which must be valid
// UTF-8. Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/stubs/common.h"

namespace atl {

// `text` with '?' for each byte that is not part of a UTF-8 character.
inline std::string ToValidUtf8(absl::string_view text) {
  std::string changed(text.size(), '?');
  return std::string(google::protobuf::internal::UTF8CoerceToStructurallyValid(
                         {text.data(), text.size()}, changed.data(), '?'),
                     text.size());
}

}  // namespace atl
