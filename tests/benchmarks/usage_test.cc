#include "tests/benchmarks/usage.h"

#include <unistd.h>

#include "gtest/gtest.h"
#include "tests/benchmarks/vectors.h"

namespace atl::benchmarks {
namespace {

TEST(UsageTest, ProcessorTimeOfThisProcessGrowsWhileItWorks) {
  const double before = CpuSeconds({getpid()});
  volatile double sink = 0;
  double after = before;
  while (after < before + 0.02) {
    for (int i = 0; i < 100000; ++i) sink = sink + i;
    after = CpuSeconds({getpid()});
  }
  EXPECT_GT(after, before);
}

TEST(UsageTest, AVectorIsSeenInTheAnonymousMemory) {
  const int64_t before = AnonymousBytes(getpid());
  MakeVector(8 << 20);
  EXPECT_GE(AnonymousBytes(getpid()), before + (30 << 20));
}

TEST(UsageTest, TheCpuHasAName) { EXPECT_NE(CpuName().find("cores"), -1); }

}  // namespace
}  // namespace atl::benchmarks
