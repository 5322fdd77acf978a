#include "coordinator/core/verdict/verdict_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using Vectors = std::vector<std::vector<double>>;

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
double Norm(const std::vector<double>& a) { return std::sqrt(Dot(a, a)); }
std::vector<double> Sum(const Vectors& x, const std::vector<double>& c) {
  std::vector<double> sum(x[0].size(), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += c[i] * x[i][e];
  }
  return sum;
}

double SquaredDistance(const std::vector<double>& a,
                       const std::vector<double>& b) {
  double sum = 0;
  for (size_t e = 0; e < a.size(); ++e) sum += (a[e] - b[e]) * (a[e] - b[e]);
  return sum;
}
// The largest squared distance of two `kept` vectors.
double Diameter(const Vectors& x, const std::vector<bool>& kept) {
  double diameter = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (kept[i] && kept[j]) {
        diameter = std::max(diameter, SquaredDistance(x[i], x[j]));
      }
    }
  }
  return diameter;
}

GramMatrix ComputeGram(const Vectors& x) {
  std::vector<double> products;
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j <= i; ++j) products.push_back(Dot(x[i], x[j]));
  }
  GramMatrix gram(static_cast<int>(x.size()));
  gram.AddProducts(products);
  return gram;
}

VerdictInput MakeInput(const Vectors& x, std::vector<double> weights = {}) {
  VerdictInput input;
  if (weights.empty()) weights.assign(x.size(), 1.0 / x.size());
  input.weights = std::move(weights);
  for (const auto& row : x) input.norms.push_back(Norm(row));
  input.grams.push_back(ComputeGram(x));
  return input;
}

// The merge that a row of coefficients gives.
std::vector<double> Merged(const Vectors& x, const Coefficients& c,
                           int group = 0) {
  return Sum(x,
             std::vector<double>(c.rows[group].begin(), c.rows[group].end()));
}

void ExpectNear(const std::vector<double>& a, const std::vector<double>& b,
                double scale) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t e = 0; e < a.size(); ++e) {
    EXPECT_NEAR(a[e], b[e], 1e-6 * scale) << e;
  }
}

v1::MergeSpec MakeSpec(v1::MergeRuleKind rule, int byzantine_count = 0) {
  v1::MergeSpec spec;
  spec.set_rule(rule);
  spec.set_byzantine_count(byzantine_count);
  return spec;
}

class VerdictRuleTest : public testing::Test {
 protected:
  VerdictRuleTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
    trace_ = "seed " + std::to_string(seed_);
  }
  Vectors Random(int count, int n, double scale = 1.0) {
    std::normal_distribution<double> normal;
    Vectors x(count, std::vector<double>(n));
    for (auto& row : x) {
      for (double& value : row) value = scale * normal(random_);
    }
    return x;
  }
  std::vector<double> Weights(int count) {
    std::uniform_real_distribution<double> uniform(0.1, 1.0);
    std::vector<double> weights(count);
    for (double& weight : weights) weight = uniform(random_);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight /= sum;
    return weights;
  }
  const unsigned seed_;
  std::string trace_;
  std::mt19937 random_;
};

// --- RDA (arXiv 2604.21428) --------------------------------------------------

// The result has the direction of the mean unit vector and the mean length.
TEST_F(VerdictRuleTest, RdaHasTheMeanDirectionAndTheMeanLength) {
  SCOPED_TRACE(trace_);
  const auto rule = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_RDA));
  for (int count = 1; count <= 6; ++count) {
    const Vectors x = Random(count, 40, 0.01);
    const std::vector<double> weights = Weights(count);
    std::vector<double> shares(count);
    double length = 0;
    for (int i = 0; i < count; ++i) {
      shares[i] = weights[i] / Norm(x[i]);
      length += weights[i] * Norm(x[i]);
    }
    std::vector<double> expected = Sum(x, shares);
    const double scale = length / Norm(expected);
    for (double& value : expected) value *= scale;
    const auto got = rule->Decide(MakeInput(x, weights));
    ASSERT_TRUE(got.ok());
    ExpectNear(Merged(x, *got), expected, length);
    EXPECT_NEAR(Norm(Merged(x, *got)), length, 1e-6 * length);
  }
}

