// Small decisions: weights, samples, steps, data shards, the table of outcomes.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "coordinator/core/rounds/slot_plans.h"
#include "coordinator/core/rounds/weights.h"
#include "coordinator/core/state/outcome_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

uint64_t Seed() {
  const uint64_t seed = std::random_device()();
  testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

TEST(WeightsTest, AreNormalizedInDoubleAndThenRounded) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int n = 1; n <= 64; ++n) {
    std::vector<int64_t> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(1 + random() % 1000000007);
    double sum = 0;
    for (int64_t count : tokens) sum += static_cast<double>(count);
    const std::vector<float> weights =
        NormalizedWeights(v1::WEIGHTING_TOKENS, tokens,
                          std::vector<int64_t>(tokens.size(), 1));
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(weights[i],
                static_cast<float>(static_cast<double>(tokens[i]) / sum));
    }
  }
}

TEST(WeightsTest, AreTheSameForAllIfUniform) {
  EXPECT_THAT(NormalizedWeights(v1::WEIGHTING_UNIFORM, {7, 0, 100}, {1, 1, 1}),
              ElementsAre(1.0f / 3, 1.0f / 3, 1.0f / 3));
}

TEST(WeightsTest, AreTokensSquaredPerStepIfSaid) {
  // Twice the tokens in equally many steps: four times the weight.
  EXPECT_THAT(NormalizedWeights(v1::WEIGHTING_TOKENS_SQUARED_PER_STEP,
                                {100, 200}, {5, 5}),
              ElementsAre(0.2f, 0.8f));
  // Equally many tokens in half the steps: twice the weight.
  EXPECT_THAT(NormalizedWeights(v1::WEIGHTING_TOKENS_SQUARED_PER_STEP,
                                {100, 100}, {10, 5}),
              ElementsAre(1.0f / 3, 2.0f / 3));
}

TEST(WeightsTest, HoldTheIslandsOfATokenToTheirShare) {
  // Two islands of the token and two others, equally long: half each without
  // the limit, then a fifth and four fifths.
  const WeightCap capped = {"t", 0.2};
  EXPECT_THAT(NormalizedWeights(v1::WEIGHTING_TOKENS, {30, 10, 20, 20},
                                {1, 1, 1, 1}, {capped, capped, {}, {}}),
              ElementsAre(FloatEq(0.15f), FloatEq(0.05f), FloatEq(0.4f),
                          FloatEq(0.4f)));
  // A limit that does not bind changes nothing.
  EXPECT_THAT(NormalizedWeights(v1::WEIGHTING_TOKENS, {10, 90}, {1, 1},
                                {capped, {}}),
              ElementsAre(FloatEq(0.1f), FloatEq(0.9f)));
  // Binding one limit makes the other bind: 60, 25 and 15 of 100.
  EXPECT_THAT(NormalizedWeights(v1::WEIGHTING_TOKENS, {60, 25, 15}, {1, 1, 1},
                                {{"a", 0.3}, {"b", 0.3}, {}}),
              ElementsAre(FloatEq(0.3f), FloatEq(0.3f), FloatEq(0.4f)));
  // Limits that sum to more than 1 leave nothing.
  EXPECT_THAT(NormalizedWeights(v1::WEIGHTING_TOKENS, {75, 25}, {1, 1},
                                {{"a", 0.6}, {"b", 0.6}}),
              ElementsAre(FloatEq(0.6f), FloatEq(0.4f)));
}

TEST(WeightsTest, GiveWhatLimitedIslandsLackToNobody) {
  EXPECT_THAT(NormalizedWeights(v1::WEIGHTING_TOKENS, {50, 50}, {1, 1},
                                {{"a", 0.1}, {"b", 0.3}}),
              ElementsAre(FloatEq(0.1f), FloatEq(0.3f)));
  // Two islands of one token.
  EXPECT_THAT(NormalizedWeights(v1::WEIGHTING_TOKENS, {50, 50}, {1, 1},
                                {{"a", 0.05}, {"a", 0.05}}),
              ElementsAre(FloatEq(0.025f), FloatEq(0.025f)));
}

TEST(WeightsTest, CountNoFewerStepsThanTheTokensTake) {
  v1::RunSpec spec;
  spec.mutable_inner()->set_batch_size(4);
  spec.mutable_model()->set_sequence_length(128);
  EXPECT_EQ(CountedSteps(spec, 5120, 10), 10);
  EXPECT_EQ(CountedSteps(spec, 5120, 1), 10);
  EXPECT_EQ(CountedSteps(spec, 5121, 1), 11);
  EXPECT_EQ(CountedSteps(spec, 0, 0), 1);
}

TEST(WeightsTest, CountNoMoreTokensThanThePlanAllows) {
  v1::RunSpec spec;
  spec.mutable_inner()->set_batch_size(4);
  spec.mutable_model()->set_sequence_length(128);
  EXPECT_EQ(CountedTokens(spec, 10, 999999), 5120);
  EXPECT_EQ(CountedTokens(spec, 10, 5119), 5119);
  EXPECT_EQ(CountedTokens(spec, INT64_MAX, 999999), 999999);
}

TEST(WeightsTest, CountWhatTheRunsUnitAllows) {
  v1::RunSpec spec;
  spec.mutable_inner()->set_batch_size(4);
  spec.mutable_model()->set_sequence_length(128);
  spec.set_weight_unit(v1::WEIGHT_UNIT_SAMPLES);
  EXPECT_EQ(CountedTokens(spec, 10, 999999), 40);
  spec.set_weight_unit(v1::WEIGHT_UNIT_STEPS);
  EXPECT_EQ(CountedTokens(spec, 10, 999999), 10);
  EXPECT_EQ(CountedSteps(spec, 10, 10), 10);
}

