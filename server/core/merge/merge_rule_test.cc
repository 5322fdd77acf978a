#include "server/core/merge/merge_rule.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/core/merge/gram_sums.h"

namespace atl::server {
namespace {

v1::OuterSpec MakeSpec(v1::MergeRuleKind rule, int byzantine_count = 0) {
  v1::OuterSpec spec;
  spec.mutable_merge()->set_rule(rule);
  spec.mutable_merge()->set_byzantine_count(byzantine_count);
  return spec;
}

class MergeRuleTest : public testing::Test {
 protected:
  MergeRuleTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
    trace_ = "seed " + std::to_string(seed_);
  }

  std::vector<std::vector<float>> Contributions(int count, int n) {
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> x(count, std::vector<float>(n));
    for (auto& row : x) {
      for (float& value : row) value = normal(random_);
    }
    return x;
  }

  static std::vector<float> MergeRows(const MergeRule& rule,
                                      std::vector<std::vector<float>> x) {
    std::vector<float*> rows;
    for (auto& row : x) rows.push_back(row.data());
    std::vector<float> g(x[0].size());
    rule.MergeRows(static_cast<int64_t>(g.size()), static_cast<int>(x.size()),
                   rows.data(), g.data());
    return g;
  }

  // Element `i` of every contribution, sorted, in f64.
  static std::vector<double> Column(const std::vector<std::vector<float>>& x,
                                    int i) {
    std::vector<double> column;
    for (const auto& row : x) column.push_back(row[i]);
    std::sort(column.begin(), column.end());
    return column;
  }

