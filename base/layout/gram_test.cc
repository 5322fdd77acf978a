#include "base/layout/gram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl {
namespace {

class GramTest : public testing::Test {
 protected:
  GramTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", static_cast<int>(seed_));
    trace_ = "seed " + std::to_string(seed_);
  }
  // A product of any size that a block can give.
  double RandomProduct() {
    std::uniform_int_distribution<int> exponent(-70, 40);
    std::uniform_real_distribution<double> mantissa(-1, 1);
    return std::ldexp(mantissa(random_), exponent(random_));
  }

  const unsigned seed_;
  std::string trace_;
  std::mt19937 random_;
};

TEST_F(GramTest, RoundsToTheNearestUnitAndTiesToTheEvenOne) {
  const double unit = std::ldexp(1.0, -64);
  EXPECT_EQ(ExactSum::Round(0.5 * unit).low(), 0u);
  EXPECT_EQ(ExactSum::Round(1.5 * unit).low(), 2u);
  EXPECT_EQ(ExactSum::Round(2.5 * unit).low(), 2u);
  EXPECT_EQ(ExactSum::Round(2.75 * unit).low(), 3u);
  EXPECT_EQ(ExactSum::Round(-1.0).ToDouble(), -1.0);
  EXPECT_EQ(ExactSum::Round(-1.0).high(), ~uint64_t{0});
  EXPECT_EQ(ExactSum::Round(1.0).high(), 1u);
  const double large = std::ldexp(1.0 + std::ldexp(1.0, -52), 61);
  EXPECT_EQ(ExactSum::Round(large).ToDouble(), large);
}

TEST_F(GramTest, SumsAreTheSameInAnyOrderAndUnderAnyCut) {
  SCOPED_TRACE(trace_);
  std::vector<double> products(1000);
  for (double& product : products) product = RandomProduct();
  ExactSum in_order;
  for (double product : products) in_order += ExactSum::Round(product);
  for (int shard_count : {1, 2, 3, 7}) {
    std::shuffle(products.begin(), products.end(), random_);
    std::vector<ExactSum> shards(shard_count);
    std::uniform_int_distribution<int> shard(0, shard_count - 1);
    for (double product : products) {
      shards[shard(random_)] += ExactSum::Round(product);
    }
    ExactSum sum;
    for (const ExactSum& part : shards) sum += part;
    EXPECT_EQ(sum, in_order) << shard_count << " shards";
  }
}

TEST_F(GramTest, WhatIsTooLargeOrNotFiniteStaysAnOverflow) {
  for (double value : {std::ldexp(1.0, 62), -std::ldexp(1.0, 62), 1e300,
                       std::numeric_limits<double>::infinity(),
                       std::numeric_limits<double>::quiet_NaN()}) {
    ExactSum sum = ExactSum::Round(value);
    EXPECT_TRUE(sum.overflow()) << value;
    sum += ExactSum::Round(-1.0);
    EXPECT_TRUE(sum.overflow()) << value;
    EXPECT_TRUE(ExactSum::FromBits(sum.high(), sum.low()).overflow());
  }
  ExactSum sum = ExactSum::Round(std::ldexp(1.0, 61));
  EXPECT_FALSE(sum.overflow());
  sum += sum;
  EXPECT_TRUE(sum.overflow());
}

TEST_F(GramTest, DistanceIsExact) {
  const double unit = std::ldexp(1.0, -64);
  // 2^50 + u, 2^50 and 2^50: f64 could not tell the two vectors apart.
  ExactSum a = ExactSum::Round(std::ldexp(1.0, 50));
  const ExactSum c = a;
  a += ExactSum::Round(unit);
  EXPECT_EQ(ExactSum::Distance(a, c, c).ToDouble(), unit);
}

TEST_F(GramTest, BytesHoldTheMatrix) {
  SCOPED_TRACE(trace_);
  const int n = 5;
  GramMatrix gram(n);
  std::vector<double> products(GramMatrix::EntryCount(n));
  for (int block = 0; block < 3; ++block) {
    for (double& product : products) product = RandomProduct();
    gram.AddProducts(products);
  }
  const std::string bytes = gram.ToBytes();
  EXPECT_EQ(bytes.size(), 15u * 16);
  const auto read = GramMatrix::FromBytes(n, bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(*read == gram);
  EXPECT_EQ(&gram.at(3, 1), &gram.at(1, 3));
  EXPECT_FALSE(gram.overflow());
  EXPECT_FALSE(GramMatrix::FromBytes(n + 1, bytes).ok());
  EXPECT_FALSE(GramMatrix::FromBytes(n, bytes.substr(1)).ok());
  EXPECT_FALSE(GramMatrix::FromBytes(-1, "").ok());
}

TEST_F(GramTest, AMatrixWithOneOverflowSaysSo) {
  GramMatrix gram(2);
  gram.AddProducts(std::vector<double>{1.0, 1e200, 1.0});
  EXPECT_TRUE(gram.overflow());
  EXPECT_TRUE(gram.at(0, 1).overflow());
  EXPECT_FALSE(gram.at(1, 1).overflow());
}

}  // namespace
}  // namespace atl
