// Each codec has the error, the sizes and the refusals that its header states.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/codec/bf16.h"
#include "base/codec/codec.h"
#include "base/codec/e3m0.h"
#include "base/codec/int8.h"
#include "base/codec/testing/test_values.h"
#include "base/codec/two_bit.h"
#include "gtest/gtest.h"

namespace atl::codec {
namespace {

constexpr int kRounds = 240;

class BoundsTest : public ValuesTest {
 protected:
  // Dec(Enc(v)), and the bytes.
  std::vector<float> RoundTrip(CodecId id, const std::vector<float>& v,
                               std::string* bytes, BlockKey key = {}) {
    const Codec& codec = GetCodec(id);
    bytes->assign(codec.EncodedBytes(v.size()), '\0');
    EXPECT_EQ(codec.Encode(key, v, absl::MakeSpan(&(*bytes)[0], bytes->size())),
              BlockFault::kNone);
    std::vector<float> d(v.size());
    EXPECT_EQ(codec.Decode(*bytes, absl::MakeSpan(d)), BlockFault::kNone);
    return d;
  }

  // A fault of decoding `bytes` as `n` elements.
  BlockFault FindFault(CodecId id, const std::string& bytes, size_t n) {
    std::vector<float> d(n);
    return GetCodec(id).Decode(bytes, absl::MakeSpan(d));
  }
};

const uint8_t* Data(const std::string& bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

TEST_F(BoundsTest, SizesAreThoseOfTheHeaders) {
  const std::pair<CodecId, size_t> whole[] = {{CodecId::kF32, 16384},
                                              {CodecId::kBf16, 8192},
                                              {CodecId::kBf16Stochastic, 8192},
                                              {CodecId::kInt8, 4128},
                                              {CodecId::kE3m0, 2064},
                                              {CodecId::kTwoBit, 1048},
                                              {CodecId::kTopK, 78}};
  for (const auto& [id, bytes] : whole) {
    EXPECT_EQ(GetCodec(id).EncodedBytes(4096), bytes) << CodecName(id);
  }
  EXPECT_EQ(GetCodec(CodecId::kInt8).EncodedBytes(257), 2 * 2 + 257);
  EXPECT_EQ(GetCodec(CodecId::kE3m0).EncodedBytes(257), 2 + 128 + 1);
  EXPECT_EQ(GetCodec(CodecId::kTwoBit).EncodedBytes(513), 2 * 3 + 128 + 2);
}

TEST_F(BoundsTest, F32GivesBackEveryBit) {
  for (int kind = 0; kind < kKinds; ++kind) {
    std::string bytes;
    const auto v = ValuesOfKind(kind, AnyCount());
    const auto d = RoundTrip(CodecId::kF32, v, &bytes);
    for (size_t i = 0; i < v.size(); ++i) ASSERT_EQ(ToBits(v[i]), ToBits(d[i]));
  }
}

TEST_F(BoundsTest, Bf16IsTheNearest) {
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes;
    const auto v = ValuesOfKind(round % kKinds, AnyCount());
    const auto d = RoundTrip(CodecId::kBf16, v, &bytes);
    for (size_t i = 0; i < v.size(); ++i) {
      const double size = std::abs(double{v[i]});
      if (size > FloatOfBf16(kBf16Max)) {
        ASSERT_EQ(std::abs(d[i]), FloatOfBf16(kBf16Max));
        continue;
      }
      ASSERT_LE(std::abs(double{v[i]} - d[i]),
                std::max(std::ldexp(size, -8), std::ldexp(1.0, -134)))
          << v[i];
      ASSERT_EQ(std::signbit(v[i]), std::signbit(d[i]));
    }
  }
  EXPECT_EQ(NearestBf16(FromBits(0x3f808000)), 0x3f80);  // Ties to even.
  EXPECT_EQ(NearestBf16(FromBits(0x3f818000)), 0x3f82);
}

TEST_F(BoundsTest, StochasticBf16IsOneOfTheTwoNeighbours) {
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes;
    const auto v = ValuesOfKind(round % kKinds, AnyCount());
    const auto d =
        RoundTrip(CodecId::kBf16Stochastic, v, &bytes, {random_(), random_()});
    for (size_t i = 0; i < v.size(); ++i) {
      const double size = std::abs(double{v[i]});
      if (size > FloatOfBf16(kBf16Max)) continue;
      const double error = std::abs(double{v[i]} - d[i]);
      ASSERT_TRUE(error == 0 || error < std::max(std::ldexp(size, -7),
                                                 std::ldexp(1.0, -133)));
    }
  }
}

// The mean of many draws is the value. This fails if bits are biased, or the
// same for all seeds or all elements.
TEST_F(BoundsTest, StochasticBf16IsUnbiased) {
  const float value = 1.0f + 0.3f / 128;  // 0.3 of a step above a bf16.
  const std::vector<float> v(4096, value);
  double up = 0;
  std::vector<int> column(4096);
  constexpr int kDraws = 64;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::string bytes;
    const auto d = RoundTrip(CodecId::kBf16Stochastic, v, &bytes,
                             {random_(), 4096u * static_cast<uint64_t>(draw)});
    double of_draw = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      const bool is_up = d[i] > value;
      of_draw += is_up;
      column[i] += is_up;
    }
    // 6 sigma of 4096 draws.
    EXPECT_NEAR(of_draw / 4096, 0.3, 0.043) << draw;
    up += of_draw;
  }
  EXPECT_NEAR(up / (4096.0 * kDraws), 0.3, 0.0054);
  for (const int ups : column) ASSERT_TRUE(ups > 0 && ups < kDraws);
}

