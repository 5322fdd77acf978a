#include "base/codec/crc32c.h"

#include <nmmintrin.h>

#include <cstring>

namespace atl::codec {

uint32_t Crc32c(absl::string_view bytes) { return ExtendCrc32c(0, bytes); }

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t state = ~crc;
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = _mm_crc32_u64(state, word);
  }
  uint32_t tail = static_cast<uint32_t>(state);
  for (; left > 0; --left, ++at) {
    tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*at));
  }
  return ~tail;
}

uint32_t ExtendCrc32cPlain(uint32_t crc, absl::string_view bytes) {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // Bits reversed.
  crc = ~crc;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    }
  }
  return ~crc;
}

}  // namespace atl::codec
