// CRC-32C (Castagnoli, RFC 3720, appendix B.4).
//
// Pure. Thread-safe.

#ifndef BASE_CODEC_CRC32C_H_
#define BASE_CODEC_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace atl::codec {

// The CRC of `bytes`, by the SSE4.2 instruction.
uint32_t Crc32c(absl::string_view bytes);

// The CRC of a string with CRC `crc` followed by `bytes`.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);

// The plain definition of ExtendCrc32c, a bit at a time.
uint32_t ExtendCrc32cPlain(uint32_t crc, absl::string_view bytes);

}  // namespace atl::codec

#endif  // BASE_CODEC_CRC32C_H_
