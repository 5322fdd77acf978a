// Compares CudaOps with PlainOps<double> on random inputs, without a device:
// testing/emulator.h runs the kernels. cuda_check tests the code that nvcc
// makes.

#include "worker/engine/ops/cuda/cuda_ops.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/engine/ops/cuda/fused_attention.h"
#include "worker/engine/ops/cuda/matmul.h"
#include "worker/engine/ops/cuda/testing/emulator.h"
#include "worker/engine/ops/testing/op_cases.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/tensor/arena.h"

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

// Computes even lengths by definition; the emulated device uses host memory.
class EvenAttention final : public FusedAttention {
 public:
  static constexpr int64_t kScratchBytes = 100;

  std::string name() const override { return "a library"; }
  absl::StatusOr<int64_t> ScratchBytes(const AttentionShape& shape) override {
    if (shape.sequence_length % 2 == 0) return kScratchBytes;
    return absl::NotFoundError("an odd length");
  }
  absl::Status Attend(cudaStream_t, const AttentionShape& s,
                      const uint16_t* qkv, uint16_t* out, float* log_sum,
                      void* scratch) override {
    ++calls;
    if (!status.ok()) return status;
    std::memset(scratch, 1, kScratchBytes);
    std::vector<float> wide(s.rows() * s.qkv_size());
    for (size_t i = 0; i < wide.size(); ++i) {
      wide[i] = std::bit_cast<float>(static_cast<uint32_t>(qkv[i]) << 16);
    }
    std::vector<float> result(s.rows() * s.out_size());
    PlainOps<float>().Attention(s, wide.data(), result.data(), log_sum);
    for (size_t i = 0; i < result.size(); ++i) {
      // To the nearest, but ties away from zero.
      out[i] = static_cast<uint16_t>(
          (std::bit_cast<uint32_t>(result[i]) + 0x8000u) >> 16);
    }
    return absl::OkStatus();
  }

  int calls = 0;
  absl::Status status;
};

// The operations own the library.
std::pair<std::unique_ptr<CudaOps>, EvenAttention*> MakeWithLibrary(
    ComputeType compute) {
  auto library = std::make_unique<EvenAttention>();
  EvenAttention* const attention = library.get();
  auto ops =
      CudaOps::Create(0, compute, MakeKernelMatmul(0), {}, std::move(library));
  EXPECT_TRUE(ops.ok()) << ops.status();
  return {std::move(*ops), attention};
}

// Threads between barriers run in this order; a missing barrier changes
// results.
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

TEST_P(CudaOpsTest, AnUpdateByNumbersOfTheDeviceIsTheSame) {
  const std::unique_ptr<CudaOps> ops = Make();
  std::mt19937 random(static_cast<uint32_t>(Seed()));
  std::normal_distribution<float> normal;
  constexpr int64_t kCount = 777;
  std::vector<float> values(4 * kCount);
  for (float& value : values) value = normal(random);
  for (int64_t i = 3 * kCount; i < 4 * kCount; ++i) {
    values[i] *= values[i];  // v
  }
  Arena arena = *Arena::Create(1 << 16, ops->memory());
  float* const x = arena.Take<float>(4 * kCount);
  auto* const numbers = arena.Take<AdamWStep<float>>(1);
  double* const sums = arena.Take<double>(2);
  float* const scale = arena.Take<float>(1);
  const AdamWStep<float> step = {.learning_rate = 0.01f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .epsilon = 1e-8f,
                                 .weight_decay = 0.1f,
                                 .bias_correction1 = 0.19f,
                                 .bias_correction2_sqrt = 0.3f};
  ops->FromHost(sizeof(step), &step, numbers);
  const auto result = [&](bool adamw, bool by_device, double loss,
                          double clip_norm) {
    ops->WriteValues(4 * kCount, values.data(), x);
    float *g = x, *p = x + kCount, *m = p + kCount, *v = m + kCount;
    ops->FromHost(sizeof(loss), &loss, sums);
    ops->SumInto(kCount, g, true, sums + 1);
    double host_sums[2];
    ops->ToHost(sizeof(host_sums), sums, host_sums);
    EXPECT_EQ(host_sums[1], ops->SumOfSquares(kCount, g));
    ops->ClipInto(sums, clip_norm, scale);
    AdamWStep<float> told = step;
    told.gradient_scale = ClipScale<float>(host_sums, clip_norm);
    if (by_device && adamw) {
      ops->AdamWBy(kCount, numbers, scale, g, p, m, v);
    } else if (by_device) {
      ops->SgdBy(kCount, numbers, scale, g, p);
    } else if (adamw) {
      ops->AdamW(kCount, told, g, p, m, v);
    } else {
      ops->Sgd(kCount, told.learning_rate, told.gradient_scale, g, p);
    }
    std::vector<float> all(4 * kCount);
    ops->ReadValues(4 * kCount, x, all.data());
    EXPECT_TRUE(ops->status().ok()) << ops->status();
    return all;
  };
  for (const bool adamw : {false, true}) {
    for (const double clip_norm : {0.0, 1.0, 1e6}) {
      EXPECT_EQ(result(adamw, true, 2.0, clip_norm),
                result(adamw, false, 2.0, clip_norm));
    }
    // A non-finite sum prevents the update.
    EXPECT_EQ(result(adamw, true, NAN, 1.0), values);
    EXPECT_EQ(result(adamw, true, INFINITY, 0.0), values);
  }
}

