#include "base/layout/trainer_metrics.h"

#include <cfloat>
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(WeightedMeansTest, WeighsByTokens) {
  WeightedMeans means;
  EXPECT_EQ(means.token_count(), 0);
  means.Add("accuracy", 0.5, 30);
  means.Add("accuracy", 1.0, 10);
  means.Add("other", 2.0, 0);
  EXPECT_DOUBLE_EQ(means.means().at("accuracy"), 0.625);
  EXPECT_DOUBLE_EQ(means.means().at("other"), 2.0);
  EXPECT_EQ(means.token_count(), 40);
  means.Clear();
  EXPECT_TRUE(means.means().empty());
}

TEST(WeightedMeansTest, AMeanOfMeansIsTheMeanOfAll) {
  WeightedMeans first, second, all, merged;
  for (int i = 0; i < 10; ++i) {
    (i < 3 ? first : second).Add("x", i * i, i + 1);
    all.Add("x", i * i, i + 1);
  }
  merged.AddAll(first.means(), first.token_count());
  merged.AddAll(second.means(), second.token_count());
  EXPECT_NEAR(merged.means().at("x"), all.means().at("x"), 1e-12);
}

TEST(WeightedMeansTest, StaysFinite) {
  WeightedMeans means;
  means.Add("x", NAN, 1);
  means.Add("x", INFINITY, 1);
  EXPECT_TRUE(means.means().empty());
  means.Add("x", DBL_MAX, INT64_MAX);
  means.Add("x", -DBL_MAX, INT64_MAX);
  means.Add("x", DBL_MAX, 1);
  EXPECT_TRUE(std::isfinite(means.means().at("x")));
}

TEST(WeightedMeansTest, KeepsABoundedNumberOfNames) {
  WeightedMeans means;
  for (size_t i = 0; i < 2 * kTrainerMetricsMax; ++i) {
    means.Add(absl::StrCat("m", i), 1, 1);
  }
  EXPECT_EQ(means.means().size(), kTrainerMetricsMax);
}

TEST(WeightedMeansTest, NamesAreChecked) {
  EXPECT_TRUE(IsTrainerMetricName("eval/top-1.acc_x"));
  EXPECT_TRUE(IsTrainerMetricName(std::string(64, 'a')));
  EXPECT_FALSE(IsTrainerMetricName(""));
  EXPECT_FALSE(IsTrainerMetricName(std::string(65, 'a')));
  EXPECT_FALSE(IsTrainerMetricName("a b"));
  EXPECT_FALSE(IsTrainerMetricName("a\n"));
}

}  // namespace
}  // namespace atl
