// The trainer of a mesh behind the interface of all trainers, in f32. (That any
// mesh trains the same model is rank_trainer_test's, in f64.)
//
// Tolerance: as there, with u = 2^-24. SGD moves an element by lr g, so S steps
// add at most S lr n u G to a difference: with S = 8, lr = 0.05, n = 2000 and
// gradients clipped to a norm of 1, of which elements are sums of magnitudes
// below 4: 8 * 0.05 * 2000 * 6e-8 * 4 = 2e-4.

#include "worker/engine/parallel/mesh_trainer.h"

#include <cmath>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/collective/faults/faulty_collective.h"
#include "worker/collective/local/local_world.h"
#include "worker/engine/ops/plain_ops.h"
#include "worker/engine/ops/testing/apart_ops.h"
#include "worker/engine/parallel/testing/apart_collective.h"

namespace atl::engine {
namespace {

using collective::Collective;
using collective::LocalWorld;

constexpr int kSteps = 8;
constexpr double kTolerance = 2e-4;

TrainerOptions Options() {
  TrainerOptions options;
  options.model = {.architecture = Architecture::kGpt2,
                   .vocab_size = 61,
                   .hidden_size = 32,
                   .intermediate_size = 48,
                   .layer_count = 3,
                   .head_count = 4,
                   .kv_head_count = 4,
                   .sequence_length_max = 16,
                   .tie_embeddings = true};
  options.optimizer = {.kind = OptimizerKind::kSgd};
  options.schedule = {.peak = 0.05};
  options.batch_size = 8;
  options.sequence_length = 16;
  return options;
}

MeshOptions On(const std::string& mesh, int micro_batches = 1) {
  return {.mesh = *Mesh::Parse(mesh), .micro_batch_count = micro_batches};
}

// Ranks with the definition's sums, whose memory the host can touch or not.
class TestDevices final : public Devices {
 public:
  explicit TestDevices(bool is_apart) : is_apart_(is_apart) {}

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  absl::StatusOr<DeviceDescription> Describe(int) const override {
    return DeviceDescription{};
  }
  absl::Status CheckRanks(int, int count) const override {
    if (count <= rank_count_max) return absl::OkStatus();
    return absl::FailedPreconditionError("they would share a device");
  }
  absl::StatusOr<std::unique_ptr<Ops>> MakeOps(int, ComputeType, int) override {
    if (is_apart_) return std::make_unique<ApartOps<float>>();
    return std::make_unique<PlainOps<float>>();
  }
  absl::StatusOr<std::unique_ptr<Collective>> JoinWorld(Collective& control,
                                                        Ops& ops) override {
    if (!is_apart_) return std::unique_ptr<Collective>();
    return MakeApart(control, static_cast<ApartOps<float>&>(ops).memory());
  }

  int rank_count_max = 8;

 private:
  const bool is_apart_;
};

// A mesh in one or more processes, each a thread of this one.
class Island {
 public:
  Island(const TrainerOptions& options, const MeshOptions& mesh,
         int process_count = 1, int faulty_rank = -1, int64_t die_at_call = -1,
         Devices& devices = CpuDevices())
      : world_(mesh.mesh.rank_count()) {
    auto members = world_.TakeRanks();
    if (faulty_rank >= 0) {
      members[faulty_rank] = collective::MakeFaulty(
          std::move(members[faulty_rank]), {.die_at_call = die_at_call});
    }
    trainers_.resize(process_count);
    const size_t each = members.size() / process_count;
    OnProcesses([&](int i) {
      auto made = MakeMeshTrainer(
          options, mesh, absl::MakeSpan(members).subspan(i * each, each),
          devices);
      EXPECT_TRUE(made.ok()) << made.status();
      if (made.ok()) trainers_[i] = *std::move(made);
    });
  }
  ~Island() {
    OnProcesses([this](int i) { trainers_[i] = nullptr; });
  }

