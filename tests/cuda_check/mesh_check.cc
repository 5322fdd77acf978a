#include "tests/cuda_check/mesh_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status/status_macros.h"
#include "tests/cuda_check/random_inputs.h"
#include "worker/collective/local/local_world.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/parallel/layout/mesh.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/parallel/mesh_trainer.h"
#include "worker/engine/trainer.h"

namespace atl::engine::check {
namespace {

using collective::Collective;

constexpr int64_t kBatch = 8, kLength = 64;
constexpr int32_t kVocab = 512;

struct MeshCase {
  const char* mesh;
  ShardingMode sharding = ShardingMode::kZero3;
  Architecture architecture = Architecture::kLlama;
  int micro_batch_count = 1;
  int chunk_count = 1;
  double capacity_factor = 0;  // For mixtures; 0: no limit.
};

std::vector<MeshCase> MakeCases(int ranks) {
  constexpr auto kReplicate = ShardingMode::kReplicate;
  constexpr auto kZero1 = ShardingMode::kZero1;
  constexpr auto kZero2 = ShardingMode::kZero2;
  constexpr auto kZero3 = ShardingMode::kZero3;
  constexpr auto kLlama = Architecture::kLlama;
  constexpr auto kGpt2 = Architecture::kGpt2;
  constexpr auto kMixtral = Architecture::kMixtral;
  // The capacity is so low that a fifth of all choices is dropped.
  const auto limited = [](const char* mesh) {
    return MeshCase{.mesh = mesh,
                    .architecture = kMixtral,
                    .capacity_factor = 0.75};
  };
  if (ranks == 2) {
    return {{"dp_replicate=2", kReplicate},
            {"dp_shard=2", kZero1},
            {"dp_shard=2", kZero2, kGpt2},
            {"dp_shard=2", kZero3},
            {"tp=2", kZero3},
            {"tp=2", kZero3, kGpt2},
            {"cp=2", kZero3},
            {"pp=2", kZero2, kLlama, 4},
            {"pp=2", kZero2, kGpt2, 4, 2},
            {"ep=2", kZero3, kMixtral},
            limited("ep=2"),
            limited("cp=2")};
  }
  return {{"dp_shard=4", kZero3},
          {"dp_replicate=2,dp_shard=2", kZero3},
          {"dp_shard=2,tp=2", kZero3},
          {"pp=2,tp=2", kZero2, kGpt2, 4},
          {"pp=2,dp_shard=2", kZero3, kLlama, 2},
          {"cp=2,tp=2", kZero3},
          {"dp_shard=2,ep=2", kZero3, kMixtral},
          limited("cp=2,ep=2"),
          limited("dp_shard=2,tp=2")};
}

bool IsMixture(const MeshCase& mesh_case) {
  return mesh_case.architecture == Architecture::kMixtral;
}

std::string MakeName(const MeshCase& mesh_case, ComputeType compute) {
  constexpr const char* kModes[] = {"replicate", "zero1", "zero2", "zero3"};
  return absl::StrCat(
      "mesh ", compute == ComputeType::kBf16 ? "bf16" : "f32", ": ",
      mesh_case.mesh, " ", kModes[static_cast<int>(mesh_case.sharding)], " ",
      mesh_case.architecture == Architecture::kLlama   ? "llama"
      : mesh_case.architecture == Architecture::kGpt2 ? "gpt2"
                                                      : "mixtral",
      mesh_case.chunk_count > 1 ? " interleaved" : "",
      mesh_case.capacity_factor > 0 ? " with a capacity" : "");
}

TrainerOptions MakeOptions(const MeshCase& mesh_case, ComputeType compute) {
  TrainerOptions options;
  options.model = {.architecture = mesh_case.architecture,
                   .vocab_size = kVocab,
                   .hidden_size = 64,
                   .intermediate_size = 128,
                   .layer_count = 4,
                   .head_count = 4,
                   .kv_head_count =
                       mesh_case.architecture == Architecture::kGpt2 ? 4 : 2,
                   .sequence_length_max = kLength,
                   .tie_embeddings =
                       mesh_case.architecture == Architecture::kGpt2};
  if (IsMixture(mesh_case)) {
    options.model.expert_count = 4;
    options.model.experts_per_token = 2;
    options.model.router_loss_weight = 0.01;
    options.model.expert_capacity_factor = mesh_case.capacity_factor;
  }
  // A large epsilon makes updates smooth in the gradient, so errors from the
  // order of sums do not grow.
  options.optimizer = {.epsilon = 0.01};
  options.schedule = {.peak = 0.01};
  options.batch_size = kBatch;
  options.sequence_length = kLength;
  options.compute = compute;
  return options;
}

// The compared numbers, one per step.
struct Trained {
  std::vector<double> losses, norms;  // losses has one more: after all steps.
};

// Trains with `rank`, this process's only rank.
absl::StatusOr<Trained> Train(const TrainerOptions& options,
                              const MeshOptions& mesh,
                              std::unique_ptr<Collective> rank,
                              Devices& devices, uint64_t seed, int steps) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Trainer> trainer,
      MakeMeshTrainer(options, mesh, absl::MakeSpan(&rank, 1), devices));
  std::mt19937_64 random(seed);
  const std::vector<float> all = RandomParameters(trainer->layout(), random);
  float* to = trainer->parameters().data();
  for (const ParameterSpan& span : trainer->held()) {
    to = std::copy_n(all.begin() + span.begin, span.size(), to);
  }
  RETURN_IF_ERROR(trainer->Scatter());
  std::vector<int32_t> inputs, targets;
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    inputs = RandomTokens(kBatch * kLength, kVocab, random);
    targets = RandomTokens(kBatch * kLength, kVocab, random);
    ASSIGN_OR_RETURN(const float loss, trainer->Step(inputs, targets, step));
    trained.losses.push_back(loss);
    trained.norms.push_back(trainer->gradient_norm());
  }
  ASSIGN_OR_RETURN(const double loss, trainer->EvaluateLoss(inputs, targets));
  trained.losses.push_back(loss);
  return trained;
}

