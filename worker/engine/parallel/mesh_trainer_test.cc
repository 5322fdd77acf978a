// The mesh trainer through the Trainer interface, with the fast operations, in
// f32. (rank_trainer_test shows in f64 that any mesh trains the same model.)
//
// The tolerance. One rank and a mesh both follow the f64 training with their
// own rounding errors. Model and data decide how these grow, so the test
// measures one rank's distance from f64. A mesh has as many rounding errors of
// the same size in other places. Its distance may differ only by chance, which
// the root of the sum of squares over all parameters averages: kFactor times
// the distance is allowed. A loss is one number of few digits, so its largest
// distance over all steps counts, plus the rounding of its f32 value.

#include "worker/engine/parallel/mesh_trainer.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/testing/faulty_collective.h"
#include "worker/engine/ops/testing/fake_device_ops.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/optimizer/learning_rate_schedule.h"
#include "worker/engine/parallel/rank_trainer.h"
#include "worker/engine/parallel/testing/fake_device_collective.h"
#include "worker/engine/tensor/memory.h"

namespace atl::engine {
namespace {

using collective::Collective;
using collective::LocalWorld;

constexpr int kSteps = 20;
constexpr double kFactor = 4;

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

// Llama with a mixture whose rows take all experts, whatever the rounding.
ModelConfig Mixture() {
  return {.architecture = Architecture::kMixtral,
          .vocab_size = 61,
          .hidden_size = 32,
          .intermediate_size = 24,
          .layer_count = 2,
          .head_count = 4,
          .kv_head_count = 2,
          .sequence_length_max = 16,
          .expert_count = 4,
          .experts_per_token = 4,
          .router_loss_weight = 0.1};
}

struct State {
  std::vector<float> parameters, first_moment, second_moment;
  int64_t step_count = 0;
};

struct Batches {
  std::vector<std::vector<int32_t>> inputs, targets;
};

struct Course {
  std::vector<double> losses;
  double evaluated = 0;  // Of the first step's tokens, after the last step.
  std::vector<double> logits;
  std::vector<double> parameters;
};

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum);
}

double LargestDifference(const std::vector<double>& a,
                         const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    most = d <= most ? most : d;  // A NaN counts as the largest.
  }
  return most;
}

std::vector<double> Wide(absl::Span<const float> values) {
  return {values.begin(), values.end()};
}

absl::Span<const int32_t> TakePrefix(const Batches& tokens) {
  return absl::MakeConstSpan(tokens.inputs[0]).subspan(0, 7);
}

Course CourseOfOneRank(const TrainerOptions& options, const State& from,
                       const Batches& tokens) {
  auto trainer = *Trainer::Create(options);
  const OptimizerState state = trainer->optimizer_state();
  absl::c_copy(from.parameters, trainer->parameters().begin());
  absl::c_copy(from.first_moment, state.first_moment.begin());
  absl::c_copy(from.second_moment, state.second_moment.begin());
  trainer->set_optimizer_step_count(from.step_count);
  Course course;
  for (size_t i = 0; i < tokens.inputs.size(); ++i) {
    const int64_t step = from.step_count + static_cast<int64_t>(i);
    const auto loss =
        trainer->Step(tokens.inputs[i], tokens.targets[i], step);
    EXPECT_TRUE(loss.ok()) << loss.status();
    course.losses.push_back(loss.value_or(NAN));
  }
  course.evaluated =
      *trainer->EvaluateLoss(tokens.inputs[0], tokens.targets[0]);
  course.logits = Wide(*trainer->NextTokenLogits(TakePrefix(tokens)));
  course.parameters = Wide(trainer->parameters());
  return course;
}