  // Calls f(i) for each process at the same time.
  template <typename F>
  void OnProcesses(const F& f) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < trainers_.size(); ++i) {
      threads.emplace_back([&f, i] { f(static_cast<int>(i)); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  Trainer& trainer(int i = 0) { return *trainers_[i]; }
  int process_count() const { return static_cast<int>(trainers_.size()); }

  void Load(const std::vector<float>& parameters) {
    OnProcesses([&](int i) {
      Put(parameters, trainer(i), trainer(i).parameters());
      EXPECT_TRUE(trainer(i).Scatter().ok());
    });
  }
  std::vector<float> Parameters() {
    std::vector<float> parameters(trainer().layout().element_count, 77.0f);
    OnProcesses([&](int i) {
      EXPECT_TRUE(trainer(i).Gather().ok());
      Take(trainer(i), trainer(i).parameters(), parameters);
    });
    return parameters;
  }
  // Of the first process; all have the same.
  absl::StatusOr<float> Step(const std::vector<int32_t>& inputs,
                             const std::vector<int32_t>& targets, int step) {
    std::vector<absl::StatusOr<float>> losses(
        trainers_.size(), absl::InternalError("no process"));
    OnProcesses(
        [&](int i) { losses[i] = trainer(i).Step(inputs, targets, step); });
    for (const auto& loss : losses) {
      EXPECT_EQ(loss.status(), losses[0].status());
      if (loss.ok()) {
        EXPECT_EQ(*loss, *losses[0]);
      }
    }
    return losses[0];
  }

  static void Put(const std::vector<float>& whole, const Trainer& trainer,
                  absl::Span<float> part) {
    auto to = part.begin();
    for (const ParameterSpan& span : trainer.held()) {
      to = std::copy(whole.begin() + span.begin, whole.begin() + span.end, to);
    }
    EXPECT_EQ(to, part.end());
  }
  static void Take(const Trainer& trainer, absl::Span<const float> part,
                   std::vector<float>& whole) {
    auto from = part.begin();
    for (const ParameterSpan& span : trainer.held()) {
      std::copy_n(from, span.size(), whole.begin() + span.begin);
      from += span.size();
    }
  }

 private:
  LocalWorld world_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

class MeshTrainerTest : public testing::Test {
 protected:
  MeshTrainerTest() : seed_(std::random_device()()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
    std::normal_distribution<float> normal(0.0f, 0.1f);
    for (const ParameterSpec& spec :
         MakeParameterLayout(options_.model).parameters) {
      for (int64_t i = 0; i < spec.element_count; ++i) {
        const bool is_gain = absl::StrContains(spec.name, "ln_") &&
                             absl::EndsWith(spec.name, "weight");
        start_.push_back((is_gain ? 1.0f : 0.0f) + normal(random_));
      }
    }
  }

  std::vector<int32_t> Tokens(int64_t sequences) {
    std::vector<int32_t> tokens(sequences * options_.sequence_length);
    for (int32_t& t : tokens) t = static_cast<int32_t>(random_() % 61);
    return tokens;
  }

  TrainerOptions options_ = Options();
  const uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<float> start_;
};

TEST_F(MeshTrainerTest, TrainsAsTheTrainerOfOneRank) {
  auto one = *Trainer::Create(options_);
  std::copy(start_.begin(), start_.end(), one->parameters().begin());
  Island local(options_, On("pp=2,dp_shard=2", 2));
  Island split(options_, On("dp_replicate=2,dp_shard=2"), 2);
  local.Load(start_);
  split.Load(start_);
  for (int step = 0; step < kSteps; ++step) {
    const auto inputs = Tokens(8), targets = Tokens(8);
    const auto loss = one->Step(inputs, targets, step);
    ASSERT_TRUE(loss.ok()) << loss.status();
    for (Island* island : {&local, &split}) {
      const auto of_mesh = island->Step(inputs, targets, step);
      ASSERT_TRUE(of_mesh.ok()) << of_mesh.status();
      EXPECT_NEAR(*of_mesh, *loss, kTolerance) << step;
      EXPECT_NEAR(island->trainer().gradient_norm(), one->gradient_norm(),
                  kTolerance * one->gradient_norm() * 10);
    }
  }
  for (Island* island : {&local, &split}) {
    const std::vector<float> parameters = island->Parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      ASSERT_NEAR(parameters[i], one->parameters()[i], kTolerance) << i;
    }
  }
  const auto inputs = Tokens(5), targets = Tokens(5);
  const double loss = *one->EvaluateLoss(inputs, targets);
  const auto prefix = absl::MakeConstSpan(inputs).subspan(0, 7);
  const auto logits = *one->NextTokenLogits(prefix);
  for (Island* island : {&local, &split}) {
    island->OnProcesses([&](int i) {
      const auto own = island->trainer(i).EvaluateLoss(inputs, targets);
      ASSERT_TRUE(own.ok()) << own.status();
      EXPECT_NEAR(*own, loss, kTolerance);
      const auto next = island->trainer(i).NextTokenLogits(prefix);
      ASSERT_TRUE(next.ok()) << next.status();
      for (size_t t = 0; t < logits.size(); ++t) {
        EXPECT_NEAR((*next)[t], logits[t], 10 * kTolerance);
      }
    });
  }
}

TEST_F(MeshTrainerTest, ProcessesHoldWholeBlocksAndAllElementsOnce) {
  options_.model.hidden_size = 96;
  for (const char* mesh : {"dp_shard=4", "pp=2,dp_shard=2"}) {
    Island island(options_, On(mesh), 4);
    const ParameterLayout& layout = island.trainer().layout();
    int64_t at = 0;
    for (int i = 0; i < 4; ++i) {
      size_t count = 0;
      for (const ParameterSpan& span : island.trainer(i).held()) {
        EXPECT_EQ(span.begin, at);
        EXPECT_GT(span.end, span.begin);
        at = span.end;
        count += span.size();
        const auto after = std::upper_bound(
            layout.parameters.begin(), layout.parameters.end(), span.begin,
            [](int64_t begin, const ParameterSpec& spec) {
              return begin < spec.offset;
            });
        EXPECT_EQ((span.begin - std::prev(after)->offset) % 4096, 0);
      }
      EXPECT_EQ(island.trainer(i).parameters().size(), count);
    }
    EXPECT_EQ(at, layout.element_count);
  }
}

TEST_F(MeshTrainerTest, AStateGoesOnUnderAnotherMeshBitForBitWhereSumsAre) {
  options_.optimizer = {};
  options_.schedule = {.peak = 0.01};
  Island first(options_, On("pp=3,dp_shard=2", 2), 2);
  first.Load(start_);
  std::vector<std::vector<int32_t>> data;
  for (int i = 0; i < 8; ++i) data.push_back(Tokens(8));
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(first.Step(data[step], data[step + 1], step).ok());
  }
  const std::vector<float> parameters = first.Parameters();
  std::vector<float> moments[2];
  for (int which : {0, 1}) {
    moments[which].resize(parameters.size());
    first.OnProcesses([&](int i) {
      Trainer& trainer = first.trainer(i);
      const OptimizerState state = trainer.optimizer_state();
      Island::Take(trainer,
                   which == 0 ? state.first_moment : state.second_moment,
                   moments[which]);
    });
  }
  const float next = *first.Step(data[3], data[4], 3);
  const float after = *first.Step(data[4], data[5], 4);
  // The same mesh, loaded: the same bits. Another: the same but for rounding.
  for (const char* mesh : {"pp=3,dp_shard=2", "dp_shard=2", "dp_replicate=4"}) {
    const bool same = std::string(mesh) == "pp=3,dp_shard=2";
    Island second(options_, On(mesh, same ? 2 : 1), same ? 3 : 1);
    second.OnProcesses([&](int i) {
      Trainer& trainer = second.trainer(i);
      Island::Put(parameters, trainer, trainer.parameters());
      const OptimizerState state = trainer.optimizer_state();
      Island::Put(moments[0], trainer, state.first_moment);
      Island::Put(moments[1], trainer, state.second_moment);
      trainer.set_optimizer_step_count(3);
      EXPECT_TRUE(trainer.Scatter().ok());
    });
    const float loaded = *second.Step(data[3], data[4], 3);
    const float loaded_after = *second.Step(data[4], data[5], 4);
    if (same) {
      EXPECT_EQ(loaded, next);
      EXPECT_EQ(loaded_after, after);
    } else {
      EXPECT_NEAR(loaded, next, 1e-5);
      EXPECT_NEAR(loaded_after, after, 1e-3);
    }
  }
}

TEST_F(MeshTrainerTest, MomentsInAFileTrainToTheSameBits) {
  options_.optimizer = {};
  options_.schedule = {.peak = 0.01};
  MeshOptions in_memory = On("dp_shard=2");
  MeshOptions in_file = in_memory;
  in_file.optimizer_directory = testing::TempDir();
  Island one(options_, in_memory), other(options_, in_file);
  for (Island* island : {&one, &other}) island->Load(start_);
  for (int step = 0; step < 3; ++step) {
    const auto inputs = Tokens(8), targets = Tokens(8);
    EXPECT_EQ(*one.Step(inputs, targets, step),
              *other.Step(inputs, targets, step));
  }
  EXPECT_EQ(one.Parameters(), other.Parameters());
  EXPECT_EQ(one.trainer().optimizer_state().second_moment,
            other.trainer().optimizer_state().second_moment);
}

TEST_F(MeshTrainerTest, ARankThatDiesEndsTheTrainerEverywhere) {
  for (int64_t call : {60, 75, 90}) {
    Island island(options_, On("pp=2,dp_shard=2", 2), 2, /*faulty_rank=*/3,
                  call);
    island.OnProcesses([&](int i) {
      Trainer& trainer = island.trainer(i);
      absl::Status status;
      for (int step = 0; status.ok() && step < 50; ++step) {
        const std::vector<int32_t> tokens(8 * options_.sequence_length, step);
        status = trainer.Step(tokens, tokens, step).status();
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), "left")) << status;
      // And stays so.
      EXPECT_EQ(trainer.Scatter(), status);
      EXPECT_EQ(trainer.Gather(), status);
    });
  }
}

TEST_F(MeshTrainerTest, ARankThatFailsAloneTellsTheOthersWhy) {
  options_.optimizer = {};
  LocalWorld world(2);
  auto members = world.TakeRanks();
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> processes;
  for (int i : {0, 1}) {
    processes.emplace_back([&, i] {
      MeshOptions mesh = On("dp_shard=2");
      if (i == 1) mesh.optimizer_directory = "/nowhere/at/all";
      statuses[i] = MakeMeshTrainer(options_, mesh,
                                    absl::MakeSpan(members).subspan(i, 1))
                        .status();
    });
  }
  for (std::thread& process : processes) process.join();
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument)
      << statuses[1];
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kUnavailable) << statuses[0];
  EXPECT_TRUE(absl::StrContains(statuses[0].message(), "/nowhere/at/all"))
      << statuses[0];
}

