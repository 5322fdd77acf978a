#include "worker/collective/reduction.h"

#include <bit>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace atl::collective {
namespace {

// The definition of reduction.h, written again.
template <typename T>
T Tree(const std::vector<T>& values, int begin, int end, bool sum) {
  if (end - begin == 1) return values[begin];
  int power = 1;
  while (power * 2 < end - begin) power *= 2;
  const T a = Tree(values, begin, begin + power, sum);
  const T b = Tree(values, begin + power, end, sum);
  if (sum) return a + b;
  return std::isnan(a) || a > b ? a : b;
}

uint16_t ToBf16(float value) {
  // The nearer neighbour, the even one in a tie, by search.
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint16_t low = static_cast<uint16_t>(bits >> 16);
  if (std::isnan(value)) return low | 0x40;
  const uint32_t rest = bits & 0xffff;
  if (rest > 0x8000 || (rest == 0x8000 && (low & 1))) return low + 1;
  return low;
}

float FromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

class ReductionTest : public testing::Test {
 protected:
  ReductionTest() : seed_(std::random_device()()), random_(seed_) {
    std::cout << "seed " << seed_ << "\n";
  }
  const uint32_t seed_;
  std::mt19937 random_;
};

TEST_F(ReductionTest, IsTheTreeOverRanksForEachElement) {
  std::normal_distribution<float> normal;
  for (int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17}) {
    const int count = 1 + random_() % 1500;
    for (const bool sum : {true, false}) {
      std::vector<std::vector<float>> in(n, std::vector<float>(count));
      std::vector<std::vector<uint16_t>> half(n, std::vector<uint16_t>(count));
      std::vector<const void*> in_pointers, half_pointers;
      for (int r = 0; r < n; ++r) {
        for (int i = 0; i < count; ++i) {
          in[r][i] = std::ldexp(normal(random_), random_() % 20);
          half[r][i] = ToBf16(in[r][i]);
        }
        in_pointers.push_back(in[r].data());
        half_pointers.push_back(half[r].data());
      }
      const Reduction op = sum ? Reduction::kSum : Reduction::kMax;
      std::vector<float> out(count);
      std::vector<uint16_t> half_out(count);
      ReduceInputs(DataType::kF32, op, in_pointers, count, out.data());
      ReduceInputs(DataType::kBf16, op, half_pointers, count, half_out.data());
      for (int i = 0; i < count; ++i) {
        std::vector<float> values, widened;
        for (int r = 0; r < n; ++r) {
          values.push_back(in[r][i]);
          widened.push_back(FromBf16(half[r][i]));
        }
        ASSERT_EQ(out[i], Tree(values, 0, n, sum)) << n << " " << i;
        ASSERT_EQ(half_out[i], ToBf16(Tree(widened, 0, n, sum)))
            << n << " " << i;
      }
      const int target = random_() % n;
      ReduceInputs(DataType::kF32, op, in_pointers, count, in[target].data());
      ASSERT_EQ(in[target], out);
    }
  }
}

TEST_F(ReductionTest, OfF64IsTheSameTreeInF64) {
  std::normal_distribution<double> normal;
  for (int n : {2, 5, 8, 11}) {
    const int count = 1 + random_() % 1500;
    for (const bool sum : {true, false}) {
      std::vector<std::vector<double>> in(n, std::vector<double>(count));
      std::vector<const void*> pointers;
      for (std::vector<double>& values : in) {
        for (double& value : values) value = normal(random_);
        pointers.push_back(values.data());
      }
      std::vector<double> out(count);
      ReduceInputs(DataType::kF64, sum ? Reduction::kSum : Reduction::kMax,
                   pointers, count, out.data());
      for (int i = 0; i < count; ++i) {
        std::vector<double> values;
        for (int r = 0; r < n; ++r) values.push_back(in[r][i]);
        ASSERT_EQ(out[i], Tree(values, 0, n, sum)) << n << " " << i;
      }
    }
  }
}

TEST_F(ReductionTest, NanWinsAndBf16RoundsTiesToEven) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [a, b] : {std::pair{nan, 1.0f}, std::pair{1.0f, nan}}) {
    float out = 0;
    ReduceInputs(DataType::kF32, Reduction::kMax, {&a, &b}, 1, &out);
    EXPECT_TRUE(std::isnan(out));
  }
  // 1 + 2^-8 lies between 1 and 1 + 2^-7; 1 is even. 1 + 3 * 2^-8 rounds up.
  const uint16_t one = ToBf16(1);
  uint16_t out = 0;
  const uint16_t tie = ToBf16(std::ldexp(1.0f, -8));
  ReduceInputs(DataType::kBf16, Reduction::kSum, {&one, &tie}, 1, &out);
  EXPECT_EQ(FromBf16(out), 1);
  const uint16_t odd = ToBf16(3 * std::ldexp(1.0f, -8));
  ReduceInputs(DataType::kBf16, Reduction::kSum, {&one, &odd}, 1, &out);
  EXPECT_EQ(FromBf16(out), 1 + std::ldexp(1.0f, -6));
}

}  // namespace
}  // namespace atl::collective
