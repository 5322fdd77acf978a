// Units on slices of a model, with a thread per rank. Any division by tp, cp
// and ep must give the loss and gradients of one rank with all sequences.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "worker/collective/call.h"
#include "worker/collective/collective.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/testing/ranks.h"
#include "worker/engine/model/decoder.h"
#include "worker/engine/model/local_layout.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/testing/local_elements.h"
#include "worker/engine/model/unit_slice.h"
#include "worker/engine/model/units.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/cpu/cpu_ops.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

using collective::Call;
using collective::Collective;
using collective::DataType;
using collective::Reduction;

// Sizes of a mesh; rank = (ep cp_size + cp) tp_size + tp.
struct Sizes {
  int tp = 1, cp = 1, ep = 1;
  int ranks() const { return tp * cp * ep; }
  UnitSlice MakeSlice(int rank) const {
    return {.tp_size = tp,
            .tp_rank = rank % tp,
            .cp_size = cp,
            .cp_rank = rank / tp % cp,
            .ep_size = ep,
            .ep_rank = rank / tp / cp};
  }
};

// A model, and kMicroBatches micro-batches for each ep rank.
constexpr int kMicroBatches = 2;
struct Problem {
  ModelConfig config;
  int64_t batch = 2;  // Sequences per micro-batch and ep rank.
  int64_t length = 0;
  std::vector<float> parameters;
  // [m, e, batch, length]: micro-batch m of ep rank e of n.
  std::vector<int32_t> inputs, targets;

  int64_t tokens(int ep) const { return ep * batch * length; }
};

template <typename T>
struct Result {
  LocalLayout layout;
  std::vector<T> gradients;
  double loss = 0;          // Sum over its tokens.
  int64_t saved_bytes = 0;  // Of one block.
  absl::Status status;
};

template <typename T>
constexpr DataType ToType() {
  return sizeof(T) == 8 ? DataType::kF64 : DataType::kF32;
}

// One rank, which calls units as a pipeline does.
template <typename T>
class Rank {
 public:
  Rank(const Problem& problem, const Sizes& sizes, int rank, Collective& world,
       BasicOps<T>& ops, Keep keep = Keep::kAll)
      : problem_(problem),
        sizes_(sizes),
        slice_(sizes.MakeSlice(rank)),
        config_(problem.config),
        local_(MakeLocalLayout(config_, slice_)),
        embedding_(config_, local_.layout, slice_),
        head_(config_, local_.layout, slice_) {
    const UnitSlice& s = slice_;
    tp_ = *world.Split(s.ep_rank * sizes.cp + s.cp_rank, "tp");
    cp_ = *world.Split(s.ep_rank * sizes.tp + s.tp_rank, "cp");
    ep_ = *world.Split(s.cp_rank * sizes.tp + s.tp_rank, "ep");
    loss_ = *world.Split(s.tp_rank, "loss");
    const UnitGroups groups{.tp = sizes.tp > 1 ? tp_.get() : nullptr,
                            .cp = sizes.cp > 1 ? cp_.get() : nullptr,
                            .ep = sizes.ep > 1 ? ep_.get() : nullptr};
    rows_ = problem.batch * problem.length / sizes.cp;
    work_ = *Workspace<T>::Create(config_, slice_, groups, rows_, ops);
    for (int64_t i = 0; i < config_.layer_count; ++i) {
      blocks_.emplace_back(config_, local_.layout, i, slice_, keep);
    }
    const std::vector<T> whole(problem.parameters.begin(),
                               problem.parameters.end());
    parameters_.resize(local_.layout.element_count);
    CutToLocal(local_, whole.data(), parameters_.data());
    gradients_.assign(parameters_.size(), T(77));
  }

