#include "worker/engine/parallel/flat_shard.h"

#include <iostream>
#include <numeric>
#include <random>

#include "gtest/gtest.h"

namespace atl::engine {
namespace {

class FlatShardTest : public testing::Test {
 protected:
  FlatShardTest() : seed_(std::random_device()()), random_(seed_) {
    std::cout << "seed " << seed_ << "\n";
  }
  FlatShards RandomShards(int group_size) {
    std::vector<int64_t> counts(1 + random_() % 6);
    for (int64_t& count : counts) count = 1 + random_() % 400;
    return *FlatShards::Create(counts, group_size);
  }
  const uint32_t seed_;
  std::mt19937 random_;
};

TEST_F(FlatShardTest, EachElementHasOneOwnerAndOnePlace) {
  for (int group = 1; group <= 9; ++group) {
    const FlatShards shards = RandomShards(group);
    std::vector<int> owners(shards.element_count(), -1);
    for (int rank = 0; rank < group; ++rank) {
      for (const ElementRange& range : shards.Owned(rank)) {
        for (int64_t e = range.begin; e < range.end; ++e) {
          ASSERT_EQ(owners[e], -1);
          owners[e] = rank;
        }
      }
    }
    for (int64_t e = 0; e < shards.element_count(); ++e) {
      ASSERT_EQ(shards.PlaceOf(e).rank, owners[e]) << e;
    }
  }
}

TEST_F(FlatShardTest, ShardsOfAllRanksOneAfterTheOtherAreTheUnit) {
  for (int group = 1; group <= 5; ++group) {
    const FlatShards shards = RandomShards(group);
    std::vector<float> model(shards.element_count());
    std::iota(model.begin(), model.end(), 1.0f);
    std::vector<float> restored(model.size());
    std::vector<std::vector<float>> kept;
    for (int rank = 0; rank < group; ++rank) {
      kept.emplace_back(shards.kept_count(), -1.0f);
      shards.Keep(rank, model, absl::MakeSpan(kept.back()));
      shards.Restore(rank, kept.back(), absl::MakeSpan(restored));
    }
    EXPECT_EQ(restored, model);
    for (const FlatShards::Unit& unit : shards.units()) {
      ASSERT_EQ(unit.shard_count % FlatShards::kShardAlignment, 0);
      ASSERT_LE(unit.shard_count, shards.shard_count_max());
      for (int64_t i = 0; i < unit.shard_count * group; ++i) {
        const float value =
            kept[i / unit.shard_count][unit.shard_begin + i % unit.shard_count];
        ASSERT_EQ(value, i < unit.element_count ? model[unit.begin + i] : 0);
      }
    }
    for (int i = 0; i < 50; ++i) {
      const int64_t e = random_() % shards.element_count();
      const FlatShards::Place place = shards.PlaceOf(e);
      ASSERT_EQ(kept[place.rank][place.offset], model[e]);
    }
  }
}

TEST_F(FlatShardTest, PadsNoMoreThanALineARankAndUnit) {
  const FlatShards shards = *FlatShards::Create({1000, 17, 1}, 4);
  EXPECT_EQ(shards.units()[0].shard_count, 256);  // 250, rounded up to 16.
  EXPECT_EQ(shards.units()[1].shard_count, 16);
  EXPECT_EQ(shards.kept_count(), 288);
  EXPECT_EQ(shards.gathered_count_max(), 1024);
  EXPECT_EQ(shards.OwnedOf(0, 3), (ElementRange{768, 1000}));
  EXPECT_EQ(shards.OwnedOf(1, 1), (ElementRange{1016, 1017}));
  EXPECT_EQ(shards.OwnedOf(2, 3).size(), 0);
  // With one rank all is one range.
  EXPECT_EQ(FlatShards::Create({10, 20}, 1)->Owned(0),
            (std::vector<ElementRange>{{0, 30}}));
}

TEST_F(FlatShardTest, BucketsCoverTheModelFromItsEnd) {
  const auto buckets = *MakeGradientBuckets({5, 3, 4, 9, 2}, 8);
  ASSERT_EQ(buckets.size(), 4);
  EXPECT_EQ(buckets[0].elements, (ElementRange{21, 23}));
  EXPECT_EQ(buckets[1].elements,
            (ElementRange{12, 21}));  // Too long by itself.
  EXPECT_EQ(buckets[2].elements, (ElementRange{5, 12}));
  EXPECT_EQ(buckets[2].first_parameter, 1);
  EXPECT_EQ(buckets[2].parameter_count, 2);
  EXPECT_EQ(buckets[3].elements, (ElementRange{0, 5}));
  for (int i = 0; i < 100; ++i) {
    std::vector<int64_t> counts(1 + random_() % 20);
    for (int64_t& count : counts) count = 1 + random_() % 30;
    const int64_t limit = 1 + random_() % 60;
    const auto random = *MakeGradientBuckets(counts, limit);
    int64_t end = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    int parameters_end = static_cast<int>(counts.size());
    for (const GradientBucket& bucket : random) {
      ASSERT_EQ(bucket.elements.end, end);
      ASSERT_EQ(bucket.first_parameter + bucket.parameter_count,
                parameters_end);
      ASSERT_TRUE(bucket.elements.size() <= limit ||
                  bucket.parameter_count == 1);
      end = bucket.elements.begin;
      parameters_end = bucket.first_parameter;
    }
    ASSERT_EQ(end, 0);
    ASSERT_EQ(parameters_end, 0);
  }
}

TEST_F(FlatShardTest, RefusesWhatHasNoElements) {
  EXPECT_FALSE(FlatShards::Create({}, 2).ok());
  EXPECT_FALSE(FlatShards::Create({0}, 2).ok());
  EXPECT_FALSE(FlatShards::Create({1}, 0).ok());
  EXPECT_FALSE(MakeGradientBuckets({1}, 0).ok());
  EXPECT_FALSE(MakeGradientBuckets({1, 0}, 1).ok());
}

}  // namespace
}  // namespace atl::engine
