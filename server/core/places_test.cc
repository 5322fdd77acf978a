#include "server/core/places.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

class PlacesTest : public testing::Test {
 protected:
  // Takes one more place for `caller`. The displaced holder ends at once.
  bool Take(const std::string& caller) {
    const Places::Answer answer = places_.Take(++last_, caller);
    if (answer.displaced.has_value()) {
      displaced_.push_back(*answer.displaced);
      Forget(*answer.displaced);
      places_.Remove(*answer.displaced);
    }
    if (answer.is_taken) held_[caller].insert(last_);
    return answer.is_taken;
  }
  void Remove(int64_t holder) {
    Forget(holder);
    places_.Remove(holder);
  }
  size_t Count(const std::string& caller) { return held_[caller].size(); }
  void Forget(int64_t holder) {
    for (auto& [caller, holders] : held_) holders.erase(holder);
  }

  Places places_{8};
  int64_t last_ = 0;
  std::map<std::string, std::set<int64_t>> held_;
  std::vector<int64_t> displaced_;
};

TEST_F(PlacesTest, OneCallerAloneMayHaveAllAndNoMore) {
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Take("a"));
  EXPECT_FALSE(Take("a"));
  EXPECT_TRUE(displaced_.empty());
  Remove(1);
  EXPECT_TRUE(Take("a"));
}

TEST_F(PlacesTest, WhoHasLeastTakesTheNewestPlacesOfWhoHasMostUpToAShare) {
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Take("a"));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Take("b"));
  EXPECT_EQ(displaced_, std::vector<int64_t>({8, 7, 6, 5}));
  EXPECT_FALSE(Take("b"));
  EXPECT_FALSE(Take("a"));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Take("c"));
  EXPECT_EQ(Count("a"), 3u);
  EXPECT_EQ(Count("b"), 3u);
  EXPECT_FALSE(Take("c"));
}

TEST_F(PlacesTest, CallersBeyondThePlacesWaitForTheirTurn) {
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Take(std::to_string(i)));
  EXPECT_FALSE(Take("late"));
  EXPECT_TRUE(displaced_.empty());
  Remove(3);
  EXPECT_TRUE(Take("late"));
}

TEST_F(PlacesTest, OneThatLeavesItsPlaceCountsForNobody) {
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Take("a"));
  places_.Leave(2);
  places_.Leave(2);
  EXPECT_TRUE(Take("b"));
  EXPECT_TRUE(displaced_.empty());
  // Its place is already lost.
  Remove(2);
  EXPECT_TRUE(Take("c"));
  EXPECT_EQ(displaced_.size(), 1u);
}

TEST_F(PlacesTest, FewAreGoingAtATime) {
  for (int64_t holder = 1; holder <= 8; ++holder) places_.Take(holder, "a");
  EXPECT_EQ(places_.Take(9, "b").displaced, 8);
  EXPECT_EQ(places_.Take(10, "c").displaced, 7);
  EXPECT_FALSE(places_.Take(11, "d").is_taken);
  places_.Remove(8);
  EXPECT_EQ(places_.Take(12, "d").displaced, 6);
}

// Compared with the rule stated over a plain map.
TEST_F(PlacesTest, NobodyIsRefusedForWhoHasMoreThanAShare) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int step = 0; step < 3000; ++step) {
    const std::string caller(1, static_cast<char>('a' + random() % 5));
    std::map<std::string, size_t> before;
    size_t most = 0, total = 0;
    for (const auto& [name, holders] : held_) {
      before[name] = holders.size();
      most = std::max(most, holders.size());
      total += holders.size();
    }
    if (random() % 3 == 0 && total > 0) {
      auto it = held_.begin();
      while (it->second.empty()) ++it;
      Remove(*it->second.begin());
      continue;
    }
    displaced_.clear();
    const bool is_full = total == 8;
    EXPECT_EQ(Take(caller), !is_full || before[caller] + 1 < most);
    EXPECT_EQ(displaced_.size(),
              is_full && before[caller] + 1 < most ? 1u : 0u);
    for (const auto& [name, count] : before) {
      // A displaced caller keeps at least as many as the newcomer then has.
      if (Count(name) < count) {
        EXPECT_EQ(count, most);
        EXPECT_GE(Count(name), Count(caller));
      }
    }
  }
}

}  // namespace
}  // namespace atl::server
