// The trainer on CudaOps with emulated kernels, compared to PyTorch. The
// emulated device has its own memory, so a missing copy shows.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/engine/ops/cuda/cuda_ops.h"
#include "worker/engine/ops/cuda/matmul.h"
#include "worker/engine/ops/cuda/testing/emulator.h"
#include "worker/engine/testing/golden.h"
#include "worker/engine/trainer.h"

namespace atl::engine {
namespace {

std::unique_ptr<Trainer> Make(const GoldenCase& golden, ComputeType compute,
                              const cuda::CudaOps** made = nullptr) {
  TrainerOptions options;
  options.model = golden.config;
  options.schedule = GoldenSchedule();
  options.batch_size = golden.batch_size;
  options.sequence_length = golden.sequence_length;
  auto ops = cuda::CudaOps::Create(0, compute, cuda::MakeKernelMatmul(0));
  EXPECT_TRUE(ops.ok()) << ops.status();
  if (made != nullptr) *made = ops->get();
  auto trainer = Trainer::CreateOn(options, std::move(*ops));
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  const std::vector<float> parameters = GoldenParameters(golden);
  std::copy(parameters.begin(), parameters.end(),
            (*trainer)->parameters().begin());
  EXPECT_TRUE((*trainer)->Scatter().ok());
  return std::move(*trainer);
}

float StepOn(Trainer& trainer, const GoldenCase& golden, int step) {
  const GoldenTokens tokens = MakeGoldenTokens(golden, step);
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

// A few hundred parameters, for tests of many steps: the emulator is slow.
TrainerOptions SmallOptions(Architecture architecture) {
  TrainerOptions options;
  options.model = {.architecture = architecture,
                   .vocab_size = 23,
                   .hidden_size = 16,
                   .intermediate_size = 24,
                   .layer_count = 1,
                   .head_count = 2,
                   .kv_head_count = 2,
                   .sequence_length_max = 8};
  if (architecture == Architecture::kGpt2) options.model.tie_embeddings = true;
  if (architecture == Architecture::kMixtral) {
    options.model.expert_count = 3;
    options.model.experts_per_token = 2;
  }
  options.schedule = GoldenSchedule();
  options.batch_size = 2;
  options.sequence_length = 8;
  return options;
}

// Results of nine steps; the rate changes at each, the batch once.
struct Trained {
  std::vector<float> losses, parameters;
  int64_t replay_count = 0;
};
Trained Train(Architecture architecture, ComputeType compute, bool graphs,
              uint32_t seed) {
  const TrainerOptions options = SmallOptions(architecture);
  auto made = cuda::CudaOps::Create(0, compute, cuda::MakeKernelMatmul(0),
                                    {.graphs = graphs});
  EXPECT_TRUE(made.ok()) << made.status();
  const cuda::CudaOps& ops = **made;
  auto trainer = *Trainer::CreateOn(options, std::move(*made));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.1f, 0.3f);
  for (float& value : trainer->parameters()) value = normal(random);
  EXPECT_TRUE(trainer->Scatter().ok());
  std::vector<int32_t> inputs(16), targets(16);
  Trained trained;
  for (int step = 0; step < 9; ++step) {
    for (int32_t& token : inputs) token = static_cast<int32_t>(random() % 23);
    for (int32_t& token : targets) token = static_cast<int32_t>(random() % 23);
    const size_t count = step == 4 ? 8 : 16;
    const auto loss = trainer->Step(absl::MakeConstSpan(inputs).first(count),
                                    absl::MakeConstSpan(targets).first(count),
                                    step, 0.5 + step);
    EXPECT_TRUE(loss.ok()) << loss.status();
    trained.losses.push_back(loss.value_or(NAN));
    trained.losses.push_back(static_cast<float>(trainer->gradient_norm()));
    if (step == 6) {
      EXPECT_TRUE(trainer->EvaluateLoss(inputs, targets).ok());
    }
  }
  EXPECT_TRUE(trainer->Gather().ok());
  trained.parameters.assign(trainer->parameters().begin(),
                            trainer->parameters().end());
  trained.replay_count = ops.replay_count();
  return trained;
}

TEST(CudaTrainerTest, AReplayedStepHasTheBitsOfACalledOne) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  const struct {
    Architecture architecture;
    ComputeType compute;
  } cases[] = {{Architecture::kLlama, ComputeType::kF32},
               {Architecture::kLlama, ComputeType::kBf16},
               {Architecture::kGpt2, ComputeType::kF32},
               {Architecture::kMixtral, ComputeType::kF32}};
  for (const auto& [architecture, compute] : cases) {
    const Trained called = Train(architecture, compute, false, seed);
    const Trained replayed = Train(architecture, compute, true, seed);
    EXPECT_EQ(replayed.losses, called.losses);
    EXPECT_EQ(replayed.parameters, called.parameters);
    EXPECT_EQ(called.replay_count, 0);
    // A mixture never replays: the host must know its row counts. Otherwise the
    // first step calls, the second records, and the other batch's step calls.
    EXPECT_EQ(replayed.replay_count,
              architecture == Architecture::kMixtral ? 0 : 6);
  }
}

TEST(CudaTrainerTest, WhereGraphsAreRefusedItGoesOnWithoutThem) {
  const auto train = [](bool graphs) {
    return Train(Architecture::kLlama, ComputeType::kF32, graphs, 1);
  };
  const Trained called = train(false);
  emulator::RefuseCapture(true);
  const Trained refused = train(true);
  emulator::RefuseCapture(false);
  EXPECT_EQ(refused.losses, called.losses);
  EXPECT_EQ(refused.parameters, called.parameters);
  EXPECT_EQ(refused.replay_count, 0);
}

TEST(CudaTrainerTest, WhatIsNotFiniteChangesNothingInAReplayedStepToo) {
  const GoldenCase golden = GoldenCases()[0];
  const cuda::CudaOps* ops = nullptr;
  auto trainer = Make(golden, ComputeType::kF32, &ops);
  for (int step = 0; step < 3; ++step) StepOn(*trainer, golden, step);
  ASSERT_TRUE(trainer->Gather().ok());
  std::vector<float> before(trainer->parameters().begin(),
                            trainer->parameters().end());
  before.back() = NAN;
  std::copy(before.begin(), before.end(), trainer->parameters().begin());
  ASSERT_TRUE(trainer->Scatter().ok());
  const GoldenTokens tokens = MakeGoldenTokens(golden, 3);
  EXPECT_EQ(trainer->Step(tokens.inputs, tokens.targets, 3).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(ops->replay_count(), 2);
  EXPECT_EQ(trainer->optimizer_state().step_count, 3);
  ASSERT_TRUE(trainer->Gather().ok());
  for (size_t i = 0; i + 1 < before.size(); ++i) {
    ASSERT_EQ(trainer->parameters()[i], before[i]) << i;
  }
}

TEST(CudaTrainerTest, ADevicesErrorInAReplayedStepIsTheSteps) {
  const GoldenCase golden = GoldenCases()[0];
  auto trainer = Make(golden, ComputeType::kF32);
  for (int step = 0; step < 3; ++step) StepOn(*trainer, golden, step);
  const GoldenTokens tokens = MakeGoldenTokens(golden, 3);
  emulator::FailLaunch(9, cudaErrorIllegalAddress);
  EXPECT_EQ(trainer->Step(tokens.inputs, tokens.targets, 3).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(CudaTrainerTest, GatheredAndScatteredItGoesOnWithTheSameBits) {
  const GoldenCase golden = GoldenCases()[1];
  auto first = Make(golden, ComputeType::kF32);
  for (int step = 0; step < 2; ++step) StepOn(*first, golden, step);
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
  const GoldenTokens tokens = MakeGoldenTokens(golden, 0);
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
  const GoldenTokens tokens = MakeGoldenTokens(golden, 0);
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
