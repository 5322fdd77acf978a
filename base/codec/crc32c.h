// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), as in iSCSI and
// RocksDB: initial value and final xor 0xffffffff.
//
// Pure. Uses the SSE4.2 instruction in interleaved streams, which hides its
// latency, beside it, where the processor has them, carry-less products of 256
// bits, or those of 512 bits, alone or beside it, whichever is faster; the
// plain definition is kept beside it for its test.

#ifndef BASE_CODEC_CRC32C_H_
#define BASE_CODEC_CRC32C_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace atl::codec {

// The CRC of A followed by `bytes`, where `crc` is the CRC of A; 0 is the CRC
// of nothing.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);

// The CRC of `bytes`.
inline uint32_t Crc32c(absl::string_view bytes) {
  return ExtendCrc32c(0, bytes);
}

// The CRC of A followed by B from their CRCs and B's length, in
// O(log b_size_bytes).
uint32_t CombineCrc32c(uint32_t a_crc, uint32_t b_crc, uint64_t b_size_bytes);

// ExtendCrc32c on a processor with products of 512 bits: with these alone, and
// with the instruction beside them.
// Requires: CanFoldCrc32c().
uint32_t ExtendCrc32cFolded(uint32_t crc, absl::string_view bytes);
uint32_t ExtendCrc32cFoldedMixed(uint32_t crc, absl::string_view bytes);
bool CanFoldCrc32c();

// ExtendCrc32c on a processor whose widest products are of 256 bits.
// Requires: CanMixCrc32c().
uint32_t ExtendCrc32cMixed(uint32_t crc, absl::string_view bytes);
bool CanMixCrc32c();

// ExtendCrc32c on a processor without wide products.
uint32_t ExtendCrc32cNarrow(uint32_t crc, absl::string_view bytes);

// ExtendCrc32c as its definition says, a bit at a time.
uint32_t ExtendCrc32cPlain(uint32_t crc, absl::string_view bytes);

}  // namespace atl::codec

#endif  // BASE_CODEC_CRC32C_H_
