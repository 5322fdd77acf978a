#include "worker/api/device.h"

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

TEST(DeviceTest, TakesTheFirstModelName) {
  EXPECT_EQ(CpuModelName("processor\t: 0\nmodel name\t: A CPU @ 2: 3 GHz \n"
                         "processor\t: 1\nmodel name\t: Another\n"),
            "A CPU @ 2: 3 GHz");
}

TEST(DeviceTest, SaysCpuWhereTheSystemDoesNot) {
  EXPECT_EQ(CpuModelName(""), "cpu");
  EXPECT_EQ(CpuModelName("model name\t:\nmodel names : x\n"), "cpu");
}

TEST(DeviceTest, BoundsTheName) {
  EXPECT_EQ(CpuModelName("model name : " + std::string(1000, 'x')).size(),
            128u);
}

TEST(DeviceTest, DescribesThisMachine) {
  const v1::Device device = DescribeCpu();
  EXPECT_EQ(device.kind(), "cpu");
  EXPECT_FALSE(device.name().empty());
  // What builds this has a GiB at least.
  EXPECT_GT(device.memory_bytes(), int64_t{1} << 30);
}

}  // namespace
}  // namespace atl::worker
