// Parameters and gradients in all sharding modes, bit for bit against training
// without shards: random units, some with experts that fewer ranks share.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/testing/faulty_collective.h"
#include "worker/collective/testing/ranks.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/parallel/layout/rank_groups.h"
#include "worker/engine/parallel/zero/unit_gradients.h"
#include "worker/engine/parallel/zero/unit_parameters.h"

namespace atl::engine {
namespace {

using collective::Collective;
using collective::LocalWorld;

constexpr int kSteps = 3;
constexpr int kPasses = 2;  // Micro-batches per step.
constexpr float kRate = 0.01f;

struct UnitSize {
  int64_t dense;
  int64_t experts;  // 0: none.
};

// A gradient that depends on parameter, rank, pass and element.
float ComputeGradient(float parameter, int rank, int pass, int unit,
                      int64_t e) {
  const float data =
      static_cast<float>((rank * 31 + pass * 7 + unit * 13 + e) % 97);
  return parameter * 0.37f + data * 0.0101f;
}

Ops& Plain() {
  static Ops& ops = *new PlainOps<float>;
  return ops;
}

float Tree(const std::vector<float>& values, size_t begin, size_t end) {
  if (end - begin == 1) return values[begin];
  size_t power = 1;
  while (power * 2 < end - begin) power *= 2;
  return Tree(values, begin, begin + power) + Tree(values, begin + power, end);
}

// Element `e` of `unit` after training from `value`: summed over each replica's
// ranks, then over replicas. `passes_first`: ranks sum passes first.
float Train(float value, const std::vector<std::vector<int>>& replicas,
            int unit, int64_t e, bool passes_first) {
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> of_replicas;
    for (const std::vector<int>& ranks : replicas) {
      std::vector<float> sums(ranks.size());
      float gradient = 0;
      for (int pass = 0; pass < kPasses; ++pass) {
        std::vector<float> of_pass(ranks.size());
        for (size_t r = 0; r < ranks.size(); ++r) {
          of_pass[r] =
              ComputeGradient(value, ranks[r], step * kPasses + pass, unit, e);
          sums[r] = pass == 0 ? of_pass[r] : sums[r] + of_pass[r];
        }
        const float all = Tree(of_pass, 0, of_pass.size());
        gradient = pass == 0 ? all : gradient + all;
      }
      of_replicas.push_back(passes_first ? Tree(sums, 0, sums.size())
                                         : gradient);
    }
    value -= kRate * Tree(of_replicas, 0, of_replicas.size());
  }
  return value;
}

RankLayout MakeLayout(const MeshOptions& options,
                      const std::vector<UnitSize>& sizes, int rank) {
  RankLayout layout;
  for (const UnitSize& size : sizes) {
    RankUnit unit{.dense_count = size.dense,
                  .expert_count = size.experts,
                  .first_span = static_cast<int>(layout.spans.size())};
    for (const bool is_expert : {false, true}) {
      const int64_t count = is_expert ? size.experts : size.dense;
      if (count == 0) continue;
      ++unit.span_count;
      const MeshDimensions group = is_expert ? kExpertShardGroup : kShardGroup;
      ShardSpan span{.rank_unit = static_cast<int>(layout.units.size()),
                     .is_expert = is_expert,
                     .begin = is_expert ? size.dense : 0,
                     .count = count,
                     .state_begin = layout.state_count};
      if (options.sharding != ShardingMode::kReplicate) {
        span.group_size = options.mesh.size(group);
        span.group_rank = options.mesh.RankIn(rank, group);
      }
      span.shard_count = (count + span.group_size - 1) / span.group_size;
      span.shard_count = (span.shard_count + 15) / 16 * 16;
      layout.state_count += span.shard_count;
      layout.spans.push_back(span);
    }
    layout.units.push_back(std::move(unit));
  }
  return layout;
}

std::unique_ptr<UnitGradients<float>> MakeGradients(ShardingMode sharding,
                                                    const RankLayout& layout,
                                                    int64_t bucket_bytes,
                                                    RankGroups& groups) {
  switch (sharding) {
    case ShardingMode::kReplicate:
      return *MakeBucketedGradients<float>(layout, groups, bucket_bytes,
                                           Plain());
    case ShardingMode::kZero1:
      return *MakeScatteredGradients<float>(layout, groups, Plain());
    default:
      return *MakeGradientsBehind<float>(layout, groups, 2, Plain());
  }
}

class Rank {
 public:
  Rank(const MeshOptions& options, const std::vector<UnitSize>& sizes,
       Collective& world)
      : options_(options),
        sizes_(sizes),
        rank_(world.rank()),
        layout_(MakeLayout(options, sizes, world.rank())),
        groups_(*MakeRankGroups(options, /*tied_table=*/false, world)),
        // Buckets of two or three units.
        gradients_(MakeGradients(options.sharding, layout_, 8000, groups_)) {
    parameters_ =
        options.sharding == ShardingMode::kZero3
            ? *MakeGatheredParameters<float>(layout_, groups_, 2, Plain())
            : *MakeWholeParameters<float>(layout_, groups_, Plain());
  }

