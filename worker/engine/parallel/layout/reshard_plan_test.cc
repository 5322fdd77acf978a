// Follows every element of a model by brute force: fills the shards of all
// ranks with each element's index in the model, through plans and back.

#include "worker/engine/parallel/layout/reshard_plan.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl::engine {
namespace {

ModelConfig Config(bool mixture) {
  ModelConfig config{.vocab_size = 300,
                     .hidden_size = 48,
                     .intermediate_size = 64,
                     .layer_count = 4,
                     .head_count = 4,
                     .kv_head_count = 2,
                     .sequence_length_max = 8};
  if (mixture) {
    config.architecture = Architecture::kMixtral;
    config.expert_count = 4;
    config.experts_per_token = 2;
  } else {
    config.tie_embeddings = true;
  }
  return config;
}

// All of a rank's shards, by span; -1 for an element that was not written.
using Shards = std::vector<std::vector<int64_t>>;

class ReshardPlanTest : public testing::TestWithParam<
                            std::tuple<std::string, bool, ShardingMode>> {
 protected:
  const ModelConfig config_ = Config(std::get<1>(GetParam()));
  const ParameterLayout layout_ = MakeParameterLayout(config_);
  const MeshOptions options_{.mesh = *Mesh::Parse(std::get<0>(GetParam())),
                             .sharding = std::get<2>(GetParam())};
  const int ranks_ = options_.mesh.rank_count();
};

INSTANTIATE_TEST_SUITE_P(
    Meshes, ReshardPlanTest,
    testing::Combine(testing::Values("", "dp_shard=3", "pp=2,dp_shard=2",
                                     "dp_replicate=2,dp_shard=2", "tp=2",
                                     "pp=2,dp_shard=2,tp=2", "cp=2,tp=2"),
                     testing::Values(false, true),
                     testing::Values(ShardingMode::kReplicate,
                                     ShardingMode::kZero3)));
INSTANTIATE_TEST_SUITE_P(
    Experts, ReshardPlanTest,
    testing::Combine(testing::Values("ep=2", "dp_shard=2,ep=2,tp=2"),
                     testing::Values(true),
                     testing::Values(ShardingMode::kReplicate,
                                     ShardingMode::kZero3)));

TEST_P(ReshardPlanTest, ShardsGetTheirElementsAndHoldersGetThemBackOnce) {
  std::vector<ReshardPlan> plans;
  std::vector<Shards> shards(ranks_);
  std::vector<RankLayout> layouts;
  int64_t held_at = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    plans.emplace_back(config_, layout_, options_, rank);
    EXPECT_EQ(plans.back().held().begin, held_at);
    held_at = plans.back().held().end;
    layouts.push_back(MakeRankLayout(config_, options_, rank));
    for (const ShardSpan& span : layouts.back().spans) {
      shards[rank].emplace_back(span.shard_count, -1);
    }
  }
  EXPECT_EQ(held_at, layout_.element_count);
  std::vector<int> copies(layout_.element_count, 0);
  std::vector<int> counted(layout_.element_count, 0);
  for (int holder = 0; holder < ranks_; ++holder) {
    for (int owner = 0; owner < ranks_; ++owner) {
      for (size_t unit = 0; unit < layout_.units.size(); ++unit) {
        // One end writes the message in its order, the other reads in its own.
        std::vector<int64_t> message;
        std::vector<bool> is_counted;
        for (const auto& run : plans[holder].units()[unit].held[owner]) {
          for (int64_t i = 0; i < run.count; ++i) {
            message.push_back(plans[holder].held().begin + run.offset + i);
            is_counted.push_back(run.is_counted);
          }
        }
        size_t at = 0;
        for (const auto& run : plans[owner].units()[unit].shards[holder]) {
          for (int64_t i = 0; i < run.count; ++i, ++at) {
            ASSERT_LT(at, message.size());
            EXPECT_EQ(run.is_counted, is_counted[at]);
            int64_t& element = shards[owner][run.span][run.offset + i];
            EXPECT_EQ(element, -1);
            element = message[at];
            ++copies[element];
            if (run.is_counted) ++counted[element];
          }
        }
        EXPECT_EQ(at, message.size());
      }
    }
  }
  for (int64_t e = 0; e < layout_.element_count; ++e) {
    ASSERT_GE(copies[e], 1) << e;
    ASSERT_EQ(counted[e], 1) << e;
  }
  // Within a unit, a parameter's elements are where its rectangles say.
  for (int rank = 0; rank < ranks_; ++rank) {
    const RankLayout& own = layouts[rank];
    for (size_t s = 0; s < own.spans.size(); ++s) {
      const ShardSpan& span = own.spans[s];
      const RankUnit& unit = own.units[span.rank_unit];
      std::vector<int64_t> expected(unit.element_count(), -1);
      for (const UnitParameter& parameter : unit.parameters) {
        for (const Rectangle& r : parameter.rectangles) {
          for (int64_t i = 0; i < r.row_count; ++i) {
            for (int64_t j = 0; j < r.column_count; ++j) {
              expected[r.local_begin + i * r.local_stride + j] =
                  r.global_begin + i * r.global_stride + j;
            }
          }
        }
      }
      for (int64_t i = 0; i < span.shard_count; ++i) {
        const int64_t at = span.group_rank * span.shard_count + i;
        ASSERT_EQ(shards[rank][s][i],
                  at < span.count ? expected[span.begin + at] : -1);
      }
    }
  }
}

TEST_P(ReshardPlanTest, SegmentsCoverShardsWithoutTheirPadding) {
  double counted = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const RankLayout layout = MakeRankLayout(config_, options_, rank);
    std::vector<int64_t> covered(layout.spans.size(), 0);
    for (const StateSegment& segment : ListStateSegments(layout)) {
      EXPECT_EQ(segment.shard_offset, covered[segment.span]);
      covered[segment.span] += segment.count;
      if (segment.is_counted) counted += segment.count;
    }
    int64_t state = 0;
    for (size_t s = 0; s < layout.spans.size(); ++s) {
      const ShardSpan& span = layout.spans[s];
      EXPECT_EQ(span.state_begin, state);
      state += span.shard_count;
      EXPECT_EQ(
          covered[s],
          std::min(span.shard_count,
                   std::max<int64_t>(
                       0, span.count - span.group_rank * span.shard_count)));
    }
    EXPECT_EQ(layout.state_count, state);
  }
  EXPECT_EQ(counted, layout_.element_count);
}

TEST(HeldBoundariesTest, LieOnBlocksOfAParameter) {
  ModelConfig config = Config(false);
  config.hidden_size = 96;
  config.vocab_size = 5000;
  const ParameterLayout layout = MakeParameterLayout(config);
  for (int ranks : {1, 2, 3, 7, 64}) {
    const std::vector<int64_t> boundaries = HeldBoundaries(layout, ranks);
    ASSERT_EQ(boundaries.size(), ranks + 1);
    EXPECT_EQ(boundaries.front(), 0);
    EXPECT_EQ(boundaries.back(), layout.element_count);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_LE(boundaries[r], boundaries[r + 1]);
      EXPECT_LE(boundaries[r + 1] - boundaries[r],
                layout.element_count / ranks + 2 * kHeldBlockElements);
      for (const ParameterSpec& spec : layout.parameters) {
        if (boundaries[r] >= spec.offset &&
            boundaries[r] < spec.offset + spec.element_count) {
          EXPECT_EQ((boundaries[r] - spec.offset) % kHeldBlockElements, 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace atl::engine
