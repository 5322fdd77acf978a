#include "worker/engine/parallel/sharded_units.h"

#include <iostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/testing/ranks.h"

namespace atl::engine {
namespace {

using collective::Collective;
using collective::LocalWorld;

constexpr int kSteps = 3;
constexpr int kPasses = 2;  // Micro-batches a step.
constexpr float kRate = 0.01f;

// A gradient that any change of parameter, rank, pass or element changes.
float GradientOf(float parameter, int rank, int pass, int64_t element) {
  const float data = static_cast<float>((rank * 31 + pass * 7 + element) % 97);
  return parameter * 0.37f + data * 0.0101f;
}

float Tree(const std::vector<float>& values, int begin, int end) {
  if (end - begin == 1) return values[begin];
  int power = 1;
  while (power * 2 < end - begin) power *= 2;
  return Tree(values, begin, begin + power) + Tree(values, begin + power, end);
}

// The same training with everything in one place.
void TrainWhole(int ranks, std::vector<float>& model) {
  std::vector<float> gradients(model.size());
  std::vector<float> of_rank(ranks);
  for (int step = 0; step < kSteps; ++step) {
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    for (int pass = 0; pass < kPasses; ++pass) {
      for (size_t e = 0; e < model.size(); ++e) {
        for (int r = 0; r < ranks; ++r) {
          of_rank[r] = GradientOf(model[e], r, step * kPasses + pass, e);
        }
        gradients[e] += Tree(of_rank, 0, ranks);
      }
    }
    for (size_t e = 0; e < model.size(); ++e) {
      model[e] -= kRate * gradients[e];
    }
  }
}

// One rank of it. Checks what it gathers against nothing: the end shows it.
void TrainSharded(ShardedUnits& units) {
  const int count = static_cast<int>(units.shards().units().size());
  for (int step = 0; step < kSteps; ++step) {
    std::fill(units.gradients().begin(), units.gradients().end(), 0.0f);
    for (int pass = 0; pass < kPasses; ++pass) {
      ASSERT_TRUE(units.Prefetch(0).ok());
      for (int u = 0; u < count; ++u) {  // Forward.
        if (u + 1 < count) {
          ASSERT_TRUE(units.Prefetch(u + 1).ok());
        }
        ASSERT_TRUE(units.Gather(u).ok());
        if (u + 1 < count) units.Release(u);
      }
      for (int u = count - 1; u >= 0; --u) {  // Backward.
        if (u > 0) {
          ASSERT_TRUE(units.Prefetch(u - 1).ok());
        }
        const auto parameters = units.Gather(u);
        ASSERT_TRUE(parameters.ok());
        const auto gradient = units.BeginGradient(u);
        ASSERT_TRUE(gradient.ok());
        const int64_t begin = units.shards().units()[u].begin;
        for (size_t i = 0; i < gradient->size(); ++i) {
          (*gradient)[i] += GradientOf((*parameters)[i], units.rank(),
                                       step * kPasses + pass, begin + i);
        }
        ASSERT_TRUE(units.EndGradient().ok());
        units.Release(u);
      }
    }
    ASSERT_TRUE(units.FinishGradients().ok());
    for (size_t i = 0; i < units.parameters().size(); ++i) {
      units.parameters()[i] -= kRate * units.gradients()[i];
    }
  }
}

TEST(ShardedUnitsTest, TrainsToTheBitsOfOnePlace) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  for (int ranks : {1, 2, 3, 4}) {
    std::mt19937 random(seed + ranks);
    std::vector<int64_t> counts(3 + random() % 3);
    for (int64_t& count : counts) count = 1 + random() % 3000;
    const FlatShards shards = *FlatShards::Create(counts, ranks);
    std::vector<float> model(shards.element_count());
    for (float& element : model) {
      element = static_cast<float>(random() % 2001) * 1e-3f - 1;
    }
    std::vector<float> trained(model.size());
    LocalWorld world(ranks);
    auto members = world.TakeRanks();
    RunRanks(members, [&](int rank, std::unique_ptr<Collective>& member) {
      auto units = ShardedUnits::Create(shards, *member);
      ASSERT_TRUE(units.ok()) << units.status();
      shards.Keep(rank, model, (*units)->parameters());
      TrainSharded(**units);
      // Ranks own different elements.
      shards.Restore(rank, (*units)->parameters(), absl::MakeSpan(trained));
    });
    TrainWhole(ranks, model);
    EXPECT_EQ(trained, model) << ranks << " ranks";
  }
}

TEST(ShardedUnitsTest, BuffersDependOnTheLongestUnitAlone) {
  LocalWorld world(1);
  auto members = world.TakeRanks();
  auto few = ShardedUnits::Create(*FlatShards::Create({1000}, 1), *members[0]);
  auto many = ShardedUnits::Create(
      *FlatShards::Create(std::vector<int64_t>(40, 1000), 1), *members[0]);
  ASSERT_TRUE(few.ok() && many.ok());
  EXPECT_EQ((*few)->buffer_bytes(), (*many)->buffer_bytes());
  EXPECT_EQ((*few)->buffer_bytes(), 2 * 3 * 4 * 1008);
}

TEST(ShardedUnitsTest, SaysWhenAllSlotsAreTaken) {
  LocalWorld world(1);
  auto members = world.TakeRanks();
  auto units =
      ShardedUnits::Create(*FlatShards::Create({8, 8, 8}, 1), *members[0]);
  ASSERT_TRUE(units.ok());
  EXPECT_TRUE((*units)->Prefetch(0).ok());
  EXPECT_TRUE((*units)->Prefetch(1).ok());
  EXPECT_TRUE((*units)->Prefetch(1).ok());  // It is there.
  EXPECT_EQ((*units)->Gather(2).status().code(),
            absl::StatusCode::kFailedPrecondition);
  (*units)->Release(0);
  EXPECT_TRUE((*units)->Gather(2).ok());
}

}  // namespace
}  // namespace atl::engine
