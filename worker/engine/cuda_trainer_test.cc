// The trainer on CudaOps, whose kernels an emulator runs: a device has memory
// of its own, so what is not copied is not there. Held to PyTorch as the CPU's
// trainer is.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/engine/ops/cuda/cuda_ops.h"
#include "worker/engine/ops/cuda/kernel_matmul.h"
#include "worker/engine/ops/cuda/testing/emulator.h"
#include "worker/engine/testdata/golden.h"
#include "worker/engine/trainer.h"

namespace atl::engine {
namespace {

std::unique_ptr<Trainer> Make(const GoldenCase& golden, ComputeType compute) {
  TrainerOptions options;
  options.model = golden.config;
  options.schedule = GoldenSchedule();
  options.batch_size = golden.batch_size;
  options.sequence_length = golden.sequence_length;
  auto ops = cuda::CudaOps::Create(0, compute, cuda::MakeKernelMatmul(0));
  EXPECT_TRUE(ops.ok()) << ops.status();
  auto trainer = Trainer::CreateOn(options, std::move(*ops));
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  const std::vector<float> parameters = GoldenParameters(golden);
  std::copy(parameters.begin(), parameters.end(),
            (*trainer)->parameters().begin());
  EXPECT_TRUE((*trainer)->Scatter().ok());
  return std::move(*trainer);
}

float StepOn(Trainer& trainer, const GoldenCase& golden, int step) {
  const GoldenTokens tokens = GoldenTokensOf(golden, step);
  const auto loss = trainer.Step(tokens.inputs, tokens.targets, step);
  EXPECT_TRUE(loss.ok()) << loss.status();
  return loss.ok() ? *loss : NAN;
}

TEST(CudaTrainerTest, LosesAsPyTorchDoesForEveryShape) {
  for (const GoldenCase& golden : GoldenCases()) {
    SCOPED_TRACE(golden.name);
    const GoldenResults expected = ReadGoldenResults(golden);
    auto trainer = Make(golden, ComputeType::kF32);
    for (int step = 0; step < 5; ++step) {
      const float loss = StepOn(*trainer, golden, step);
      EXPECT_NEAR(loss, expected.step_losses[step],
                  2e-5 * expected.step_losses[step])
          << "step " << step;
      if (step > 0) continue;
      EXPECT_NEAR(trainer->gradient_norm(), expected.gradient_norm,
                  2e-5 * expected.gradient_norm);
      EXPECT_NEAR(trainer->router_loss(), expected.router_loss,
                  1e-5 * expected.router_loss + 1e-12);
    }
  }
}

TEST(CudaTrainerTest, InBf16ItLearnsAsInF32) {
  const GoldenCase golden = GoldenCases()[0];
  const GoldenResults expected = ReadGoldenResults(golden);
  auto trainer = Make(golden, ComputeType::kBf16);
  bool differs = false;
  for (int step = 0; step < 5; ++step) {
    const float loss = StepOn(*trainer, golden, step);
    EXPECT_NEAR(loss, expected.step_losses[step], 0.04) << "step " << step;
    differs |= std::abs(loss - expected.step_losses[step]) > 1e-5;
  }
  EXPECT_TRUE(differs) << "nothing was rounded";
}

TEST(CudaTrainerTest, GatheredAndScatteredItGoesOnWithTheSameBits) {
  const GoldenCase golden = GoldenCases()[1];
  auto first = Make(golden, ComputeType::kF32);
  for (int step = 0; step < 2; ++step) StepOn(*first, golden, step);
  EXPECT_TRUE(first->gradients().empty());
  ASSERT_TRUE(first->Gather().ok());
  auto second = Make(golden, ComputeType::kF32);
  const OptimizerState from = first->optimizer_state();
  const OptimizerState to = second->optimizer_state();
  std::copy(from.first_moment.begin(), from.first_moment.end(),
            to.first_moment.begin());
  std::copy(from.second_moment.begin(), from.second_moment.end(),
            to.second_moment.begin());
  second->set_optimizer_step_count(from.step_count);
  std::copy(first->parameters().begin(), first->parameters().end(),
            second->parameters().begin());
  ASSERT_TRUE(second->Scatter().ok());
  EXPECT_EQ(StepOn(*first, golden, 2), StepOn(*second, golden, 2));
  ASSERT_TRUE(first->Gather().ok());
  ASSERT_TRUE(second->Gather().ok());
  EXPECT_TRUE(std::equal(first->parameters().begin(), first->parameters().end(),
                         second->parameters().begin()));
  second->ResetOptimizer();
  ASSERT_TRUE(second->Gather().ok());
  for (float m : second->optimizer_state().first_moment) ASSERT_EQ(m, 0.0f);
}

TEST(CudaTrainerTest, LogitsAndLossAreTheHosts) {
  const GoldenCase golden = GoldenCases()[0];
  auto trainer = Make(golden, ComputeType::kF32);
  const GoldenTokens tokens = GoldenTokensOf(golden, 0);
  const auto loss = trainer->EvaluateLoss(tokens.inputs, tokens.targets);
  ASSERT_TRUE(loss.ok()) << loss.status();
  const GoldenResults expected = ReadGoldenResults(golden);
  EXPECT_NEAR(*loss, expected.loss, 1e-5 * expected.loss);
  const auto logits =
      trainer->NextTokenLogits(absl::MakeConstSpan(tokens.inputs).first(3));
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_EQ(logits->size(), golden.config.vocab_size);
}

TEST(CudaTrainerTest, ADevicesErrorIsTheStepsAndStays) {
  const GoldenCase golden = GoldenCases()[0];
  auto trainer = Make(golden, ComputeType::kF32);
  const GoldenTokens tokens = GoldenTokensOf(golden, 0);
  emulator::FailLaunch(17, cudaErrorIllegalAddress);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto loss = trainer->Step(tokens.inputs, tokens.targets, 0);
    EXPECT_EQ(loss.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(absl::StrContains(loss.status().message(), "CUDA device 0"))
        << loss.status();
  }
}

}  // namespace
}  // namespace atl::engine