  const unsigned seed_;
  std::string trace_;
  std::mt19937 random_;
};

// arXiv 1602.05629, algorithm 1: the server's model is the mean of the
// clients', weighted by their numbers of examples.
TEST_F(MergeRuleTest, TheWeightedSumAddsTheProductsFromTheLeft) {
  SCOPED_TRACE(trace_);
  const int n = 100;
  const auto x = Contributions(4, n);
  const std::vector<float> weights = {0.1f, 0.2f, 0.3f, 0.4f};
  // The sum's old content must not matter.
  std::vector<float> g(n, 1e30f);
  const auto rule = *MakeMergeRule(v1::OuterSpec());
  ASSERT_FALSE(rule->takes_rows());
  for (int i = 0; i < 4; ++i) {
    rule->Add(i, weights[i], n, x[i].data(), g.data());
  }
  for (int e = 0; e < n; ++e) {
    volatile float sum = weights[0] * x[0][e];
    for (int i = 1; i < 4; ++i) {
      volatile float product = weights[i] * x[i][e];
      sum = sum + product;
    }
    EXPECT_EQ(g[e], sum) << e;
  }
}

TEST_F(MergeRuleTest, OneContributionWithWeightOneIsItself) {
  const std::vector<float> x = {1.5f, -2.25f, 0.0f};
  std::vector<float> g(3);
  (*MakeMergeRule(v1::OuterSpec()))->Add(0, 1.0f, 3, x.data(), g.data());
  EXPECT_EQ(g, x);
}

// arXiv 1803.01498, definition 2: coordinate by coordinate, the mean without
// the largest and the smallest beta-fraction.
TEST_F(MergeRuleTest, TheTrimmedMeanLeavesOutTheLeastAndTheGreatest) {
  SCOPED_TRACE(trace_);
  for (int count = 1; count <= 12; ++count) {
    for (int trim = 0; 2 * trim < count; ++trim) {
      const auto x = Contributions(count, 50);
      const auto rule =
          *MakeMergeRule(MakeSpec(v1::MERGE_RULE_KIND_TRIMMED_MEAN, trim));
      const std::vector<float> g = MergeRows(*rule, x);
      for (int i = 0; i < 50; ++i) {
        const std::vector<double> column = Column(x, i);
        double sum = 0;
        for (int r = trim; r < count - trim; ++r) sum += column[r];
        EXPECT_NEAR(g[i], sum / (count - 2 * trim), 1e-5);
      }
    }
  }
}

TEST_F(MergeRuleTest, TrimmingMoreThanThereIsLeavesTheMiddle) {
  const std::vector<std::vector<float>> x = {{5.0f}, {1.0f}, {3.0f}};
  const auto rule =
      *MakeMergeRule(MakeSpec(v1::MERGE_RULE_KIND_TRIMMED_MEAN, 7));
  EXPECT_EQ(MergeRows(*rule, x)[0], 3.0f);
}

// arXiv 1803.01498, definition 1: coordinate by coordinate.
TEST_F(MergeRuleTest, TheMedianIsTheMiddleOfEveryElement) {
  SCOPED_TRACE(trace_);
  for (int count = 1; count <= 12; ++count) {
    const auto x = Contributions(count, 50);
    const auto rule = *MakeMergeRule(MakeSpec(v1::MERGE_RULE_KIND_MEDIAN));
    const std::vector<float> g = MergeRows(*rule, x);
    for (int i = 0; i < 50; ++i) {
      const std::vector<double> column = Column(x, i);
      EXPECT_NEAR(g[i], (column[(count - 1) / 2] + column[count / 2]) / 2,
                  1e-6);
    }
  }
}

TEST_F(MergeRuleTest, OrderRulesDoNotSeeTheOrderOfTheIslands) {
  SCOPED_TRACE(trace_);
  for (const auto kind :
       {v1::MERGE_RULE_KIND_TRIMMED_MEAN, v1::MERGE_RULE_KIND_MEDIAN}) {
    const auto rule = *MakeMergeRule(MakeSpec(kind, 1));
    ASSERT_TRUE(rule->takes_rows());
    auto x = Contributions(6, 300);
    const std::vector<float> g = MergeRows(*rule, x);
    std::shuffle(x.begin(), x.end(), random_);
    EXPECT_EQ(MergeRows(*rule, x), g) << rule->name();
  }
}

TEST_F(MergeRuleTest, AMinorityMovesOrderRulesNoFurtherThanTheOthersReach) {
  SCOPED_TRACE(trace_);
  auto x = Contributions(5, 100);
  for (float& value : x[3]) value = 1e30f;
  for (const auto kind :
       {v1::MERGE_RULE_KIND_TRIMMED_MEAN, v1::MERGE_RULE_KIND_MEDIAN}) {
    const std::vector<float> g =
        MergeRows(**MakeMergeRule(MakeSpec(kind, 1)), x);
    for (int i = 0; i < 100; ++i) {
      const std::vector<double> column = Column(x, i);  // The last is hostile.
      EXPECT_LE(g[i], column[3] + 1e-5);
      EXPECT_GE(g[i], column[0] - 1e-5);
    }
  }
}

TEST_F(MergeRuleTest, GramSumsAreTheSameUnderAnyCutIntoShards) {
  SCOPED_TRACE(trace_);
  const int count = 4, blocks = 12, n = 512;
  std::vector<std::vector<std::vector<float>>> x;
  for (int b = 0; b < blocks; ++b) x.push_back(Contributions(count, n));
  const auto add = [&](GramSums& sums, int block) {
    std::vector<const float*> rows;
    for (const auto& row : x[block]) rows.push_back(row.data());
    sums.AddBlock(block % 2, n, rows.data());
  };
  GramSums whole(2, count);
  for (int b = 0; b < blocks; ++b) add(whole, b);
  for (const int shard_count : {1, 2, 3, 5}) {
    std::vector<GramSums> shards(shard_count, GramSums(2, count));
    for (int b = blocks - 1; b >= 0; --b) {
      add(shards[random_() % shard_count], b);
    }
    GramSums sum(2, count);
    for (const GramSums& shard : shards) sum += shard;
    for (int g = 0; g < 2; ++g) EXPECT_TRUE(sum.grams()[g] == whole.grams()[g]);
  }
  double expected = 0;
  for (int b = 0; b < blocks; b += 2) {
    for (int i = 0; i < n; ++i) expected += double{x[b][2][i]} * x[b][1][i];
  }
  EXPECT_NEAR(whole.grams()[0].at(1, 2).ToDouble(), expected, 1e-9);
}

TEST(MakeMergeRuleTest, EveryKnownRuleHasOne) {
  for (int rule = v1::MergeRuleKind_MIN; rule <= v1::MergeRuleKind_MAX;
       ++rule) {
    if (!v1::MergeRuleKind_IsValid(rule)) continue;
    EXPECT_TRUE(MakeMergeRule(MakeSpec(static_cast<v1::MergeRuleKind>(rule)))
                    .ok())
        << rule;
  }
}

TEST(MakeMergeRuleTest, AnUnknownRuleIsRefusedAndNotAMean) {
  const auto made = MakeMergeRule(MakeSpec(static_cast<v1::MergeRuleKind>(97)));
  ASSERT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
  EXPECT_NE(made.status().message().find("97"), absl::string_view::npos)
      << made.status();
}

TEST(MergeNeedsTest, EachRuleSaysWhatItNeeds) {
  v1::MergeSpec spec;
  const auto needs = [&](v1::MergeRuleKind rule) {
    spec.set_rule(rule);
    return FindNeeds(spec);
  };
  EXPECT_EQ(FindNeeds(spec), MergeNeeds::kNothing);
  EXPECT_EQ(needs(v1::MERGE_RULE_KIND_MEDIAN), MergeNeeds::kNothing);
  EXPECT_EQ(needs(v1::MERGE_RULE_KIND_TRIMMED_MEAN), MergeNeeds::kNothing);
  EXPECT_EQ(needs(v1::MERGE_RULE_KIND_NORM_CLIP), MergeNeeds::kNorms);
  EXPECT_EQ(needs(v1::MERGE_RULE_KIND_RDA), MergeNeeds::kProducts);
  EXPECT_EQ(needs(v1::MERGE_RULE_KIND_CENTRED_CLIP), MergeNeeds::kProducts);
  EXPECT_EQ(needs(v1::MERGE_RULE_KIND_KRUM), MergeNeeds::kProducts);
  EXPECT_EQ(needs(v1::MERGE_RULE_KIND_MDA), MergeNeeds::kProducts);
}

}  // namespace
}  // namespace atl::server
