#include "base/codec/crc32c.h"

#include <immintrin.h>

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

// x^(8 * size_bytes) modulo P. Multiplying a CRC register by it appends that
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

// a * b * x^32 modulo P. The x^32 comes from the CRC instruction, which reduces
// 64 bits over 32 more. The shift is needed because a product of reflected
// polynomials is one bit short.
__attribute__((target("pclmul,sse4.2"))) uint32_t MultiplyByX32(uint32_t a,
                                                              uint32_t b) {
  const __m128i product = _mm_clmulepi64_si128(
      _mm_cvtsi32_si128(static_cast<int>(a)),
      _mm_cvtsi32_si128(static_cast<int>(b)), 0x00);
  const auto wide = static_cast<uint64_t>(_mm_cvtsi128_si64(product));
  return static_cast<uint32_t>(_mm_crc32_u64(0, wide << 1));
}

// Multiplies by one fixed polynomial, with a table for each byte of the
// operand.
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
// the rest. Multiples of 8.
constexpr size_t kLongBytes = 4096;
constexpr size_t kShortBytes = 256;
// The most frequent length in CombineCrc32c: a block of f32.
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

// Consumes as many groups of three streams of `stream_bytes` as `size` holds.
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

// --- Folding -----------------------------------------------------------------

// Bytes folded at a time: four registers.
constexpr size_t kFoldBytes = 256;
constexpr uint32_t kFoldFar[2] = {ZeroBytes(kFoldBytes + 4),
                                  ZeroBytes(kFoldBytes - 4)};

// The factors that fold 16 bytes over the next `distance_bytes`: one for the
// first eight bytes and one for the last eight. The shift is needed because a
// product of reflected polynomials is one bit short. Gopal et al., "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction" (2009).
__attribute__((target("avx512f"))) __m512i FoldFactors(
    const uint32_t (&powers)[2]) {
  const long long first = static_cast<long long>(uint64_t{powers[0]} << 1);
  const long long last = static_cast<long long>(uint64_t{powers[1]} << 1);
  return _mm512_set_epi64(last, first, last, first, last, first, last, first);
}

// `state` folded over the distance of `factors`, plus `next`.
__attribute__((target("avx512f,vpclmulqdq"))) inline __m512i Fold(
    __m512i state, __m512i factors, __m512i next) {
  return _mm512_ternarylogic_epi64(
      _mm512_clmulepi64_epi128(state, factors, 0x00),
      _mm512_clmulepi64_epi128(state, factors, 0x11), next, 0x96);
}

// Folds the four registers to 64 bytes with the same remainder, and returns
// that remainder.
__attribute__((target("avx512f,vpclmulqdq"))) uint64_t Remainder(
    const __m512i (&state)[4]) {
  static constexpr uint32_t kNear[2] = {ZeroBytes(64 + 4), ZeroBytes(64 - 4)};
  const __m512i near = FoldFactors(kNear);
  __m512i last = state[0];
#pragma GCC unroll 4
  for (int i = 1; i < 4; ++i) last = Fold(last, near, state[i]);
  uint64_t rest[8];
  _mm512_storeu_si512(rest, last);
  uint64_t wide = 0;
#pragma GCC unroll 8
  for (const uint64_t word : rest) wide = _mm_crc32_u64(wide, word);
  return wide;
}

// Loads the first kFoldBytes of `data`, and adds the CRC register to the first
// four. Loops over the registers are unrolled with a pragma: at -O2 g++ does
// not unroll them, keeps the registers in memory and is half as fast.
__attribute__((target("avx512f,vpclmulqdq"))) inline void Begin(
    uint32_t crc, const char* data, __m512i (&state)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) state[i] = _mm512_loadu_si512(data + 64 * i);
  state[0] = _mm512_xor_si512(
      state[0],
      _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
}

// Consumes as many kFoldBytes as `size` holds.
// Requires: CanFoldCrc32c(), size >= kFoldBytes.
__attribute__((target("avx512f,vpclmulqdq"))) uint32_t ExtendFolded(
    uint32_t crc, const char*& data, size_t& size) {
  const __m512i far = FoldFactors(kFoldFar);
  __m512i state[4];
  Begin(crc, data, state);
  data += kFoldBytes;
  size -= kFoldBytes;
  for (; size >= kFoldBytes; data += kFoldBytes, size -= kFoldBytes) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      state[i] = Fold(state[i], far, _mm512_loadu_si512(data + 64 * i));
    }
  }
  return static_cast<uint32_t>(Remainder(state));
}

