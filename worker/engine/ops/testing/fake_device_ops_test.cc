#include "worker/engine/ops/testing/fake_device_ops.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/ops/testing/op_cases.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

TEST(FakeDeviceOpsTest, EveryOperationFindsItsMemory) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  for (const OpCase& op_case : MakeOpCases({.seed = seed, .small = true})) {
    FakeDeviceOps<float> ops;
    PlainOps<float> plain;
    // PlainOps may exceed a tolerance that is meant for fast implementations.
    EXPECT_EQ(HoldOpCase(op_case, ops), HoldOpCase(op_case, plain))
        << op_case.name;
  }
}

TEST(FakeDeviceOpsTest, CopiesThereAndBack) {
  FakeDeviceOps<float> ops;
  const std::vector<float> values = {1, 2, 3};
  Arena arena = *Arena::Create(64, ops.memory());
  float* const x = arena.Take<float>(3);
  ops.WriteValues(3, values.data(), x);
  std::vector<float> back(3);
  ops.ReadValues(3, x, back.data());
  EXPECT_EQ(back, values);
  back.assign(3, 0.0f);
  (*ops.MakeCopier())->ToHost(12, x, back.data());
  EXPECT_EQ(back, values);
  EXPECT_EQ(ops.Sum(3, x), 6.0);
}

using FakeDeviceOpsDeathTest = testing::Test;

TEST(FakeDeviceOpsDeathTest, WhoTouchesTheOthersMemoryEnds) {
  FakeDeviceOps<float> ops;
  auto memory = ops.memory().Allocate(4096);
  ASSERT_TRUE(memory.ok());
  auto* const x = static_cast<float*>(*memory);
  std::vector<float> host(8);
  EXPECT_DEATH(host[0] = *static_cast<volatile float*>(x), "");
  EXPECT_DEATH(*static_cast<volatile float*>(x) = 1, "");
  EXPECT_DEATH(ops.SetZero(8, host.data()), "memory of the host");
  EXPECT_DEATH(ops.ToHost(4, x, x), "ends on the device");
  EXPECT_DEATH(ops.FromHost(4, x, x), "begins on the device");
  EXPECT_DEATH(ops.SetZero(1, x + 1024), "");  // Past its end.
  ops.memory().Free(x, 4096);
  EXPECT_DEATH(ops.SetZero(1, x), "");
}

}  // namespace
}  // namespace atl::engine
