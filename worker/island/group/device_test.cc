#include "worker/island/group/device.h"

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

TEST(DeviceTest, DescribesThisMachine) {
  const v1::Device device = DescribeCpu();
  EXPECT_EQ(device.kind(), "cpu");
  EXPECT_FALSE(device.name().empty());
  // Every build machine has at least a GiB.
  EXPECT_GT(device.memory_bytes(), int64_t{1} << 30);
}

TEST(DeviceTest, AProcessorCanAlwaysCompute) {
  EXPECT_TRUE(CheckDevice("cpu").ok());
  EXPECT_TRUE(CheckDevice("").ok());
  EXPECT_EQ(CheckDevice("tpu").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DescribeDevice(**engine::OpenDevices({}), 3).kind(), "cpu");
}

TEST(DeviceTest, ATrainerOfTheProcessorIsTheEngines) {
  engine::TrainerOptions options;
  options.thread_count = 0;
  const auto devices = *engine::OpenDevices({});
  EXPECT_EQ(MakeTrainerOn(*devices, options).status(),
            engine::Trainer::Create(options).status());
}

}  // namespace
}  // namespace atl::worker
