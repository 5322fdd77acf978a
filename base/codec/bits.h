// Bit patterns of f32 and bf16, little-endian bytes, counter-based random bits.
//
// Pure. No allocation. Runs on the CPU and on CUDA; the codecs' plain
// definitions use it. Only IEEE 754 operations with one rounding each, so every
// compiler gives the same bits (no contraction, no flush to zero).

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define ATL_CODEC_FN __host__ __device__ inline
#else
#define ATL_CODEC_FN inline
#endif

namespace atl::codec {

// The bits of an infinite magnitude; a NaN's are greater.
inline constexpr uint32_t kInfinityBits = 0x7f800000;
inline constexpr uint32_t kMagnitudeMask = 0x7fffffff;
// The largest finite bf16, 2^128 - 2^120.
inline constexpr uint16_t kBf16Max = 0x7f7f;

ATL_CODEC_FN uint32_t ToBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

ATL_CODEC_FN float FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// The bits of |value|: they sort as magnitudes do.
ATL_CODEC_FN uint32_t MagnitudeBits(float value) {
  return ToBits(value) & kMagnitudeMask;
}

ATL_CODEC_FN bool IsFinite(float value) {
  return MagnitudeBits(value) < kInfinityBits;
}

// False for NaN too.
ATL_CODEC_FN bool IsFinite(double value) { return value - value == 0; }

ATL_CODEC_FN uint16_t LoadU16(const uint8_t* from) {
  return static_cast<uint16_t>(from[0] | from[1] << 8);
}

ATL_CODEC_FN void StoreU16(uint16_t value, uint8_t* to) {
  to[0] = static_cast<uint8_t>(value);
  to[1] = static_cast<uint8_t>(value >> 8);
}

ATL_CODEC_FN float FloatOfBf16(uint16_t bits) {
  return FromBits(static_cast<uint32_t>(bits) << 16);
}

ATL_CODEC_FN bool IsFiniteBf16(uint16_t bits) {
  return (bits & 0x7f80) != 0x7f80;
}

// Adds `addend` to finite magnitude bits, below bf16's last place, and
// truncates to bf16 bits. Saturates at the largest finite bf16.
ATL_CODEC_FN uint16_t CutToBf16(uint32_t magnitude, uint32_t addend) {
  const uint32_t cut = (magnitude + addend) >> 16;
  return static_cast<uint16_t>(cut < kBf16Max ? cut : kBf16Max);
}

// The nearest bf16, ties to even; saturates at the largest finite one.
// Requires: `value` is finite.
ATL_CODEC_FN uint16_t NearestBf16(float value) {
  const uint32_t magnitude = MagnitudeBits(value);
  const uint32_t sign = (ToBits(value) >> 16) & 0x8000;
  const uint32_t addend = 0x7fff + ((magnitude >> 16) & 1);
  return static_cast<uint16_t>(sign | CutToBf16(magnitude, addend));
}

// The least bf16 >= `value`; saturates. Requires: `value` is finite and >= 0.
ATL_CODEC_FN uint16_t LeastBf16AtLeast(float value) {
  return CutToBf16(ToBits(value), 0xffff);
}

// SplitMix64's mixer (Steele, Lea and Flood 2014): every bit of `x` affects
// every bit.
ATL_CODEC_FN uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// SplitMix64 adds this to its state before each number: 2^64 over the golden
// ratio.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

// SplitMix64's number after the state `x`.
ATL_CODEC_FN uint64_t SplitMix64(uint64_t x) {
  return MixBits(x + kSplitMixStep);
}

// The key of a block's random bits.
struct RandomKey {
  uint32_t add = 0;
  uint32_t flip = 0;
};

// The key of the block whose first element is number `place`.
ATL_CODEC_FN RandomKey MakeRandomKey(uint64_t seed, uint64_t place) {
  const uint64_t x = SplitMix64(SplitMix64(seed) ^ place);
  RandomKey key;
  key.add = static_cast<uint32_t>(x);
  key.flip = static_cast<uint32_t>(x >> 32);
  return key;
}

inline constexpr uint32_t kRandomStep = 0x9e3779b9;
inline constexpr uint32_t kRandomMixA = 0x7feb352d;
inline constexpr uint32_t kRandomMixB = 0x846ca68b;

// 16 random bits of element `index` of a block.
ATL_CODEC_FN uint32_t Random16(RandomKey key, uint32_t index) {
  uint32_t x = key.add + index * kRandomStep;
  x = (x ^ (x >> 16)) * kRandomMixA;
  x ^= key.flip;
  x = (x ^ (x >> 15)) * kRandomMixB;
  return x >> 16;
}

}  // namespace atl::codec