TEST(CudaOpsAttentionTest, IsTheLibrarysForTheShapesThatItDoes) {
  const auto [ops, library] = MakeWithLibrary(ComputeType::kBf16);
  for (const OpCase& op_case : MakeBf16Cases({.seed = Seed()})) {
    const absl::Status status = HoldOpCase(op_case, *ops);
    EXPECT_TRUE(status.ok()) << status;
  }
  // At least two shapes of the cases, each computed twice.
  EXPECT_GE(library->calls, 4);
  const int calls = library->calls;

  const AttentionShape even{1, 4, 1, 1, 8}, odd{1, 3, 1, 1, 8};
  EXPECT_EQ(*ops->AttentionLibrary(even), "a library");
  EXPECT_EQ(ops->AttentionLibrary(odd).status().message(), "an odd length");
  Arena arena = *Arena::Create(1 << 16, ops->memory());
  float* const x = arena.Take<float>(1 << 12);
  ops->Attention(odd, x, x + 1024, x + 2048);
  EXPECT_EQ(library->calls, calls);
  ops->Attention(even, x, x + 1024, x + 2048);
  EXPECT_EQ(library->calls, calls + 1);
  EXPECT_TRUE(ops->status().ok()) << ops->status();
}

TEST(CudaOpsAttentionTest, InF32IsNeverTheLibrarys) {
  const auto [ops, library] = MakeWithLibrary(ComputeType::kF32);
  Arena arena = *Arena::Create(1 << 16, ops->memory());
  float* const x = arena.Take<float>(1 << 12);
  const AttentionShape even{1, 4, 1, 1, 8};
  ops->Attention(even, x, x + 1024, x + 2048);
  EXPECT_EQ(library->calls, 0);
  EXPECT_FALSE(ops->AttentionLibrary(even).ok());
  EXPECT_FALSE(Make(ComputeType::kBf16)->AttentionLibrary(even).ok());
}

TEST(CudaOpsAttentionTest, AnErrorOfTheLibraryIsKept) {
  const auto [ops, library] = MakeWithLibrary(ComputeType::kBf16);
  library->status = absl::UnavailableError("broken");
  Arena arena = *Arena::Create(1 << 16, ops->memory());
  float* const x = arena.Take<float>(1 << 12);
  const AttentionShape even{1, 4, 1, 1, 8};
  ops->Attention(even, x, x + 1024, x + 2048);
  EXPECT_EQ(ops->status(), absl::UnavailableError("broken"));
  ops->Attention(even, x, x + 1024, x + 2048);
  EXPECT_EQ(library->calls, 1);
}

TEST(CudaOpsCopierTest, CopiesBesideWhatIsComputed) {
  const std::unique_ptr<CudaOps> ops = Make();
  Arena arena = *Arena::Create(1 << 10, ops->memory());
  float* const x = arena.Take<float>(32);
  const auto copier = ops->MakeCopier();
  ASSERT_TRUE(copier.ok()) << copier.status();
  const std::vector<float> ones(32, 1.0f);
  (*copier)->FromHost(32 * sizeof(float), ones.data(), x);
  ops->Axpy(32, 2.0f, x, x);
  (*copier)->Follow();
  std::vector<float> values(32);
  (*copier)->ToHost(32 * sizeof(float), x, values.data());
  EXPECT_EQ(values, std::vector<float>(32, 3.0f));
  EXPECT_TRUE((*copier)->status().ok()) << (*copier)->status();
}

TEST(CudaOpsRecorderTest, WhatTakesMemoryIsNotRecordedAndIsTold) {
  const std::unique_ptr<CudaOps> ops = Make();
  Arena arena = *Arena::Create(1 << 16, ops->memory());
  float* const x = arena.Take<float>(64);
  int64_t count = 1;
  std::vector<Arena> taken;
  const auto queue = [&] {
    ops->AddBias(1, 64, x, x);
    auto more = Arena::Create(4096 << count, ops->memory());
    if (more.ok()) taken.push_back(*std::move(more));
    ++count;
  };
  const std::vector<float> ones(64, 1.0f);
  ops->WriteValues(64, ones.data(), x);
  for (int i = 0; i < 6; ++i) ops->Replay(7, queue);
  ASSERT_TRUE(ops->status().ok()) << ops->status();
  std::vector<float> values(64);
  ops->ReadValues(64, x, values.data());
  EXPECT_EQ(values[0], 64.0f);  // Doubled exactly six times.
  EXPECT_EQ(ops->replay_count(), 0);
  const std::string note = ops->TakeNote();
  EXPECT_TRUE(absl::StrContains(note, "not recorded as a CUDA graph")) << note;
  EXPECT_TRUE(absl::StrContains(note, "not tried again")) << note;
  EXPECT_EQ(ops->TakeNote(), "");
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
  // Cached blocks are freed before the allocation fails.
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
  EXPECT_TRUE(absl::StrContains(ops->status().message(), "bytes on top of"))
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