  // Runs all forward passes, then the backward passes in reverse order.
  Result<T> Run() {
    std::vector<std::unique_ptr<Flight>> flights;
    for (int m = 0; m < kMicroBatches; ++m) flights.push_back(Take(m));
    for (auto& flight : flights) {
      embedding_.Forward(*work_, Of(embedding_.span()), flight->batch,
                         flight->streams[0].data());
    }
    for (int64_t i = 0; i < config_.layer_count; ++i) {
      for (auto& flight : flights) ForwardBlock(*flight, i);
    }
    Result<T> result;
    for (auto& flight : flights) {
      head_.Forward(*work_, Of(head_.span()), rows_,
                    flight->streams.back().data(), flight->saved.back());
      ShareTotals(*flight);
      result.loss +=
          head_.Loss(*work_, Table(), flight->batch, flight->saved.back());
    }
    double again = 0;
    for (int m = kMicroBatches; m-- > 0;) {
      again += Backward(*flights[m], /*accumulate=*/m + 1 < kMicroBatches);
    }
    EXPECT_NEAR(again, result.loss, 1e-5 * (1 + std::abs(again)));
    result.layout = local_;
    result.gradients = gradients_;
    result.status = work_->status();
    result.saved_bytes = static_cast<int64_t>(blocks_[0].saved_bytes(rows_));
    return result;
  }

 private:
  struct Flight {
    std::vector<int32_t> inputs, targets;
    TokenBatch batch;
    std::vector<std::vector<T>> streams;
    Arena arena;
    std::vector<void*> saved;
    std::vector<T> totals, gradient;
    RouterTotals<T> router;
  };

  std::unique_ptr<Flight> Take(int m) {
    auto flight = std::make_unique<Flight>();
    const int64_t first = (m * sizes_.ep + slice_.ep_rank) * problem_.tokens(1);
    flight->inputs = CutSequences(slice_, problem_.batch, problem_.length,
                                  problem_.inputs.data() + first);
    flight->targets = CutSequences(slice_, problem_.batch, problem_.length,
                                   problem_.targets.data() + first);
    flight->batch = {.batch = problem_.batch,
                     .sequence_length = problem_.length / sizes_.cp,
                     .inputs = flight->inputs.data(),
                     .targets = flight->targets.data()};
    const int64_t stream = slice_.stream_rows(rows_) * config_.hidden_size;
    flight->streams.assign(config_.layer_count + 1, std::vector<T>(stream));
    flight->gradient.resize(stream);
    for (int pass : {0, 1}) {
      flight->saved.clear();
      for (const auto& block : blocks_) {
        flight->saved.push_back(flight->arena.template Take<char>(
            static_cast<int64_t>(block.saved_bytes(rows_))));
      }
      flight->saved.push_back(flight->arena.template Take<char>(
          static_cast<int64_t>(head_.saved_bytes(rows_))));
      if (pass == 0) flight->arena = *Arena::Create(flight->arena.used_bytes());
    }
    flight->totals.assign(2 * config_.expert_count, T(0));
    flight->router = {.counts = flight->totals.data(),
                      .sums = flight->totals.data() + config_.expert_count,
                      .scale = T(1) / kMicroBatches,
                      .rows = problem_.tokens(sizes_.ep)};
    return flight;
  }

  const T* Of(const ParameterSpan& span) const {
    return parameters_.data() + span.begin;
  }
  int64_t TableOffset() const {
    return config_.tie_embeddings
               ? embedding_.span().begin + embedding_.table_offset()
               : head_.span().begin + head_.table_offset();
  }
  const T* Table() const { return parameters_.data() + TableOffset(); }

  void ForwardBlock(Flight& flight, int64_t i) {
    blocks_[i].Forward(*work_, Of(blocks_[i].span()), flight.batch,
                       flight.streams[i].data(), flight.saved[i],
                       flight.streams[i + 1].data(), flight.router);
  }
  // Sums router totals between the passes, as a mesh's driver does.
  void ShareTotals(Flight& flight) {
    if (flight.totals.empty() || !work_->ok()) return;
    work_->Latch(loss_->Run(Call::AllReduce(
        ToType<T>(), Reduction::kSum, flight.totals.data(),
        flight.totals.data(), static_cast<int64_t>(flight.totals.size()))));
  }
  double Backward(Flight& flight, bool accumulate) {
    const T scale =
        T(1) / static_cast<T>(kMicroBatches * problem_.tokens(sizes_.ep));
    const double loss = head_.Backward(
        *work_, Of(head_.span()), Table(), flight.batch,
        flight.streams.back().data(), flight.saved.back(), scale,
        flight.gradient.data(), gradients_.data() + head_.span().begin,
        gradients_.data() + TableOffset(), accumulate);
    for (int64_t i = config_.layer_count; i-- > 0;) {
      blocks_[i].Backward(
          *work_, Of(blocks_[i].span()), flight.batch, flight.streams[i].data(),
          flight.saved[i], flight.router, flight.gradient.data(),
          gradients_.data() + blocks_[i].span().begin, accumulate);
    }
    embedding_.Backward(*work_, flight.batch, flight.gradient.data(),
                        gradients_.data() + embedding_.span().begin, accumulate,
                        config_.tie_embeddings);
    return loss;
  }