  // `start(unit, e)` is an element's initial value.
  template <typename F>
  void Run(const F& start) {
    ForShards(
        [&](float& p, float&, int unit, int64_t e) { p = start(unit, e); });
    ASSERT_TRUE(parameters_->ShardsChanged().ok());
    const int count = static_cast<int>(sizes_.size());
    for (int step = 0; step < kSteps; ++step) {
      for (int pass = 0; pass < kPasses; ++pass) {
        for (int u = count - 1; u >= 0; --u) {
          Backward(u, step * kPasses + pass, pass + 1 == kPasses);
        }
      }
      ASSERT_TRUE(gradients_->Finish().ok());
      ForShards([](float& p, float& g, int, int64_t) { p -= kRate * g; });
      ASSERT_TRUE(parameters_->ShardsChanged().ok());
    }
  }

  // Calls f(value, unit, element) for all that the rank computes with.
  template <typename F>
  void ForParameters(const F& f) {
    for (int u = 0; u < static_cast<int>(sizes_.size()); ++u) {
      const auto parameters = parameters_->Gather(u);
      ASSERT_TRUE(parameters.ok());
      for (int64_t e = 0; e < layout_.units[u].element_count(); ++e) {
        f((*parameters)[e], u, e);
      }
      parameters_->Release(u);
    }
  }

 private:
  void Backward(int u, int pass, bool is_last) {
    if (u > 0) {
      ASSERT_TRUE(parameters_->Prefetch(u - 1).ok());
    }
    const auto parameters = parameters_->Gather(u);
    ASSERT_TRUE(parameters.ok());
    const auto gradient = gradients_->Begin(u);
    ASSERT_TRUE(gradient.ok());
    for (int64_t e = 0; e < layout_.units[u].element_count(); ++e) {
      const float g = ComputeGradient((*parameters)[e], rank_, pass, u, e);
      gradient->data[e] = gradient->accumulate ? gradient->data[e] + g : g;
    }
    ASSERT_TRUE(gradients_->End(u, is_last).ok());
    parameters_->Release(u);
  }

  // Calls f(parameter, gradient, unit, element) for all that the rank keeps.
  template <typename F>
  void ForShards(const F& f) {
    for (size_t s = 0; s < layout_.spans.size(); ++s) {
      const ShardSpan& span = layout_.spans[s];
      for (int64_t i = 0; i < span.shard_count; ++i) {
        const int64_t e = span.group_rank * span.shard_count + i;
        if (e >= span.count) break;
        f(parameters_->shard(static_cast<int>(s))[i],
          gradients_->shard(static_cast<int>(s))[i], span.rank_unit,
          span.begin + e);
      }
    }
  }