// The same, concurrently with the CRC instruction. The first bytes of each
// group are folded; six streams of kWideWords words a step take the rest. A
// group is 16 bytes shorter than a block of f32.
constexpr int kWideStreams = 6;
constexpr size_t kWideWords = 5;
constexpr size_t kWideSteps = 33;
constexpr size_t kWideStreamBytes = kWideSteps * kWideWords * 8;
constexpr size_t kWideBytes =
    kWideSteps * kFoldBytes + kWideStreams * kWideStreamBytes;

// Consumes as many kWideBytes as `size` holds.
// Requires: CanFoldCrc32c().
__attribute__((target("avx512f,vpclmulqdq"))) uint32_t ExtendFoldedMixed(
    uint32_t crc, const char*& data, size_t& size) {
  static const FixedMultiplier shift(ZeroBytes(kWideStreamBytes));
  const __m512i far = FoldFactors(kFoldFar);
  for (; size >= kWideBytes; data += kWideBytes, size -= kWideBytes) {
    const char* folded = data;
    const char* stream = data + kWideSteps * kFoldBytes;
    uint64_t crcs[kWideStreams] = {};
    __m512i state[4];
    Begin(crc, folded, state);
    for (size_t step = 0; step < kWideSteps; ++step) {
      if (step > 0) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          state[i] = Fold(state[i], far, _mm512_loadu_si512(folded + 64 * i));
        }
      }
#pragma GCC unroll 5
      for (size_t word = 0; word < kWideWords; ++word, stream += 8) {
#pragma GCC unroll 6
        for (int i = 0; i < kWideStreams; ++i) {
          crcs[i] =
              _mm_crc32_u64(crcs[i], Load64(stream + i * kWideStreamBytes));
        }
      }
      folded += kFoldBytes;
    }
    crc = static_cast<uint32_t>(Remainder(state));
#pragma GCC unroll 6
    for (int i = 0; i < kWideStreams; ++i) {
      crc = shift(crc) ^ static_cast<uint32_t>(crcs[i]);
    }
  }
  return crc;
}

// --- Folding concurrently with the instruction -------------------------------

// Folding with products of 256 bits is as fast as the CRC instruction, and both
// can run at the same time. Four registers fold the first bytes of each step;
// three streams of kMixedWords words each take the rest.
constexpr size_t kMixedFoldBytes = 128;
constexpr size_t kMixedWords = 5;
constexpr size_t kMixedStreamBytes = kMixedWords * 8;
constexpr size_t kMixedStepBytes = kMixedFoldBytes + 3 * kMixedStreamBytes;
// Steps of a long group, the most that fit a block of f32, and of a short one.
constexpr size_t kMixedLongSteps = 64;
constexpr size_t kMixedShortSteps = 16;

#define ATL_MIXED __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2")))

ATL_MIXED __m256i FoldFactors256(const uint32_t (&powers)[2]) {
  const long long first = static_cast<long long>(uint64_t{powers[0]} << 1);
  const long long last = static_cast<long long>(uint64_t{powers[1]} << 1);
  return _mm256_set_epi64x(last, first, last, first);
}

ATL_MIXED inline __m256i Fold256(__m256i state, __m256i factors,
                                 __m256i next) {
  const __m256i first = _mm256_clmulepi64_epi128(state, factors, 0x00);
  const __m256i last = _mm256_clmulepi64_epi128(state, factors, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(first, last), next);
}

ATL_MIXED inline __m256i Load256(const char* data) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
}

