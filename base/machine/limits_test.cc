#include "base/machine/limits.h"

#include <sched.h>
#include <unistd.h>

#include <cstdint>

#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(LimitsTest, MemoryIsAtMostTheHosts) {
  EXPECT_GT(MemoryLimitBytes(), 0);
  EXPECT_LE(MemoryLimitBytes(),
            int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
}

TEST(LimitsTest, AnAffinityOfOneProcessorLeavesOne) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(ProcessorCount(), 1);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(ProcessorCount(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace atl