  const MeshOptions& options_;
  const std::vector<UnitSize>& sizes_;
  const int rank_;
  const RankLayout layout_;
  RankGroups groups_;
  std::unique_ptr<UnitParameters<float>> parameters_;
  std::unique_ptr<UnitGradients<float>> gradients_;
};

TEST(UnitStoresTest, TrainToTheBitsOfOnePlaceInAllModes) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (const char* name : {"", "dp_shard=2", "dp_shard=3", "dp_shard=2,ep=2",
                           "dp_replicate=2,dp_shard=2", "ep=4"}) {
    for (ShardingMode mode : {ShardingMode::kReplicate, ShardingMode::kZero1,
                              ShardingMode::kZero2, ShardingMode::kZero3}) {
      const MeshOptions options{.mesh = *Mesh::Parse(name), .sharding = mode};
      const bool has_experts = options.mesh.size(MeshDimension::kEp) > 1;
      std::vector<UnitSize> sizes(3 + random() % 4);
      for (UnitSize& size : sizes) {
        size.dense = 1 + random() % 2000;
        size.experts = has_experts && random() % 2 ? 1 + random() % 2000 : 0;
      }
      const auto start = [&](int ep, int unit, int64_t e) {
        // Each rank of an ep group has its own experts.
        const int64_t at = e < sizes[unit].dense ? e : e * 3 + ep;
        return static_cast<float>((at * 29 + unit) % 201) * 0.01f - 1;
      };
      LocalWorld world(options.mesh.rank_count());
      auto members = world.TakeRanks();
      RunRanks(members, [&](int r, std::unique_ptr<Collective>& member) {
        const int ep = options.mesh.Coordinate(r, MeshDimension::kEp);
        Rank rank(options, sizes, *member);
        rank.Run([&](int unit, int64_t e) { return start(ep, unit, e); });
        int64_t wrong = 0;
        rank.ForParameters([&](float value, int unit, int64_t e) {
          const bool is_expert = e >= sizes[unit].dense;
          std::vector<std::vector<int>> replicas;
          for (int copy :
               options.mesh.FindGroup(r, MeshDimension::kDpReplicate)) {
            replicas.push_back(options.mesh.FindGroup(
                copy, is_expert ? kExpertShardGroup : kShardGroup));
          }
          const float expected = Train(
              start(ep, unit, e), replicas, unit, e,
              mode == ShardingMode::kReplicate || mode == ShardingMode::kZero1);
          if (value != expected) ++wrong;
        });
        EXPECT_EQ(wrong, 0) << name << " mode " << static_cast<int>(mode);
      });
    }
  }
}

// A rank's gradients of five units of 4000 bytes, in buckets of two from the
// end. Its world counts calls.
class CountedGradients {
 public:
  CountedGradients(const MeshOptions& options,
                   std::unique_ptr<Collective> world)
      : rank_(world->rank()),
        world_(collective::MakeFaulty(
            std::move(world),
            {.before_call = [this](int64_t) { ++call_count_; }})),
        groups_(*MakeRankGroups(options, /*tied_table=*/false, *world_)),
        layout_(
            MakeLayout(options, std::vector<UnitSize>(5, {1000, 0}), rank_)),
        gradients_(MakeGradients(options.sharding, layout_, 9000, groups_)) {}
  CountedGradients(const CountedGradients&) = delete;
  CountedGradients& operator=(const CountedGradients&) = delete;

  // A pass from the last unit to the first; the calls that each started.
  std::vector<int64_t> Pass(bool is_last) {
    std::vector<int64_t> started;
    for (int u = 4; u >= 0; --u) {
      call_count_ = 0;
      const auto gradient = gradients_->Begin(u);
      EXPECT_TRUE(gradient.ok());
      if (!gradient.ok()) return started;
      std::fill_n(gradient->data, 1000, 1.0f);
      EXPECT_TRUE(gradients_->End(u, is_last).ok());
      started.push_back(call_count_);
    }
    return started;
  }
  int64_t Finish() {
    call_count_ = 0;
    EXPECT_TRUE(gradients_->Finish().ok());
    return call_count_;
  }
  float first() { return gradients_->shard(0)[0]; }

 private:
  int64_t call_count_ = 0;
  const int rank_;
  const std::unique_ptr<Collective> world_;
  RankGroups groups_;
  const RankLayout layout_;
  const std::unique_ptr<UnitGradients<float>> gradients_;
};