TEST_F(MeshTrainerTest, WithMemoryApartItComputesTheSameBits) {
  options_.optimizer = {};
  TestDevices here(false), apart(true);
  for (const char* mesh : {"dp_shard=2", "pp=2,tp=2"}) {
    std::vector<float> parameters[2];
    std::vector<std::vector<int32_t>> data;
    for (int i = 0; i < 6; ++i) data.push_back(Tokens(8));
    for (TestDevices* devices : {&here, &apart}) {
      MeshOptions mesh_options = On(mesh, 2);
      mesh_options.optimizer_on_host = true;
      Island island(options_, mesh_options, 2, -1, -1, *devices);
      island.Load(start_);
      for (int step = 0; step < 3; ++step) {
        const auto loss = island.Step(data[2 * step], data[2 * step + 1], step);
        ASSERT_TRUE(loss.ok()) << loss.status();
      }
      parameters[devices == &apart] = island.Parameters();
      island.OnProcesses([&](int i) {
        EXPECT_TRUE(island.trainer(i)
                        .NextTokenLogits(absl::MakeSpan(data[0]).first(3))
                        .ok());
      });
    }
    EXPECT_EQ(parameters[0], parameters[1]) << mesh;
    EXPECT_NE(parameters[0], start_);
  }
}

TEST_F(MeshTrainerTest, RanksThatCannotShareADeviceAreRefused) {
  TestDevices devices(true);
  devices.rank_count_max = 1;
  LocalWorld world(2);
  auto members = world.TakeRanks();
  const absl::Status status = MakeMeshTrainer(options_, On("dp_shard=2"),
                                              absl::MakeSpan(members), devices)
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

TEST_F(MeshTrainerTest, ALossThatIsNotFiniteChangesNothing) {
  Island island(options_, On("pp=2,dp_shard=2"));
  std::vector<float> broken = start_;
  broken[100] = std::numeric_limits<float>::quiet_NaN();
  island.Load(broken);
  const std::vector<int32_t> tokens(8 * options_.sequence_length, 3);
  EXPECT_EQ(island.Step(tokens, tokens, 0).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(island.trainer().optimizer_state().step_count, 0);
  island.Load(start_);
  EXPECT_TRUE(island.Step(tokens, tokens, 0).ok());
}

TEST_F(MeshTrainerTest, RefusesWhatDoesNotDivide) {
  const auto message = [this](const MeshOptions& mesh) {
    const absl::Status status = ValidateMeshTrainer(options_, mesh);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(message(On("dp_shard=3")),
            "a batch of 8 sequences cannot be divided into 1 micro-batches on "
            "each of 3 ranks");
  EXPECT_EQ(message(On("pp=4", 4)), "pp = 4 is more than the 3 layers");
  EXPECT_EQ(message(On("dp_shard=2", 0)), "a step has no micro-batch");
  MeshOptions chunked = On("pp=2", 2);
  chunked.pipeline = PipelineKind::kInterleaved;
  chunked.chunk_count = 2;
  EXPECT_EQ(message(chunked), "4 pipeline stages are more than the 3 layers");
  Island island(options_, On("dp_shard=2", 2));
  const auto tokens = Tokens(6);
  EXPECT_EQ(island.Step(tokens, tokens, 0).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto good = Tokens(4);
  EXPECT_TRUE(island.Step(good, good, 0).ok());
}

}  // namespace
}  // namespace atl::engine
