#include "tests/benchmarks/usage.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <string>

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

TEST(UsageTest, APageThatIsWrittenIsInThePageCache) {
  const std::string path = testing::TempDir() + "/page_cache";
  std::ofstream(path, std::ios::binary) << std::string(4 << 20, 'x');
  const PageCache cache = PageCacheBytes();
  EXPECT_GE(cache.cached, 4 << 20);
  EXPECT_GE(cache.dirty, 0);
}

TEST(UsageTest, LoopbackCountsWhatCrossesIt) {
  const int receiver = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  sockaddr* const at = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(receiver, at, size), 0);
  ASSERT_EQ(getsockname(receiver, at, &size), 0);
  const std::string payload(1000, 'x');
  const int64_t before = LoopbackBytes();
  ASSERT_EQ(sendto(receiver, payload.data(), payload.size(), 0, at, size),
            static_cast<ssize_t>(payload.size()));
  EXPECT_GE(LoopbackBytes(), before + 1000);
  close(receiver);
}

TEST(UsageTest, TheCpuHasAName) { EXPECT_NE(CpuName().find("cores"), -1); }

}  // namespace
}  // namespace atl::benchmarks