TEST(UnitStoresTest, ReductionsBeginBeforeTheBackwardPassEnds) {
  for (ShardingMode mode : {ShardingMode::kReplicate, ShardingMode::kZero1,
                            ShardingMode::kZero2}) {
    const MeshOptions options{.mesh = *Mesh::Parse("dp_shard=1"),
                              .sharding = mode};
    LocalWorld world(1);
    CountedGradients gradients(options, std::move(world.TakeRanks()[0]));
    for (int pass = 0; pass < 2; ++pass) {
      const std::vector<int64_t> started = gradients.Pass(pass == 1);
      if (mode == ShardingMode::kZero2) {
        EXPECT_EQ(started, std::vector<int64_t>({1, 1, 1, 1, 1}));
      } else if (pass == 0) {
        EXPECT_EQ(started, std::vector<int64_t>({0, 0, 0, 0, 0}));
      } else if (mode == ShardingMode::kZero1) {
        EXPECT_EQ(started, std::vector<int64_t>({1, 1, 1, 1, 1}));
      } else {
        EXPECT_EQ(started, std::vector<int64_t>({0, 1, 0, 1, 1}));
      }
    }
    EXPECT_EQ(gradients.Finish(), 0);
  }
}

// Gradients are summed over a group, then over copies. The second sum of a unit
// starts after a later unit's pass, not after the whole backward pass.
TEST(UnitStoresTest, SumsOverReplicasBeginBeforeTheBackwardPassEnds) {
  for (ShardingMode mode : {ShardingMode::kZero1, ShardingMode::kZero2}) {
    const MeshOptions options{.mesh = *Mesh::Parse("dp_replicate=2"),
                              .sharding = mode};
    LocalWorld world(2);
    auto members = world.TakeRanks();
    RunRanks(members, [&](int, std::unique_ptr<Collective>& inner) {
      CountedGradients gradients(options, std::move(inner));
      std::vector<int64_t> started = gradients.Pass(/*is_last=*/true);
      started.push_back(gradients.Finish());
      // Each unit starts its reduction. From the second unit or reuse of a
      // slot, it also starts an earlier sum over copies; Finish starts the
      // rest.
      EXPECT_EQ(started, mode == ShardingMode::kZero1
                             ? std::vector<int64_t>({1, 2, 2, 2, 2, 1})
                             : std::vector<int64_t>({1, 1, 2, 2, 2, 2}));
      EXPECT_EQ(gradients.first(), 2.0f);
    });
  }
}

TEST(UnitStoresTest, BuffersDependOnTheLargestUnitAlone) {
  const MeshOptions options;
  LocalWorld world(1);
  auto members = world.TakeRanks();
  RankGroups groups = *MakeRankGroups(options, false, *members[0]);
  const std::vector<UnitSize> one(1, {1000, 0}), many(40, {1000, 0});
  const RankLayout few = MakeLayout(options, one, 0);
  const RankLayout more = MakeLayout(options, many, 0);
  EXPECT_EQ(
      (*MakeGatheredParameters<float>(few, groups, 2, Plain()))->buffer_bytes(),
      2 * 4 * 1008);
  EXPECT_EQ((*MakeGatheredParameters<float>(more, groups, 2, Plain()))
                ->buffer_bytes(),
            2 * 4 * 1008);
  EXPECT_EQ(
      (*MakeGradientsBehind<float>(more, groups, 2, Plain()))->buffer_bytes(),
      2 * 2 * 4 * 1008);
}

TEST(UnitStoresTest, SaysWhenAllSlotsAreTaken) {
  const MeshOptions options;
  LocalWorld world(1);
  auto members = world.TakeRanks();
  RankGroups groups = *MakeRankGroups(options, false, *members[0]);
  const std::vector<UnitSize> sizes(3, {8, 0});
  const RankLayout layout = MakeLayout(options, sizes, 0);
  auto parameters = *MakeGatheredParameters<float>(layout, groups, 2, Plain());
  EXPECT_TRUE(parameters->Prefetch(0).ok());
  EXPECT_TRUE(parameters->Prefetch(1).ok());
  EXPECT_TRUE(parameters->Prefetch(1).ok());  // Already present.
  EXPECT_EQ(parameters->Gather(2).status().code(),
            absl::StatusCode::kFailedPrecondition);
  parameters->Release(0);
  EXPECT_TRUE(parameters->Gather(2).ok());
}

}  // namespace
}  // namespace atl::engine