TEST_F(VerdictRuleTest, RdaKeepsTheLengthThatAPlainMeanLoses) {
  SCOPED_TRACE(trace_);
  const Vectors x = Random(8, 4000);  // Nearly orthogonal.
  const auto rule = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_RDA));
  const double mean_norm = Norm(Sum(x, std::vector<double>(8, 1.0 / 8)));
  const double rda_norm = Norm(Merged(x, *rule->Decide(MakeInput(x))));
  EXPECT_NEAR(rda_norm / mean_norm, std::sqrt(8.0), 0.15);
}

TEST_F(VerdictRuleTest, RdaTakesThePlainMeanWhereDirectionsCancel) {
  const Vectors x = {{1.0, 0.0}, {-1.0, 0.0}};
  const auto rule = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_RDA));
  const auto got = rule->Decide(MakeInput(x));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->rows[0], (std::vector<float>{0.5f, 0.5f}));
}

TEST_F(VerdictRuleTest, RdaGivesAZeroContributionNoDirectionAndItsLength) {
  const Vectors x = {{3.0, 4.0}, {0.0, 0.0}};
  const auto rule = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_RDA));
  const auto got = rule->Decide(MakeInput(x));
  ASSERT_TRUE(got.ok());
  // n = 2.5, d = (0.3, 0.4), |d| = 0.5.
  ExpectNear(Merged(x, *got), {1.5, 2.0}, 1.0);
  EXPECT_EQ(got->rows[0][1], 0.0f);
}

TEST_F(VerdictRuleTest, RdaDecidesEveryTensorByItself) {
  SCOPED_TRACE(trace_);
  const Vectors x = Random(3, 20), y = Random(3, 20, 100.0);
  const auto rule = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_RDA));
  VerdictInput both = MakeInput(x);
  both.grams.push_back(ComputeGram(y));
  const auto got = rule->Decide(both);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->rows[0], rule->Decide(MakeInput(x))->rows[0]);
  EXPECT_EQ(got->rows[1], rule->Decide(MakeInput(y))->rows[0]);
}

// --- Norm clip (arXiv 1911.07963) --------------------------------------------

// An update whose norm exceeds the threshold is scaled down to it.
TEST_F(VerdictRuleTest, NormClipShortensWhatIsLongerThanTheMedian) {
  SCOPED_TRACE(trace_);
  Vectors x = Random(5, 30);
  for (double& value : x[2]) value *= 100;
  const std::vector<double> weights = Weights(5);
  const VerdictInput input = MakeInput(x, weights);
  const auto rule = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_NORM_CLIP));
  const auto got = rule->Decide(input);
  ASSERT_TRUE(got.ok());
  const double bound = ComputeMedian(input.norms);
  std::vector<double> expected(5);
  for (int i = 0; i < 5; ++i) {
    expected[i] = weights[i] * std::min(1.0, bound / input.norms[i]);
  }
  ExpectNear(Merged(x, *got), Sum(x, expected), bound);
}

TEST_F(VerdictRuleTest, TheBoundIsTheFactorTimesTheRunningMedian) {
  v1::MergeSpec spec = MakeSpec(v1::MERGE_RULE_KIND_NORM_CLIP);
  VerdictInput input;
  input.norms = {1.0, 9.0, 5.0};  // Median 5.
  EXPECT_EQ(ClipBound(spec, input), 5.0);
  input.past_median_norms = {100.0, 2.0, 3.0};
  EXPECT_EQ(ClipBound(spec, input), 4.0);  // Of 100, 2, 3, 5.
  spec.set_clip_round_count(3);
  EXPECT_EQ(ClipBound(spec, input), 3.0);  // Of 2, 3, 5.
  spec.set_clip_round_count(1);
  spec.set_clip_factor(2.5);
  EXPECT_EQ(ClipBound(spec, input), 12.5);
}

TEST_F(VerdictRuleTest, ABoundOfZeroClipsToZeroAndNotToNaN) {
  const auto rule = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_NORM_CLIP));
  VerdictInput input;
  input.weights = {0.5, 0.25, 0.25};
  input.norms = {0.0, 0.0, 7.0};
  const auto got = rule->Decide(input);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->rows[0], (std::vector<float>{0.5f, 0.25f, 0.0f}));
}

