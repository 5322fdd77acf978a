#include "server/core/released_reads.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr int kMax = ReleasedReads::kVersionCountMax;

class ReleasedReadsTest : public testing::Test {
 protected:
  // A reader's number is its version times ten, plus `which`.
  void Read(int64_t version, const std::string& caller, int which = 0) {
    reads_.Begin(10 * version + which, version, caller);
  }
  std::vector<int64_t> Release(int64_t version) {
    return reads_.OnReleased(version).readers;
  }

  ReleasedReads reads_;
};

using Readers = std::vector<int64_t>;

TEST_F(ReleasedReadsTest, AFewReleasedVersionsAreReadOn) {
  for (int64_t v = 1; v <= 20; ++v) {
    Read(v, "a");
    // A finished reader no longer holds its version.
    if (v > kMax) reads_.End(10 * (v - kMax));
    EXPECT_EQ(Release(v), Readers());
  }
}

TEST_F(ReleasedReadsTest, WhatIsNotReleasedOrNotReadCountsForNothing) {
  for (int64_t v = 1; v <= 20; ++v) {
    if (v % 2 == 0) Read(v, "a");
    EXPECT_EQ(v % 2 == 0 ? Readers() : Release(v), Readers());
  }
}

TEST_F(ReleasedReadsTest, OfEqualsTheNewestStartsOver) {
  for (int64_t v = 1; v <= kMax; ++v) {
    Read(v, std::string(1, static_cast<char>('a' + v)));
    EXPECT_EQ(Release(v), Readers());
  }
  Read(9, "late", 1);
  Read(9, "late", 2);
  EXPECT_EQ(Release(9), Readers({91, 92}));
  // They are named once. Until they end, no other version is given up for them.
  reads_.End(10);
  Read(11, "next");
  EXPECT_EQ(Release(11), Readers());
  reads_.End(91);
  reads_.End(92);
  Read(12, "more");
  EXPECT_EQ(Release(12), Readers({120}));
}

TEST_F(ReleasedReadsTest, WhoReadsAllOfThemKeepsNoneFromOthers) {
  Read(1, "honest", 1);
  for (int64_t v = 1; v <= kMax; ++v) {
    Read(v, "greedy");
    EXPECT_EQ(Release(v), Readers());
  }
  for (int64_t v = kMax + 1; v <= 30; ++v) {
    Read(v, "greedy");
    EXPECT_EQ(Release(v), Readers({10 * v}));
    reads_.End(10 * v);
  }
  // Another reader displaces one of the greedy caller's, and not the first.
  Read(31, "other", 1);
  EXPECT_EQ(Release(31), Readers({10 * kMax}));
}

TEST_F(ReleasedReadsTest, NeverAreMoreReadOnThanTheBound) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::map<int64_t, int64_t> late;  // Released versions by reader.
  std::map<int64_t, int64_t> fresh;
  int64_t version = 0, reader = 0;
  for (int step = 0; step < 3000; ++step) {
    if (random() % 3 != 0) {
      fresh[++reader] = version;
      reads_.Begin(reader, version,
                   std::string(1, static_cast<char>('a' + random() % 4)));
    }
    if (random() % 5 == 0 && !late.empty()) {
      const auto it = std::next(late.begin(), random() % late.size());
      reads_.End(it->first);
      late.erase(it);
    }
    if (random() % 4 != 0) continue;
    late.merge(fresh);
    fresh.clear();
    for (const int64_t one : Release(version++)) {
      ASSERT_EQ(late.count(one), 1u);
      late.erase(one);
      if (random() % 2 == 0) reads_.End(one);
    }
    std::map<int64_t, int> versions;
    for (const auto& [one, number] : late) ++versions[number];
    ASSERT_LE(versions.size(), static_cast<size_t>(kMax));
  }
}

}  // namespace
}  // namespace atl::server
