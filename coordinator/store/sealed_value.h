// Values that carry their checksum. Pure.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace atl::coordinator {

// `bytes` followed by their CRC-32C, little-endian.
std::string Seal(std::string bytes);

// Sets `bytes` to the content of a sealed value, which must outlive it. False
// if the checksum does not match.
bool Unseal(absl::string_view value, absl::string_view& bytes);

}  // namespace atl::coordinator