// CourseOfOneRank in f64, with the definition of each operation.
Course CourseInF64(const TrainerOptions& options, const State& from,
                   const Batches& tokens) {
  LocalWorld world(1);
  auto members = world.TakeRanks();
  PlainOps<double> ops;
  const ParameterLayout layout = MakeParameterLayout(options.model);
  auto trainer = *RankTrainer<double>::Create(
      {.model = options.model,
       .optimizer = options.optimizer,
       .batch_size = options.batch_size,
       .sequence_length = options.sequence_length},
      layout, *members[0], ops);
  EXPECT_TRUE(trainer->ScatterParameters(Wide(from.parameters).data()).ok());
  if (!from.first_moment.empty()) {
    EXPECT_TRUE(trainer->ScatterMoment(0, Wide(from.first_moment).data()).ok());
    EXPECT_TRUE(
        trainer->ScatterMoment(1, Wide(from.second_moment).data()).ok());
  }
  trainer->set_step_count(from.step_count);
  Course course;
  for (size_t i = 0; i < tokens.inputs.size(); ++i) {
    const int64_t step = from.step_count + static_cast<int64_t>(i);
    const auto result = trainer->Step(
        tokens.inputs[i].data(), tokens.targets[i].data(), options.batch_size,
        LearningRateAt(options.schedule, step));
    EXPECT_TRUE(result.ok()) << result.status();
    course.losses.push_back(result->loss);
  }
  course.evaluated = *trainer->EvaluateLoss(
      tokens.inputs[0].data(), tokens.targets[0].data(), options.batch_size);
  const auto prefix = TakePrefix(tokens);
  std::vector<int32_t> padded(prefix.begin(), prefix.end());
  padded.resize(options.sequence_length);
  const double* const logits = *trainer->Logits(
      padded.data(), static_cast<int64_t>(prefix.size()) - 1);
  course.logits.assign(logits, logits + options.model.vocab_size);
  course.parameters.resize(layout.element_count);
  EXPECT_TRUE(trainer->GatherParameters(course.parameters.data()).ok());
  return course;
}

// The mesh must be as near to f64 as one rank.
void ExpectAsNear(const Course& mesh, const Course& one, const Course& truth,
                  const std::string& what) {
  const double u = std::numeric_limits<float>::epsilon() / 2;
  const double told = 2 * u * truth.losses[0];
  const double loss = LargestDifference(mesh.losses, truth.losses);
  const double of_one = LargestDifference(one.losses, truth.losses);
  EXPECT_LE(loss, kFactor * of_one + told) << what;
  EXPECT_LE(std::abs(mesh.evaluated - truth.evaluated), kFactor * of_one + told)
      << what;
  EXPECT_LE(Distance(mesh.logits, truth.logits),
            kFactor * Distance(one.logits, truth.logits))
      << what;
  const double parameters = Distance(mesh.parameters, truth.parameters);
  const double parameters_of_one = Distance(one.parameters, truth.parameters);
  EXPECT_LE(parameters, kFactor * parameters_of_one) << what;
  std::cout << what << ": parameters " << parameters / parameters_of_one
            << ", losses " << loss / of_one << " of one rank's distance, "
            << parameters_of_one << " and " << of_one << std::endl;
}

MeshOptions On(const std::string& mesh, int micro_batches = 1) {
  return {.mesh = *Mesh::Parse(mesh), .micro_batch_count = micro_batches};
}

// Ranks with PlainOps, in host memory or in memory that the host cannot access.
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
    if (is_apart_) return std::make_unique<FakeDeviceOps<float>>();
    return std::make_unique<PlainOps<float>>();
  }
  absl::StatusOr<std::unique_ptr<Collective>> JoinWorld(Collective& control,
                                                        Ops& ops) override {
    if (!is_apart_) return std::unique_ptr<Collective>();
    return MakeFakeDeviceCollective(
        control, static_cast<FakeDeviceOps<float>&>(ops).memory());
  }

  int rank_count_max = 8;

 private:
  const bool is_apart_;
};

