// A start reads a bounded part of the log, however many rounds a run has had,
// and readers find every round.

#include "coordinator/service/testing/long_run.h"

#include "coordinator/service/event_loop.h"
#include "coordinator/store/testing/memory_store.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

int64_t RecordsBehindSnapshot(const Store& store) {
  const auto snapshot = store.ReadSnapshot("run");
  EXPECT_TRUE(snapshot.ok() && snapshot->has_value());
  const int64_t revision = (*snapshot)->revision();
  return static_cast<int64_t>(store.Scan("run", revision, 1 << 20)->size());
}

TEST(LongRunTest, StartsFromABoundedPartOfTheLog) {
  CoordinatorOptions options;
  options.snapshots.log_records_max = 100;
  MemoryLogStore store;
  constexpr int64_t kRounds = 500;
  ASSERT_TRUE(WriteLongRun(options, 3, kRounds, store).ok());
  // A round makes three records. A snapshot has several kilobytes of outcomes
  // and points, so one is written less often than every hundred records.
  EXPECT_LT(RecordsBehindSnapshot(store), 600);
  EXPECT_LT(store.Scan("run", 0, 1 << 20)->size(), 1200u);

  EventLoop::Spec spec;
  spec.store = &store;
  spec.clock = &SystemClock();
  spec.coordinator = options;
  const auto loop = EventLoop::Start(spec);
  ASSERT_TRUE(loop.ok()) << loop.status();
  (*loop)->Stop();
  const auto rounds =
      store.ReadHistory("run", HistoryTable::kRounds, 1, 1 << 20, 1 << 30);
  ASSERT_EQ(rounds->size(), kRounds);
  EXPECT_EQ(rounds->back().number, kRounds);
}

TEST(LongRunTest, ASnapshotStopsGrowingWithTheRounds) {
  CoordinatorOptions options;
  options.snapshots.log_records_max = 100;
  const auto size_after = [&](int64_t round_count) {
    MemoryLogStore store;
    EXPECT_TRUE(WriteLongRun(options, 1, round_count, store).ok());
    return (*store.ReadSnapshot("run"))->ByteSizeLong();
  };
  // The 4096 points of two series fill up last.
  const size_t full = size_after(kMetricPointsMax + 1000);
  const size_t later = size_after(kMetricPointsMax + 4000);
  EXPECT_NEAR(later, full, 0.02 * full);
}

}  // namespace
}  // namespace atl::coordinator
