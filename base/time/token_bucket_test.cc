#include "base/time/token_bucket.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace atl {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

// Bytes moved at a time; in order of time.
using Moves = std::vector<std::pair<absl::Time, int64_t>>;

// The most bytes moved in any `span`.
int64_t MostIn(const Moves& moves, absl::Duration span) {
  int64_t most = 0, sum = 0;
  size_t first = 0;
  for (const auto& [time, bytes] : moves) {
    sum += bytes;
    while (moves[first].first < time - span) sum -= moves[first++].second;
    most = std::max(most, sum);
  }
  return most;
}

class TokenBucketTest : public ::testing::Test {
 protected:
  TokenBucketTest() : seed_(std::random_device{}()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
  }

  int64_t Random(int64_t min, int64_t max) {
    return std::uniform_int_distribution<int64_t>(min, max)(random_);
  }

  // `stream_count` streams that always have more to send, for `span`. Each
  // takes, waits, wakes up to `late_max` late, sends, takes again.
  Moves Saturate(TokenBucket& bucket, int stream_count, int64_t take_max,
                 absl::Duration late_max, absl::Duration span) {
    struct Stream {
      absl::Time wakes;
      int64_t bytes;
    };
    std::vector<Stream> streams;
    for (int i = 0; i < stream_count; ++i) {
      const int64_t bytes = Random(take_max / 4, take_max);
      streams.push_back({bucket.Take(bytes, kStart), bytes});
    }
    Moves moves;
    while (true) {
      auto next = std::min_element(
          streams.begin(), streams.end(),
          [](const Stream& a, const Stream& b) { return a.wakes < b.wakes; });
      const absl::Time now = next->wakes;
      if (now > kStart + span) return moves;
      moves.push_back({now, next->bytes});
      next->bytes = Random(take_max / 4, take_max);
      next->wakes =
          bucket.Take(next->bytes, now) +
          absl::Microseconds(Random(0, absl::ToInt64Microseconds(late_max)));
    }
  }

  const uint32_t seed_;
  std::mt19937_64 random_;
};

TEST_F(TokenBucketTest, WhatIsTakenOneByOneMovesAtTheRate) {
  TokenBucket bucket(1000, absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(100, kStart), kStart);
  EXPECT_EQ(bucket.Take(300, kStart), kStart + absl::Milliseconds(100));
  EXPECT_EQ(bucket.Take(0, kStart), kStart + absl::Milliseconds(400));
  EXPECT_EQ(bucket.Take(1, kStart), kStart + absl::Milliseconds(400));
}

TEST_F(TokenBucketTest, IdleTimeIsMadeUpForAsFarAsTheCreditGoes) {
  TokenBucket bucket(1000, absl::Milliseconds(50));
  bucket.Take(100, kStart);
  const absl::Time late = kStart + absl::Seconds(10);
  EXPECT_EQ(bucket.Take(50, late), late);
  EXPECT_EQ(bucket.Take(50, late), late);
  EXPECT_EQ(bucket.Take(1, late), late + absl::Milliseconds(50));
}

TEST_F(TokenBucketTest, WhatDoesNotMoveIsGivenBack) {
  TokenBucket bucket(1000, absl::ZeroDuration());
  bucket.Take(500, kStart);
  bucket.GiveBack(200);
  EXPECT_EQ(bucket.Take(1, kStart), kStart + absl::Milliseconds(300));
}

TEST_F(TokenBucketTest, AClockThatGoesBackChangesNothing) {
  TokenBucket bucket(1000, absl::ZeroDuration());
  bucket.Take(500, kStart);
  EXPECT_EQ(bucket.Take(1, kStart - absl::Hours(1)),
            kStart + absl::Milliseconds(500));
}

// The guarantee of a cap: within 5 % over any few seconds, with any sharing.
TEST_F(TokenBucketTest, AnyThreeSecondsOfManyStreamsAreWithinFivePercent) {
  for (int trial = 0; trial < 20; ++trial) {
    const double rate = std::exp2(Random(18, 32));
    // As a sender takes: a fortieth of a second.
    const auto take_max = static_cast<int64_t>(rate / 40);
    const int stream_count = static_cast<int>(Random(1, 12));
    TokenBucket bucket(rate, absl::Milliseconds(50));
    const Moves moves = Saturate(bucket, stream_count, take_max,
                                 absl::Milliseconds(20), absl::Seconds(20));
    const double most = static_cast<double>(MostIn(moves, absl::Seconds(3)));
    EXPECT_LE(most, 1.05 * 3 * rate) << rate << ", " << stream_count;
    int64_t sum = 0;
    for (const auto& [time, bytes] : moves) sum += bytes;
    // The rate is used up although every timer is late.
    EXPECT_GE(static_cast<double>(sum), 0.95 * 20 * rate)
        << rate << ", " << stream_count;
  }
}

TEST_F(TokenBucketTest, TheBoundOfTheHeaderHoldsForAnyTraffic) {
  for (int trial = 0; trial < 50; ++trial) {
    const double rate = 1000.0 * static_cast<double>(Random(1, 1000));
    const absl::Duration credit = absl::Milliseconds(Random(0, 500));
    TokenBucket bucket(rate, credit);
    Moves moves;
    absl::Time now = kStart;
    int64_t largest = 0;
    for (int i = 0; i < 500; ++i) {
      if (Random(0, 3) == 0) now += absl::Milliseconds(Random(0, 1000));
      const int64_t bytes = Random(0, 100000);
      const absl::Time when = bucket.Take(bytes, now);
      ASSERT_GE(when, now);
      if (Random(0, 9) == 0) {
        bucket.GiveBack(bytes);
        continue;
      }
      largest = std::max(largest, bytes);
      moves.push_back({when, bytes});
    }
    std::sort(moves.begin(), moves.end());
    for (const absl::Duration span :
         {absl::Milliseconds(10), absl::Seconds(1), absl::Seconds(7)}) {
      EXPECT_LE(static_cast<double>(MostIn(moves, span)),
                rate * absl::ToDoubleSeconds(span + credit) +
                    static_cast<double>(largest) + 1);
    }
  }
}

}  // namespace
}  // namespace atl
