// Meshes against one rank, in f64: any mesh trains the same model.
//
// The tolerance. A mesh computes the same sums as one rank in another order.
// Let u = 2^-53, and n the terms of the longest chain of additions behind a
// gradient (rows of the batch, channels of each product on the way, layers). A
// computed sum of n terms is the exact sum of terms that each change by a
// fraction below n u, in any order. So a step is the exact step from parameters
// changed by n u; over S steps the changes add up to at most S n u.
//
// Model and data decide the effect of such a change, so the test measures it.
// One rank starts from parameters with a random relative change of kChange.
// Each result of a mesh may differ by S n u / kChange of that rank's
// difference. Chains count as twice 2000 terms, because both sides differ from
// the exact result. The tolerance is about 1e-8 of a parameter. A bug (a wrong
// scale, a row twice, a unit without its sum) shows in the first step as the
// learning rate, 1e-2. Measured differences are below 1e-10.

#include "worker/engine/parallel/rank_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/sync/mutex.h"
#include "gtest/gtest.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/testing/ranks.h"
#include "worker/engine/ops/testing/fake_device_ops.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/parallel/testing/fake_device_collective.h"

namespace atl::engine {
namespace {

using collective::Collective;
using collective::LocalWorld;
using Values = std::vector<double>;

constexpr int kSteps = 10;
constexpr int64_t kSequences = 8;
constexpr int64_t kLength = 8;
constexpr double kRate = 0.01;
constexpr double kChange = 1e-9;
constexpr double kTolerated = kSteps * 2 * 2000 * 0x1p-53 / kChange;

ModelConfig Config(const std::string& shape, int64_t layers) {
  ModelConfig config{.vocab_size = 29,
                     .hidden_size = 16,
                     .intermediate_size = 24,
                     .layer_count = layers,
                     .head_count = 4,
                     .kv_head_count = 2,
                     .sequence_length_max = kLength};
  if (shape == "gpt2") {
    config.architecture = Architecture::kGpt2;
    config.kv_head_count = 4;
    config.tie_embeddings = true;
  } else if (shape == "tied") {
    config.tie_embeddings = true;
  } else if (shape == "mixture") {
    config.architecture = Architecture::kMixtral;
    config.expert_count = 4;
    config.experts_per_token = 2;
    config.router_loss_weight = 0.1;
  }
  return config;
}

struct MeshCase {
  std::string mesh;
  std::string shape = "llama";
  int micro_batches = 1;
  ShardingMode sharding = ShardingMode::kZero3;
  PipelineKind pipeline = PipelineKind::kOneForwardOneBackward;
  int chunks = 1;
  int64_t layers = 5;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  // For a mixture.
  double capacity_factor = 0;  // 0: no limit.
  bool has_balance = true;     // With the load-balancing loss.
};

std::string ToString(const MeshCase& c) {
  return absl::StrCat("\"", c.mesh, "\" ", c.shape, " m=", c.micro_batches,
                      " sharding=", static_cast<int>(c.sharding),
                      " pipeline=", static_cast<int>(c.pipeline),
                      " v=", c.chunks, " layers=", c.layers,
                      " checkpointing=", static_cast<int>(c.checkpointing),
                      " capacity=", c.capacity_factor,
                      " balance=", c.has_balance);
}

ModelConfig MakeModel(const MeshCase& c) {
  ModelConfig config = Config(c.shape, c.layers);
  config.expert_capacity_factor = c.capacity_factor;
  if (!c.has_balance) config.router_loss_weight = 0;
  return config;
}

RankTrainerOptions MakeOptions(const MeshCase& c) {
  return {.model = MakeModel(c),
          .optimizer = {.epsilon = 1e-5},
          .mesh = {.mesh = *Mesh::Parse(c.mesh),
                   .micro_batch_count = c.micro_batches,
                   .sharding = c.sharding,
                   .pipeline = c.pipeline,
                   .chunk_count = c.chunks,
                   .checkpointing = c.checkpointing},
          .batch_size = kSequences,
          .sequence_length = kLength};
}

struct Outcome {
  Values losses, norms, router_losses;
  double evaluated = 0;  // Loss of 5 sequences, after the last step.
  Values logits;
  Values parameters, first_moment, second_moment;
  // Choices that experts dropped in the steps; a tp group counts once.
  int64_t passed_by = 0;
  std::vector<RankMemory> memory;
};

// Counts the choices that experts drop.
class CountingOps final : public PlainOps<double> {
 public:
  void PlanDispatch(const RouteShape& shape, const int32_t* experts,
                    const double* before, int32_t* slots, int32_t* sources,
                    int64_t* begins) override {
    PlainOps<double>::PlanDispatch(shape, experts, before, slots, sources,
                                   begins);
    passed_by += std::count(
        slots, slots + shape.rows * shape.experts_per_token, int32_t{-1});
  }

