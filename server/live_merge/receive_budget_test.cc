#include "server/live_merge/receive_budget.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/waiters/push_waiters.h"

namespace atl::server {
namespace {

class ReceiveBudgetTest : public testing::Test {
 protected:
  // Takes bytes for holder `i`, one by one, and returns their count.
  int64_t TakeAll(int i) {
    int64_t count = 0;
    while (auto hold = held_->Take(&holders_[i], 1)) {
      holds_.push_back(*std::move(hold));
      ++count;
    }
    return count;
  }

  std::vector<std::function<void()>> posted_;
  const std::shared_ptr<ReceiveBudget> held_ = std::make_shared<ReceiveBudget>(
      600, 9, [this](std::function<void()> task) {
        posted_.push_back(std::move(task));
      });
  const char holders_[4] = {};
  std::vector<ReceiveBudget::Hold> holds_;
};

TEST_F(ReceiveBudgetTest, OneHolderLeavesHalfAndEveryOtherFindsRoom) {
  EXPECT_EQ(TakeAll(0), 300);
  EXPECT_EQ(TakeAll(1), 150);
  EXPECT_EQ(TakeAll(2), 75);
  EXPECT_GT(TakeAll(3), 0);
  EXPECT_LE(held_->bytes(), 600);
  EXPECT_FALSE(held_->Take(&holders_[0], 1).has_value());
}

TEST_F(ReceiveBudgetTest, WhatEndsIsFreeAgain) {
  TakeAll(0);
  TakeAll(1);
  holds_.clear();
  EXPECT_EQ(held_->bytes(), 0);
  EXPECT_EQ(TakeAll(1), 300);
}

TEST_F(ReceiveBudgetTest, WhatHasToBeTakenIsTakenAndCounted) {
  {
    const ReceiveBudget::Hold all = held_->TakeOverBudget(&holders_[0], 700);
    EXPECT_TRUE(all.is_over_budget());
    EXPECT_EQ(held_->bytes(), 700);
    EXPECT_FALSE(held_->Take(&holders_[1], 1).has_value());
  }
  EXPECT_EQ(held_->bytes(), 0);
  const auto hold = held_->Take(&holders_[1], 1);
  ASSERT_TRUE(hold.has_value());
  EXPECT_FALSE(hold->is_over_budget());
}

TEST_F(ReceiveBudgetTest, WhatIsBeyondIsCountedUntilItIsLetGo) {
  const auto within = held_->Take(&holders_[0], 5);
  {
    const ReceiveBudget::Hold over_budget =
        held_->TakeOverBudget(&holders_[0], 7);
    EXPECT_EQ(held_->over_budget_bytes(), 7);
  }
  EXPECT_EQ(held_->over_budget_bytes(), 0);
  EXPECT_EQ(held_->bytes(), 5);
}

TEST_F(ReceiveBudgetTest, WhatIsAbandonedIsHeldUntilSomebodyFindsNoRoom) {
  TakeAll(0);
  int given_up_count = 0;
  const auto give_up = [&] {
    ++given_up_count;
    holds_.clear();
  };
  held_->Abandon(&holders_[0], give_up);
  held_->Abandon(&holders_[0], give_up);
  EXPECT_TRUE(held_->Take(&holders_[1], 300).has_value());
  EXPECT_EQ(given_up_count, 0);
  EXPECT_TRUE(held_->Take(&holders_[1], 301).has_value());
  EXPECT_EQ(given_up_count, 1);
  // A holder of nothing has nothing to give up.
  held_->Abandon(&holders_[0], give_up);
  EXPECT_FALSE(held_->Take(&holders_[1], 601).has_value());
  TakeAll(0);
  held_->Abandon(&holders_[0], give_up);
  holds_.clear();
  EXPECT_FALSE(held_->Take(&holders_[1], 601).has_value());
  EXPECT_EQ(given_up_count, 1);
}

class WaitingStream : public PushWaiter {
 public:
  void OnSettled(const absl::Status&) override {}
  void OnTooSlow(const absl::Status&) override {}
  void OnDisplaced(const absl::Status&) override {}
  void OnRoom() override { ++called_count; }

  int called_count = 0;
};

TEST_F(ReceiveBudgetTest, WhoWaitsIsCalledOnceThereIsRoom) {
  WaitingStream stream;
  const auto gate = std::make_shared<WaiterGate>(&stream);
  {
    const auto at_once = held_->Wait({&holders_[1], 100, this, 1}, gate);
    EXPECT_TRUE(at_once->is_in());
    EXPECT_EQ(at_once->TakeRoom()->bytes(), 100);
  }
  EXPECT_TRUE(posted_.empty());
  holds_.push_back(held_->TakeOverBudget(&holders_[0], 600));
  auto ticket = held_->Wait({&holders_[1], 100, this, 1}, gate);
  auto next = held_->Wait({&holders_[2], 100, this, 0}, gate);
  EXPECT_FALSE(ticket->is_in());
  EXPECT_TRUE(held_->AnyoneWaits());
  held_->LetInNext(this, 0);
  EXPECT_TRUE(next->is_in());
  EXPECT_FALSE(next->TakeRoom().has_value());
  EXPECT_FALSE(ticket->is_in());
  holds_.clear();
  EXPECT_TRUE(ticket->is_in());
  EXPECT_EQ(stream.called_count, 0);  // Only `post` calls a stream.
  ASSERT_EQ(posted_.size(), 3u);      // The first frees memory.
  for (const auto& task : posted_) task();
  EXPECT_EQ(stream.called_count, 2);
  EXPECT_EQ(held_->bytes(), 100);
  ticket.reset();  // It did not take its reservation.
  EXPECT_EQ(held_->bytes(), 0);
  EXPECT_FALSE(held_->AnyoneWaits());
}

TEST_F(ReceiveBudgetTest, WhatIsAbandonedWhileSomebodyWaitsIsGivenUpAtOnce) {
  WaitingStream stream;
  TakeAll(0);
  const auto ticket = held_->Wait({&holders_[1], 400, this, 1},
                                  std::make_shared<WaiterGate>(&stream));
  EXPECT_FALSE(ticket->is_in());
  held_->Abandon(&holders_[0], [&] { holds_.clear(); });
  EXPECT_TRUE(ticket->is_in());
}

class FoldedSet : public FoldingSet {
 public:
  explicit FoldedSet(std::function<void()> fold) : fold_(std::move(fold)) {}
  bool FoldWaiting() override {
    fold_();
    return true;
  }

