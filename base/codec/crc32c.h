// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), as in iSCSI and
// RocksDB: initial value and final xor 0xffffffff.
//
// Pure. Uses the SSE4.2 instruction in interleaved streams, which hides its
// latency. Where the processor has carry-less products of 256 bits, they run
// concurrently with the instruction. Those of 512 bits run alone or
// concurrently, whichever is faster. The plain definition is kept for the test.

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace atl::codec {

// The CRC of A followed by `bytes`. `crc` is the CRC of A, 0 for an empty A.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);

inline uint32_t Crc32c(absl::string_view bytes) {
  return ExtendCrc32c(0, bytes);
}

// The CRC of A followed by B, from their CRCs and B's length. Takes
// O(log b_size_bytes).
uint32_t CombineCrc32c(uint32_t a_crc, uint32_t b_crc, uint64_t b_size_bytes);

// ExtendCrc32c on a processor with products of 512 bits: with products alone,
// and together with the CRC instruction. Require: CanFoldCrc32c().
uint32_t ExtendCrc32cFolded(uint32_t crc, absl::string_view bytes);
uint32_t ExtendCrc32cFoldedMixed(uint32_t crc, absl::string_view bytes);
bool CanFoldCrc32c();

// ExtendCrc32c on a processor whose widest products have 256 bits. Requires:
// CanMixCrc32c().
uint32_t ExtendCrc32cMixed(uint32_t crc, absl::string_view bytes);
bool CanMixCrc32c();

// ExtendCrc32c on a processor without such products.
uint32_t ExtendCrc32cNarrow(uint32_t crc, absl::string_view bytes);

// The definition of ExtendCrc32c, a bit at a time.
uint32_t ExtendCrc32cPlain(uint32_t crc, absl::string_view bytes);

}  // namespace atl::codec
