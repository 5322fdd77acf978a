// Units called as a pipeline calls them: concurrent micro-batches in any order,
// each with its own buffer.

#include "worker/engine/model/units.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine/model/decoder.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/tensor/arena.h"

namespace atl::engine {
namespace {

using Values = std::vector<double>;

ModelConfig Config(Architecture architecture) {
  ModelConfig config{.architecture = architecture,
                     .vocab_size = 13,
                     .hidden_size = 12,
                     .intermediate_size = 10,
                     .layer_count = 3,
                     .head_count = 2,
                     .kv_head_count = 2,
                     .sequence_length_max = 7};
  config.tie_embeddings = config.is_gpt2();
  if (config.is_mixture()) {
    config.expert_count = 4;
    config.experts_per_token = 2;
    config.router_loss_weight = 0.2;
  }
  return config;
}

class Buffer {
 public:
  explicit Buffer(size_t bytes) : arena_(*Arena::Create(bytes)) {
    data_ = arena_.Take<char>(static_cast<int64_t>(bytes));
  }
  void* data() { return data_; }

 private:
  Arena arena_;
  char* data_;
};

// One micro-batch in progress: a stream and a buffer for each unit.
struct Flight {
  TokenBatch batch;
  std::vector<Values> streams;
  std::vector<Buffer> saved;
  Values counts, sums, gradient;
  RouterTotals<double> totals;
};

class UnitsTest : public testing::TestWithParam<Architecture> {
 protected:
  UnitsTest() : seed_(std::random_device()()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
    std::normal_distribution<double> normal(0.0, 0.3);
    for (const ParameterSpec& spec : layout_.parameters) {
      const bool gain = spec.parameter_class == ParameterClass::kVector;
      for (int64_t i = 0; i < spec.element_count; ++i) {
        parameters_.push_back((gain ? 1.0 : 0.0) + normal(random_));
      }
    }
    for (int64_t i = 0; i < config_.layer_count; ++i) {
      blocks_.emplace_back(config_, layout_, i);
    }
  }

  std::vector<int32_t> Tokens(int64_t count) {
    std::uniform_int_distribution<int32_t> token(
        0, static_cast<int32_t>(config_.vocab_size) - 1);
    std::vector<int32_t> tokens(count);
    for (int32_t& t : tokens) t = token(random_);
    return tokens;
  }

  const double* FindParameters(const ParameterSpan& span) const {
    return parameters_.data() + span.begin;
  }
  int64_t TableOffset() const {
    return config_.tie_embeddings
               ? embedding_.span().begin + embedding_.table_offset()
               : head_.span().begin + head_.table_offset();
  }

  Flight MakeFlight(const TokenBatch& batch, double scale) {
    Flight flight;
    flight.batch = batch;
    const int64_t rows = batch.rows();
    flight.streams.assign(config_.layer_count + 1,
                          Values(rows * config_.hidden_size));
    for (const auto& block : blocks_) {
      flight.saved.emplace_back(block.saved_bytes(rows));
    }
    flight.saved.emplace_back(head_.saved_bytes(rows));
    flight.counts.assign(config_.expert_count, 0.0);
    flight.sums.assign(config_.expert_count, 0.0);
    flight.totals = {flight.counts.data(), flight.sums.data(), scale};
    return flight;
  }
  void ForwardBlock(Flight& flight, int64_t i) {
    blocks_[i].Forward(*work_, FindParameters(blocks_[i].span()), flight.batch,
                       flight.streams[i].data(), flight.saved[i].data(),
                       flight.streams[i + 1].data(), flight.totals);
  }
  void BackwardBlock(Flight& flight, int64_t i, bool accumulate) {
    blocks_[i].Backward(*work_, FindParameters(blocks_[i].span()), flight.batch,
                        flight.streams[i].data(), flight.saved[i].data(),
                        flight.totals, flight.gradient.data(),
                        gradients_.data() + blocks_[i].span().begin,
                        accumulate);
  }
  double BackwardHead(Flight& flight, bool accumulate, double scale) {
    flight.gradient.resize(flight.streams[0].size());
    return head_.Backward(
        *work_, FindParameters(head_.span()),
        parameters_.data() + TableOffset(), flight.batch,
        flight.streams.back().data(), flight.saved.back().data(), scale,
        flight.gradient.data(), gradients_.data() + head_.span().begin,
        gradients_.data() + TableOffset(), accumulate);
  }

