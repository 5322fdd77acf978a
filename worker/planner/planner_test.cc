#include "worker/planner/planner.h"

#include <numeric>

#include "base/layout/run_length.h"
#include "gtest/gtest.h"
#include "worker/island/testing/tiny_run.h"
#include "worker/planner/model_spec.h"

namespace atl::worker {
namespace {

v1::RunSpec TinySpec(int32_t fragment_count) {
  TinyRunOptions options;
  options.island_count = 3;
  options.inner_step_count = 20;
  options.fragment_count = fragment_count;
  v1::RunSpec spec = TinyRun(options);
  *spec.mutable_layout() = *BuildLayout(spec.model(), fragment_count);
  return spec;
}

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// Sizes of arXiv 2501.18512, Table 4.
TEST(PlannerTest, AModelsLayersFollowFromItsSize) {
  EXPECT_EQ(ModelOfSize(1000000000, 0)->layer_count, 24);
  EXPECT_NEAR(ModelOfSize(10000000000, 0)->layer_count, 48, 4);
  EXPECT_NEAR(ModelOfSize(100000000000, 0)->layer_count, 108, 4);
  EXPECT_EQ(ModelOfSize(1000, 0)->layer_count, 1);
  EXPECT_EQ(ModelOfSize(1000, 7)->layer_count, 7);
}

TEST(PlannerTest, AModelHasASize) {
  EXPECT_TRUE(absl::IsInvalidArgument(ModelOfSize(0, 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ModelOfSize(-1, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ModelOfSize(10, 11).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ModelOfSize(10, -1).status()));
}

TEST(PlannerTest, FragmentsHoldTheWholeModel) {
  const v1::RunSpec spec = TinySpec(1);
  const absl::StatusOr<PlannedModel> model = ModelOfSpec(spec.model());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->layer_count, 2);
  const absl::StatusOr<std::vector<int64_t>> fragments =
      FragmentElements(*model, 2, FragmentAssignment::kStrided);
  ASSERT_TRUE(fragments.ok()) << fragments.status();
  EXPECT_EQ(fragments->size(), 2);
  EXPECT_EQ(Sum(*fragments), model->element_count);
  EXPECT_EQ(*fragments, ExchangeOfRun(TinySpec(2)).fragment_elements);
  for (const int64_t count : {0, 3}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        FragmentElements(*model, count, FragmentAssignment::kStrided)
            .status()));
  }
  EXPECT_EQ(Sum(*FragmentElements(*ModelOfSize(1000003, 10), 7,
                                  FragmentAssignment::kBalanced)),
            1000003);
}

TEST(PlannerTest, ARunsForecastFollowsFromWhatWasMeasured) {
  const v1::RunSpec spec = TinySpec(1);
  const int64_t bytes = 4 * ExchangeOfRun(spec).fragment_elements[0];
  IslandMeasurements measured;
  measured.tokens_per_second = 10.0 * TokensAStep(spec);  // 0.1 s a step.
  EXPECT_TRUE(
      absl::IsFailedPrecondition(ForecastOfRun(spec, measured).status()));
  measured.pulled = {bytes, 0.5};
  EXPECT_TRUE(
      absl::IsFailedPrecondition(ForecastOfRun(spec, measured).status()));
  measured.pushed = {bytes, 1.5};
  measured.contributed = {bytes, 0.25};
  const absl::StatusOr<planner::Forecast> forecast =
      ForecastOfRun(spec, measured);
  ASSERT_TRUE(forecast.ok()) << forecast.status();
  EXPECT_NEAR(forecast->compute_seconds, 2, 1e-9);
  // Decoding and merging take milliseconds here; S was measured.
  const double decided = MakeService(spec.durability()).commit_seconds;
  EXPECT_NEAR(forecast->round_seconds, 2 + 0.5 + 1.5 + 0.25 + decided, 0.005);
  EXPECT_EQ(forecast->up_bytes, bytes);
  EXPECT_EQ(forecast->down_bytes, bytes);
  measured.tokens_per_second = 0;
  EXPECT_TRUE(
      absl::IsFailedPrecondition(ForecastOfRun(spec, measured).status()));
}

TEST(PlannerTest, EveryRecipeIsForecastForTheLinkThatWasMeasured) {
  const v1::RunSpec spec = TinySpec(1);
  const int64_t bytes = 4 * ExchangeOfRun(spec).fragment_elements[0];
  IslandMeasurements measured;
  measured.tokens_per_second = 10.0 * TokensAStep(spec);
  // In f32, in 4 bits, and with more fragments than layers.
  std::vector<Recipe> recipes(3);
  for (size_t i = 0; i < recipes.size(); ++i) {
    recipes[i].preset = &planner::Presets()[i];
    recipes[i].spec = spec;
  }
  recipes[1].spec.mutable_exchange()->set_up(v1::CODEC_E3M0);
  recipes[2].spec.mutable_layout()->set_fragment_count(100);
  EXPECT_TRUE(absl::IsFailedPrecondition(
      ForecastOfRecipes(spec, measured, recipes).status()));
  measured.pulled = {bytes, 0.5};
  measured.pushed = {bytes, 1.5};
  const auto candidates = ForecastOfRecipes(spec, measured, recipes);
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  ASSERT_EQ(candidates->size(), 2);
  measured.round_trip_seconds = 0.2;
  const auto far = ForecastOfRecipes(spec, measured, recipes);
  ASSERT_TRUE(far.ok()) << far.status();
  const codec::CodecId codecs[] = {codec::CodecId::kF32, codec::CodecId::kE3m0};
  for (size_t i = 0; i < candidates->size(); ++i) {
    const planner::Candidate& near = (*candidates)[i];
    EXPECT_EQ(near.preset, recipes[i].preset);
    EXPECT_GT(near.forecast.utilization, 0) << near.preset->name;
    EXPECT_LT((*far)[i].forecast.utilization, near.forecast.utilization)
        << near.preset->name;
    EXPECT_EQ(near.forecast.up_bytes,
              planner::EncodedBytes(codecs[i], bytes / 4));
    EXPECT_EQ(near.forecast.down_bytes, bytes);
  }
}

TEST(PlannerTest, ARecipesFragmentsAreThoseOfItsLayersAndItsPattern) {
  Recipe recipe;
  recipe.spec = TinySpec(1);
  recipe.spec.mutable_schedule()->set_overlap_step_count(7);
  v1::ModelSpec shape = recipe.spec.model();
  shape.set_layer_count(7);
  const PlannedModel model = *ModelOfSpec(shape);
  const auto elements = [&](int64_t fragment_count = 0) {
    const auto exchange = ExchangeOfRecipe(recipe, model, fragment_count);
    EXPECT_TRUE(exchange.ok()) << exchange.status();
    EXPECT_EQ(exchange->overlap_step_count, 7);
    return exchange->fragment_elements;
  };
  EXPECT_EQ(elements().size(), 1);
  recipe.spec.mutable_layout()->clear_fragment_count();
  recipe.layers_a_fragment = 3;
  EXPECT_EQ(elements(),
            *FragmentElements(model, 3, FragmentAssignment::kStrided));
  EXPECT_EQ(elements(5).size(), 5);
  recipe.assignment = FragmentAssignment::kBalanced;
  EXPECT_EQ(elements(),
            *FragmentElements(model, 3, FragmentAssignment::kBalanced));
  EXPECT_TRUE(
      absl::IsInvalidArgument(ExchangeOfRecipe(recipe, model, 8).status()));
}

TEST(PlannerTest, ARunsExchangeIsPlannedAsItIs) {
  v1::RunSpec spec = TinySpec(2);
  planner::Exchange exchange = ExchangeOfRun(spec);
  EXPECT_FALSE(exchange.streaming);
  EXPECT_EQ(exchange.overlap_step_count, 0);
  EXPECT_EQ(exchange.up_codec, codec::CodecId::kF32);
  EXPECT_EQ(exchange.down_codec, codec::CodecId::kF32);
  EXPECT_TRUE(exchange.is_synchronous);

  v1::ScheduleSpec& schedule = *spec.mutable_schedule();
  schedule.set_fragment_schedule(v1::FRAGMENT_SCHEDULE_STAGGERED);
  schedule.set_overlap_step_count(5);
  schedule.set_timing(v1::TIMING_ELASTIC);
  schedule.set_max_staleness(4);
  exchange = ExchangeOfRun(spec);
  EXPECT_TRUE(exchange.streaming);
  EXPECT_EQ(exchange.overlap_step_count, 5);
  EXPECT_FALSE(exchange.is_synchronous);

  // Only elastic streams continue past the overlap.
  schedule.set_max_ahead_steps(7);
  EXPECT_EQ(ExchangeOfRun(spec).ahead_step_count, 7);
  schedule.set_timing(v1::TIMING_STRICT);
  EXPECT_EQ(ExchangeOfRun(spec).ahead_step_count, 0);
  schedule.set_timing(v1::TIMING_ELASTIC);
  schedule.set_fragment_schedule(v1::FRAGMENT_SCHEDULE_TOGETHER);
  EXPECT_EQ(ExchangeOfRun(spec).ahead_step_count, 7);
  schedule.set_overlap_step_count(0);
  EXPECT_EQ(ExchangeOfRun(spec).ahead_step_count, 0);

  for (const codec::CodecId id : codec::AllCodecs()) {
    const auto word = static_cast<v1::Codec>(id);
    ASSERT_TRUE(v1::Codec_IsValid(word));
    spec.mutable_exchange()->set_up(word);
    EXPECT_EQ(ExchangeOfRun(spec).up_codec, id);
    spec.mutable_exchange()->set_down(word);
    EXPECT_EQ(ExchangeOfRun(spec).down_codec, id);
  }
}

TEST(PlannerTest, ARunIsPlannedWithItsQuorumItsVerdictAndItsDurability) {
  v1::RunSpec spec = TinySpec(1);
  planner::Exchange exchange = ExchangeOfRun(spec);
  EXPECT_EQ(exchange.header_trip_count, 0);
  EXPECT_EQ(exchange.merge_pass_count, 1);
  EXPECT_EQ(exchange.grace_seconds, 0);
  spec.mutable_schedule()->set_min_quorum(2);
  spec.mutable_schedule()->mutable_grace_window()->set_seconds(1);
  spec.mutable_schedule()->mutable_grace_window()->set_nanos(500000000);
  spec.mutable_outer()->mutable_merge()->set_rule(v1::MERGE_RULE_KIND_RDA);
  spec.set_durability(v1::DURABILITY_ISLAND);
  exchange = ExchangeOfRun(spec);
  EXPECT_EQ(exchange.quorum, 2);
  EXPECT_DOUBLE_EQ(exchange.grace_seconds, 1.5);
  EXPECT_EQ(exchange.merge_pass_count, 2);
  EXPECT_EQ(exchange.header_trip_count, 1);
  spec.mutable_outer()->mutable_merge()->set_rule(v1::MERGE_RULE_KIND_MEDIAN);
  EXPECT_EQ(ExchangeOfRun(spec).merge_pass_count, 1);
  EXPECT_GT(MakeService(v1::DURABILITY_MACHINE).commit_seconds,
            MakeService(v1::DURABILITY_PROCESS).commit_seconds);
}

TEST(PlannerTest, FarServersMakeStreamsWaitForWindows) {
  // 4 MB over 4 streams: 64 KiB of each need no round trip.
  planner::Exchange exchange;
  exchange.inner_step_count = 10;
  exchange.fragment_elements = {1000000};
  planner::Compute compute;
  planner::Link link;
  link.up_bytes_per_second = link.down_bytes_per_second = 1e12;
  link.round_trip_seconds = 0.1;
  const auto seconds = [&](const planner::Flow& flow) {
    return planner::Predict(exchange, compute, link, {}, flow)->round_seconds;
  };
  // One round trip more for the one chunk of a push, two for those of a pull.
  EXPECT_NEAR(seconds(MakeFlow(1)) - seconds({}), 3 * 0.1, 1e-3);
  EXPECT_NEAR(seconds(MakeFlow(4)) - seconds({}), 3 * 0.1, 1e-3);
}

TEST(PlannerTest, ASampledRunAsksForFewerRounds) {
  v1::RunSpec spec = TinySpec(1);
  EXPECT_EQ(ExchangeOfRun(spec).sample_fraction, 1);
  EXPECT_TRUE(ExchangeOfRun(spec).awaits_slowest);
  spec.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  spec.mutable_schedule()->set_sample_fraction(0.25);
  EXPECT_EQ(ExchangeOfRun(spec).sample_fraction, 0.25);
  EXPECT_FALSE(ExchangeOfRun(spec).awaits_slowest);
}

}  // namespace
}  // namespace atl::worker
