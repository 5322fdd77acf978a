#include "worker/engine/parallel/layout/pipeline_schedule.h"

#include <algorithm>
#include <iostream>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "worker/engine/parallel/layout/testing/pipeline_simulator.h"

namespace atl::engine {
namespace {

using Schedules = std::vector<std::vector<PipelineAction>>;

Schedules All(const PipelineShape& shape) {
  Schedules schedules;
  for (int rank = 0; rank < shape.rank_count; ++rank) {
    schedules.push_back(MakePipelineSchedule(shape, rank));
  }
  return schedules;
}

std::string Text(const std::vector<PipelineAction>& actions) {
  return absl::StrJoin(actions, " ", [](std::string* out, const auto& action) {
    absl::StrAppend(out, ToString(action));
  });
}

std::string Name(const PipelineShape& shape) {
  return absl::StrCat("kind ", static_cast<int>(shape.kind), " p ",
                      shape.rank_count, " v ", shape.chunk_count, " m ",
                      shape.micro_batch_count);
}

template <typename F>
void ForEachShape(const F& f) {
  for (const PipelineKind kind :
       {PipelineKind::kGpipe, PipelineKind::kOneForwardOneBackward,
        PipelineKind::kInterleaved}) {
    for (int p = 1; p <= 8; ++p) {
      for (int v = 1; v <= 4; ++v) {
        for (int m = 1; m <= 24; ++m) {
          const PipelineShape shape = {kind, p, v, m};
          if (ValidatePipeline(shape).ok()) f(shape);
        }
      }
    }
  }
}

TEST(PipelineScheduleTest, ReadsAsThePaperDrawsIt) {
  const PipelineShape shape = {PipelineKind::kOneForwardOneBackward, 3, 1, 3};
  EXPECT_EQ(Text(MakePipelineSchedule(shape, 0)),
            "F0.0 S0.0 F1.0 S1.0 F2.0 S2.0 r0.0 B0.0 r1.0 B1.0 r2.0 B2.0");
  EXPECT_EQ(Text(MakePipelineSchedule(shape, 1)),
            "R0.0 F0.0 S0.0 R1.0 F1.0 S1.0 r0.0 B0.0 s0.0 R2.0 F2.0 S2.0 "
            "r1.0 B1.0 s1.0 r2.0 B2.0 s2.0");
  EXPECT_EQ(Text(MakePipelineSchedule(shape, 2)),
            "R0.0 F0.0 B0.0 s0.0 R1.0 F1.0 B1.0 s1.0 R2.0 F2.0 B2.0 s2.0");
  const PipelineShape looped = {PipelineKind::kInterleaved, 2, 2, 2};
  EXPECT_EQ(Text(MakePipelineSchedule(looped, 1)),
            "R0.0 F0.0 S0.0 R1.0 F1.0 S1.0 R0.1 F0.1 B0.1 s0.1 R1.1 F1.1 "
            "B1.1 s1.1 r0.0 B0.0 s0.0 r1.0 B1.0 s1.0");
}

TEST(PipelineScheduleTest, NeverDeadlocksAndWaitsAsTheFormulaSays) {
  for (const auto& [forward, backward] : {std::pair{1, 2}, {1, 1}, {3, 5}}) {
    PipelineCosts costs;
    costs.forward = forward;
    costs.backward = backward;
    ForEachShape([&](const PipelineShape& shape) {
      const int p = shape.rank_count;
      // One slot per link must not deadlock. In the papers no send waits.
      costs.way_capacity = 1;
      const auto tight = SimulatePipeline(shape, All(shape), costs);
      ASSERT_TRUE(tight.ok()) << Name(shape) << ": " << tight.status();
      costs.starts_in_order = true;
      const auto ordered = SimulatePipeline(shape, All(shape), costs);
      ASSERT_TRUE(ordered.ok()) << Name(shape) << ": " << ordered.status();
      costs.starts_in_order = false;
      costs.way_capacity = 1 << 20;
      const auto report = SimulatePipeline(shape, All(shape), costs);
      ASSERT_TRUE(report.ok()) << Name(shape) << ": " << report.status();
      const double formula =
          (p - 1.0) / (shape.chunk_count * shape.micro_batch_count + p - 1.0);
      ASSERT_NEAR(report->bubble_share, formula, 1e-12) << Name(shape);
    });
  }
}

TEST(PipelineScheduleTest, KeepsAsManyActivationsAsThePapersSay) {
  ForEachShape([&](const PipelineShape& shape) {
    const auto report = SimulatePipeline(shape, All(shape));
    ASSERT_TRUE(report.ok());
    const int p = shape.rank_count;
    const int v = shape.chunk_count;
    const int m = shape.micro_batch_count;
    for (int rank = 0; rank < p; ++rank) {
      int expected = m;
      if (shape.kind != PipelineKind::kGpipe) {
        expected = v == 1
                       ? std::min(m, p - rank)
                       : std::min(m * v, 2 * (p - 1 - rank) + (v - 1) * p + 1);
      }
      ASSERT_EQ(report->live_activations_max[rank], expected)
          << Name(shape) << " rank " << rank;
    }
  });
}

TEST(PipelineScheduleTest, TheSimulationFindsWhatIsWrong) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    const PipelineShape shape = {PipelineKind::kInterleaved, 3, 2, 6};
    Schedules schedules = All(shape);
    auto& actions = schedules[random() % 3];
    const size_t at = random() % actions.size();
    switch (random() % 3) {
      case 0:
        actions.erase(actions.begin() + at);
        break;
      case 1:
        actions.insert(actions.begin() + at, actions[at]);
        break;
      default:
        ++actions[at].micro_batch;
    }
    found += !SimulatePipeline(shape, schedules).ok();
  }
  EXPECT_EQ(found, 300);
}