  const Problem& problem_;
  const Sizes sizes_;
  const UnitSlice slice_;
  const ModelConfig config_;
  const LocalLayout local_;
  std::unique_ptr<Collective> tp_, cp_, ep_, loss_;
  int64_t rows_ = 0;
  std::unique_ptr<Workspace<T>> work_;
  const EmbeddingUnit<T> embedding_;
  std::vector<BlockUnit<T>> blocks_;
  const HeadUnit<T> head_;
  std::vector<T> parameters_, gradients_;
};

std::unique_ptr<BasicOps<double>> MakeOps(double) {
  return std::make_unique<PlainOps<double>>();
}
std::unique_ptr<BasicOps<float>> MakeOps(float) { return MakeCpuOps(1); }

template <typename T>
std::vector<Result<T>> RunMesh(const Problem& problem, const Sizes& sizes,
                               Keep keep = Keep::kAll) {
  collective::LocalWorld world(sizes.ranks());
  auto ranks = world.TakeRanks();
  std::vector<Result<T>> results(ranks.size());
  RunRanks(ranks, [&](int rank, std::unique_ptr<Collective>& collective) {
    const auto ops = MakeOps(T());
    results[rank] =
        Rank<T>(problem, sizes, rank, *collective, *ops, keep).Run();
  });
  return results;
}

// Mean loss and gradient of one rank with all sequences.
template <typename T>
double RunOne(const Problem& problem, int ep, std::vector<double>& gradients) {
  const auto ops = MakeOps(T());
  const int64_t tokens = problem.tokens(ep);
  auto decoder = *Decoder<T>::Create(problem.config, tokens, *ops);
  const std::vector<T> parameters(problem.parameters.begin(),
                                  problem.parameters.end());
  std::vector<T> part(parameters.size());
  gradients.assign(parameters.size(), 0.0);
  double loss = 0;
  for (int m = 0; m < kMicroBatches; ++m) {
    loss += static_cast<double>(decoder->ForwardBackward(
                parameters.data(),
                {.batch = ep * problem.batch,
                 .sequence_length = problem.length,
                 .inputs = problem.inputs.data() + m * tokens,
                 .targets = problem.targets.data() + m * tokens},
                part.data())) /
            kMicroBatches;
    for (size_t i = 0; i < part.size(); ++i) {
      gradients[i] += static_cast<double>(part[i]) / kMicroBatches;
    }
  }
  return loss;
}

class SlicesTest : public testing::Test {
 protected:
  SlicesTest() : seed_(std::random_device()()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
  }

  Problem Draw(const ModelConfig& config, int ep, int64_t length) {
    Problem problem{.config = config, .length = length};
    std::uniform_int_distribution<int32_t> token(
        0, static_cast<int32_t>(config.vocab_size) - 1);
    for (int64_t i = 0; i < kMicroBatches * problem.tokens(ep); ++i) {
      problem.inputs.push_back(token(random_));
      problem.targets.push_back(token(random_));
    }
    std::normal_distribution<float> normal(0.0f, 0.3f);
    for (const ParameterSpec& spec : MakeParameterLayout(config).parameters) {
      const bool gain = spec.parameter_class == ParameterClass::kVector;
      for (int64_t i = 0; i < spec.element_count; ++i) {
        problem.parameters.push_back((gain ? 1.0f : 0.0f) + normal(random_));
      }
    }
    return problem;
  }