 private:
  const std::function<void()> fold_;
};

TEST_F(ReceiveBudgetTest, WhoWaitsHasRoomMadeOfAllThatCanBe) {
  WaitingStream stream;
  const auto gate = std::make_shared<WaiterGate>(&stream);
  holds_.push_back(held_->TakeOverBudget(&holders_[0], 600));
  int folded_count = 0;
  auto first = std::make_shared<FoldedSet>([&] { ++folded_count; });
  held_->AddSet(first);
  const auto second = std::make_shared<FoldedSet>([&] {
    ++folded_count;
    holds_.clear();
  });
  held_->AddSet(second);
  const auto ticket = held_->Wait({&holders_[1], 400, this, 1}, gate);
  const auto other = held_->Wait({&holders_[2], 400, this, 1}, gate);
  EXPECT_FALSE(ticket->is_in());
  ASSERT_EQ(posted_.size(), 1u);  // Once for both.
  posted_[0]();
  EXPECT_EQ(folded_count, 2);
  EXPECT_TRUE(ticket->is_in());
  EXPECT_FALSE(other->is_in());
  // A later ticket starts it again, for the sets that still live.
  first.reset();
  posted_.clear();
  const auto third = held_->Wait({&holders_[3], 400, this, 1}, gate);
  ASSERT_EQ(posted_.size(), 1u);
  posted_[0]();
  EXPECT_EQ(folded_count, 3);
}

TEST_F(ReceiveBudgetTest, WhoHasReservedEnoughWaitsUntilItHasCome) {
  constexpr int64_t kTurn = BudgetBook::kReservedBytesMin;
  WaitingStream stream;
  const auto gate = std::make_shared<WaiterGate>(&stream);
  const auto held = std::make_shared<ReceiveBudget>(
      10 * kTurn, 0, [this](std::function<void()> task) {
        posted_.push_back(std::move(task));
      });
  const auto first = held->Wait({&holders_[1], kTurn, this, 1}, gate);
  const auto second = held->Wait({&holders_[1], kTurn, this, 1}, gate);
  const auto third = held->Wait({&holders_[1], kTurn, this, 1}, gate);
  EXPECT_TRUE(first->is_in());
  EXPECT_FALSE(second->is_in());
  EXPECT_FALSE(held->IsScarce());
  // It waits only for reservations of its own contribution.
  EXPECT_TRUE(posted_.empty());
  std::optional<ReceiveBudget::Hold> reserved = first->TakeRoom();
  const ReceiveBudget::Hold come = reserved->Receive(kTurn);
  EXPECT_TRUE(second->is_in());
  EXPECT_FALSE(third->is_in());
  EXPECT_EQ(held->bytes(), 2 * kTurn);
  ASSERT_EQ(posted_.size(), 1u);
  posted_[0]();
  EXPECT_EQ(stream.called_count, 1);
  // Another holder takes the rest.
  const ReceiveBudget::Hold rest =
      held->TakeOverBudget(&holders_[2], 8 * kTurn);
  EXPECT_TRUE(held->IsScarce());
  EXPECT_EQ(posted_.size(), 2u);
}

TEST_F(ReceiveBudgetTest, WhoHasEverythingWaitsNoMore) {
  WaitingStream stream;
  const auto gate = std::make_shared<WaiterGate>(&stream);
  holds_.push_back(held_->TakeOverBudget(&holders_[0], 600));
  const auto ticket = held_->Wait({&holders_[1], 100, this, 1}, gate);
  held_->LetInHolder(&holders_[1]);
  EXPECT_TRUE(ticket->is_in());
  EXPECT_FALSE(ticket->TakeRoom().has_value());
  EXPECT_FALSE(held_->AnyoneWaits());
  ASSERT_EQ(posted_.size(), 2u);
  posted_[1]();
  EXPECT_EQ(stream.called_count, 1);
}

TEST_F(ReceiveBudgetTest, APartIsHeldForItself) {
  auto hold = held_->Take(&holders_[0], 10);
  {
    const ReceiveBudget::Hold part = hold->Split(10);
    EXPECT_EQ(part.bytes(), 10);
    hold.reset();
    EXPECT_EQ(held_->bytes(), 10);
  }
  EXPECT_EQ(held_->bytes(), 0);
}

TEST_F(ReceiveBudgetTest, SlicesHaveABoundOfTheirOwn) {
  EXPECT_TRUE(held_->AddSliceBytes(9));
  EXPECT_FALSE(held_->AddSliceBytes(1));
  held_->RemoveSliceBytes(1);
  EXPECT_TRUE(held_->AddSliceBytes(1));
}

}  // namespace
}  // namespace atl::server
