#include "worker/engine/device/devices.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/collective/local/local_world.h"

namespace atl::engine {
namespace {

TEST(DevicesTest, TheProcessorComputesInTheHostsMemory) {
  auto devices = OpenDevices({});
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ((*devices)->kind(), DeviceKind::kCpu);
  EXPECT_TRUE((*devices)->CheckRanks(0, 64).ok());
  auto ops = (*devices)->MakeOps(0, ComputeType::kF32, 1);
  ASSERT_TRUE(ops.ok()) << ops.status();
  EXPECT_TRUE((*ops)->memory().is_host());
  collective::LocalWorld world(1);
  auto ranks = world.TakeRanks();
  const auto own = (*devices)->JoinWorld(*ranks[0], **ops);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(*own, nullptr);
}

// Both without CUDA in the build, and with it on a machine without a device.
TEST(DevicesTest, WithoutADeviceItSaysWhatIsMissingAndWhatToDo) {
  const auto devices = OpenDevices({.kind = DeviceKind::kCuda});
  if (devices.ok()) GTEST_SKIP() << "there is a device here";
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(devices.status().message());
  EXPECT_TRUE(absl::StrContains(message, "--config=cuda") ||
              absl::StrContains(message, "driver"))
      << message;
}

}  // namespace
}  // namespace atl::engine