// --- Centred clip (arXiv 2012.10333) -----------------------------------------

// v_{l+1} = v_l + sum of the clipped differences from v_l.
TEST_F(VerdictRuleTest, CentredClipIteratesAsOnTheVectorsThemselves) {
  SCOPED_TRACE(trace_);
  for (int iteration_count = 1; iteration_count <= 6; ++iteration_count) {
    Vectors x = Random(6, 30);
    for (double& value : x[4]) value = 1000 * value + 5;
    const std::vector<double> weights = Weights(6);
    v1::MergeSpec spec = MakeSpec(v1::MERGE_RULE_KIND_CENTRED_CLIP);
    spec.set_iteration_count(iteration_count);
    spec.set_clip_factor(0.7);
    const VerdictInput input = MakeInput(x, weights);
    const double bound = 0.7 * ComputeMedian(input.norms);
    std::vector<double> v(30, 0.0);
    for (int k = 0; k < iteration_count; ++k) {
      std::vector<double> next = v;
      for (int i = 0; i < 6; ++i) {
        std::vector<double> difference = x[i];
        for (int e = 0; e < 30; ++e) difference[e] -= v[e];
        const double scale = std::min(1.0, bound / Norm(difference));
        for (int e = 0; e < 30; ++e) {
          next[e] += weights[i] * scale * difference[e];
        }
      }
      v = next;
    }
    const auto got = MakeVerdictRule(spec)->Decide(input);
    ASSERT_TRUE(got.ok());
    ExpectNear(Merged(x, *got), v, 10 * bound);
  }
}

TEST_F(VerdictRuleTest, CentredClipTakesMissingWeightAsAContributionOfZero) {
  SCOPED_TRACE(trace_);
  Vectors x = Random(4, 30);
  const std::vector<double> weights = {0.1, 0.05, 0.1, 0.15};
  v1::MergeSpec spec = MakeSpec(v1::MERGE_RULE_KIND_CENTRED_CLIP);
  spec.set_iteration_count(20);
  spec.set_clip_factor(0.9);
  VerdictInput limited = MakeInput(x, weights);
  const auto got = MakeVerdictRule(spec)->Decide(limited);
  ASSERT_TRUE(got.ok());
  x.push_back(std::vector<double>(30, 0.0));
  VerdictInput whole = MakeInput(x, {0.1, 0.05, 0.1, 0.15, 0.6});
  whole.norms = limited.norms;  // The bound of the four.
  const auto want = MakeVerdictRule(spec)->Decide(whole);
  ASSERT_TRUE(want.ok());
  const std::vector<double> merged = Merged(x, *want);
  x.pop_back();
  ExpectNear(Merged(x, *got), merged, 10);
}

// --- Krum (arXiv 1703.02757) -------------------------------------------------

// A vector's score is the sum of its squared distances to its n - f - 2 nearest
// others. The smallest score wins.
TEST_F(VerdictRuleTest, KrumTakesTheVectorNearestToItsNeighbours) {
  SCOPED_TRACE(trace_);
  for (int n = 3; n <= 12; ++n) {
    const int f = (n - 3) / 2;
    const Vectors x = Random(n, 10);
    std::vector<double> scores(n, 0.0);
    for (int i = 0; i < n; ++i) {
      std::vector<double> distances;
      for (int j = 0; j < n; ++j) {
        if (j == i) continue;
        distances.push_back(SquaredDistance(x[i], x[j]));
      }
      std::sort(distances.begin(), distances.end());
      for (int k = 0; k < n - f - 2; ++k) scores[i] += distances[k];
    }
    const auto best = std::min_element(scores.begin(), scores.end());
    const auto got = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_KRUM, f))
                         ->Decide(MakeInput(x));
    ASSERT_TRUE(got.ok()) << got.status();
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(got->rows[0][i], i == best - scores.begin() ? 1.0f : 0.0f);
    }
  }
}

