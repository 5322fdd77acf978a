#include "worker/collective/testing/faulty_collective.h"

#include <iostream>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/collective/local/local_world.h"
#include "worker/collective/testing/random_program.h"
#include "worker/collective/testing/ranks.h"

namespace atl::collective {
namespace {

using Rank = std::unique_ptr<Collective>;

TEST(FaultyCollectiveTest, ARankThatDiesEndsTheCallsOfAllOthers) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  const int victim = seed % 4;
  const int64_t at = seed % 37;
  LocalWorld world(4);
  auto ranks = world.TakeRanks();
  FaultPlan plan;
  plan.die_at_call = at;
  ranks[victim] = MakeFaulty(std::move(ranks[victim]), plan);
  RunRanks(ranks, [&](int r, Rank& rank) {
    std::vector<float> data(5000, 1);
    absl::Status status;
    int64_t calls = 0;
    for (; status.ok(); ++calls) status = rank->AllReduce(absl::MakeSpan(data));
    EXPECT_EQ(calls - 1, at) << r;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(
        absl::StrContains(status.message(), "rank " + std::to_string(victim)))
        << status;
  });
}

TEST(FaultyCollectiveTest, DiesInAllGroupsAtOnce) {
  LocalWorld world(2);
  auto ranks = world.TakeRanks();
  FaultPlan plan;
  plan.die_at_call = 2;  // After a Split and a barrier.
  ranks[1] = MakeFaulty(std::move(ranks[1]), plan);
  RunRanks(ranks, [&](int r, Rank& rank) {
    auto pair = rank->Split(0, "pair");
    ASSERT_TRUE(pair.ok());
    EXPECT_TRUE((*pair)->Barrier().ok());
    EXPECT_EQ((*pair)->Barrier().code(), absl::StatusCode::kUnavailable);
    Pending pending = rank->Start(Call::Barrier());
    EXPECT_EQ(pending.Wait().code(), absl::StatusCode::kUnavailable) << r;
  });
}

TEST(FaultyCollectiveTest, RanksThatComeLateChangeNoBit) {
  const uint32_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  LocalWorld world(3);
  auto ranks = world.TakeRanks();
  for (int r = 0; r < 3; ++r) {
    FaultPlan plan;
    // Yields, sometimes many times.
    plan.before_call = [random = std::mt19937(seed + r)](int64_t) mutable {
      for (int i = random() % 5 == 0 ? 20 : 0; i > 0; --i) {
        std::this_thread::yield();
      }
    };
    ranks[r] = MakeFaulty(std::move(ranks[r]), std::move(plan));
  }
  RunRanks(ranks, [&](int, Rank& rank) {
    RunRandomProgram(seed, /*call_count=*/100, /*count_max=*/500, *rank);
  });
}

}  // namespace
}  // namespace atl::collective
