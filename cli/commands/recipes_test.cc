#include "cli/commands/recipes.h"

#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/codec.h"
#include "cli/run_file/complete_spec.h"
#include "cli/run_file/load.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using worker::planner::Exchange;

std::vector<worker::Recipe> Recipes() {
  absl::StatusOr<std::vector<worker::Recipe>> recipes = ReadRecipes();
  EXPECT_TRUE(recipes.ok()) << recipes.status();
  return recipes.ok() ? *std::move(recipes) : std::vector<worker::Recipe>();
}

worker::Recipe Find(absl::string_view name) {
  for (const worker::Recipe& recipe : Recipes()) {
    if (recipe.preset->name == name) return recipe;
  }
  ADD_FAILURE() << "no recipe " << name;
  return Recipes().front();
}

// Expects that a run file of the preset's name and `more` exchanges as `recipe`
// is planned for its model.
void ExpectSameExchange(const worker::Recipe& recipe, const std::string& more) {
  SCOPED_TRACE(recipe.preset->name);
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/", ::getpid(), ".toml");
  std::ofstream(path) << "preset = \"" << recipe.preset->name
                      << "\"\n[data]\npath = \"text\"\n"
                      << more;
  absl::StatusOr<RunFile> file = LoadRunFile(path, {});
  ::unlink(path.c_str());
  ASSERT_TRUE(file.ok()) << file.status();
  const absl::Status complete = CompleteLayout(&*file);
  ASSERT_TRUE(complete.ok()) << complete;
  const auto model = worker::ModelOfSpec(file->spec.model());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto planned = worker::ExchangeOfRecipe(recipe, *model);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_TRUE(*planned == worker::ExchangeOfRun(file->spec));
}

int64_t FragmentCount(const worker::Recipe& recipe, int64_t layer_count) {
  const auto exchange = worker::ExchangeOfRecipe(
      recipe, *worker::ModelOfSize(1000000, layer_count));
  EXPECT_TRUE(exchange.ok()) << exchange.status();
  return exchange.ok()
             ? static_cast<int64_t>(exchange->fragment_elements.size())
             : 0;
}

TEST(RecipesTest, ThereIsARunFileForEveryPresetOfThePlanner) {
  const std::vector<worker::Recipe> recipes = Recipes();
  ASSERT_EQ(recipes.size(), worker::planner::Presets().size());
  for (size_t i = 0; i < recipes.size(); ++i) {
    EXPECT_EQ(recipes[i].preset, &worker::planner::Presets()[i]);
  }
}

TEST(RecipesTest, APresetIsPlannedAsARunOfItsNameExchanges) {
  for (const worker::Recipe& recipe : Recipes()) {
    ExpectSameExchange(recipe, "");
  }
}

// A user takes a preset on the advice of `atoll plan`.
TEST(RecipesTest, APresetIsPlannedAsItRunsForAModelOfOnesOwn) {
  for (const worker::Recipe& recipe : Recipes()) {
    ExpectSameExchange(recipe, "[model]\nlayer_count = 30\n");
  }
}

// arXiv 2501.18512, supplementary: 8, 16 and 36 fragments of three layers.
TEST(RecipesTest, FragmentsFollowFromTheModelsLayers) {
  const worker::Recipe streaming = Find("streaming");
  EXPECT_EQ(FragmentCount(streaming, 24), 8);
  EXPECT_EQ(FragmentCount(streaming, 48), 16);
  EXPECT_EQ(FragmentCount(streaming, 108), 36);
  EXPECT_EQ(FragmentCount(streaming, 4), 2);
  EXPECT_EQ(FragmentCount(streaming, 1), 1);
  EXPECT_EQ(FragmentCount(Find("decoupled"), 48), 24);
  EXPECT_EQ(FragmentCount(Find("decoupled"), 12), 12);
  EXPECT_EQ(FragmentCount(Find("diloco"), 48), 1);
}

TEST(RecipesTest, TheDownlinkIsPlannedInTheCodecThatItRunsIn) {
  const auto exchange = [](absl::string_view name) {
    return *worker::ExchangeOfRecipe(Find(name),
                                     *worker::ModelOfSize(1000000, 24));
  };
  EXPECT_EQ(exchange("streaming").down_codec, codec::CodecId::kE3m0);
  EXPECT_EQ(exchange("sparseloco").down_codec, codec::CodecId::kTwoBit);
  EXPECT_EQ(exchange("async").up_codec, codec::CodecId::kF32);
}

TEST(RecipesTest, ElasticPresetsWaitHalfASlowStepAndNotForSlowIslands) {
  worker::planner::Compute compute;
  compute.slowest_ratio = 4;
  worker::planner::Link link;
  link.up_bytes_per_second = link.down_bytes_per_second = 1e9;
  worker::planner::Service service;
  service.island_count = 8;
  const auto utilization = [&](absl::string_view name) {
    const auto exchange = worker::ExchangeOfRecipe(
        Find(name), *worker::ModelOfSize(1000000, 24));
    const auto forecast =
        worker::planner::Predict(*exchange, compute, link, service);
    EXPECT_TRUE(forecast.ok()) << forecast.status();
    return forecast.ok() ? forecast->utilization / exchange->sample_fraction
                         : 0;
  };
  EXPECT_GT(utilization("diloco"), 0.99);
  EXPECT_GT(utilization("fedavg"), 0.8);
  EXPECT_GT(utilization("fedopt"), 0.8);
  EXPECT_GT(utilization("decoupled"), 0.95);
  // A strict run waits.
  EXPECT_LT(utilization("sparseloco"), 0.3);
}

}  // namespace
}  // namespace atl::cli