// A mesh in one or more processes, each a thread of this process.
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

  // Calls f(i) for each process concurrently.
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
  void Load(const State& from) {
    OnProcesses([&](int i) {
      Put(from.parameters, trainer(i), trainer(i).parameters());
      const OptimizerState state = trainer(i).optimizer_state();
      if (!from.first_moment.empty()) {
        Put(from.first_moment, trainer(i), state.first_moment);
        Put(from.second_moment, trainer(i), state.second_moment);
      }
      trainer(i).set_optimizer_step_count(from.step_count);
      EXPECT_TRUE(trainer(i).Scatter().ok());
    });
  }
  Course Run(const State& from, const Batches& tokens) {
    Load(from);
    Course course;
    for (size_t i = 0; i < tokens.inputs.size(); ++i) {
      const auto loss = Step(tokens.inputs[i], tokens.targets[i],
                             static_cast<int>(from.step_count + i));
      EXPECT_TRUE(loss.ok()) << loss.status();
      course.losses.push_back(loss.value_or(NAN));
    }
    OnProcesses([&](int i) {
      const auto loss =
          trainer(i).EvaluateLoss(tokens.inputs[0], tokens.targets[0]);
      EXPECT_TRUE(loss.ok()) << loss.status();
      const auto logits = trainer(i).NextTokenLogits(TakePrefix(tokens));
      EXPECT_TRUE(logits.ok()) << logits.status();
      if (i > 0) return;
      course.evaluated = *loss;
      course.logits = Wide(*logits);
    });
    course.parameters = Wide(Parameters());
    return course;
  }
  // The first process's loss; all processes have the same.
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
    start_ = MakeStart(options_.model);
  }

  std::vector<float> MakeStart(const ModelConfig& model) {
    std::normal_distribution<float> normal(0.0f, 0.1f);
    std::vector<float> start;
    for (const ParameterSpec& spec : MakeParameterLayout(model).parameters) {
      const bool is_gain = spec.parameter_class == ParameterClass::kVector &&
                           absl::EndsWith(spec.name, "weight");
      for (int64_t i = 0; i < spec.element_count; ++i) {
        start.push_back((is_gain ? 1.0f : 0.0f) + normal(random_));
      }
    }
    return start;
  }

  Batches MakeBatches(int count) {
    Batches tokens;
    for (int i = 0; i < count; ++i) {
      tokens.inputs.push_back(Tokens(options_.batch_size));
      tokens.targets.push_back(Tokens(options_.batch_size));
    }
    return tokens;
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

struct MeshCase {
  std::string mesh;
  int micro_batches = 1;
  int processes = 1;
};

TEST_F(MeshTrainerTest, TrainsAsTheTrainerOfOneRank) {
  options_.optimizer = {.epsilon = 1e-5};
  options_.schedule = {.peak = 0.01};
  const std::vector<MeshCase> dense = {
      {"dp_shard=2"},    {"dp_replicate=2,dp_shard=2", 1, 2},
      {"tp=2"},          {"cp=2"},
      {"pp=2", 4},       {"pp=2,dp_shard=2", 2},
      {"pp=2,tp=2", 2, 2}};
  const std::vector<MeshCase> mixture = {{"ep=2"}, {"dp_shard=2,ep=2"}};
  // An expert takes 12 of a sequence's 16 rows.
  const std::vector<MeshCase> capacity = {
      {"cp=2"}, {"ep=2,cp=2", 1, 2}, {"dp_shard=2,ep=2"}};
  for (const auto* cases : {&dense, &mixture, &capacity}) {
    if (cases != &dense) options_.model = Mixture();
    if (cases == &capacity) options_.model.expert_capacity_factor = 0.75;
    const State start{.parameters = MakeStart(options_.model)};
    const Batches tokens = MakeBatches(kSteps);
    const Course truth = CourseInF64(options_, start, tokens);
    const Course one = CourseOfOneRank(options_, start, tokens);
    for (const MeshCase& c : *cases) {
      Island island(options_, On(c.mesh, c.micro_batches), c.processes);
      ExpectAsNear(island.Run(start, tokens), one, truth, c.mesh);
    }
  }
}

// bf16 operands may round to another neighbour if a sum has another order, so a
// mesh is as far from f64 as one rank in bf16. Gathered units change addresses,
// and rounded weights are cached by address.
TEST_F(MeshTrainerTest, InBf16AMeshTrainsAsOneRank) {
  options_.compute = ComputeType::kBf16;
  const State start{.parameters = start_};
  const Batches tokens = MakeBatches(6);
  const Course truth = CourseInF64(options_, start, tokens);
  const Course one = CourseOfOneRank(options_, start, tokens);
  const double rounding = Distance(one.parameters, truth.parameters);
  for (const MeshCase& c :
       std::vector<MeshCase>{{"dp_shard=2"}, {"pp=2,tp=2", 2}}) {
    Island island(options_, On(c.mesh, c.micro_batches));
    const Course mesh = island.Run(start, tokens);
    ExpectAsNear(mesh, one, truth, c.mesh);
    // A control: f32 would be far nearer.
    EXPECT_GE(Distance(mesh.parameters, truth.parameters), rounding / kFactor);
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
  options_.optimizer = {.epsilon = 1e-5};
  options_.schedule = {.peak = 0.01};
  Island first(options_, On("pp=3,dp_shard=2", 2), 2);
  first.Load(start_);
  const Batches before = MakeBatches(3), tokens = MakeBatches(2);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(
        first.Step(before.inputs[step], before.targets[step], step).ok());
  }
  State saved{.parameters = first.Parameters(), .step_count = 3};
  for (std::vector<float>* moment :
       {&saved.first_moment, &saved.second_moment}) {
    moment->resize(saved.parameters.size());
    first.OnProcesses([&](int i) {
      Trainer& trainer = first.trainer(i);
      const OptimizerState state = trainer.optimizer_state();
      Island::Take(trainer,
                   moment == &saved.first_moment ? state.first_moment
                                                 : state.second_moment,
                   *moment);
    });
  }
  Course went_on;
  for (int i = 0; i < 2; ++i) {
    went_on.losses.push_back(
        *first.Step(tokens.inputs[i], tokens.targets[i], 3 + i));
  }
  went_on.parameters = Wide(first.Parameters());
  Island same(options_, On("pp=3,dp_shard=2", 2), 3);
  const Course again = same.Run(saved, tokens);
  EXPECT_EQ(again.losses, went_on.losses);
  EXPECT_EQ(again.parameters, went_on.parameters);
  const Course truth = CourseInF64(options_, saved, tokens);
  const Course one = CourseOfOneRank(options_, saved, tokens);
  for (const char* mesh : {"dp_shard=2", "dp_replicate=4"}) {
    Island other(options_, On(mesh));
    ExpectAsNear(other.Run(saved, tokens), one, truth, mesh);
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

TEST_F(MeshTrainerTest, WhatIsHeldEndsWithAStepAndComesBackWithGather) {
  options_.optimizer = {};
  Island island(options_, On("dp_shard=2")), other(options_, On("dp_shard=2"));
  const auto inputs = Tokens(8), targets = Tokens(8);
  for (Island* i : {&island, &other}) i->Load(start_);
  Trainer& trainer = island.trainer();
  // A loss needs the scattered values and keeps them.
  ASSERT_TRUE(trainer.EvaluateLoss(inputs, targets).ok());
  EXPECT_EQ(trainer.parameters(), absl::MakeSpan(start_));
  // So does a rejected step.
  EXPECT_FALSE(trainer.Step(inputs, absl::MakeSpan(targets).first(3), 0).ok());
  EXPECT_EQ(trainer.parameters(), absl::MakeSpan(start_));
  ASSERT_TRUE(island.Step(inputs, targets, 0).ok());
  EXPECT_TRUE(trainer.parameters().empty());
  EXPECT_TRUE(trainer.optimizer_state().first_moment.empty());
  // Nothing was written, so Scatter has nothing to do.
  EXPECT_TRUE(trainer.Scatter().ok());
  ASSERT_TRUE(island.Step(targets, inputs, 1).ok());
  ASSERT_TRUE(other.Step(inputs, targets, 0).ok());
  other.Parameters();
  ASSERT_TRUE(other.trainer().Scatter().ok());
  ASSERT_TRUE(other.Step(targets, inputs, 1).ok());
  EXPECT_EQ(island.Parameters(), other.Parameters());
  EXPECT_EQ(trainer.optimizer_state().first_moment,
            other.trainer().optimizer_state().first_moment);
  EXPECT_EQ(trainer.optimizer_state().second_moment,
            other.trainer().optimizer_state().second_moment);
}

TEST_F(MeshTrainerTest, ElementsAreGatheredAndScatteredByThemselves) {
  options_.optimizer = {};
  for (const char* mesh : {"dp_shard=2", "pp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    Island island(options_, On(mesh));
    island.Load(start_);
    ASSERT_TRUE(island.Step(Tokens(8), Tokens(8), 0).ok());
    Trainer& trainer = island.trainer();
    const int64_t count = trainer.layout().element_count;
    // Spans that no unit, parameter or block ends with.
    const std::vector<ParameterSpan> spans = {{5, count / 3},
                                              {count / 2, count - 7}};
    const auto in_spans = [&](int64_t i) {
      return (i >= spans[0].begin && i < spans[0].end) ||
             (i >= spans[1].begin && i < spans[1].end);
    };
    ASSERT_TRUE(trainer.Gather({.parameters = spans, .moments = false}).ok());
    const std::vector<float> part(trainer.parameters().begin(),
                                  trainer.parameters().end());
    EXPECT_EQ(std::count(trainer.optimizer_state().first_moment.begin(),
                         trainer.optimizer_state().first_moment.end(), 0.0f),
              count);
    const std::vector<float> all = island.Parameters();
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(part[i], in_spans(i) ? all[i] : 0.0f) << i;
    }
    const std::vector<float> moment(
        trainer.optimizer_state().first_moment.begin(),
        trainer.optimizer_state().first_moment.end());
    EXPECT_LT(std::count(moment.begin(), moment.end(), 0.0f), count);
    // Ranks keep the elements outside of the spans, and the moments.
    for (float& value : trainer.parameters()) value = 3.0f;
    for (float& value : trainer.optimizer_state().first_moment) value = 4.0f;
    ASSERT_TRUE(trainer.Scatter({.parameters = spans, .moments = false}).ok());
    const std::vector<float> after = island.Parameters();
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(after[i], in_spans(i) ? 3.0f : all[i]) << i;
    }
    EXPECT_EQ(trainer.optimizer_state().first_moment,
              absl::MakeConstSpan(moment));
  }
}

// All memory that the process allocates for tensors: shards, gathered units,
// activations, messages, and held elements.
TEST_F(MeshTrainerTest, InAllARankOfZero3HasThreeTenthsAndABlock) {
  constexpr int kRanks = 4;
  options_.model = {.vocab_size = 61,
                    .hidden_size = 64,
                    .intermediate_size = 160,
                    .layer_count = 24,
                    .head_count = 4,
                    .kv_head_count = 4,
                    .sequence_length_max = 2};
  options_.optimizer = {};
  // Two rows per rank: activations are small next to parameters.
  options_.batch_size = kRanks;
  options_.sequence_length = 2;
  const ParameterLayout layout = MakeParameterLayout(options_.model);
  int64_t block = 0;
  for (const ParameterSpan& unit : layout.units) {
    block = std::max<int64_t>(block, unit.size());
  }
  // A parameter, its gradient and two moments.
  constexpr int64_t kBytes = 4 * sizeof(float);
  const auto one = static_cast<double>(layout.element_count * kBytes);
  const int64_t before = HostMemoryBytes();
  Island island(options_, On("dp_shard=4"));
  island.Load(std::vector<float>(layout.element_count, 0.02f));
  const auto tokens = Tokens(kRanks);
  ASSERT_TRUE(island.Step(tokens, tokens, 0).ok());
  const int64_t in_step = HostMemoryBytes() - before;
  std::cout << "a rank's share of one rank's: " << in_step / kRanks / one
            << ", a block's: " << block * kBytes / one << std::endl;
  EXPECT_LE(in_step / kRanks, 0.3 * one + static_cast<double>(block * kBytes));
  // With held elements, at a sync: 12 bytes per element more.
  island.Parameters();
  const int64_t at_sync = HostMemoryBytes() - before;
  EXPECT_NEAR(static_cast<double>(at_sync - in_step), 0.75 * one, 256);
  ASSERT_TRUE(island.Step(tokens, tokens, 1).ok());
  EXPECT_EQ(HostMemoryBytes() - before, in_step);
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
      // Later calls return the same.
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
  std::vector<float> after = island.Parameters();
  EXPECT_TRUE(std::isnan(after[100]));
  after[100] = start_[100];
  EXPECT_EQ(after, start_);
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
  EXPECT_EQ(message(On("dp_shard=2", 0)),
            "a step needs at least one micro-batch");
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
