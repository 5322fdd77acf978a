// Holds CudaOps and its kernels to PlainOps<double> on fresh random inputs, on
// a machine without a device: testing/emulator.h runs the kernels. What nvcc
// makes of them is checked on a device, by //worker/engine/cuda_check.

#include "worker/engine/ops/cuda/cuda_ops.h"

#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/engine/ops/cuda/kernel_matmul.h"
#include "worker/engine/ops/cuda/testing/emulator.h"
#include "worker/engine/ops/testing/op_cases.h"

namespace atl::engine::cuda {
namespace {

using emulator::Order;

uint64_t Seed() {
  static const uint64_t seed = [] {
    const uint64_t fresh = std::random_device()();
    std::cout << "seed " << fresh << std::endl;
    return fresh;
  }();
  return seed;
}

std::unique_ptr<CudaOps> Make(ComputeType compute = ComputeType::kF32) {
  auto ops = CudaOps::Create(0, compute, MakeKernelMatmul(0));
  EXPECT_TRUE(ops.ok()) << ops.status();
  return std::move(*ops);
}

// The order of threads between barriers may not matter: a kernel that lacks one
// fails here.
class CudaOpsTest : public testing::TestWithParam<Order> {
 protected:
  CudaOpsTest() { emulator::SetOrder(GetParam()); }
  ~CudaOpsTest() override {
    emulator::SetOrder(Order::kRising);
    emulator::SetMemoryLimit(SIZE_MAX);
    emulator::FailLaunch(0, cudaSuccess);
  }
};

INSTANTIATE_TEST_SUITE_P(Orders, CudaOpsTest,
                         testing::Values(Order::kRising, Order::kFalling,
                                         Order::kShuffled));

TEST_P(CudaOpsTest, EveryOperationFollowsTheDefinition) {
  const std::unique_ptr<CudaOps> ops = Make();
  for (const OpCase& op_case : MakeOpCases({.seed = Seed()})) {
    const absl::Status status = HoldOpCase(op_case, *ops);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_P(CudaOpsTest, Bf16ProductsAreThoseOfRoundedOperands) {
  const std::unique_ptr<CudaOps> ops = Make(ComputeType::kBf16);
  for (const OpCase& op_case : MakeBf16Cases({.seed = Seed()})) {
    const absl::Status status = HoldOpCase(op_case, *ops);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(CudaOpsErrorsTest, GivesAllMemoryBack) {
  const size_t before = emulator::AllocatedBytes();
  {
    const std::unique_ptr<CudaOps> ops = Make(ComputeType::kBf16);
    for (const OpCase& op_case : MakeBf16Cases({.seed = Seed()})) {
      ASSERT_TRUE(HoldOpCase(op_case, *ops).ok());
      break;
    }
    EXPECT_GT(emulator::AllocatedBytes(), before);
    EXPECT_GT(ops->device_memory().used_bytes_max(), 0u);
  }
  EXPECT_EQ(emulator::AllocatedBytes(), before);
}

TEST(CudaOpsErrorsTest, TheFirstFailedLaunchIsKeptAndNothingIsDoneAfterIt) {
  const std::unique_ptr<CudaOps> ops = Make();
  auto memory = ops->memory().Allocate(64 * sizeof(float));
  ASSERT_TRUE(memory.ok());
  float* const x = static_cast<float*>(*memory);
  emulator::FailLaunch(1, cudaErrorIllegalAddress);
  ops->AddBias(2, 32, x, x);
  ops->Gelu(64, x, x);
  EXPECT_TRUE(std::isnan(ops->Sum(64, x)));
  EXPECT_EQ(ops->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ops->status().message(),
            "CUDA device 0 failed in adding a bias: an illegal memory access "
            "was encountered (error 700)");
  EXPECT_EQ(ops->Synchronize(), ops->status());
  ops->memory().Free(x, 64 * sizeof(float));
}

TEST(CudaOpsErrorsTest, AFullDeviceIsAnErrorThatSaysHowMuchWasAskedFor) {
  const std::unique_ptr<CudaOps> ops = Make();
  emulator::SetMemoryLimit(emulator::AllocatedBytes() + 1024);
  // What is cached is freed before it gives up.
  auto first = ops->memory().Allocate(600);
  ASSERT_TRUE(first.ok()) << first.status();
  ops->memory().Free(*first, 600);
  auto second = ops->memory().Allocate(512);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(ops->memory().Allocate(4096).status().code(),
            absl::StatusCode::kResourceExhausted);
  ops->memory().Free(*second, 512);
  // An operation that needs scratch.
  EXPECT_TRUE(std::isnan(ops->Sum(0, nullptr)));
  EXPECT_TRUE(absl::StrContains(ops->status().message(), "out of memory"))
      << ops->status();
  EXPECT_TRUE(absl::StrContains(ops->status().message(), "bytes beside"))
      << ops->status();
  emulator::SetMemoryLimit(SIZE_MAX);
}

TEST(CudaOpsErrorsTest, HeadsThatAreTooWideAreRefused) {
  const std::unique_ptr<CudaOps> ops = Make();
  ops->Attention({1, 1, 1, 1, 258}, nullptr, nullptr, nullptr);
  EXPECT_EQ(ops->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(ops->status().message(), "258"));
}

}  // namespace
}  // namespace atl::engine::cuda