// Consumes as many groups of kSteps steps as `size` holds. A group is its
// folded bytes, then the streams, one after the other.
template <size_t kSteps>
ATL_MIXED uint32_t ExtendMixedGroups(uint32_t crc, const char*& data,
                                     size_t& size) {
  static constexpr uint32_t kFar[2] = {ZeroBytes(kMixedFoldBytes + 4),
                                       ZeroBytes(kMixedFoldBytes - 4)};
  static constexpr uint32_t kNear[2] = {ZeroBytes(32 + 4), ZeroBytes(32 - 4)};
  constexpr size_t kStream = kSteps * kMixedStreamBytes;
  static const FixedMultiplier shift(ZeroBytes(kStream));
  const __m256i far = FoldFactors256(kFar);
  const __m256i near = FoldFactors256(kNear);
  for (; size >= kSteps * kMixedStepBytes; size -= kSteps * kMixedStepBytes) {
    const char* stream = data + kSteps * kMixedFoldBytes;
    uint64_t crc0 = 0;
    uint64_t crc1 = 0;
    uint64_t crc2 = 0;
    __m256i state[4];
    for (int i = 0; i < 4; ++i) state[i] = Load256(data + 32 * i);
    // Adds the CRC register to the first four bytes.
    state[0] = _mm256_xor_si256(
        state[0],
        _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(crc))));
    for (size_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 5
      for (size_t i = 0; i < kMixedWords; ++i, stream += 8) {
        crc0 = _mm_crc32_u64(crc0, Load64(stream));
        crc1 = _mm_crc32_u64(crc1, Load64(stream + kStream));
        crc2 = _mm_crc32_u64(crc2, Load64(stream + 2 * kStream));
        if (i < 4 && step > 0) {
          state[i] = Fold256(state[i], far, Load256(data + 32 * i));
        }
      }
      data += kMixedFoldBytes;
    }
    for (int i = 1; i < 4; ++i) {
      state[i] = Fold256(state[i - 1], near, state[i]);
    }
    // 32 bytes with the same remainder as all folded bytes.
    uint64_t rest[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(rest), state[3]);
    uint64_t wide = 0;
    for (const uint64_t word : rest) wide = _mm_crc32_u64(wide, word);
    crc = shift(static_cast<uint32_t>(wide)) ^ static_cast<uint32_t>(crc0);
    crc = shift(crc) ^ static_cast<uint32_t>(crc1);
    crc = shift(crc) ^ static_cast<uint32_t>(crc2);
    data += 3 * kStream;
  }
  return crc;
}

#undef ATL_MIXED

// Consumes all `size` bytes with the CRC instruction alone.
uint32_t ExtendRegister(uint32_t crc, const char* data, size_t size) {
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
  return crc;
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
  // AMD's CRC instruction takes up to two words a cycle (Zen 5), and its
  // products take two cycles. On other processors products are faster, so they
  // fold alone.
  static const bool is_amd = __builtin_cpu_is("amd");
  if (bytes.size() < 2 * kFoldBytes || !CanFoldCrc32c()) {
    return CanMixCrc32c() ? ExtendCrc32cMixed(crc, bytes)
                          : ExtendCrc32cNarrow(crc, bytes);
  }
  return is_amd ? ExtendCrc32cFoldedMixed(crc, bytes)
                : ExtendCrc32cFolded(crc, bytes);
}

bool CanFoldCrc32c() {
  static const bool can = __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("vpclmulqdq");
  return can;
}

uint32_t ExtendCrc32cFolded(uint32_t crc, absl::string_view bytes) {
  const char* data = bytes.data();
  size_t size = bytes.size();
  crc = ~crc;
  if (size >= kFoldBytes) crc = ExtendFolded(crc, data, size);
  return ~ExtendRegister(crc, data, size);
}

uint32_t ExtendCrc32cFoldedMixed(uint32_t crc, absl::string_view bytes) {
  const char* data = bytes.data();
  size_t size = bytes.size();
  crc = ExtendFoldedMixed(~crc, data, size);
  return ExtendCrc32cFolded(~crc, absl::string_view(data, size));
}

bool CanMixCrc32c() {
  static const bool can = __builtin_cpu_supports("avx2") &&
                          __builtin_cpu_supports("vpclmulqdq");
  return can;
}

uint32_t ExtendCrc32cMixed(uint32_t crc, absl::string_view bytes) {
  const char* data = bytes.data();
  size_t size = bytes.size();
  crc = ExtendMixedGroups<kMixedLongSteps>(~crc, data, size);
  crc = ExtendMixedGroups<kMixedShortSteps>(crc, data, size);
  return ~ExtendRegister(crc, data, size);
}

uint32_t ExtendCrc32cNarrow(uint32_t crc, absl::string_view bytes) {
  return ~ExtendRegister(~crc, bytes.data(), bytes.size());
}

uint32_t CombineCrc32c(uint32_t a_crc, uint32_t b_crc, uint64_t b_size_bytes) {
  if (b_size_bytes == kBlockBytes) {
    static const FixedMultiplier shift(ZeroBytes(kBlockBytes));
    return shift(a_crc) ^ b_crc;
  }
  static const bool can_multiply = __builtin_cpu_supports("pclmul");
  if (b_size_bytes < 4 || !can_multiply) {
    return Multiply(ZeroBytes(b_size_bytes), a_crc) ^ b_crc;
  }
  // Consecutive blocks have the same size, and the power is the expensive part.
  struct Power {
    uint64_t size_bytes = 4;
    uint32_t value = kOne;  // x^(8 * size_bytes - 32).
  };
  thread_local Power power;
  if (power.size_bytes != b_size_bytes) {
    power = {b_size_bytes, ZeroBytes(b_size_bytes - 4)};
  }
  return MultiplyByX32(power.value, a_crc) ^ b_crc;
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