TEST_F(VerdictRuleTest, KrumGivesATieToTheLowestSlot) {
  const Vectors x(5, {1.0, 2.0});
  const auto got = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_KRUM, 1))
                       ->Decide(MakeInput(x));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->rows[0], (std::vector<float>{1, 0, 0, 0, 0}));
}

TEST_F(VerdictRuleTest, MultiKrumAveragesTheBest) {
  SCOPED_TRACE(trace_);
  Vectors x = Random(7, 50);
  for (double& value : x[0]) value += 50;
  for (double& value : x[5]) value -= 80;
  v1::MergeSpec spec = MakeSpec(v1::MERGE_RULE_KIND_KRUM, 2);
  spec.set_selected_count(3);
  const auto got = MakeVerdictRule(spec)->Decide(MakeInput(x));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(std::count(got->rows[0].begin(), got->rows[0].end(),
                       static_cast<float>(1.0 / 3)),
            3);
  EXPECT_EQ(got->rows[0][0], 0.0f);
  EXPECT_EQ(got->rows[0][5], 0.0f);
}

TEST_F(VerdictRuleTest, KrumIsRefusedWithFewerThanTwoFAndThree) {
  const Vectors x = Random(4, 10);
  const auto got = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_KRUM, 1))
                       ->Decide(MakeInput(x));
  EXPECT_EQ(got.status().code(), absl::StatusCode::kFailedPrecondition);
}

// A hostile contribution that is far away does not change the choice.
TEST_F(VerdictRuleTest, KrumWithOneFarAwayChoosesAsWithoutIt) {
  SCOPED_TRACE(trace_);
  Vectors x = Random(4, 10);
  const auto without = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_KRUM, 0))
                           ->Decide(MakeInput(x));
  x.push_back(std::vector<double>(10, 1e5));
  const auto with = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_KRUM, 1))
                        ->Decide(MakeInput(x));
  ASSERT_TRUE(without.ok() && with.ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(with->rows[0][i], without->rows[0][i]) << i;
  }
}

// --- Minimum-diameter averaging

// Compares with the definition, which tries all sets of n - f.
TEST_F(VerdictRuleTest, MdaAveragesTheSetOfLeastDiameter) {
  SCOPED_TRACE(trace_);
  for (int n = 1; n <= 9; ++n) {
    for (int f = 0; 2 * f + 1 <= n; ++f) {
      const Vectors x = Random(n, 6);
      double least = std::numeric_limits<double>::infinity();
      for (unsigned set = 0; set < 1u << n; ++set) {
        std::vector<bool> kept(n);
        for (int i = 0; i < n; ++i) kept[i] = set >> i & 1;
        if (std::count(kept.begin(), kept.end(), true) != n - f) continue;
        least = std::min(least, Diameter(x, kept));
      }
      const auto got = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_MDA, f))
                           ->Decide(MakeInput(x));
      ASSERT_TRUE(got.ok()) << got.status();
      std::vector<bool> kept(n);
      for (int i = 0; i < n; ++i) {
        kept[i] = got->rows[0][i] != 0.0f;
        if (!kept[i]) continue;
        EXPECT_EQ(got->rows[0][i], static_cast<float>(1.0 / (n - f)));
      }
      EXPECT_EQ(std::count(kept.begin(), kept.end(), true), n - f);
      EXPECT_NEAR(Diameter(x, kept), least, 1e-9 * least) << n << " " << f;
    }
  }
}

// Two sets of three contain the widest pair, 0 and 1. MDA takes the set whose
// third is nearer to both, in any order of slots.
TEST_F(VerdictRuleTest, MdaLooksFurtherWhereSetsShareTheWidestPair) {
  const Vectors x = {{0, 0}, {10, 0}, {5, 8}, {5, -7}, {100, 100}};
  std::vector<int> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    Vectors permuted;
    for (const int i : order) permuted.push_back(x[i]);
    const auto got = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_MDA, 2))
                         ->Decide(MakeInput(permuted));
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(got->rows[0][i] == 0.0f, order[i] == 2 || order[i] == 4);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(VerdictRuleTest, MdaGivesATieToTheLowestSlots) {
  const Vectors x(4, {1.0, 2.0});
  const auto got = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_MDA, 1))
                       ->Decide(MakeInput(x));
  ASSERT_TRUE(got.ok());
  const auto third = static_cast<float>(1.0 / 3);
  EXPECT_EQ(got->rows[0], (std::vector<float>{third, third, third, 0}));
  EXPECT_EQ(got->reason, "leaves out numbers 3 of 4 contributions");
}