  const ModelConfig config_ = Config(GetParam());
  const ParameterLayout layout_ = MakeParameterLayout(config_);
  const uint64_t seed_;
  std::mt19937_64 random_;
  PlainOps<double> ops_;
  std::unique_ptr<Workspace<double>> work_ =
      *Workspace<double>::Create(config_, 28, ops_);
  const EmbeddingUnit<double> embedding_{config_, layout_};
  std::vector<BlockUnit<double>> blocks_;
  const HeadUnit<double> head_{config_, layout_};
  Values parameters_, gradients_;
};

INSTANTIATE_TEST_SUITE_P(Shape, UnitsTest,
                         testing::Values(Architecture::kLlama,
                                         Architecture::kGpt2,
                                         Architecture::kMixtral));

TEST_P(UnitsTest, SpansFollowEachOtherAndCoverAll) {
  int64_t at = embedding_.span().begin;
  EXPECT_EQ(at, 0);
  EXPECT_EQ(embedding_.span().end, blocks_[0].span().begin);
  for (const auto& block : blocks_) {
    EXPECT_EQ(block.span().begin, at == 0 ? embedding_.span().end : at);
    at = block.span().end;
  }
  EXPECT_EQ(head_.span().begin, at);
  EXPECT_EQ(head_.span().end, layout_.element_count);
}

TEST_P(UnitsTest, MicroBatchesInAnyOrderSumToTheWholeBatch) {
  const int64_t length = 7;
  const std::vector<int32_t> inputs = Tokens(4 * length);
  const std::vector<int32_t> targets = Tokens(4 * length);
  const double scale = 1.0 / static_cast<double>(2 * length);
  // The decoder's results for each half, and their mean.
  auto decoder = *Decoder<double>::Create(config_, 2 * length, ops_);
  Values expected(layout_.element_count), half(layout_.element_count);
  std::vector<TokenBatch> batches;
  double loss = 0;
  for (int64_t i : {0, 1}) {
    batches.push_back({.batch = 2,
                       .sequence_length = length,
                       .inputs = inputs.data() + i * 2 * length,
                       .targets = targets.data() + i * 2 * length});
    loss +=
        decoder->ForwardBackward(parameters_.data(), batches[i], half.data()) /
        2;
    for (size_t j = 0; j < half.size(); ++j) expected[j] += half[j] / 2;
  }
  std::vector<Flight> flights;
  for (const TokenBatch& batch : batches) {
    flights.push_back(MakeFlight(batch, 0.5));
    embedding_.Forward(*work_, FindParameters(embedding_.span()), batch,
                       flights.back().streams[0].data());
  }
  for (int64_t i = 0; i < config_.layer_count; ++i) {
    for (Flight& flight : flights) ForwardBlock(flight, i);
  }
  for (Flight& flight : flights) {
    head_.Forward(*work_, FindParameters(head_.span()), 2 * length,
                  flight.streams.back().data(), flight.saved.back().data());
  }
  // Backward passes in reverse order; the second adds to the first's gradients.
  gradients_.assign(layout_.element_count, 77.0);
  double sum = 0;
  for (bool accumulate : {false, true}) {
    sum += BackwardHead(flights[accumulate ? 0 : 1], accumulate, scale / 2);
  }
  for (int64_t i = config_.layer_count - 1; i >= 0; --i) {
    for (bool accumulate : {false, true}) {
      BackwardBlock(flights[accumulate ? 0 : 1], i, accumulate);
    }
  }
  for (bool accumulate : {false, true}) {
    Flight& flight = flights[accumulate ? 0 : 1];
    embedding_.Backward(*work_, flight.batch, flight.gradient.data(),
                        gradients_.data(), accumulate, config_.tie_embeddings);
  }
  EXPECT_NEAR(sum * scale / 2, loss, 1e-12);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(gradients_[i], expected[i], 1e-12) << "parameter " << i;
  }
}

TEST_P(UnitsTest, WhatAForwardSavedCanBeMadeAgain) {
  const std::vector<int32_t> tokens = Tokens(14);
  const TokenBatch batch{.batch = 2,
                         .sequence_length = 7,
                         .inputs = tokens.data(),
                         .targets = tokens.data()};
  std::vector<Values> results;
  for (bool again : {false, true}) {
    Flight flight = MakeFlight(batch, 1.0);
    embedding_.Forward(*work_, FindParameters(embedding_.span()), batch,
                       flight.streams[0].data());
    ForwardBlock(flight, 0);
    flight.gradient.assign(flight.streams[0].size(), 0.01);
    if (again) {
      Flight other = MakeFlight(batch, 1.0);
      other.streams = flight.streams;
      ForwardBlock(other, 0);
      other.gradient = flight.gradient;
      gradients_.assign(layout_.element_count, 0.0);
      BackwardBlock(other, 0, false);
      results.push_back(other.gradient);
    } else {
      gradients_.assign(layout_.element_count, 0.0);
      BackwardBlock(flight, 0, false);
      results.push_back(flight.gradient);
    }
    results.push_back(gradients_);
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

}  // namespace
}  // namespace atl::engine
