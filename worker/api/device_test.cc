#include "worker/api/device.h"

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

TEST(DeviceTest, DescribesThisMachine) {
  const v1::Device device = DescribeCpu();
  EXPECT_EQ(device.kind(), "cpu");
  EXPECT_FALSE(device.name().empty());
  // What builds this has a GiB at least.
  EXPECT_GT(device.memory_bytes(), int64_t{1} << 30);
}

}  // namespace
}  // namespace atl::worker