// A flipped contribution is not among the nearest, however large the noise.
TEST_F(VerdictRuleTest, MdaLeavesASignFlipOut) {
  SCOPED_TRACE(trace_);
  Vectors x = Random(4, 4000);
  for (auto& vector : x) {
    for (double& value : vector) value += 0.5;
  }
  for (double& value : x[1]) value = -value;
  const auto got = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_MDA, 1))
                       ->Decide(MakeInput(x));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->rows[0][1], 0.0f);
}

TEST_F(VerdictRuleTest, MdaIsRefusedWithFewerThanTwoFAndOne) {
  const Vectors x = Random(4, 10);
  const auto got = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_MDA, 2))
                       ->Decide(MakeInput(x));
  EXPECT_EQ(got.status().code(), absl::StatusCode::kFailedPrecondition);
}

// The largest round with the most hostile islands ends quickly.
TEST_F(VerdictRuleTest, MdaIsQuickForAFullRound) {
  SCOPED_TRACE(trace_);
  const int f = kMdaByzantineMax;
  const Vectors x = Random(kVerdictContributionsMax, 3);
  const auto got = MakeVerdictRule(MakeSpec(v1::MERGE_RULE_KIND_MDA, f))
                       ->Decide(MakeInput(x));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(std::count(got->rows[0].begin(), got->rows[0].end(), 0.0f), f);
}

TEST_F(VerdictRuleTest, APermutationOfTheIslandsPermutesTheCoefficients) {
  SCOPED_TRACE(trace_);
  const Vectors x = Random(7, 20);
  std::vector<int> order(7);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  Vectors permuted;
  for (const int i : order) permuted.push_back(x[i]);
  for (const auto kind :
       {v1::MERGE_RULE_KIND_RDA, v1::MERGE_RULE_KIND_NORM_CLIP,
        v1::MERGE_RULE_KIND_CENTRED_CLIP, v1::MERGE_RULE_KIND_KRUM,
        v1::MERGE_RULE_KIND_MDA}) {
    const auto rule = MakeVerdictRule(MakeSpec(kind, 2));
    const auto a = rule->Decide(MakeInput(x));
    const auto b = rule->Decide(MakeInput(permuted));
    ASSERT_TRUE(a.ok() && b.ok());
    for (int i = 0; i < 7; ++i) {
      EXPECT_NEAR(b->rows[0][i], a->rows[0][order[i]], 1e-6) << rule->name();
    }
  }
}

TEST_F(VerdictRuleTest, ElementWiseRulesAndTheMeanNeedNoVerdict) {
  for (const auto kind :
       {v1::MERGE_RULE_KIND_UNSPECIFIED, v1::MERGE_RULE_KIND_WEIGHTED_MEAN,
        v1::MERGE_RULE_KIND_TRIMMED_MEAN, v1::MERGE_RULE_KIND_MEDIAN}) {
    EXPECT_EQ(MakeVerdictRule(MakeSpec(kind)), nullptr);
  }
}

TEST_F(VerdictRuleTest, ContributionsAtTheBoundOverflowNothing) {
  const double norm = std::sqrt(kVerdictNormSquaredMax) * (1 - 1e-9);
  Vectors x(kVerdictContributionsMax, {norm, 0.0});
  for (size_t i = 0; i < x.size(); i += 2) x[i][0] = -norm;
  for (const auto kind :
       {v1::MERGE_RULE_KIND_RDA, v1::MERGE_RULE_KIND_CENTRED_CLIP,
        v1::MERGE_RULE_KIND_KRUM}) {
    EXPECT_TRUE(MakeVerdictRule(MakeSpec(kind, 3))->Decide(MakeInput(x)).ok());
  }
}

}  // namespace
}  // namespace atl::coordinator