  int64_t passed_by = 0;
};

class MeshTest : public testing::Test {
 protected:
  MeshTest() : seed_(Seed()), random_(seed_) {
    for (int i = 0; i < kSteps + 10; ++i) {
      inputs_.push_back(Tokens());
      targets_.push_back(Tokens());
    }
  }

  // One seed for all tests, which share their references.
  static uint64_t Seed() {
    static const uint64_t seed = [] {
      const uint64_t chosen = std::random_device()();
      std::cout << "seed " << chosen << std::endl;
      return chosen;
    }();
    return seed;
  }

  std::vector<int32_t> Tokens() {
    std::vector<int32_t> tokens(kSequences * kLength);
    for (int32_t& t : tokens) t = static_cast<int32_t>(random_() % 29);
    return tokens;
  }

  // All meshes of a model start from the same parameters.
  Values MakeStart(const ModelConfig& config) const {
    std::mt19937_64 random(seed_ + config.layer_count);
    std::normal_distribution<double> normal(0.0, 0.2);
    Values values;
    for (const ParameterSpec& spec : MakeParameterLayout(config).parameters) {
      for (int64_t i = 0; i < spec.element_count; ++i) {
        const bool is_gain = spec.parameter_class == ParameterClass::kVector;
        values.push_back((is_gain ? 1.0 : 0.0) + normal(random));
      }
    }
    return values;
  }

  // Runs `steps` steps, from step `first` of the data.
  void RunRank(const RankTrainerOptions& options, Collective& world,
               const Outcome& from, int64_t first, int64_t steps,
               Outcome& outcome) {
    if (!is_apart_) {
      CountingOps ops;
      const auto count_passed_by = [&] {
        const Mesh& mesh = options.mesh.mesh;
        if (mesh.Coordinate(world.rank(), MeshDimension::kTp) > 0) return;
        MutexLock lock(&mutex_);
        outcome.passed_by += ops.passed_by;
      };
      TrainRank(options, world, ops, from, first, steps, outcome,
                count_passed_by);
      return;
    }
    FakeDeviceOps<double> ops;
    TrainRank(options, *MakeFakeDeviceCollective(world, ops.memory()), ops,
              from, first, steps, outcome, [] {});
  }

  void TrainRank(const RankTrainerOptions& options, Collective& world,
                 BasicOps<double>& ops, const Outcome& from, int64_t first,
                 int64_t steps, Outcome& outcome,
                 absl::FunctionRef<void()> after_steps) {
    const ParameterLayout layout = MakeParameterLayout(options.model);
    auto made = RankTrainer<double>::Create(options, layout, world, ops);
    ASSERT_TRUE(made.ok()) << made.status();
    RankTrainer<double>& trainer = **made;
    const int64_t begin = trainer.held().begin;
    ASSERT_TRUE(trainer.ScatterParameters(from.parameters.data() + begin).ok());
    if (!from.first_moment.empty()) {
      ASSERT_TRUE(
          trainer.ScatterMoment(0, from.first_moment.data() + begin).ok());
      ASSERT_TRUE(
          trainer.ScatterMoment(1, from.second_moment.data() + begin).ok());
      trainer.set_step_count(first);
    }
    for (int64_t step = first; step < first + steps; ++step) {
      const auto result = trainer.Step(
          inputs_[step].data(), targets_[step].data(), kSequences, kRate);
      ASSERT_TRUE(result.ok()) << result.status();
      if (world.rank() != world.size() - 1) continue;
      outcome.losses.push_back(result->loss);
      outcome.norms.push_back(result->gradient_norm);
      outcome.router_losses.push_back(result->router_loss);
    }
    after_steps();
    const auto loss =
        trainer.EvaluateLoss(inputs_.back().data(), targets_.back().data(), 5);
    ASSERT_TRUE(loss.ok()) << loss.status();
    const auto logits = trainer.Logits(inputs_.back().data(), 5);
    ASSERT_TRUE(logits.ok()) << logits.status();
    if (world.rank() == world.size() - 1) {
      outcome.evaluated = *loss;
      outcome.logits.assign(*logits, *logits + options.model.vocab_size);
    }
    // Ranks hold different elements.
    ASSERT_TRUE(
        trainer.GatherParameters(outcome.parameters.data() + begin).ok());
    ASSERT_TRUE(
        trainer.GatherMoment(0, outcome.first_moment.data() + begin).ok());
    ASSERT_TRUE(
        trainer.GatherMoment(1, outcome.second_moment.data() + begin).ok());
    outcome.memory[world.rank()] = trainer.memory();
  }

