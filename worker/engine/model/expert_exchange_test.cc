#include "worker/engine/model/expert_exchange.h"

#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "worker/collective/collective.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/testing/ranks.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/model/unit_slice.h"
#include "worker/engine/model/workspace.h"
#include "worker/engine/ops/testing/plain_ops.h"

namespace atl::engine {
namespace {

using collective::Collective;

constexpr int64_t kRows = 9, kChannels = 2;
constexpr int kRanks = 3, kExperts = 6;

ModelConfig Config() {
  ModelConfig config{.architecture = Architecture::kMixtral,
                     .vocab_size = 3,
                     .hidden_size = kChannels,
                     .intermediate_size = 2,
                     .layer_count = 1,
                     .head_count = 1,
                     .kv_head_count = 1,
                     .sequence_length_max = kRows};
  config.expert_count = kExperts;
  config.experts_per_token = 1;
  return config;
}

struct Side {
  Side(int rank, Collective& group, const std::vector<int64_t>& begins,
       int64_t rows)
      : slice{.ep_size = kRanks, .ep_rank = rank},
        work(*Workspace<double>::Create(Config(), slice, {.ep = &group}, rows,
                                        ops)),
        received(ExpertExchange<double>::ReceivedCount(Config(), slice)),
        exchange(Config(), slice, begins.data(), received.data()) {}

  PlainOps<double> ops;
  const UnitSlice slice;
  std::unique_ptr<Workspace<double>> work;
  std::vector<int64_t> received;
  const ExpertExchange<double> exchange;
};

TEST(ExpertExchangeTest, RowsLieByExpertThenByRankAndComeBack) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  // Rows of each rank for each expert; some are 0.
  std::vector<std::vector<int64_t>> begins(kRanks,
                                           std::vector<int64_t>(kExperts + 1));
  for (auto& own : begins) {
    for (int64_t left = kRows, e = 0; e < kExperts; ++e) {
      const int64_t count = std::uniform_int_distribution<int64_t>(
          0, e + 1 < kExperts ? left / 2 : left)(random);
      own[e + 1] = own[e] + count;
      left -= count;
    }
  }
  const auto label = [](int rank, int64_t slot) {
    return static_cast<double>(100 * rank + slot);
  };
  collective::LocalWorld world(kRanks);
  auto ranks = world.TakeRanks();
  RunRanks(ranks, [&](int rank, std::unique_ptr<Collective>& group) {
    Side side(rank, *group, begins[rank], kRows);
    side.exchange.ShareCounts(*side.work, kRanks * kRows);
    const int64_t slots = begins[rank].back();
    std::vector<double> by_slot(kRows * kChannels, -1.0), back = by_slot;
    for (int64_t i = 0; i < slots * kChannels; ++i) {
      by_slot[i] = label(rank, i / kChannels);
    }
    std::vector<double> by_expert(kRanks * kRows * kChannels, -1.0);
    side.exchange.Dispatch(*side.work, by_slot.data(), by_expert.data());
    int64_t row = 0;
    for (int64_t e = 0; e < kExperts / kRanks; ++e) {
      EXPECT_EQ(side.exchange.begin(e), row);
      const int64_t expert = rank * (kExperts / kRanks) + e;
      for (int p = 0; p < kRanks; ++p) {
        for (int64_t slot = begins[p][expert]; slot < begins[p][expert + 1];
             ++slot, ++row) {
          EXPECT_EQ(by_expert[row * kChannels], label(p, slot));
          EXPECT_EQ(by_expert[row * kChannels + 1], label(p, slot));
        }
      }
      EXPECT_EQ(side.exchange.begin(e) + side.exchange.count(e), row);
    }
    side.exchange.Return(*side.work, by_expert.data(), back.data());
    EXPECT_EQ(back, by_slot);
    EXPECT_TRUE(side.work->ok()) << side.work->status();
  });
}

TEST(ExpertExchangeTest, MoreRowsThanThereIsRoomForEndTheWorld) {
  // All rows of all ranks go to rank 2, which expects fewer.
  const std::vector<int64_t> begins = {0, 0, 0, 0, 0, kRows, kRows};
  collective::LocalWorld world(kRanks);
  auto ranks = world.TakeRanks();
  RunRanks(ranks, [&](int rank, std::unique_ptr<Collective>& group) {
    Side side(rank, *group, begins, kRows);
    side.exchange.ShareCounts(*side.work,
                              rank == 2 ? kRanks * kRows - 1 : kRanks * kRows);
    std::vector<double> rows(kRanks * kRows * kChannels), to = rows;
    side.exchange.Dispatch(*side.work, rows.data(), to.data());
    EXPECT_EQ(side.work->status().code(),
              rank == 2 ? absl::StatusCode::kInvalidArgument
                        : absl::StatusCode::kUnavailable)
        << side.work->status();
    EXPECT_EQ(side.exchange.count(0), 0);
  });
}

}  // namespace
}  // namespace atl::engine
