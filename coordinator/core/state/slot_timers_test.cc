#include "coordinator/core/state/slot_timers.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

TEST(SlotTimersTest, FindWhatAScanOfAllSlotsFinds) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  SlotTimers timers;
  std::map<int32_t, absl::Time> plain;
  for (int step = 0; step < 5000; ++step) {
    const auto slot = static_cast<int32_t>(random() % 20);
    const absl::Time time = absl::FromUnixSeconds(random() % 50);
    switch (random() % 8) {
      case 0:
        timers.Set(slot, absl::InfiniteFuture());
        plain.erase(slot);
        break;
      case 1:
        timers.Delay(absl::Seconds(3));
        for (auto& [other, end] : plain) end += absl::Seconds(3);
        break;
      default:
        timers.Set(slot, time);
        plain[slot] = time;
    }
    absl::Time earliest = absl::InfiniteFuture();
    std::vector<int32_t> due;
    for (const auto& [other, end] : plain) {
      earliest = std::min(earliest, end);
      if (end <= time) due.push_back(other);
      ASSERT_EQ(timers.Find(other), end);
    }
    ASSERT_EQ(timers.Earliest(), earliest) << "step " << step;
    ASSERT_EQ(timers.ListDue(time), due) << "step " << step;
    ASSERT_EQ(timers.size(), plain.size());
  }
  EXPECT_EQ(timers.Find(1000), absl::InfiniteFuture());
}

}  // namespace
}  // namespace atl::coordinator
