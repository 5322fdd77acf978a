#include "base/codec/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace atl::codec {
namespace {

// Polynomials over GF(2) modulo P, bit-reflected: bit 31 is x^0.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = 0x80000000;

// a * b modulo P.
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// x^(8 * size_bytes) modulo P: multiplying a CRC register by it appends that
// many zero bytes.
constexpr uint32_t ZeroBytes(uint64_t size_bytes) {
  uint32_t square = kOne >> 8;  // x^8.
  uint32_t power = kOne;
  for (; size_bytes != 0; size_bytes >>= 1) {
    if ((size_bytes & 1) != 0) power = Multiply(power, square);
    square = Multiply(square, square);
  }
  return power;
}

// Multiplies by one fixed polynomial, a byte of the factor at a time.
class FixedMultiplier {
 public:
  constexpr explicit FixedMultiplier(uint32_t factor) : table_() {
    for (int byte = 0; byte < 4; ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        table_[byte][value] = Multiply(value << (8 * byte), factor);
      }
    }
  }

  uint32_t operator()(uint32_t a) const {
    return table_[0][a & 255] ^ table_[1][(a >> 8) & 255] ^
           table_[2][(a >> 16) & 255] ^ table_[3][a >> 24];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> table_;
};

// Bytes of one of three interleaved streams: long ones for bulk, short ones for
// what is left of it. Multiples of 8.
constexpr size_t kLongBytes = 4096;
constexpr size_t kShortBytes = 256;
// What CombineCrc32c is asked for most: a block of f32.
constexpr uint64_t kBlockBytes = 16384;

const FixedMultiplier& LongShift() {
  static const FixedMultiplier shift(ZeroBytes(kLongBytes));
  return shift;
}
const FixedMultiplier& ShortShift() {
  static const FixedMultiplier shift(ZeroBytes(kShortBytes));
  return shift;
}

uint64_t Load64(const char* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

// Consumes as many groups of three streams of `stream_bytes` as there are.
uint32_t ExtendInterleaved(uint32_t crc, size_t stream_bytes,
                           const FixedMultiplier& shift, const char*& data,
                           size_t& size) {
  while (size >= 3 * stream_bytes) {
    uint64_t crc0 = crc;
    uint64_t crc1 = 0;
    uint64_t crc2 = 0;
    const char* const end = data + stream_bytes;
    for (; data < end; data += 8) {
      crc0 = _mm_crc32_u64(crc0, Load64(data));
      crc1 = _mm_crc32_u64(crc1, Load64(data + stream_bytes));
      crc2 = _mm_crc32_u64(crc2, Load64(data + 2 * stream_bytes));
    }
    crc = shift(static_cast<uint32_t>(crc0)) ^ static_cast<uint32_t>(crc1);
    crc = shift(crc) ^ static_cast<uint32_t>(crc2);
    data += 2 * stream_bytes;
    size -= 3 * stream_bytes;
  }
  return crc;
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
  const char* data = bytes.data();
  size_t size = bytes.size();
  crc = ~crc;
  if (size >= 3 * kLongBytes) {
    crc = ExtendInterleaved(crc, kLongBytes, LongShift(), data, size);
  }
  if (size >= 3 * kShortBytes) {
    crc = ExtendInterleaved(crc, kShortBytes, ShortShift(), data, size);
  }
  uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    wide = _mm_crc32_u64(wide, Load64(data));
  }
  crc = static_cast<uint32_t>(wide);
  for (; size > 0; ++data, --size) {
    crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*data));
  }
  return ~crc;
}

uint32_t CombineCrc32c(uint32_t a_crc, uint32_t b_crc, uint64_t b_size_bytes) {
  if (b_size_bytes == kBlockBytes) {
    static const FixedMultiplier shift(ZeroBytes(kBlockBytes));
    return shift(a_crc) ^ b_crc;
  }
  return Multiply(ZeroBytes(b_size_bytes), a_crc) ^ b_crc;
}

uint32_t ExtendCrc32cPlain(uint32_t crc, absl::string_view bytes) {
  crc = ~crc;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1) != 0 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    }
  }
  return ~crc;
}

}  // namespace atl::codec