  Outcome Run(const RankTrainerOptions& options, const Outcome& from,
              int64_t first = 0, int64_t steps = kSteps) {
    const int ranks = options.mesh.mesh.rank_count();
    Outcome outcome;
    for (Values* values :
         {&outcome.parameters, &outcome.first_moment, &outcome.second_moment}) {
      values->assign(from.parameters.size(), 77.0);
    }
    outcome.memory.resize(ranks);
    LocalWorld world(ranks);
    auto members = world.TakeRanks();
    collective::RunRanks(
        members, [&](int, std::unique_ptr<Collective>& member) {
          RunRank(options, *member, from, first, steps, outcome);
          if (HasFatalFailure()) member->Abort("the test failed");
        });
    return outcome;
  }

  Outcome Run(const MeshCase& c) {
    const RankTrainerOptions options = MakeOptions(c);
    return Run(options, {.parameters = MakeStart(options.model)});
  }

  // One rank: with the mesh's micro-batches if there is a load-balancing loss,
  // otherwise with all rows at once.
  struct Pair {
    Outcome outcome;
    Outcome changed;  // From parameters changed by kChange.
  };
  const Pair& Reference(const MeshCase& c) {
    using Key = std::tuple<std::string, int64_t, int, double, bool>;
    static std::map<Key, Pair>& references = *new std::map<Key, Pair>;
    MeshCase alone{.shape = c.shape,
                   .layers = c.layers,
                   .capacity_factor = c.capacity_factor,
                   .has_balance = c.has_balance};
    if (c.shape == "mixture" && c.has_balance) {
      alone.micro_batches = c.micro_batches;
    }
    const Key key(c.shape, c.layers, alone.micro_batches, c.capacity_factor,
                  c.has_balance);
    auto at = references.find(key);
    if (at == references.end()) {
      const RankTrainerOptions options = MakeOptions(alone);
      Outcome start{.parameters = MakeStart(options.model)};
      Pair pair{.outcome = Run(options, start)};
      std::uniform_real_distribution<double> change(-kChange, kChange);
      for (double& value : start.parameters) value *= 1 + change(random_);
      pair.changed = Run(options, start);
      at = references.emplace(key, std::move(pair)).first;
    }
    return at->second;
  }

  static double Difference(const Values& a, const Values& b) {
    double most = a.size() == b.size() ? 0 : INFINITY;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      const double d = std::abs(a[i] - b[i]);
      most = d <= most ? most : d;  // A NaN counts as the largest.
    }
    return most;
  }

  void ExpectSame(const Outcome& mesh, const Pair& one,
                  const std::string& what) {
    for (auto member :
         {&Outcome::losses, &Outcome::norms, &Outcome::router_losses,
          &Outcome::logits, &Outcome::parameters, &Outcome::first_moment,
          &Outcome::second_moment}) {
      const double tolerance = kTolerated * Difference(one.changed.*member,
                                                       one.outcome.*member);
      const double difference =
          Difference(mesh.*member, one.outcome.*member);
      EXPECT_LE(difference, tolerance) << what;
      if (tolerance > 0) worst_ = std::max(worst_, difference / tolerance);
    }
    // One number, compared like the losses of the steps.
    EXPECT_LE(std::abs(mesh.evaluated - one.outcome.evaluated),
              kTolerated * Difference(one.changed.losses, one.outcome.losses))
        << what;
  }