absl::Status Compare(const char* what, const std::vector<double>& mesh,
                     const std::vector<double>& one, double bound) {
  for (size_t i = 0; i < one.size(); ++i) {
    // A NaN fails the comparison, so it is a mismatch.
    if (std::abs(mesh[i] - one[i]) <= bound * std::abs(one[i])) continue;
    return absl::InternalError(absl::StrCat("the ", what, " of step ", i,
                                            " is ", mesh[i], ", on one rank ",
                                            one[i], "; the error exceeds ",
                                            bound, " of it"));
  }
  return absl::OkStatus();
}

// Relative to the numbers.
struct Bounds {
  double loss, norm;
};

Bounds ChooseBounds(const MeshCase& mesh_case, ComputeType compute) {
  // A token may get other experts of nearly equal probability; one of 512 then
  // has another loss. A capacity then also frees one expert's place and takes
  // another's.
  if (IsMixture(mesh_case)) return {1e-3, 5e-2};
  // Ranks round partial sums that one rank does not have, by 2^-9 each.
  if (compute == ComputeType::kBf16) return {5e-3, 5e-2};
  // Another order changes a sum of a few thousand terms by about 1e-6 of their
  // size; 20 smooth steps accumulate a few of these.
  return {2e-5, 2e-4};
}

absl::Status CheckMesh(const MeshCase& mesh_case, ComputeType compute,
                       Collective& world, Devices& devices, uint64_t seed,
                       int steps) {
  const TrainerOptions options = MakeOptions(mesh_case, compute);
  MeshOptions mesh = {.micro_batch_count = mesh_case.micro_batch_count,
                      .sharding = mesh_case.sharding,
                      .pipeline = mesh_case.chunk_count > 1
                                      ? PipelineKind::kInterleaved
                                      : PipelineKind::kOneForwardOneBackward,
                      .chunk_count = mesh_case.chunk_count};
  ASSIGN_OR_RETURN(mesh.mesh, Mesh::Parse(mesh_case.mesh));
  // First, so a slow rank is late in a call that waits.
  collective::LocalWorld alone(1);
  ASSIGN_OR_RETURN(
      const Trained one,
      Train(options, {.micro_batch_count = mesh_case.micro_batch_count},
            std::move(alone.TakeRanks()[0]), devices, seed, steps));
  ASSIGN_OR_RETURN(auto rank, world.Split(0, "mesh"));
  ASSIGN_OR_RETURN(const Trained many, Train(options, mesh, std::move(rank),
                                             devices, seed, steps));
  const Bounds bounds = ChooseBounds(mesh_case, compute);
  RETURN_IF_ERROR(Compare("loss", many.losses, one.losses, bounds.loss));
  return Compare("gradient's norm", many.norms, one.norms, bounds.norm);
}

}  // namespace

void CheckMeshes(Collective& world, Devices& devices, uint64_t seed, int steps,
                 Report& report) {
  for (ComputeType compute : {ComputeType::kF32, ComputeType::kBf16}) {
    for (const MeshCase& mesh_case : MakeCases(world.size())) {
      // Rounded router scores would choose other experts.
      if (IsMixture(mesh_case) && compute == ComputeType::kBf16) continue;
      report.Check(
          absl::StrCat(MakeName(mesh_case, compute), ", rank ", world.rank()),
          [&] {
            return CheckMesh(mesh_case, compute, world, devices, seed, steps);
          });
      // The error ended the world.
      if (!world.status().ok()) return;
    }
  }
}

}  // namespace atl::engine::check
