// The 2-bit quantiser of two_bit.h and top_k.h: a sign and one of two
// magnitudes. Pure. Thread-safe. No allocation. Runs on the CPU and on CUDA.
//
// For the m values of a group, with magnitudes a_i:
//   mean = sum(a_i) / m
//   t    = mean + (mean - base) / 4, as f32; base is 0, for top-k the least
//          magnitude. If no a_i >= t, then t = 0.
//   hi   = the mean of the a_i >= t,  lo = the mean of the a_i < t (0 if none)
// Sums are f64, over 16 lanes: a_i goes to lane i % 16, and lanes are added in
// order. The sum of the low class is the whole sum less the high class's.
//
// Wire: H, bf16 bits of hi (nearest), and R, one byte: 256 lo / H, rounded half
// up, at most 255. A value decodes to sign * H or sign * L, L = H * (R / 256).
//
// For given classes the means leave the least squared error:
//   sum (v - d)^2 = sum v^2 - n_hi (hi^2 - (H - hi)^2)
//                           - n_lo (lo^2 - (L - lo)^2)
// with |H - hi| <= 2^-8 hi (for normal H), L <= 2 lo and |L - lo| <= 2^-8 H. So
// the error never exceeds the values, which error feedback needs. With exact
// levels it is at most (1 - (sum a)^2 / (m sum a^2)) sum v^2, as for the scaled
// sign (Karimireddy et al., arXiv 1901.09847).

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/codec/bits.h"

namespace atl::codec {

// Lanes of the sums.
inline constexpr size_t kSumLanes = 16;

// H and R of a group.
struct TwoLevels {
  uint16_t high = 0;
  uint8_t ratio = 0;

  ATL_CODEC_FN float High() const { return FloatOfBf16(high); }
  ATL_CODEC_FN float Low() const {
    return High() * (static_cast<float>(ratio) * 0.00390625f);
  }
};

ATL_CODEC_FN bool IsTwoLevels(TwoLevels levels) {
  return (levels.high & 0x8000) == 0 && IsFiniteBf16(levels.high);
}

inline constexpr size_t kTwoLevelsBytes = 3;

ATL_CODEC_FN void StoreTwoLevels(TwoLevels levels, uint8_t* to) {
  StoreU16(levels.high, to);
  to[2] = levels.ratio;
}

ATL_CODEC_FN TwoLevels LoadTwoLevels(const uint8_t* from) {
  TwoLevels levels;
  levels.high = LoadU16(from);
  levels.ratio = from[2];
  return levels;
}

// t from the sum of `count` (> 0) magnitudes.
ATL_CODEC_FN float ComputeThreshold(double sum, size_t count, double base) {
  const double mean = sum / static_cast<double>(count);
  const double t = mean + (mean - base) * 0.25;
  const double most = FromBits(kInfinityBits - 1);
  return static_cast<float>(t < most ? t : most);
}

// The levels, from the sum of all magnitudes and of the high class (not empty).
ATL_CODEC_FN TwoLevels ToLevels(double sum, size_t count, double high_sum,
                                size_t high_count) {
  TwoLevels levels;
  levels.high = NearestBf16(
      static_cast<float>(high_sum / static_cast<double>(high_count)));
  const size_t low_count = count - high_count;
  const double high = levels.High();
  if (low_count == 0 || high == 0) return levels;
  const double low_sum = sum - high_sum;
  const double low = low_sum / static_cast<double>(low_count);
  const double ratio = low / high * 256.0 + 0.5;
  levels.ratio = static_cast<uint8_t>(ratio < 255 ? ratio : 255);
  return levels;
}

// The quantiser of a group: the threshold and the levels.
struct TwoLevelGroup {
  float threshold = 0;
  TwoLevels levels;
};

// Plain definition. `v`, shape [m], finite, m > 0.
ATL_CODEC_FN TwoLevelGroup MakeTwoLevels(size_t m, const float* v,
                                         double base) {
  double lanes[kSumLanes] = {};
  for (size_t i = 0; i < m; ++i) {
    lanes[i % kSumLanes] += FromBits(MagnitudeBits(v[i]));
  }
  double sum = 0;
  for (size_t i = 0; i < kSumLanes; ++i) sum += lanes[i];
  TwoLevelGroup group;
  group.threshold = ComputeThreshold(sum, m, base);
  double high_lanes[kSumLanes] = {};
  size_t high_count = 0;
  for (size_t i = 0; i < m; ++i) {
    const float magnitude = FromBits(MagnitudeBits(v[i]));
    if (magnitude >= group.threshold) {
      high_lanes[i % kSumLanes] += magnitude;
      ++high_count;
    }
  }
  double high_sum = 0;
  for (size_t i = 0; i < kSumLanes; ++i) high_sum += high_lanes[i];
  if (high_count == 0) {
    group.threshold = 0;
    high_sum = sum;
    high_count = m;
  }
  group.levels = ToLevels(sum, m, high_sum, high_count);
  return group;
}

// The class bit of v.
ATL_CODEC_FN bool IsHigh(float v, float threshold) {
  return FromBits(MagnitudeBits(v)) >= threshold;
}

ATL_CODEC_FN float TwoLevelValue(bool negative, bool is_high, float high,
                                 float low) {
  const uint32_t magnitude = ToBits(is_high ? high : low);
  return FromBits(magnitude | (negative ? 0x80000000u : 0u));
}

}  // namespace atl::codec
