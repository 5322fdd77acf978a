// A rank of a mesh on CudaOps with emulated kernels: they provide all that
// parallel/ needs. One rank, as the emulator is one device of one thread.

#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/collective/local/local_world.h"
#include "worker/engine/ops/cuda/cuda_ops.h"
#include "worker/engine/ops/cuda/matmul.h"
#include "worker/engine/parallel/mesh_trainer.h"

namespace atl::engine {
namespace {

// The emulator uses host memory, so a world of CPU ranks can read it.
class EmulatedDevices final : public Devices {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  absl::StatusOr<DeviceDescription> Describe(int) const override {
    return DeviceDescription{};
  }
  absl::Status CheckRanks(int, int) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Ops>> MakeOps(int, ComputeType compute,
                                               int) override {
    return cuda::CudaOps::Create(0, compute, cuda::MakeKernelMatmul(0));
  }
  absl::StatusOr<std::unique_ptr<collective::Collective>> JoinWorld(
      collective::Collective&, Ops&) override {
    return std::unique_ptr<collective::Collective>();
  }
};

TrainerOptions Options(Architecture architecture) {
  TrainerOptions options;
  options.model = {.architecture = architecture,
                   .vocab_size = 23,
                   .hidden_size = 16,
                   .intermediate_size = 24,
                   .layer_count = 2,
                   .head_count = 2,
                   .kv_head_count = 2,
                   .sequence_length_max = 8,
                   .tie_embeddings = architecture == Architecture::kGpt2};
  if (architecture == Architecture::kMixtral) {
    options.model.expert_count = 3;
    options.model.experts_per_token = 2;
    options.model.router_loss_weight = 0.1;
  }
  // A large epsilon makes an update smooth in the gradient.
  options.optimizer = {.epsilon = 0.1};
  options.schedule = {.peak = 0.05};
  options.batch_size = 4;
  options.sequence_length = 8;
  return options;
}

struct Trained {
  std::vector<float> losses, parameters;
};

Trained Train(const TrainerOptions& options, const MeshOptions& mesh,
              Devices& devices, uint32_t seed) {
  collective::LocalWorld world(1);
  auto ranks = world.TakeRanks();
  auto made = MakeMeshTrainer(options, mesh, absl::MakeSpan(ranks), devices);
  EXPECT_TRUE(made.ok()) << made.status();
  Trainer& trainer = **made;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.1f, 0.3f);
  for (float& value : trainer.parameters()) value = normal(random);
  EXPECT_TRUE(trainer.Scatter().ok());
  Trained trained;
  std::vector<int32_t> inputs(32), targets(32);
  for (int step = 0; step < 3; ++step) {
    for (int32_t& token : inputs) token = static_cast<int32_t>(random() % 23);
    for (int32_t& token : targets) token = static_cast<int32_t>(random() % 23);
    const auto loss = trainer.Step(inputs, targets, step);
    EXPECT_TRUE(loss.ok()) << loss.status();
    trained.losses.push_back(loss.value_or(-1));
  }
  const auto loss = trainer.EvaluateLoss(inputs, targets);
  EXPECT_TRUE(loss.ok()) << loss.status();
  trained.losses.push_back(static_cast<float>(loss.value_or(-1)));
  EXPECT_TRUE(trainer.Gather().ok());
  trained.parameters.assign(trainer.parameters().begin(),
                            trainer.parameters().end());
  return trained;
}

TEST(CudaMeshTest, ARankOnADeviceLearnsWhatOneOnACpuLearns) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  EmulatedDevices devices;
  for (Architecture architecture :
       {Architecture::kLlama, Architecture::kGpt2, Architecture::kMixtral}) {
    const TrainerOptions options = Options(architecture);
    for (ShardingMode sharding :
         {ShardingMode::kReplicate, ShardingMode::kZero3}) {
      const MeshOptions mesh = {
          .micro_batch_count = 2,
          .sharding = sharding,
          .checkpointing = ActivationCheckpointing::kFull,
          .optimizer_on_host = sharding == ShardingMode::kZero3};
      const Trained cpu = Train(options, mesh, CpuDevices(), seed);
      const Trained device = Train(options, mesh, devices, seed);
      for (size_t i = 0; i < cpu.losses.size(); ++i) {
        EXPECT_NEAR(device.losses[i], cpu.losses[i], 1e-4f);
      }
      ASSERT_EQ(device.parameters.size(), cpu.parameters.size());
      for (size_t i = 0; i < cpu.parameters.size(); ++i) {
        ASSERT_NEAR(device.parameters[i], cpu.parameters[i], 1e-4f) << i;
      }
    }
  }
}

}  // namespace
}  // namespace atl::engine