  // Returns the mean loss of all ranks. For each tp rank, sums gradients over
  // the other ranks and passes each (sum, `expected`) pair to `use`.
  template <typename T, typename F>
  static double Sum(const Problem& problem, const Sizes& sizes,
                    const std::vector<Result<T>>& results,
                    const std::vector<double>& expected, const F& use) {
    double loss = 0;
    for (int tp = 0; tp < sizes.tp; ++tp) {
      std::vector<double> sum(expected.size());
      std::vector<bool> held(expected.size());
      for (int rank = tp; rank < sizes.ranks(); rank += sizes.tp) {
        const Result<T>& result = results[rank];
        if (tp == 0) loss += result.loss;
        EXPECT_EQ(result.loss, results[rank - tp].loss) << "tp ranks agree";
        std::vector<double> own(expected.size(), NAN);
        const std::vector<double> local(result.gradients.begin(),
                                        result.gradients.end());
        PutIntoGlobal(result.layout, local.data(), own.data());
        for (size_t i = 0; i < own.size(); ++i) {
          if (std::isnan(own[i])) continue;
          sum[i] += own[i];
          held[i] = true;
        }
      }
      for (size_t i = 0; i < sum.size(); ++i) {
        if (held[i]) use(i, sum[i], expected[i]);
      }
    }
    return loss / static_cast<double>(kMicroBatches * problem.tokens(sizes.ep));
  }

  // Gradients that tp does not divide must be bit-identical on all tp ranks.
  template <typename T>
  static void ExpectSharedGradientsEqual(
      const Sizes& sizes, const std::vector<Result<T>>& results) {
    for (int rank = 0; rank < sizes.ranks(); ++rank) {
      const Result<T>& mine = results[rank];
      const Result<T>& first = results[rank - rank % sizes.tp];
      for (size_t p = 0; p < mine.layout.parameters.size(); ++p) {
        if (mine.layout.parameters[p].cut_by_tp) continue;
        const ParameterSpec& a = mine.layout.layout.parameters[p];
        const ParameterSpec& b = first.layout.layout.parameters[p];
        ASSERT_EQ(std::memcmp(mine.gradients.data() + a.offset,
                              first.gradients.data() + b.offset,
                              a.element_count * sizeof(T)),
                  0)
            << a.name << " on rank " << rank;
      }
    }
  }

