#include "worker/data/windows.h"

#include <iostream>
#include <random>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

uint64_t Seed() {
  std::random_device device;
  const uint64_t seed = (uint64_t{device()} << 32) | device();
  std::cout << "seed " << seed << "\n";
  return seed;
}

TEST(PermutationTest, HitsEveryValueOnce) {
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 200; ++i) {
    const uint64_t size = 1 + random() % (i < 100 ? 20 : 5000);
    const Permutation permutation(random(), size);
    std::vector<bool> seen(size, false);
    for (uint64_t rank = 0; rank < size; ++rank) {
      const uint64_t value = permutation(rank);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[value]);
      seen[value] = true;
    }
  }
}

TEST(PermutationTest, DependsOnTheKey) {
  const Permutation a(1, 1000), b(2, 1000);
  int same = 0;
  for (uint64_t rank = 0; rank < 1000; ++rank) same += a(rank) == b(rank);
  EXPECT_LT(same, 20);
}

TEST(WindowOrderTest, AnEpochReadsNoTargetTwice) {
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 100; ++i) {
    const int64_t length = 1 + random() % 40;
    const int64_t n = length + 1 + random() % 3000;
    const auto order = WindowOrder::Create(random(), 3, n, length);
    ASSERT_TRUE(order.ok());
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<bool> read(n, false);
      for (int64_t w = 0; w < order->windows_per_epoch(); ++w) {
        const int64_t offset =
            order->Offset(epoch * order->windows_per_epoch() + w);
        ASSERT_GE(offset, 0);
        ASSERT_LE(offset + length + 1, n);
        for (int64_t t = offset; t < offset + length; ++t) {
          ASSERT_FALSE(read[t]);
          read[t] = true;
        }
      }
    }
  }
}

TEST(WindowOrderTest, EpochsAndDataShardsDiffer) {
  const auto a = WindowOrder::Create(7, 0, 100000, 16);
  const auto b = WindowOrder::Create(7, 1, 100000, 16);
  const int64_t epoch = a->windows_per_epoch();
  int same_shard = 0, same_epoch = 0;
  for (int64_t p = 0; p < 1000; ++p) {
    same_shard += a->Offset(p) == b->Offset(p);
    same_epoch += a->Offset(p) == a->Offset(p + epoch);
  }
  EXPECT_LT(same_shard, 10);
  EXPECT_LT(same_epoch, 10);
}

TEST(WindowOrderTest, IsWhatItWas) {
  // Runs of older programs must continue with the same windows.
  const auto order = WindowOrder::Create(42, 1, 5000, 128);
  ASSERT_TRUE(order.ok());
  EXPECT_EQ(order->windows_per_epoch(), 38);
  std::vector<int64_t> offsets;
  for (int64_t p : {0, 1, 2, 37, 38, 1000}) offsets.push_back(order->Offset(p));
  EXPECT_EQ(offsets, (std::vector<int64_t>{1649, 2801, 2673, 3697, 1497, 98}));
}

TEST(WindowOrderTest, RefusesADataShardThatIsTooShort) {
  const auto order = WindowOrder::Create(1, 0, 128, 128);
  EXPECT_EQ(order.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(WindowOrder::Create(1, 0, 129, 128).ok());
}

std::vector<WindowGroup> RandomGroups(std::mt19937_64& random, int64_t length) {
  std::vector<WindowGroup> groups;
  int64_t begin = static_cast<int64_t>(random() % 1000);
  for (int32_t i = 0, count = 1 + random() % 12; i < count; ++i) {
    const int64_t size =
        length + 1 + static_cast<int64_t>(random() % (10 * length));
    groups.push_back({static_cast<int32_t>(3 * i), {begin, begin + size}, ""});
    begin += size + static_cast<int64_t>(random() % 100);
  }
  return groups;
}

TEST(ShardOrderTest, ReadsGroupAfterGroupEachInItsOwnOrder) {
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 100; ++i) {
    const int64_t length = 1 + random() % 40;
    const uint64_t seed = random();
    const std::vector<WindowGroup> groups = RandomGroups(random, length);
    const auto order = ShardOrder::Create(seed, groups, length);
    ASSERT_TRUE(order.ok());
    // The plain model: walks from position 0.
    int64_t position = 0;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (const WindowGroup& group : groups) {
        const auto own =
            WindowOrder::Create(seed, group.key, group.tokens.size(), length);
        for (int64_t w = 0; w < own->windows_per_epoch(); ++w) {
          ASSERT_EQ(order->Offset(position),
                    group.tokens.begin +
                        own->Offset(epoch * own->windows_per_epoch() + w));
          ++position;
        }
      }
      ASSERT_EQ(position, (epoch + 1) * order->windows_per_epoch());
    }
  }
}

TEST(ShardOrderTest, AnEpochReadsEveryWindowOnce) {
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 50; ++i) {
    const int64_t length = 1 + random() % 40;
    const std::vector<WindowGroup> groups = RandomGroups(random, length);
    const auto order = ShardOrder::Create(random(), groups, length);
    const int64_t epoch = random() % 1000;
    std::set<int64_t> read;
    for (int64_t w = 0; w < order->windows_per_epoch(); ++w) {
      const int64_t offset =
          order->Offset(epoch * order->windows_per_epoch() + w);
      ASSERT_TRUE(read.insert(offset).second);
      bool inside = false;
      for (const WindowGroup& group : groups) {
        inside = inside || (offset >= group.tokens.begin &&
                            offset + length + 1 <= group.tokens.end);
      }
      ASSERT_TRUE(inside);
    }
    ASSERT_EQ(static_cast<int64_t>(read.size()), order->windows_per_epoch());
    // Windows of a group are adjacent: no two overlap in a target.
    const WindowGroup* group = groups.data();
    int64_t last = -1;
    for (const int64_t offset : read) {
      if (offset >= group->tokens.end) {
        ++group;
        last = -1;
      }
      ASSERT_TRUE(last < 0 || offset == last + length);
      last = offset;
    }
  }
}

TEST(ShardOrderTest, OneGroupIsAWindowOrder) {
  const auto order = ShardOrder::Create(42, {{1, {700, 5700}, ""}}, 128);
  ASSERT_TRUE(order.ok());
  std::vector<int64_t> offsets;
  for (int64_t p : {0, 1, 2, 37, 38, 1000}) {
    offsets.push_back(order->Offset(p) - 700);
  }
  EXPECT_EQ(offsets, (std::vector<int64_t>{1649, 2801, 2673, 3697, 1497, 98}));
}

TEST(ShardOrderTest, NamesAGroupThatIsTooShort) {
  const auto order = ShardOrder::Create(
      1, {{0, {0, 100}, "file a"}, {1, {100, 109}, "file b"}}, 9);
  EXPECT_EQ(order.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(order.status().message().find("file b: there are 9 tokens"), 0u);
}

TEST(EvaluationOffsetsTest, SpreadEvenlyAndStayInside) {
  const std::vector<int64_t> offsets = EvaluationOffsets(1001, 10, 20);
  ASSERT_EQ(offsets.size(), 20);
  EXPECT_EQ(offsets[0], 0);
  EXPECT_EQ(offsets[1], 50);
  EXPECT_LE(offsets.back() + 11, 1001);
  EXPECT_EQ(EvaluationOffsets(35, 10, 20).size(), 3);
  EXPECT_TRUE(EvaluationOffsets(10, 10, 20).empty());
}

}  // namespace
}  // namespace atl::worker
