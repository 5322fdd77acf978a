#include "worker/island/group/island_group.h"

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/collective/local/local_world.h"
#include "worker/core/data_awaited.h"

namespace atl::worker {
namespace {

class IslandGroupTest : public testing::Test {
 protected:
  // Calls `process` in each of `count` processes, which are threads.
  void RunAll(int count, const std::function<void(IslandGroup&)>& process) {
    std::vector<std::unique_ptr<collective::LocalWorld>> worlds;
    std::vector<IslandGroup::Lanes> lanes(count);
    for (int lane = 0; lane < kLaneCount; ++lane) {
      worlds.push_back(std::make_unique<collective::LocalWorld>(count));
      auto ranks = worlds.back()->TakeRanks();
      for (int i = 0; i < count; ++i) lanes[i][lane] = std::move(ranks[i]);
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        IslandGroup group(std::move(lanes[i]));
        process(group);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::string Message(std::mt19937_64& random) const {
    const int lengths[] = {0, 1, 507, 508, 509, 5000};
    std::string message(lengths[random() % 6], ' ');
    for (char& c : message) c = static_cast<char>(random());
    return message;
  }

  const uint64_t seed_ = std::random_device()();
  testing::ScopedTrace trace_{__FILE__, __LINE__,
                              "seed " + std::to_string(seed_)};
};

TEST_F(IslandGroupTest, CarriesMessagesOfAnyLengthInEachLane) {
  RunAll(3, [&](IslandGroup& group) {
    std::mt19937_64 random(seed_);  // The same in all.
    for (int i = 0; i < 60; ++i) {
      const Lane lane = static_cast<Lane>(random() % kLaneCount);
      const std::string sent = Message(random);
      if (group.leads()) {
        ASSERT_TRUE(group.Send(lane, sent).ok());
      } else {
        const auto got = group.Receive(lane);
        ASSERT_TRUE(got.ok()) << got.status();
        ASSERT_EQ(*got, sent);
      }
      std::vector<std::string> all;
      for (int p = 0; p < 3; ++p) all.push_back(Message(random));
      const auto exchanged = group.Exchange(lane, all[group.process_index()]);
      ASSERT_TRUE(exchanged.ok()) << exchanged.status();
      ASSERT_EQ(*exchanged, all);
    }
  });
}

TEST_F(IslandGroupTest, AnErrorOfOneIsOneOfAll) {
  RunAll(3, [&](IslandGroup& group) {
    EXPECT_TRUE(group.Agree(Lane::kTraining, absl::OkStatus()).ok());
    // The cause wins over the CANCELLED that it led to.
    const absl::Status own[] = {absl::CancelledError("stopped"),
                                absl::OkStatus(),
                                absl::DataLossError("damaged")};
    const absl::Status all =
        group.Agree(Lane::kTraining, own[group.process_index()]);
    EXPECT_EQ(all.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(absl::StrContains(all.message(), "process 2"),
              group.process_index() != 2);
    EXPECT_TRUE(group.lost().ok());
  });
}

TEST_F(IslandGroupTest, AllAwaitTheDataThatOneAwaitsUnlessOneFails) {
  RunAll(2, [](IslandGroup& group) {
    const absl::Status mine =
        group.process_index() == 1 ? DataAwaited("file a") : absl::OkStatus();
    const absl::Status agreed = group.Agree(Lane::kTraining, mine);
    EXPECT_TRUE(IsDataAwaited(agreed)) << agreed;
    const absl::Status failed = group.Agree(
        Lane::kTraining,
        group.process_index() == 0 ? absl::DataLossError("test") : mine);
    EXPECT_TRUE(absl::IsDataLoss(failed)) << failed;
  });
}

TEST_F(IslandGroupTest, ProcessZeroHearsWhoWantsToStop) {
  RunAll(2, [&](IslandGroup& group) {
    if (group.process_index() == 1) group.RequestStop(1);
    EXPECT_EQ(group.stop(), 0);
    EXPECT_TRUE(group.Agree(Lane::kTraining, absl::OkStatus()).ok());
    EXPECT_EQ(group.stop(), 1);
  });
}

TEST_F(IslandGroupTest, EndsForAllWhenOneGoes) {
  RunAll(3, [&](IslandGroup& group) {
    if (group.process_index() == 1) return;
    const absl::Status lost = group.Agree(Lane::kTraining, absl::OkStatus());
    EXPECT_TRUE(IsProcessLost(lost)) << lost;
    EXPECT_EQ(group.lost(), lost);
    EXPECT_TRUE(IsProcessLost(group.Send(Lane::kTraining, "more")));
  });
  EXPECT_FALSE(IsProcessLost(absl::UnavailableError("a server is away")));
}

}  // namespace
}  // namespace atl::worker
