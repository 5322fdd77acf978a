// A call on a device may end in an error after it returned OK. Whichever call
// that is, no result that a rank reports is wrong, and the ranks get an error.

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "gtest/gtest.h"
#include "worker/collective/collective.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/testing/faulty_collective.h"
#include "worker/collective/testing/ranks.h"
#include "worker/engine/model/parameter_layout.h"
#include "worker/engine/ops/testing/plain_ops.h"
#include "worker/engine/parallel/layout/mesh.h"
#include "worker/engine/parallel/layout/mesh_options.h"
#include "worker/engine/parallel/rank_trainer.h"

namespace atl::engine {
namespace {

using collective::Collective;
using Values = std::vector<double>;

constexpr int64_t kSequences = 4, kLength = 8, kVocabulary = 13;

RankTrainerOptions Options(const std::string& mesh, bool mixture) {
  ModelConfig model{.vocab_size = kVocabulary,
                    .hidden_size = 8,
                    .intermediate_size = 8,
                    .layer_count = 2,
                    .head_count = 2,
                    .kv_head_count = 2,
                    .sequence_length_max = kLength};
  if (mixture) {
    model.architecture = Architecture::kMixtral;
    model.expert_count = 2;
    model.experts_per_token = 1;
    model.router_loss_weight = 0.1;
    model.expert_capacity_factor = 0.7;
  }
  return {.model = model,
          .mesh = {.mesh = *Mesh::Parse(mesh), .micro_batch_count = 2},
          .batch_size = kSequences,
          .sequence_length = kLength};
}

// The results that a rank reported with OK, in order, and its last error.
struct Reported {
  std::vector<Values> results;
  absl::Status status;
  int64_t call_count = 0;
};

class LateErrorsTest : public testing::Test {
 protected:
  LateErrorsTest() : random_(Seed()) {
    for (int32_t& token : tokens_) {
      token = static_cast<int32_t>(random_() % kVocabulary);
    }
  }

  static uint64_t Seed() {
    const uint64_t seed = std::random_device()();
    std::cout << "seed " << seed << std::endl;
    return seed;
  }

  absl::Status Train(const RankTrainerOptions& options, Collective& world,
                     std::vector<Values>& results) {
    PlainOps<double> ops;
    const ParameterLayout layout = MakeParameterLayout(options.model);
    ASSIGN_OR_RETURN(const auto trainer, RankTrainer<double>::Create(
                                             options, layout, world, ops));
    Values held(layout.element_count);
    for (size_t i = 0; i < held.size(); ++i) {
      held[i] = 0.1 * static_cast<double>(i % 7);
    }
    double* const own = held.data() + trainer->held().begin;
    RETURN_IF_ERROR(trainer->ScatterParameters(own));
    for (int step = 0; step < 2; ++step) {
      ASSIGN_OR_RETURN(const auto result,
                       trainer->Step(tokens_.data(), tokens_.data() + 1,
                                     kSequences, /*learning_rate=*/0.1));
      results.push_back(
          {result.loss, result.gradient_norm, result.router_loss});
    }
    ASSIGN_OR_RETURN(const double loss,
                     trainer->EvaluateLoss(tokens_.data(), tokens_.data() + 1,
                                           kSequences));
    results.push_back({loss});
    ASSIGN_OR_RETURN(const double* const logits,
                     trainer->Logits(tokens_.data(), 3));
    results.emplace_back(logits, logits + kVocabulary);
    std::fill(held.begin(), held.end(), 0.0);
    RETURN_IF_ERROR(trainer->GatherParameters(own));
    results.push_back(held);
    return absl::OkStatus();
  }

  // Call number `at` of `victim` is aborted after it was queued. -1: none.
  std::vector<Reported> Run(const RankTrainerOptions& options, int victim,
                            int64_t at) {
    const int size = options.mesh.mesh.rank_count();
    collective::LocalWorld world(size);
    auto ranks = world.TakeRanks();
    std::vector<Reported> reported(size);
    for (int r = 0; r < size; ++r) {
      collective::FaultPlan plan;
      plan.end_late_at_call = r == victim ? at : -1;
      plan.before_call = [&own = reported[r]](int64_t) { ++own.call_count; };
      ranks[r] = MakeFaulty(std::move(ranks[r]), std::move(plan));
    }
    collective::RunRanks(ranks, [&](int r, std::unique_ptr<Collective>& rank) {
      reported[r].status = Train(options, *rank, reported[r].results);
      rank.reset();
    });
    return reported;
  }

  void Hold(const RankTrainerOptions& options) {
    const std::vector<Reported> expected = Run(options, 0, -1);
    const int victim = static_cast<int>(random_() % expected.size());
    const int64_t calls = expected[victim].call_count;
    for (int64_t at = 0; at < calls; ++at) {
      const auto reported = Run(options, victim, at);
      for (size_t r = 0; r < reported.size(); ++r) {
        const std::string name = absl::StrCat("rank ", r, ", call ", at, " of ",
                                              calls, " of rank ", victim);
        ASSERT_TRUE(expected[r].status.ok()) << expected[r].status;
        const auto& results = reported[r].results;
        ASSERT_LE(results.size(), expected[r].results.size());
        for (size_t i = 0; i < results.size(); ++i) {
          EXPECT_EQ(results[i], expected[r].results[i])
              << name << ": result " << i;
        }
        if (static_cast<int>(r) != victim) continue;
        EXPECT_EQ(reported[r].status.code(), absl::StatusCode::kUnavailable)
            << name << ": " << reported[r].status;
      }
      if (HasFailure()) return;
    }
  }

  std::mt19937_64 random_;
  std::vector<int32_t> tokens_ =
      std::vector<int32_t>(kSequences * kLength + 1);
};

TEST_F(LateErrorsTest, ShardsAndTensorParallel) {
  Hold(Options("dp_shard=2,tp=2", false));
}

TEST_F(LateErrorsTest, PipelinesAndContextParallel) {
  Hold(Options("pp=2,cp=2", false));
}

TEST_F(LateErrorsTest, Experts) { Hold(Options("ep=2,cp=2", true)); }

}  // namespace
}  // namespace atl::engine
