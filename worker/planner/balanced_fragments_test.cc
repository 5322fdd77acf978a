#include "worker/planner/balanced_fragments.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

using ::testing::ElementsAre;

// The largest fragment of `fragments`; checks that they are consecutive and
// that none is empty.
int64_t Largest(const std::vector<int64_t>& sizes,
                const std::vector<int32_t>& fragments, int32_t count) {
  std::vector<int64_t> sums(count, 0);
  EXPECT_EQ(fragments.size(), sizes.size());
  EXPECT_EQ(fragments.front(), 0);
  EXPECT_EQ(fragments.back(), count - 1);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) {
      EXPECT_GE(fragments[i], fragments[i - 1]);
      EXPECT_LE(fragments[i], fragments[i - 1] + 1);
    }
    sums[fragments[i]] += sizes[i];
  }
  return *std::max_element(sums.begin(), sums.end());
}

// The smallest possible largest part of sizes[begin:], cut into `count` parts.
int64_t Best(const std::vector<int64_t>& sizes, size_t begin, int32_t count) {
  int64_t sum = 0;
  if (count == 1) {
    for (size_t i = begin; i < sizes.size(); ++i) sum += sizes[i];
    return sum;
  }
  int64_t best = INT64_MAX;
  for (size_t end = begin + 1; end + count - 1 <= sizes.size(); ++end) {
    sum += sizes[end - 1];
    best = std::min(best, std::max(sum, Best(sizes, end, count - 1)));
  }
  return best;
}

TEST(BalancedFragmentsTest, CutsWhereFragmentsBecomeSimilar) {
  EXPECT_THAT(BalancedFragments({4, 4, 5, 5}, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(BalancedFragments({5}, 1), ElementsAre(0));
  EXPECT_THAT(BalancedFragments({9, 1, 1}, 3), ElementsAre(0, 1, 2));
}

TEST(BalancedFragmentsTest, TheLargestFragmentIsAsSmallAsPossible) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937 random(seed);
  for (int i = 0; i < 500; ++i) {
    std::vector<int64_t> sizes(1 + random() % 8);
    for (int64_t& size : sizes) size = random() % 20;
    const auto count = static_cast<int32_t>(1 + random() % sizes.size());
    EXPECT_EQ(Largest(sizes, BalancedFragments(sizes, count), count),
              Best(sizes, 0, count));
  }
}

}  // namespace
}  // namespace atl::worker
