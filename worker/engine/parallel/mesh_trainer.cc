#include "worker/engine/parallel/mesh_trainer.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "worker/engine/parallel/layout/rank_layout.h"
#include "worker/engine/parallel/layout/reshard_plan.h"
#include "worker/engine/parallel/rank_trainer.h"
#include "worker/engine/tensor/arena.h"
#include "worker/engine/trainer_checks.h"

namespace atl::engine {
namespace {

using collective::Collective;

MeshModel MakeMeshModel(const TrainerOptions& options) {
  const ModelConfig& model = options.model;
  return {.layer_count = static_cast<int>(model.layer_count),
          .head_count = static_cast<int>(model.head_count),
          .kv_head_count = static_cast<int>(model.kv_head_count),
          .feed_forward_size = model.intermediate_size,
          .sequence_length = options.sequence_length,
          .expert_count = static_cast<int>(model.expert_count)};
}

// D m: parts of a step's batch.
int64_t PartCount(const MeshOptions& options) {
  return int64_t{options.mesh.size(kBatchGroup)} * options.micro_batch_count;
}

absl::Status ValidateSequenceCount(const MeshOptions& options, int64_t count,
                                   absl::string_view what) {
  if (count % PartCount(options) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of ", count, " sequences cannot be divided into ",
                   options.micro_batch_count, " micro-batches on each of ",
                   options.mesh.size(kBatchGroup), " ranks"));
}

// Threads that run the same function concurrently, one per rank.
// Thread-compatible: one call at a time.
class RankThreads {
 public:
  explicit RankThreads(int count);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls f(i) on each thread i, waits for all, and returns their results.
  std::vector<absl::Status> Run(absl::FunctionRef<absl::Status(int)> f)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Loop(int index) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  const absl::FunctionRef<absl::Status(int)>* task_ ABSL_GUARDED_BY(mutex_) =
      nullptr;
  int64_t task_number_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<absl::Status> results_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

RankThreads::RankThreads(int count) {
  for (int i = 0; i < count; ++i) {
    threads_.emplace_back([this, i] { Loop(i); });
  }
}

RankThreads::~RankThreads() {
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::vector<absl::Status> RankThreads::Run(
    absl::FunctionRef<absl::Status(int)> f) {
  MutexLock lock(&mutex_);
  results_.assign(threads_.size(), absl::OkStatus());
  task_ = &f;
  ++task_number_;
  running_count_ = static_cast<int>(threads_.size());
  changed_.SignalAll();
  while (running_count_ > 0) changed_.Wait(&mutex_);
  task_ = nullptr;
  return std::move(results_);
}

void RankThreads::Loop(int index) {
  int64_t done = 0;
  while (true) {
    const absl::FunctionRef<absl::Status(int)>* task = nullptr;
    {
      MutexLock lock(&mutex_);
      while (task_number_ == done && !is_ending_) changed_.Wait(&mutex_);
      if (task_number_ == done) return;
      done = task_number_;
      task = task_;
    }
    absl::Status status = (*task)(index);
    MutexLock lock(&mutex_);
    results_[index] = std::move(status);
    if (--running_count_ == 0) changed_.SignalAll();
  }
}

class MeshTrainer final : public Trainer {
 public:
  MeshTrainer(const TrainerOptions& options, const MeshOptions& mesh_options,
              absl::Span<std::unique_ptr<Collective>> world_ranks,
              Devices& devices)
      : options_(options),
        mesh_options_(mesh_options),
        devices_(devices),
        layout_(MakeParameterLayout(options.model)),
        ranks_(world_ranks.size()) {
    for (size_t i = 0; i < world_ranks.size(); ++i) {
      ranks_[i].met = std::move(world_ranks[i]);
    }
    threads_ = std::make_unique<RankThreads>(static_cast<int>(ranks_.size()));
  }

  ~MeshTrainer() override {
    // On the ranks' threads: each rank's groups wait for the rank's own calls.
    threads_->Run([this](int i) {
      ranks_[i].trainer = nullptr;
      ranks_[i].of_device = nullptr;
      ranks_[i].met = nullptr;
      return absl::OkStatus();
    });
  }

  absl::Status Init() {
    const std::vector<int64_t> boundaries =
        HeldBoundaries(layout_, mesh_options_.mesh.rank_count());
    const int first = ranks_.front().met->rank();
    held_ = {.begin = boundaries[first],
             .end = boundaries[ranks_.back().met->rank() + 1]};
    prefix_.resize(options_.sequence_length);
    RETURN_IF_ERROR(TakeHeld());
    const int thread_count = std::max<int>(
        1, options_.thread_count / static_cast<int>(ranks_.size()));
    const RankTrainerOptions rank_options{
        .model = options_.model,
        .optimizer = options_.optimizer,
        .mesh = mesh_options_,
        .batch_size = options_.batch_size,
        .sequence_length = options_.sequence_length};
    OnRanks([&](Rank& rank) -> absl::Status {
      RETURN_IF_ERROR(
          devices_.CheckRanks(first, static_cast<int>(ranks_.size())));
      ASSIGN_OR_RETURN(
          rank.ops,
          devices_.MakeOps(rank.met->rank(), options_.compute, thread_count));
      ASSIGN_OR_RETURN(rank.of_device,
                       devices_.JoinWorld(*rank.met, *rank.ops));
      ASSIGN_OR_RETURN(rank.trainer,
                       RankTrainer<float>::Create(rank_options, layout_,
                                                  rank.world(), *rank.ops));
      return absl::OkStatus();
    }).IgnoreError();
    return first_error_;
  }

  const ParameterLayout& layout() const override { return layout_; }
  absl::Span<const ParameterSpan> held() const override {
    return absl::MakeConstSpan(&held_, held_.size() > 0 ? 1 : 0);
  }
  absl::Span<float> parameters() override { return parameters_; }
  absl::Span<const float> parameters() const override { return parameters_; }
  double gradient_norm() const override { return gradient_norm_; }
  double router_loss() const override { return router_loss_; }

  OptimizerState optimizer_state() override {
    return {.first_moment = moments_[0],
            .second_moment = moments_[1],
            .step_count = step_count_};
  }
  void set_optimizer_step_count(int64_t step_count) override {
    step_count_ = step_count;
  }
  void ResetOptimizer() override {
    for (absl::Span<float> moment : moments_) {
      std::fill(moment.begin(), moment.end(), 0.0f);
    }
    step_count_ = 0;
    // All later calls return an error.
    OnRanks([](Rank& rank) {
      return rank.trainer->ResetOptimizer();
    }).IgnoreError();
  }

  using Trainer::Gather;
  using Trainer::Scatter;
  absl::Status Scatter(const Movement& what) override {
    // The spans are empty, so the caller cannot have written them.
    if (is_given_back_) return ended_;
    return OnRanks([&](Rank& rank) -> absl::Status {
      const int64_t at = rank.trainer->held().begin - held_.begin;
      RETURN_IF_ERROR(rank.trainer->ScatterParameters(parameters_.data() + at,
                                                      ElementsOf(what)));
      if (!has_moments() || !what.moments) return absl::OkStatus();
      RETURN_IF_ERROR(rank.trainer->ScatterMoment(0, moments_[0].data() + at));
      return rank.trainer->ScatterMoment(1, moments_[1].data() + at);
    });
  }
  absl::Status Gather(const Movement& what) override {
    const absl::Status taken = is_given_back_ ? TakeHeld() : absl::OkStatus();
    return OnRanks([&](Rank& rank) -> absl::Status {
      RETURN_IF_ERROR(taken);
      const int64_t at = rank.trainer->held().begin - held_.begin;
      RETURN_IF_ERROR(rank.trainer->GatherParameters(parameters_.data() + at,
                                                     ElementsOf(what)));
      if (!has_moments() || !what.moments) return absl::OkStatus();
      RETURN_IF_ERROR(rank.trainer->GatherMoment(0, moments_[0].data() + at));
      return rank.trainer->GatherMoment(1, moments_[1].data() + at);
    });
  }

  absl::StatusOr<float> Step(absl::Span<const int32_t> inputs,
                             absl::Span<const int32_t> targets, int64_t step,
                             double learning_rate_factor) override {
    RETURN_IF_ERROR(ValidateWindows(options_, inputs, targets));
    const int64_t count = SequenceCount(inputs);
    RETURN_IF_ERROR(ValidateStepSize(options_, count));
    RETURN_IF_ERROR(ValidateSequenceCount(mesh_options_, count, "a step"));
    const double rate =
        LearningRateAt(options_.schedule, step) * learning_rate_factor;
    GiveHeldBack();
    RETURN_IF_ERROR(OnRanks([&](Rank& rank) -> absl::Status {
      rank.trainer->set_step_count(step_count_);
      ASSIGN_OR_RETURN(
          rank.result,
          rank.trainer->Step(inputs.data(), targets.data(), count, rate));
      return absl::OkStatus();
    }));
    const auto& result = ranks_.front().result;
    RETURN_IF_ERROR(CheckFinite("loss", result.loss));
    gradient_norm_ = result.gradient_norm;
    router_loss_ = result.router_loss;
    RETURN_IF_ERROR(CheckFinite("gradient norm", gradient_norm_));
    ++step_count_;
    return static_cast<float>(result.loss);
  }

  absl::StatusOr<double> EvaluateLoss(
      absl::Span<const int32_t> inputs,
      absl::Span<const int32_t> targets) override {
    RETURN_IF_ERROR(ValidateWindows(options_, inputs, targets));
    RETURN_IF_ERROR(OnRanks([&](Rank& rank) -> absl::Status {
      ASSIGN_OR_RETURN(rank.result.loss,
                       rank.trainer->EvaluateLoss(inputs.data(), targets.data(),
                                                  SequenceCount(inputs)));
      return absl::OkStatus();
    }));
    return ranks_.front().result.loss;
  }

  absl::StatusOr<absl::Span<const float>> NextTokenLogits(
      absl::Span<const int32_t> tokens) override {
    RETURN_IF_ERROR(ValidatePrefix(options_, tokens));
    std::fill(std::copy(tokens.begin(), tokens.end(), prefix_.begin()),
              prefix_.end(), 0);
    RETURN_IF_ERROR(OnRanks([&](Rank& rank) -> absl::Status {
      ASSIGN_OR_RETURN(
          rank.logits,
          rank.trainer->Logits(prefix_.data(),
                               static_cast<int64_t>(tokens.size()) - 1));
      return absl::OkStatus();
    }));
    return absl::Span<const float>(
        ranks_.front().logits, static_cast<size_t>(options_.model.vocab_size));
  }

 private:
  // A rank of this process. During a call only its thread uses it.
  struct Rank {
    std::unique_ptr<Collective> met;  // The world that connects them.
    std::unique_ptr<Ops> ops;
    std::unique_ptr<Collective> of_device;        // Null: it is `met`.
    std::unique_ptr<RankTrainer<float>> trainer;  // Destroyed first.
    Collective& world() { return of_device == nullptr ? *met : *of_device; }
    RankTrainer<float>::StepResult result;
    const float* logits = nullptr;
  };

  static RankTrainer<float>::Elements ElementsOf(const Movement& what) {
    if (!what.parameters.has_value()) return std::nullopt;
    return absl::MakeConstSpan(*what.parameters);
  }
  bool has_moments() const {
    return options_.optimizer.kind == OptimizerKind::kAdamW;
  }
  int64_t SequenceCount(absl::Span<const int32_t> tokens) const {
    return static_cast<int64_t>(tokens.size()) / options_.sequence_length;
  }

  // Allocates zeroed memory for held elements.
  absl::Status TakeHeld() {
    const auto take = [this](Arena& arena) {
      const size_t count = held_.size();
      parameters_ = {arena.Take<float>(held_.size()), count};
      if (!has_moments()) return;
      for (absl::Span<float>& moment : moments_) {
        moment = {arena.Take<float>(held_.size()), count};
      }
    };
    ASSIGN_OR_RETURN(arena_, Arena::CreateFor(take));
    is_given_back_ = false;
    return absl::OkStatus();
  }
  // Releases it: after a step the ranks have newer values.
  void GiveHeldBack() {
    arena_ = Arena();
    parameters_ = moments_[0] = moments_[1] = {};
    is_given_back_ = true;
  }

  // Runs `f` on all ranks of the process. The first error ends the trainer and
  // aborts the world: other ranks must not wait for a failed one. This call
  // (except in Init) and all later ones return it as UNAVAILABLE.
  template <typename F>
  absl::Status OnRanks(const F& f) {
    RETURN_IF_ERROR(ended_);
    const std::vector<absl::Status> statuses = threads_->Run([&](int i) {
      const absl::Status status = f(ranks_[i]);
      if (!status.ok()) ranks_[i].world().Abort(status.message());
      return status;
    });
    for (const absl::Status& status : statuses) {
      // A rank's own error takes precedence over one that it heard of.
      const bool is_own = !status.ok() && !absl::IsUnavailable(status);
      if (first_error_.ok() || (absl::IsUnavailable(first_error_) && is_own)) {
        first_error_ = status;
      }
    }
    if (!first_error_.ok()) {
      ended_ = absl::UnavailableError(first_error_.message());
    }
    return ended_;
  }

  const TrainerOptions options_;
  const MeshOptions mesh_options_;
  Devices& devices_;
  const ParameterLayout layout_;
  ParameterSpan held_;
  Arena arena_;  // Held elements, if present.
  bool is_given_back_ = false;
  absl::Span<float> parameters_;
  absl::Span<float> moments_[2];
  std::vector<int32_t> prefix_;  // [T], for NextTokenLogits
  int64_t step_count_ = 0;
  double gradient_norm_ = 0;
  double router_loss_ = 0;
  absl::Status first_error_;  // The first error of any rank.
  absl::Status ended_;        // first_error_ in the form that callers get.
  std::vector<Rank> ranks_;
  std::unique_ptr<RankThreads> threads_;
};

}  // namespace

absl::Status ValidateMeshTrainer(const TrainerOptions& options,
                                 const MeshOptions& mesh_options) {
  RETURN_IF_ERROR(ValidateTrainerOptions(options));
  RETURN_IF_ERROR(mesh_options.mesh.Validate(MakeMeshModel(options)));
  const UnitSlice slice = MakeSlice(mesh_options.mesh, /*rank=*/0);
  RETURN_IF_ERROR(ValidateSlice(options.model, slice));
  if (options.model.expert_capacity_factor > 0 &&
      (slice.cp_size > 1 || slice.ep_size > 1) &&
      options.sequence_length != options.model.sequence_length_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "on a mesh with cp or ep an expert's capacity needs sequences of the "
        "model's length, ", options.model.sequence_length_max, ", not of ",
        options.sequence_length));
  }
  if (mesh_options.micro_batch_count < 1) {
    return absl::InvalidArgumentError("a step needs at least one micro-batch");
  }
  const int pp = mesh_options.mesh.size(MeshDimension::kPp);
  if (mesh_options.chunk_count > 1 && pp == 1) {
    return absl::InvalidArgumentError(
        "several chunks per rank need a pipeline of at least 2 ranks");
  }
  RETURN_IF_ERROR(
      ValidatePipeline({.kind = mesh_options.pipeline,
                        .rank_count = pp,
                        .chunk_count = mesh_options.chunk_count,
                        .micro_batch_count = mesh_options.micro_batch_count}));
  RETURN_IF_ERROR(
      SplitStages(options.model, pp * mesh_options.chunk_count).status());
  return ValidateSequenceCount(mesh_options, options.batch_size, "a batch");
}

absl::StatusOr<std::unique_ptr<Trainer>> MakeMeshTrainer(
    const TrainerOptions& options, const MeshOptions& mesh_options,
    absl::Span<std::unique_ptr<Collective>> world_ranks, Devices& devices) {
  RETURN_IF_ERROR(ValidateMeshTrainer(options, mesh_options));
  CHECK(!world_ranks.empty());
  const int size = world_ranks.front()->size();
  if (size != mesh_options.mesh.rank_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the world has ", size, " ranks, the mesh ",
                     mesh_options.mesh.rank_count()));
  }
  for (size_t i = 1; i < world_ranks.size(); ++i) {
    CHECK_EQ(world_ranks[i]->rank(), world_ranks[i - 1]->rank() + 1);
  }
  auto trainer = std::make_unique<MeshTrainer>(options, mesh_options,
                                               world_ranks, devices);
  RETURN_IF_ERROR(trainer->Init());
  return trainer;
}

}  // namespace atl::engine
