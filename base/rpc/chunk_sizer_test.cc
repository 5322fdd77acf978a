#include "base/rpc/chunk_sizer.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

// Sends chunks for `span` at a rate, through a buffer that accepts at once what
// fits. Returns the longest time between two arrivals in the last half of
// `span`.
absl::Duration LongestGap(ChunkSizer& sizer, double bytes_per_second,
                          int64_t buffer_bytes, absl::Duration span) {
  double queued = 0;  // In the buffer.
  absl::Duration now, last, longest;
  while (now < span) {
    const auto bytes = static_cast<double>(sizer.bytes());
    // Accepted when it fits in the buffer, or the buffer is empty.
    const double excess =
        std::max(0.0, queued + bytes - static_cast<double>(buffer_bytes));
    const absl::Duration wait =
        absl::Seconds(std::min(excess, queued) / bytes_per_second);
    queued -= bytes_per_second * absl::ToDoubleSeconds(wait);
    now += wait;
    sizer.Moved(wait);
    queued += bytes;
    const absl::Duration arrival =
        now + absl::Seconds(queued / bytes_per_second);
    if (arrival > span / 2) longest = std::max(longest, arrival - last);
    last = arrival;
  }
  return longest;
}

TEST(ChunkSizerTest, AQuickStreamComesToTheLargestChunkAndStaysThere) {
  ChunkSizer sizer;
  for (int i = 0; i < 24; ++i) sizer.Moved(absl::Milliseconds(1));
  EXPECT_EQ(sizer.bytes(), ChunkSizer::kBytesMax);
  for (int i = 0; i < 100; ++i) sizer.Moved(absl::Milliseconds(20));
  EXPECT_EQ(sizer.bytes(), ChunkSizer::kBytesMax);
}

TEST(ChunkSizerTest, APullsChunksAreSmaller) {
  ChunkSizer sizer(ChunkSizer::kPullBytesMax);
  for (int i = 0; i < 100; ++i) {
    sizer.Moved(absl::ZeroDuration());
    EXPECT_LE(sizer.bytes(), ChunkSizer::kPullBytesMax);
  }
  EXPECT_EQ(sizer.bytes(), ChunkSizer::kPullBytesMax);
}

TEST(ChunkSizerTest, ARoundTripThatEveryChunkWaitsForDoesNotKeepThemSmall) {
  ChunkSizer blind, knowing;
  for (int i = 0; i < 24; ++i) {
    blind.Moved(absl::Milliseconds(60));
    knowing.Moved(absl::Milliseconds(60), absl::Milliseconds(50));
  }
  EXPECT_EQ(blind.bytes(), ChunkSizer::kBytesMin);
  EXPECT_EQ(knowing.bytes(), ChunkSizer::kBytesMax);
  // A slow link is not mistaken for a distant one.
  for (int i = 0; i < 24; ++i) {
    knowing.Moved(absl::Seconds(1), absl::Seconds(1));
  }
  EXPECT_EQ(knowing.bytes(), ChunkSizer::kBytesMin);
}

TEST(ChunkSizerTest, BeginsWithWhatItIsGivenWithinItsBounds) {
  EXPECT_EQ(ChunkSizer(1 << 19, 1 << 17).bytes(), 1 << 17);
  EXPECT_EQ(ChunkSizer(1 << 19, 1 << 30).bytes(), 1 << 19);
  EXPECT_EQ(ChunkSizer(1 << 19, 1).bytes(), ChunkSizer::kBytesMin);
}

TEST(ChunkSizerTest, ABreakHalvesItDownToTheSmallest) {
  ChunkSizer sizer;
  for (int i = 0; i < 10; ++i) sizer.Moved(absl::ZeroDuration());
  const int64_t before = sizer.bytes();
  sizer.Failed();
  EXPECT_EQ(sizer.bytes(), before / 2);
  for (int i = 0; i < 10; ++i) sizer.Failed();
  EXPECT_EQ(sizer.bytes(), ChunkSizer::kBytesMin);
}

TEST(ChunkSizerTest, AFewQuickOnesProveNothing) {
  ChunkSizer sizer;
  for (int i = 0; i < 100; ++i) {
    sizer.Moved(absl::ZeroDuration());
    sizer.Moved(absl::ZeroDuration());
    sizer.Moved(absl::ZeroDuration());
    sizer.Moved(absl::Milliseconds(50));
  }
  EXPECT_EQ(sizer.bytes(), ChunkSizer::kBytesStart);
}

// A watchdog that expects one chunk in 20 s sees far more.
TEST(ChunkSizerTest, ChunksOfASlowStreamComeOften) {
  for (const double rate : {2e3, 2e4, 1e5, 1e6, 1e7}) {
    for (const int64_t buffer : {0, 64 << 10, 512 << 10}) {
      ChunkSizer sizer;
      const absl::Duration gap =
          LongestGap(sizer, rate, buffer, absl::Minutes(20));
      EXPECT_LT(gap, absl::Seconds(10)) << rate << ", " << buffer;
    }
  }
}

}  // namespace
}  // namespace atl::rpc
