#include "worker/planner/preset.h"

#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace atl::worker::planner {
namespace {

const Preset& Find(absl::string_view name) {
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return preset;
  }
  ADD_FAILURE() << "no preset " << name;
  return Presets()[0];
}

std::vector<Candidate> Candidates(
    std::vector<std::pair<std::string, double>> list) {
  std::vector<Candidate> candidates;
  for (const auto& [name, utilization] : list) {
    candidates.push_back({&Find(name), {}});
    candidates.back().forecast.utilization = utilization;
    candidates.back().forecast.why = "because of " + name;
  }
  return candidates;
}

TEST(PresetTest, ThereIsOneOfEachName) {
  std::set<std::string> names;
  for (const Preset& preset : Presets()) names.emplace(preset.name);
  EXPECT_EQ(names, std::set<std::string>(
                       {"async", "decoupled", "diloco", "eager", "fedavg",
                        "fedopt", "sparseloco", "streaming", "volunteers"}));
  EXPECT_EQ(names.size(), Presets().size());
}

TEST(PresetTest, EvenFragmentsHoldEveryElement) {
  EXPECT_EQ(EvenFragments(10, 3), std::vector<int64_t>({4, 3, 3}));
  EXPECT_EQ(EvenFragments(2, 5), std::vector<int64_t>({1, 1}));
  const std::vector<int64_t> many = EvenFragments(1234567, 36);
  EXPECT_EQ(std::accumulate(many.begin(), many.end(), int64_t{0}), 1234567);
}

TEST(PresetTest, TakesTheFirstThatIsGoodEnough) {
  const std::vector<Candidate> candidates = Candidates(
      {{"eager", 1.0}, {"diloco", 0.5}, {"streaming", 0.96}, {"async", 0.99}});
  const Choice choice = Choose(candidates, 0.95, false);
  ASSERT_NE(choice.candidate, nullptr);
  EXPECT_EQ(choice.candidate->preset->name, "streaming");
  EXPECT_NE(choice.why.find("because of streaming"), std::string::npos);
  EXPECT_EQ(Choose(candidates, 0.5, false).candidate->preset->name, "diloco");
}

TEST(PresetTest, TakesTheBestIfNoneIsGoodEnough) {
  const std::vector<Candidate> candidates =
      Candidates({{"diloco", 0.1}, {"async", 0.3}, {"streaming", 0.2}});
  const Choice choice = Choose(candidates, 0.95, false);
  ASSERT_NE(choice.candidate, nullptr);
  EXPECT_EQ(choice.candidate->preset->name, "async");
  EXPECT_NE(choice.why.find("no preset computes 95 % of the time"),
            std::string::npos)
      << choice.why;
  const std::vector<Candidate> nearly = Candidates({{"diloco", 0.996}});
  EXPECT_NE(Choose(nearly, 1, false).why.find("it comes nearest, with 99.6 %"),
            std::string::npos);
}

TEST(PresetTest, LooksOnlyAtThoseForTheDatasKind) {
  const std::vector<Candidate> candidates =
      Candidates({{"diloco", 0.1}, {"streaming", 0.2}, {"fedavg", 1}});
  EXPECT_EQ(Choose(candidates, 0.95, false).candidate->preset->name,
            "streaming");
  EXPECT_EQ(Choose(candidates, 0.95, true).candidate->preset->name, "fedavg");
  EXPECT_EQ(Choose(Candidates({{"fedavg", 1}}), 0.95, false).candidate,
            nullptr);
}

}  // namespace
}  // namespace atl::worker::planner