TEST_F(BoundsTest, StochasticBf16IsKeyedBySeedAndElement) {
  const auto v = ValuesOfKind(0, 4096);
  std::string a, b, c, d;
  RoundTrip(CodecId::kBf16Stochastic, v, &a, {1, 4096});
  RoundTrip(CodecId::kBf16Stochastic, v, &b, {1, 4096});
  RoundTrip(CodecId::kBf16Stochastic, v, &c, {2, 4096});
  RoundTrip(CodecId::kBf16Stochastic, v, &d, {1, 8192});
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_NE(a, d);
}

// |v - d| <= s (1/2 + 2^-6), s <= max(2^-126, (1 + 2^-7) a / 127).
template <typename T>
void ExpectInt8Bound(const std::vector<T>& v, const std::vector<T>& d,
                     const std::vector<uint8_t>& scales) {
  for (size_t begin = 0; begin < v.size(); begin += 256) {
    const size_t end = std::min(begin + 256, v.size());
    const double s = FloatOfBf16(LoadU16(&scales[begin / 256 * 2]));
    double most = 0;
    for (size_t i = begin; i < end; ++i) {
      most = std::max(most, std::abs(static_cast<double>(v[i])));
      ASSERT_LE(std::abs(static_cast<double>(v[i]) - static_cast<double>(d[i])),
                s * (0.5 + 1.0 / 64))
          << v[i] << " as " << d[i] << ", scale " << s;
    }
    ASSERT_LE(s, std::max(std::ldexp(1.0, -126), (1 + 1.0 / 128) * most / 127));
  }
}

TEST_F(BoundsTest, Int8StaysWithinHalfAStep) {
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes;
    const auto v = ValuesOfKind(round % kKinds, AnyCount());
    const auto d = RoundTrip(CodecId::kInt8, v, &bytes);
    ExpectInt8Bound(v, d, std::vector<uint8_t>(bytes.begin(), bytes.end()));
  }
}

TEST_F(BoundsTest, Int8InDoubleKeepsTheSameBound) {
  for (int round = 0; round < kRounds; ++round) {
    const auto floats = ValuesOfKind(round % kKinds, Uniform(1, 256));
    const std::vector<double> v(floats.begin(), floats.end());
    std::vector<double> d(v.size());
    std::vector<uint8_t> scale(2), codes(v.size());
    ASSERT_EQ((Int8Plain::EncodeSub<false, double>(v.size(), v.data(),
                                                   scale.data(), codes.data())),
              BlockFault::kNone);
    ASSERT_EQ((Int8Plain::DecodeSub<Into::kSet, double>(
                  v.size(), scale.data(), codes.data(), 1.0, d.data())),
              BlockFault::kNone);
    ExpectInt8Bound(v, d, scale);
  }
}

TEST_F(BoundsTest, Int8RefusesWhatNoEncoderWrites) {
  for (const size_t n : {size_t{4096}, size_t{100}}) {
    std::string good;
    RoundTrip(CodecId::kInt8, ValuesOfKind(0, n), &good);
    std::string bytes = good;
    bytes[bytes.size() - 1] = '\x80';
    EXPECT_EQ(FindFault(CodecId::kInt8, bytes, n), BlockFault::kBadCode);
    for (const int scale : {0x0000, 0x007f, 0x7c02, 0x7f80, 0xffff, 0xbf80}) {
      bytes = good;
      bytes[0] = static_cast<char>(scale);
      bytes[1] = static_cast<char>(scale >> 8);
      EXPECT_EQ(FindFault(CodecId::kInt8, bytes, n), BlockFault::kBadScale);
    }
  }
}

