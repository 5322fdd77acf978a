// Unicode classes that pre-tokenizers use. Pure. Thread-safe.

#pragma once

#include <cstdint>

namespace atl::worker {

bool IsUnicodeLetter(uint32_t code);  // General category L*: \p{L}.
bool IsUnicodeNumber(uint32_t code);  // General category N*: \p{N}.
bool IsUnicodeSpace(uint32_t code);   // White_Space: \s.

}  // namespace atl::worker
