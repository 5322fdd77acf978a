#include "tests/benchmarks/control/rows.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::benchmarks {
namespace {

using ::testing::DoubleNear;
using ::testing::Optional;

TEST(RowTest, IsAnObjectOnOneLine) {
  Row row;
  row.Add("case", "lost").Add("islands", 8).Add("tls", false);
  row.Add("ms", 1.25).Add("exponent", std::optional<double>());
  EXPECT_EQ(row.ToJson(),
            "{\"case\": \"lost\", \"islands\": 8, \"tls\": false, "
            "\"ms\": 1.250, \"exponent\": null}");
  EXPECT_EQ(row.ToText(),
            "case \"lost\"  islands 8  tls false  ms 1.250  exponent null");
}

TEST(FindExponentTest, IsTheSlopeWithinAGroup) {
  // Quadratic in one group, constant in the other: the mean is 1.
  EXPECT_THAT(FindExponent({{"a", 10, 2},
                            {"a", 100, 200},
                            {"b", 10, 7000},
                            {"b", 100, 7000},
                            {"b", 1000, 7000}}),
              Optional(DoubleNear(1, 1e-9)));
}

TEST(FindExponentTest, NeedsTwoNumbersOfIslands) {
  EXPECT_EQ(FindExponent({{"a", 10, 2}, {"b", 100, 2}, {"a", 10, 3}}),
            std::nullopt);
  EXPECT_EQ(FindExponent({{"a", 10, 2}, {"a", 100, 0}}), std::nullopt);
}

TEST(QuantileTest, IsTheValueBelowWhichAPartIs) {
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Quantile({3, 1, 2}, 1), 3);
}

}  // namespace
}  // namespace atl::benchmarks