TEST(PipelineScheduleTest, TheSimulationNamesADeadlockAndAWrongOrder) {
  const PipelineShape shape = {PipelineKind::kOneForwardOneBackward, 2, 1, 2};
  Schedules schedules = All(shape);
  // Rank 0 wants a gradient before it has sent the activation.
  schedules[0] = {{PipelineActionKind::kForward, 0, 0},
                  {PipelineActionKind::kReceiveGradient, 0, 0}};
  EXPECT_TRUE(absl::StrContains(
      SimulatePipeline(shape, schedules).status().message(), "a deadlock"));
  // Another order of gradients gives other bits.
  const PipelineShape gpipe = {PipelineKind::kGpipe, 1, 1, 2};
  EXPECT_TRUE(absl::StrContains(
      SimulatePipeline(gpipe, {{{PipelineActionKind::kForward, 0, 0},
                                {PipelineActionKind::kForward, 1, 0},
                                {PipelineActionKind::kBackward, 1, 0},
                                {PipelineActionKind::kBackward, 0, 0}}})
          .status()
          .message(),
      "not added in order"));
}

TEST(PipelineScheduleTest, RefusesWhatCannotBe) {
  EXPECT_FALSE(ValidatePipeline({PipelineKind::kGpipe, 0, 1, 1}).ok());
  EXPECT_FALSE(ValidatePipeline({PipelineKind::kGpipe, 2, 2, 2}).ok());
  EXPECT_FALSE(ValidatePipeline({PipelineKind::kInterleaved, 2, 2, 3}).ok());
  EXPECT_TRUE(ValidatePipeline({PipelineKind::kInterleaved, 2, 2, 4}).ok());
}

// The least maximum, by brute force.
double BestByTrying(const std::vector<double>& costs, int stages,
                    size_t begin) {
  if (stages == 1) {
    double sum = 0;
    for (size_t i = begin; i < costs.size(); ++i) sum += costs[i];
    return sum;
  }
  double best = 1e300;
  double sum = 0;
  for (size_t end = begin + 1; end + stages - 1 <= costs.size(); ++end) {
    sum += costs[end - 1];
    best = std::min(best, std::max(sum, BestByTrying(costs, stages - 1, end)));
  }
  return best;
}

TEST(SplitLayersTest, TheLargestStageIsAsSmallAsItCanBe) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::vector<double> costs(1 + random() % 10);
    for (double& cost : costs) cost = random() % 20;
    const int stages = 1 + random() % costs.size();
    const auto cuts = SplitLayers(costs, stages);
    ASSERT_TRUE(cuts.ok());
    ASSERT_EQ(cuts->size(), stages + 1);
    ASSERT_EQ(cuts->front(), 0);
    ASSERT_EQ(cuts->back(), costs.size());
    double largest = 0;
    for (int k = 0; k < stages; ++k) {
      ASSERT_LT((*cuts)[k], (*cuts)[k + 1]);
      double sum = 0;
      for (int l = (*cuts)[k]; l < (*cuts)[k + 1]; ++l) sum += costs[l];
      largest = std::max(largest, sum);
    }
    ASSERT_EQ(largest, BestByTrying(costs, stages, 0));
  }
}

TEST(SplitLayersTest, SpreadsWhatIsLeftEvenly) {
  EXPECT_EQ(*SplitLayers(std::vector<double>(6, 1), 4),
            (std::vector<int>{0, 1, 2, 4, 6}));
  // An embedding and a head that each cost as much as three layers.
  EXPECT_EQ(*SplitLayers(std::vector<double>{3, 1, 1, 1, 1, 1, 1, 3}, 4),
            (std::vector<int>{0, 1, 4, 7, 8}));
  EXPECT_FALSE(SplitLayers(std::vector<double>{1, 1}, 3).ok());
  EXPECT_FALSE(SplitLayers(std::vector<double>{1, -1}, 1).ok());
  EXPECT_FALSE(SplitLayers(std::vector<double>{}, 0).ok());
}

}  // namespace
}  // namespace atl::engine