  // In f64, where only the order of sums differs.
  void ExpectSameAsOneRank(const ModelConfig& config, const Sizes& sizes,
                           int64_t length) {
    const Problem problem = Draw(config, sizes.ep, length);
    std::vector<double> expected;
    const double loss = RunOne<double>(problem, sizes.ep, expected);
    const auto results = RunMesh<double>(problem, sizes);
    for (const auto& result : results) {
      ASSERT_TRUE(result.status.ok()) << result.status;
    }
    int64_t compared = 0;
    const double sum = Sum<double>(problem, sizes, results, expected,
                                   [&](size_t i, double actual, double wanted) {
                                     ++compared;
                                     ASSERT_NEAR(actual, wanted, 1e-12)
                                         << "element " << i;
                                   });
    EXPECT_NEAR(sum, loss, 1e-12);
    EXPECT_GE(compared, static_cast<int64_t>(expected.size()));
    ExpectSharedGradientsEqual(sizes, results);
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
};

// Eight query heads, two per key/value head; no tp divides the vocabulary.
ModelConfig Llama(bool tied) {
  return {.vocab_size = 13,
          .hidden_size = 16,
          .intermediate_size = 12,
          .layer_count = 2,
          .head_count = 8,
          .kv_head_count = 4,
          .sequence_length_max = 16,
          .tie_embeddings = tied};
}
ModelConfig Gpt2() {
  ModelConfig config = Llama(true);
  config.architecture = Architecture::kGpt2;
  config.kv_head_count = config.head_count;
  return config;
}
ModelConfig Mixtral(int64_t k) {
  ModelConfig config = Llama(false);
  config.architecture = Architecture::kMixtral;
  config.expert_count = 4;
  config.experts_per_token = k;
  config.router_loss_weight = 0.3;
  return config;
}

TEST_F(SlicesTest, OneRankOfAMeshIsOneRank) {
  for (const ModelConfig& config : {Llama(true), Gpt2(), Mixtral(2)}) {
    ExpectSameAsOneRank(config, {}, 8);
  }
}

TEST_F(SlicesTest, TensorParallelRanksComputeTheSame) {
  for (int tp : {2, 4}) {
    SCOPED_TRACE(tp);
    for (const ModelConfig& config :
         {Llama(true), Llama(false), Gpt2(), Mixtral(2), Mixtral(1)}) {
      ExpectSameAsOneRank(config, {.tp = tp}, 6);
    }
  }
}

TEST_F(SlicesTest, ContextParallelRanksComputeTheSame) {
  for (int cp : {2, 3, 4}) {
    SCOPED_TRACE(cp);
    for (const ModelConfig& config : {Llama(false), Gpt2(), Mixtral(2)}) {
      ModelConfig longer = config;
      longer.sequence_length_max = 24;
      // One token per chunk, then several.
      ExpectSameAsOneRank(longer, {.cp = cp}, 2 * cp);
      ExpectSameAsOneRank(longer, {.cp = cp}, 24 / (2 * cp) * (2 * cp));
    }
  }
}

TEST_F(SlicesTest, ExpertParallelRanksComputeTheSame) {
  for (int ep : {2, 4}) {
    SCOPED_TRACE(ep);
    for (int64_t k : {1, 2, 4}) {
      ExpectSameAsOneRank(Mixtral(k), {.ep = ep}, 5);
    }
  }
}

TEST_F(SlicesTest, PairsOfDimensionsComputeTheSame) {
  ExpectSameAsOneRank(Llama(true), {.tp = 2, .cp = 2}, 8);
  ExpectSameAsOneRank(Llama(false), {.tp = 4, .cp = 2}, 16);
  ExpectSameAsOneRank(Gpt2(), {.tp = 2, .cp = 2}, 12);
  ExpectSameAsOneRank(Mixtral(2), {.tp = 2, .ep = 2}, 6);
  ExpectSameAsOneRank(Mixtral(1), {.cp = 2, .ep = 2}, 8);
  ExpectSameAsOneRank(Mixtral(2), {.tp = 2, .cp = 2, .ep = 2}, 8);
}

// Sequences have the model's length, and experts drop some of their rows.
TEST_F(SlicesTest, WithACapacityRanksTakeTheRowsThatOneRankTakes) {
  for (const int64_t k : {1, 2, 4}) {
    ModelConfig config = Mixtral(k);
    config.expert_capacity_factor = 0.7;
    for (const Sizes& sizes :
         {Sizes{.tp = 2}, Sizes{.cp = 2}, Sizes{.cp = 4}, Sizes{.cp = 8},
          Sizes{.ep = 2}, Sizes{.ep = 4}, Sizes{.tp = 2, .cp = 2},
          Sizes{.cp = 2, .ep = 2}, Sizes{.tp = 2, .cp = 2, .ep = 2}}) {
      SCOPED_TRACE(testing::Message() << k << " experts, tp " << sizes.tp
                                      << " cp " << sizes.cp << " ep "
                                      << sizes.ep);
      ExpectSameAsOneRank(config, sizes, config.sequence_length_max);
    }
  }
}

TEST_F(SlicesTest, WithACapacityShorterSequencesAreAnErrorNotAnOverrun) {
  ModelConfig config = Mixtral(2);
  config.expert_capacity_factor = 0.7;
  config.sequence_length_max = 64;
  for (const auto& result :
       RunMesh<double>(Draw(config, 1, 8), {.cp = 2})) {
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(SlicesTest, InF32TheyAreAsNearToTheTruthAsOneRankIs) {
  ModelConfig wide = Llama(false);
  wide.vocab_size = 211;
  wide.hidden_size = 64;
  wide.intermediate_size = 96;
  wide.sequence_length_max = 64;
  // Every row goes to all experts: rounding cannot change a choice.
  ModelConfig mixture = Mixtral(4);
  mixture.hidden_size = 48;
  const std::pair<ModelConfig, Sizes> cases[] = {{wide, {.tp = 4}},
                                                 {wide, {.cp = 4}},
                                                 {wide, {.tp = 2, .cp = 2}},
                                                 {mixture, {.tp = 2, .ep = 2}}};
  for (const auto& [config, sizes] : cases) {
    SCOPED_TRACE(testing::Message() << "tp " << sizes.tp << " cp " << sizes.cp
                                    << " ep " << sizes.ep);
    const Problem problem = Draw(config, sizes.ep, config.sequence_length_max);
    std::vector<double> exact, one;
    const double loss = RunOne<double>(problem, sizes.ep, exact);
    const double one_loss = RunOne<float>(problem, sizes.ep, one);
    // Rounding errors of one rank, relative to each tensor's largest gradient.
    // A mesh rounds as often, in another order, and also sums over ranks.
    const ParameterLayout layout = MakeParameterLayout(config);
    std::vector<double> scales(exact.size());
    double error = 0;
    for (const ParameterSpec& spec : layout.parameters) {
      double largest = 0;
      for (int64_t i = 0; i < spec.element_count; ++i) {
        largest = std::max(largest, std::abs(exact[spec.offset + i]));
      }
      for (int64_t i = 0; i < spec.element_count; ++i) {
        const int64_t at = spec.offset + i;
        scales[at] = largest;
        error = std::max(error, std::abs(one[at] - exact[at]) / largest);
      }
    }
    double worst = 0;
    const auto results = RunMesh<float>(problem, sizes);
    const double sum = Sum<float>(
        problem, sizes, results, exact,
        [&](size_t i, double actual, double wanted) {
          worst = std::max(worst, std::abs(actual - wanted) / scales[i]);
        });
    std::cout << "gradients: one rank " << error << ", mesh " << worst
              << "; loss " << std::abs(one_loss - loss) << ", "
              << std::abs(sum - loss) << std::endl;
    EXPECT_LE(worst, 4 * error);
    EXPECT_NEAR(sum, loss, 4 * std::abs(one_loss - loss) + 1e-6 * loss);
    ExpectSharedGradientsEqual(sizes, results);
  }
}

TEST_F(SlicesTest, WhatIsMadeAgainHasTheSameBits) {
  for (const ModelConfig& config : {Llama(false), Gpt2(), Mixtral(2)}) {
    const Sizes sizes{.tp = 2, .ep = config.is_mixture() ? 2 : 1};
    const Problem problem = Draw(config, sizes.ep, 6);
    const auto kept = RunMesh<double>(problem, sizes);
    const auto made = RunMesh<double>(problem, sizes, Keep::kProducts);
    for (size_t rank = 0; rank < kept.size(); ++rank) {
      EXPECT_EQ(kept[rank].loss, made[rank].loss);
      EXPECT_EQ(kept[rank].gradients, made[rank].gradients);
    }
    // Two norms of half of 12 rows, and half of the inner channels of 12 rows.
    EXPECT_GE(
        kept[0].saved_bytes - made[0].saved_bytes,
        4 * (2 * 6 * config.hidden_size + 12 * config.intermediate_size / 2));
  }
}

TEST_F(SlicesTest, TheFirstErrorOfAGroupIsKeptAndUnitsThenDoNothing) {
  const std::pair<ModelConfig, Sizes> cases[] = {
      {Gpt2(), {.tp = 2}}, {Llama(false), {.cp = 2}}, {Mixtral(2), {.ep = 2}}};
  for (const auto& [config, sizes] : cases) {
    const Problem problem = Draw(config, sizes.ep, 8);
    collective::LocalWorld world(sizes.ranks());
    auto ranks = world.TakeRanks();
    RunRanks(ranks, [&](int rank, std::unique_ptr<Collective>& collective) {
      PlainOps<double> ops;
      Rank<double> mine(problem, sizes, rank, *collective, ops);
      if (rank == 1) {
        collective->Abort("it has had enough");
        return;
      }
      const Result<double> result = mine.Run();
      EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable)
          << result.status;
      EXPECT_NE(result.status.message().find("enough"), std::string::npos);
      EXPECT_EQ(result.gradients.front(), 77.0) << "untouched";
    });
  }
}

TEST_F(SlicesTest, AGroupMustBeAsTheSliceSays) {
  PlainOps<double> ops;
  const auto work = Workspace<double>::Create(
      Llama(true), {.tp_size = 2, .tp_rank = 1}, UnitGroups{}, 8, ops);
  EXPECT_EQ(work.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::engine