TEST(WeightsTest, CreditStepsAheadAsFarAsMostIslandsHaveThem) {
  // One island alone claims eleven times its plan.
  EXPECT_THAT(CreditSteps({10, 10}, {10, 110}), ElementsAre(10, 10));
  EXPECT_THAT(CreditSteps({10, 5, 10}, {110, 5, 10}), ElementsAre(10, 5, 10));
  // The coordinator was away from all of them.
  EXPECT_THAT(CreditSteps({10, 5, 10}, {110, 25, 40}), ElementsAre(40, 25, 40));
  // Fewer steps than planned take nothing away.
  EXPECT_THAT(CreditSteps({10, 10}, {3, 10}), ElementsAre(10, 10));
  EXPECT_THAT(CreditSteps({10}, {30}), ElementsAre(30));
}

TEST(SamplingTest, DependsOnSeedAndRoundAlone) {
  const std::vector<int32_t> slots = {0, 2, 3, 5, 8, 9};
  const auto sample = SampleSlots(slots, 3, 1, 4, 0);
  EXPECT_EQ(sample, SampleSlots(slots, 3, 1, 4, 0));
  EXPECT_EQ(sample.size(), 3u);
  EXPECT_TRUE(std::is_sorted(sample.begin(), sample.end()));
  bool differs = false;
  for (int64_t version = 5; version < 20; ++version) {
    differs = differs || SampleSlots(slots, 3, 1, version, 0) != sample;
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(SampleSlots(slots, 6, 1, 4, 0), slots);
}

TEST(SamplingTest, AsksEveryoneEquallyOften) {
  const std::vector<int32_t> slots = {0, 1, 2, 3, 4, 5, 6, 7};
  const uint64_t seed = Seed();
  SCOPED_TRACE(seed);
  std::map<int32_t, int> counts;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    for (int32_t slot : SampleSlots(slots, 2, seed, round, 0)) ++counts[slot];
  }
  // Binomial with n = 4000, p = 1/4: seven standard deviations.
  const double deviation = std::sqrt(kRounds * 0.25 * 0.75);
  for (int32_t slot : slots) {
    EXPECT_NEAR(counts[slot], kRounds / 4, 7 * deviation);
  }
}

TEST(PacingTest, GivesStepsInProportionToSpeed) {
  EXPECT_THAT(ElasticSteps({1, 0.39, 0.34, 0.001, 1e12}, 10),
              ElementsAre(10, 4, 3, 1, 10));
  EXPECT_THAT(DyluSteps({1, 0.39, 0.34, 0.001, 1e12}, 10),
              ElementsAre(10, 3, 3, 1, 10));
}

TEST(DataLeasesTest, KeepAMembersShardIfItIsFree) {
  EXPECT_EQ(ChooseDataShard(1, 3, {0, 2}, 4), 3);
  EXPECT_EQ(ChooseDataShard(1, 3, {0, 3}, 4), 1);
  EXPECT_EQ(ChooseDataShard(5, -1, {0, 1}, 4), 2);
  EXPECT_EQ(ChooseDataShard(5, -1, {0, 1, 2, 3}, 4), std::nullopt);
}

TEST(DataLeasesTest, AreOfShardsThatThereAre) {
  EXPECT_EQ(ChooseDataShard(1, 3, {}, 4), 3);
  EXPECT_EQ(ChooseDataShard(1, 4, {}, 4), 1);
  EXPECT_EQ(ChooseDataShard(5, -1, {}, 4), 1);
  EXPECT_EQ(ChooseDataShard(1, 4, {0, 1, 2}, 4), 3);
  EXPECT_EQ(ChooseDataShard(1, 4, {0, 1, 2, 3}, 4), std::nullopt);
}

TEST(DataLeasesTest, DealFreeShardsToThoseWhoRead) {
  EXPECT_THAT(DealDataShards({0, 4}, {0, 3, 4}, 6, true),
              ElementsAre(ElementsAre(0, 1, 5), ElementsAre(4, 2)));
  EXPECT_THAT(DealDataShards({0, 4}, {0, 4}, 6, false),
              ElementsAre(ElementsAre(0), ElementsAre(4)));
}

v1::ContributionOutcome OutcomeAt(int64_t seq) {
  v1::ContributionOutcome outcome;
  outcome.mutable_key()->set_run_epoch(1);
  outcome.mutable_key()->set_slot(2);
  outcome.mutable_key()->set_seq(seq);
  outcome.set_outcome(v1::OUTCOME_MERGED);
  return outcome;
}

TEST(OutcomeTableTest, TakesEachKeyOnceAndForgetsNoneOfThem) {
  OutcomeTable table;
  for (int64_t seq = 1; seq <= 1000; ++seq) {
    EXPECT_TRUE(table.Add(OutcomeAt(seq)));
  }
  for (int64_t seq = 1; seq <= 1000; ++seq) {
    EXPECT_FALSE(table.Add(OutcomeAt(seq)));
  }
  EXPECT_FALSE(table.Contains(OutcomeAt(1001).key()));
  EXPECT_EQ(table.Newest(2).size(), OutcomeTable::kKeptMax);
  EXPECT_EQ(table.Newest(2).back().key().seq(), 1000);
  EXPECT_EQ(table.SeqMax(2, 2000), 1000);
  EXPECT_EQ(table.SeqMax(2, 990), 990);
  EXPECT_EQ(table.SeqMax(2, 1), 0) << "what is forgotten is above it";
  EXPECT_EQ(table.SeqMax(3, 2000), 0);
}

}  // namespace
}  // namespace atl::coordinator