  void ExpectTrainsAsOneRank(const std::vector<MeshCase>& cases) {
    for (const MeshCase& c : cases) {
      const Pair& one = Reference(c);
      const Outcome mesh = Run(c);
      ExpectSame(mesh, one, ToString(c));
      // A recomputed pass is counted again.
      if (c.checkpointing != ActivationCheckpointing::kFull) {
        EXPECT_EQ(mesh.passed_by, one.outcome.passed_by) << ToString(c);
      }
      if (HasFailure()) return;
    }
    std::cout << cases.size() << " meshes, within " << worst_
              << " of what is tolerated" << std::endl;
  }

  // Ranks compute in memory that the host cannot access.
  bool is_apart_ = false;
  const uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<std::vector<int32_t>> inputs_, targets_;  // By step.
  double worst_ = 0;
  Mutex mutex_;  // Guards Outcome::passed_by of the current run.
};

constexpr ShardingMode kModes[] = {ShardingMode::kReplicate,
                                   ShardingMode::kZero1, ShardingMode::kZero2,
                                   ShardingMode::kZero3};

TEST_F(MeshTest, OneRankWithMicroBatches) {
  std::vector<MeshCase> cases;
  for (const char* shape : {"llama", "gpt2", "tied"}) {
    for (int m : {2, 8}) {
      cases.push_back({.shape = shape, .micro_batches = m});
    }
  }
  ExpectTrainsAsOneRank(cases);
}

TEST_F(MeshTest, DataParallelInAllModes) {
  std::vector<MeshCase> cases;
  for (ShardingMode mode : kModes) {
    for (const char* mesh : {"dp_shard=2", "dp_shard=4", "dp_replicate=2",
                             "dp_replicate=2,dp_shard=2"}) {
      cases.push_back({.mesh = mesh, .sharding = mode});
    }
    cases.push_back({.mesh = "dp_shard=4",
                     .shape = "gpt2",
                     .micro_batches = 2,
                     .sharding = mode});
    cases.push_back({.mesh = "dp_replicate=2,dp_shard=2",
                     .shape = "mixture",
                     .micro_batches = 2,
                     .sharding = mode});
  }
  cases.push_back({.mesh = "dp_shard=8", .shape = "tied"});
  cases.push_back({.mesh = "dp_replicate=4,dp_shard=2"});
  ExpectTrainsAsOneRank(cases);
}

TEST_F(MeshTest, PipelinesInAllSchedules) {
  std::vector<MeshCase> cases;
  for (const char* shape : {"llama", "gpt2", "mixture"}) {
    for (int pp : {2, 4}) {
      const std::string mesh = absl::StrCat("pp=", pp);
      for (PipelineKind kind :
           {PipelineKind::kGpipe, PipelineKind::kOneForwardOneBackward}) {
        cases.push_back({.mesh = mesh,
                         .shape = shape,
                         .micro_batches = pp == 2 ? 8 : 4,
                         .pipeline = kind});
      }
      cases.push_back({.mesh = mesh,
                       .shape = shape,
                       .micro_batches = pp,
                       .pipeline = PipelineKind::kInterleaved,
                       .chunks = 2,
                       .layers = pp == 2 ? 5 : 9});
    }
  }
  // Fewer micro-batches than stages, and as many stages as layers.
  cases.push_back({.mesh = "pp=3", .micro_batches = 2});
  cases.push_back({.mesh = "pp=8", .micro_batches = 4, .layers = 8});
  cases.push_back({.mesh = "pp=2",
                   .micro_batches = 4,
                   .pipeline = PipelineKind::kInterleaved,
                   .chunks = 3,
                   .layers = 7});
  ExpectTrainsAsOneRank(cases);
}

TEST_F(MeshTest, PipelinesWithDataParallelInAllModes) {
  std::vector<MeshCase> cases;
  for (ShardingMode mode : kModes) {
    cases.push_back({.mesh = "pp=2,dp_shard=2",
                     .shape = "gpt2",
                     .micro_batches = 4,
                     .sharding = mode});
    cases.push_back({.mesh = "pp=2,dp_replicate=2,dp_shard=2",
                     .shape = "tied",
                     .micro_batches = 2,
                     .sharding = mode,
                     .pipeline = PipelineKind::kInterleaved,
                     .chunks = 2});
  }
  cases.push_back({.mesh = "pp=2,dp_replicate=2", .micro_batches = 4});
  cases.push_back({.mesh = "pp=4,dp_shard=2",
                   .shape = "mixture",
                   .micro_batches = 4,
                   .pipeline = PipelineKind::kGpipe});
  cases.push_back({.mesh = "pp=2,dp_shard=4", .micro_batches = 2});
  ExpectTrainsAsOneRank(cases);
}

TEST_F(MeshTest, TensorContextAndExpertParallel) {
  std::vector<MeshCase> cases;
  for (const char* shape : {"llama", "gpt2", "tied", "mixture"}) {
    for (const char* mesh : {"tp=2", "cp=2"}) {
      cases.push_back({.mesh = mesh, .shape = shape});
    }
  }
  for (const char* mesh :
       {"cp=2,tp=2", "dp_shard=2,tp=2", "pp=2,tp=2", "dp_shard=2,cp=2",
        "pp=2,cp=2", "dp_replicate=2,tp=2", "dp_replicate=2,cp=2"}) {
    cases.push_back({.mesh = mesh, .shape = "gpt2", .micro_batches = 2});
  }
  for (const char* mesh : {"ep=2", "ep=4", "ep=2,tp=2", "dp_shard=2,ep=2",
                           "dp_replicate=2,ep=2", "pp=2,ep=2", "ep=2,cp=2"}) {
    cases.push_back({.mesh = mesh, .shape = "mixture", .micro_batches = 2});
  }
  ExpectTrainsAsOneRank(cases);
}

// The division of a batch must not change what experts take.
TEST_F(MeshTest, ExpertsWithACapacityPassByTheRowsThatOneRankDoes) {
  const MeshCase one{
      .shape = "mixture", .layers = 3, .capacity_factor = 0.6};
  std::vector<MeshCase> cases;
  const auto add = [&](const char* mesh, int micro_batches, bool has_balance) {
    MeshCase c = one;
    c.mesh = mesh;
    c.micro_batches = micro_batches;
    c.has_balance = has_balance;
    cases.push_back(c);
  };
  for (const char* mesh :
       {"dp_shard=2", "dp_replicate=2", "ep=2", "ep=4", "cp=2", "cp=4", "tp=2",
        "dp_shard=2,ep=2", "dp_replicate=2,cp=2", "ep=2,cp=2", "cp=2,tp=2",
        "ep=2,tp=2", "dp_shard=2,ep=2,cp=2"}) {
    add(mesh, 1, /*has_balance=*/true);
  }
  add("pp=2", 4, true);
  add("pp=2,cp=2", 2, true);
  add("pp=2,ep=2,tp=2", 2, true);
  // Against all rows at once.
  for (const char* mesh : {"", "dp_shard=2", "ep=2,cp=2", "pp=2", "tp=2"}) {
    add(mesh, 4, /*has_balance=*/false);
  }
  cases.push_back(cases.back());
  cases.back().mesh = "pp=2,cp=2";
  cases.back().checkpointing = ActivationCheckpointing::kFull;
  ExpectTrainsAsOneRank(cases);
  // An expert takes 3 of a sequence's 8 rows: at most 12 of 16 choices.
  const Outcome& taken = Reference(one).outcome;
  const int64_t choices = kSteps * kSequences * kLength * 2 * one.layers;
  EXPECT_GE(taken.passed_by, choices / 4);
  EXPECT_LT(taken.passed_by, choices / 2);
  // A control: without a capacity nothing is dropped.
  MeshCase all = one;
  all.capacity_factor = 0;
  EXPECT_EQ(Reference(all).outcome.passed_by, 0);
  EXPECT_GT(Difference(taken.losses, Reference(all).outcome.losses), 1e-3);
}

TEST_F(MeshTest, ThreeDimensionsAndMore) {
  std::vector<MeshCase> cases;
  for (ShardingMode mode : kModes) {
    cases.push_back({.mesh = "pp=2,dp_shard=2,tp=2",
                     .shape = "gpt2",
                     .micro_batches = 4,
                     .sharding = mode});
    cases.push_back(
        {.mesh = "dp_shard=2,ep=2,tp=2", .shape = "mixture", .sharding = mode});
  }
  for (PipelineKind kind : {PipelineKind::kGpipe, PipelineKind::kInterleaved}) {
    cases.push_back({.mesh = "pp=2,dp_shard=2,tp=2",
                     .micro_batches = 2,
                     .pipeline = kind,
                     .chunks = kind == PipelineKind::kInterleaved ? 2 : 1});
  }
  cases.push_back({.mesh = "dp_shard=2,cp=2,tp=2", .shape = "tied"});
  cases.push_back({.mesh = "dp_replicate=2,dp_shard=2,tp=2"});
  cases.push_back({.mesh = "pp=2,dp_replicate=2,ep=2",
                   .shape = "mixture",
                   .micro_batches = 2});
  cases.push_back(
      {.mesh = "pp=2,ep=2,tp=2", .shape = "mixture", .micro_batches = 2});
  cases.push_back(
      {.mesh = "pp=2,cp=2,tp=2", .shape = "mixture", .micro_batches = 4});
  ExpectTrainsAsOneRank(cases);
}

TEST_F(MeshTest, CheckpointedActivations) {
  std::vector<MeshCase> cases;
  for (ActivationCheckpointing checkpointing :
       {ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull}) {
    for (const char* shape : {"llama", "gpt2", "mixture"}) {
      cases.push_back({.mesh = "pp=2,dp_shard=2",
                       .shape = shape,
                       .micro_batches = 4,
                       .checkpointing = checkpointing});
      cases.push_back({.mesh = "cp=2,tp=2",
                       .shape = shape,
                       .checkpointing = checkpointing});
    }
  }
  ExpectTrainsAsOneRank(cases);
  // Each mode keeps less than the previous one and computes the same bits.
  RankTrainerOptions options = MakeOptions({});
  const Outcome start{.parameters = MakeStart(options.model)};
  const Outcome all = Run(options, start, 0, 3);
  int64_t bytes = all.memory[0].activation_bytes;
  for (ActivationCheckpointing checkpointing :
       {ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull}) {
    options.mesh.checkpointing = checkpointing;
    const Outcome some = Run(options, start, 0, 3);
    EXPECT_EQ(some.parameters, all.parameters);
    EXPECT_LT(some.memory[0].activation_bytes, bytes * 4 / 5);
    bytes = some.memory[0].activation_bytes;
  }
}

TEST_F(MeshTest, AStateSavedUnderOneMeshGoesOnUnderAnother) {
  const MeshCase one{.shape = "gpt2"};
  const Pair& expected = Reference(one);
  const RankTrainerOptions first = MakeOptions(
      {.mesh = "pp=2,dp_shard=2", .shape = "gpt2", .micro_batches = 2});
  RankTrainerOptions second = MakeOptions({.mesh = "dp_replicate=2,dp_shard=3",
                                           .shape = "gpt2",
                                           .sharding = ShardingMode::kZero1});
  second.mesh.mesh = *Mesh::Parse("dp_shard=8");
  constexpr int kHalf = kSteps / 2;
  Outcome half = Run(first, {.parameters = MakeStart(first.model)}, 0, kHalf);
  Outcome whole = Run(second, half, kHalf, kSteps - kHalf);
  for (auto member :
       {&Outcome::losses, &Outcome::norms, &Outcome::router_losses}) {
    (whole.*member)
        .insert((whole.*member).begin(), (half.*member).begin(),
                (half.*member).end());
  }
  ExpectSame(whole, expected, "saved and loaded");
  // Without a step in between, every bit stays the same.
  for (const char* mesh : {"dp_shard=3", "pp=3,dp_replicate=2", "pp=5"}) {
    RankTrainerOptions options = MakeOptions({.mesh = mesh, .shape = "gpt2"});
    options.batch_size = 6;
    const Outcome same = Run(options, half, 0, 0);
    EXPECT_EQ(same.parameters, half.parameters) << mesh;
    EXPECT_EQ(same.first_moment, half.first_moment) << mesh;
    EXPECT_EQ(same.second_moment, half.second_moment) << mesh;
  }
}

// As on a device: an access to its memory from the host ends the process.
TEST_F(MeshTest, RanksWithMemoryApartComputeTheSameBits) {
  std::vector<MeshCase> cases;
  for (ShardingMode mode : kModes) {
    cases.push_back({.mesh = "dp_replicate=2,dp_shard=2",
                     .shape = "gpt2",
                     .micro_batches = 2,
                     .sharding = mode});
  }
  for (const char* mesh : {"dp_shard=4", "tp=2", "cp=2", "pp=2", "pp=2,tp=2"}) {
    cases.push_back({.mesh = mesh, .shape = "tied", .micro_batches = 2});
  }
  cases.push_back({.mesh = "pp=2,dp_shard=2",
                   .shape = "gpt2",
                   .micro_batches = 4,
                   .pipeline = PipelineKind::kInterleaved,
                   .chunks = 2});
  for (const char* mesh : {"", "ep=2,tp=2", "pp=2,ep=2", "dp_shard=2,cp=2"}) {
    cases.push_back({.mesh = mesh, .shape = "mixture", .micro_batches = 2});
  }
  cases.push_back({.mesh = "pp=2",
                   .shape = "mixture",
                   .micro_batches = 2,
                   .checkpointing = ActivationCheckpointing::kFull});
  cases.push_back(
      {.mesh = "ep=2,cp=2", .shape = "mixture", .capacity_factor = 0.6});
  for (const MeshCase& c : cases) {
    RankTrainerOptions options = MakeOptions(c);
    const Outcome start{.parameters = MakeStart(options.model)};
    is_apart_ = false;
    const Outcome expected = Run(options, start, 0, 4);
    is_apart_ = true;
    for (const bool on_host : {false, true}) {
      options.mesh.optimizer_on_host = on_host;
      const Outcome apart = Run(options, start, 0, 4);
      for (auto member :
           {&Outcome::losses, &Outcome::norms, &Outcome::router_losses,
            &Outcome::logits, &Outcome::parameters, &Outcome::first_moment,
            &Outcome::second_moment}) {
        EXPECT_EQ(apart.*member, expected.*member) << ToString(c);
      }
      EXPECT_EQ(apart.evaluated, expected.evaluated) << ToString(c);
    }
    if (HasFailure()) return;
  }
}

TEST_F(MeshTest, MemoryFallsWithShards) {
  const auto kept = [](const RankMemory& m) {
    return m.parameter_bytes + m.gradient_bytes + m.moment_bytes;
  };
  RankTrainerOptions options = MakeOptions({});
  options.model.hidden_size = 64;
  options.model.intermediate_size = 160;
  options.model.layer_count = 8;
  const ParameterLayout layout = MakeParameterLayout(options.model);
  int64_t block = 0;
  for (const ParameterSpan& unit : layout.units) {
    block = std::max(block, unit.size());
  }
  block *= sizeof(double);
  const Outcome start{.parameters = MakeStart(options.model)};
  options.mesh.sharding = ShardingMode::kReplicate;
  const int64_t one = kept(Run(options, start, 0, 0).memory[0]);
  EXPECT_EQ(one / 4 / 8, (layout.element_count + 15) / 16 * 16);
  options.mesh.mesh = *Mesh::Parse("dp_shard=4");
  const double expected[] = {1.0, 0.625, 0.4375, 0.25};
  for (ShardingMode mode : kModes) {
    options.mesh.sharding = mode;
    for (const RankMemory& memory : Run(options, start, 0, 1).memory) {
      const double share =
          static_cast<double>(kept(memory)) / static_cast<double>(one);
      // Each unit's shards are padded to 16 elements.
      EXPECT_NEAR(share, expected[static_cast<int>(mode)], 0.01);
      if (mode != ShardingMode::kZero3) continue;
      EXPECT_LE(kept(memory), 0.3 * one);
      // Two gathered units, two gradients with their shards.
      EXPECT_LE(memory.buffer_bytes, 5 * block);
    }
  }
}

}  // namespace
}  // namespace atl::engine