TEST_F(BoundsTest, E3m0IsTheNearestLevel) {
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes;
    const auto v = ValuesOfKind(round % kKinds, AnyCount());
    const auto d = RoundTrip(CodecId::kE3m0, v, &bytes);
    for (size_t i = 0; i < v.size(); ++i) {
      const int b = Data(bytes)[i / 256];
      const double size = std::abs(double{v[i]});
      const double error = std::abs(double{v[i]} - d[i]);
      const double share = size >= std::ldexp(1.5, 127) ? 0.5 : 1.0 / 3;
      ASSERT_LE(error, std::max(size * share, std::ldexp(1.0, b - 134)))
          << v[i] << " as " << d[i] << ", b " << b;
      // No level is nearer.
      for (int c = 0; c <= 7; ++c) {
        const double level = c == 0 ? 0 : std::ldexp(1.0, b - 134 + c);
        ASSERT_GE(std::abs(size - level), error) << v[i];
      }
    }
  }
}

TEST_F(BoundsTest, E3m0RefusesWhatNoEncoderWrites) {
  std::string good;
  RoundTrip(CodecId::kE3m0, ValuesOfKind(0, 301), &good);
  for (const int scale : {0, 7, 255}) {
    std::string bytes = good;
    bytes[1] = static_cast<char>(scale);
    EXPECT_EQ(FindFault(CodecId::kE3m0, bytes, 301), BlockFault::kBadScale);
  }
  std::string bytes = good;
  bytes.back() = static_cast<char>(bytes.back() | 0x10);
  EXPECT_EQ(FindFault(CodecId::kE3m0, bytes, 301), BlockFault::kBadPadding);
}

// Sum of squares after quantising a group, by the formula of two_level.h.
double TwoLevelError(const float* v, size_t m, float threshold,
                     TwoLevels levels) {
  double sums[2] = {}, counts[2] = {}, squares = 0;
  for (size_t i = 0; i < m; ++i) {
    const double a = std::abs(double{v[i]});
    const int high = a >= threshold;
    sums[high] += a;
    ++counts[high];
    squares += a * a;
  }
  const double written[2] = {levels.Low(), levels.High()};
  for (int c = 0; c < 2; ++c) {
    if (counts[c] == 0) continue;
    const double mean = sums[c] / counts[c];
    const double off = written[c] - mean;
    squares -= counts[c] * (mean * mean - off * off);
  }
  return squares;
}

TEST_F(BoundsTest, TwoBitsLeaveTheErrorThatTheFormulaSays) {
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes;
    const auto v = ValuesOfKind(round % kKinds, AnyCount());
    const auto d = RoundTrip(CodecId::kTwoBit, v, &bytes);
    for (size_t begin = 0; begin < v.size(); begin += 512) {
      const size_t m = std::min<size_t>(512, v.size() - begin);
      const TwoLevelGroup group = MakeTwoLevels(m, &v[begin], 0);
      const TwoLevels levels = LoadTwoLevels(Data(bytes) + begin / 512 * 3);
      double error = 0, squares = 0, most = 0;
      for (size_t i = begin; i < begin + m; ++i) {
        const double off = double{v[i]} - d[i];
        error += off * off;
        squares += double{v[i]} * v[i];
        most = std::max(most, std::abs(double{v[i]}));
        ASSERT_EQ(std::signbit(v[i]), std::signbit(d[i]));
      }
      const double slack = 1e-9 * squares + 512 * std::ldexp(1.0, -266);
      ASSERT_NEAR(error, TwoLevelError(&v[begin], m, group.threshold, levels),
                  slack);
      ASSERT_LE(error, squares + slack);
      const double bound =
          std::max({double{group.threshold}, most - levels.High(),
                    double{levels.High()}});
      for (size_t i = begin; i < begin + m; ++i) {
        ASSERT_LE(std::abs(double{v[i]} - d[i]), bound);
      }
    }
  }
}

TEST_F(BoundsTest, TwoBitsOfNormalValuesKeepMostOfTheirEnergy) {
  std::string bytes;
  const auto v = ValuesOfKind(0, 4096);
  const auto d = RoundTrip(CodecId::kTwoBit, v, &bytes);
  double error = 0, squares = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    error += (double{v[i]} - d[i]) * (double{v[i]} - d[i]);
    squares += double{v[i]} * v[i];
  }
  // The best four levels of a normal distribution leave 0.1175.
  EXPECT_LT(error / squares, 0.13);
}

TEST_F(BoundsTest, TwoBitsRefuseWhatNoEncoderWrites) {
  std::string good;
  RoundTrip(CodecId::kTwoBit, ValuesOfKind(0, 515), &good);
  for (const int high : {0x80, 0xff, 0x7f}) {
    std::string bytes = good;
    bytes[0] = '\x80';
    bytes[1] = static_cast<char>(high);
    EXPECT_EQ(FindFault(CodecId::kTwoBit, bytes, 515), BlockFault::kBadScale);
  }
  for (const size_t from_end : {size_t{1}, size_t{2}}) {
    std::string bytes = good;
    char& byte = bytes[bytes.size() - from_end];
    byte = static_cast<char>(byte | 0x08);
    EXPECT_EQ(FindFault(CodecId::kTwoBit, bytes, 515), BlockFault::kBadPadding);
  }
}

}  // namespace
}  // namespace atl::codec
