#include "server/core/budget_book.h"

#include <vector>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

using Numbers = std::vector<int64_t>;
using Kind = BudgetBook::Kind;

class BudgetBookTest : public testing::Test {
 protected:
  const void* Holder(int index, int set = 0) { return &holders_[set][index]; }
  void Wait(int64_t number, int index, int64_t bytes = 10, int set = 0) {
    book_.Wait(number, {Holder(index, set), bytes, &holders_[set], index});
  }

  const char holders_[2][8] = {};
  BudgetBook book_{100};
};

TEST_F(BudgetBookTest, WhoIsMergedFirstComesInFirst) {
  book_.TakeOverBudget(Holder(0), 100);
  Wait(1, 5);
  Wait(2, 3);
  Wait(3, 4);
  Wait(4, 3);
  EXPECT_EQ(book_.LetIn(), Numbers());
  book_.Give(Holder(0), 15, Kind::kOverBudget);
  EXPECT_EQ(book_.LetIn(), Numbers({2}));
  book_.Give(Holder(0), 20, Kind::kOverBudget);
  EXPECT_EQ(book_.LetIn(), Numbers({4, 3}));
  book_.Give(Holder(0), 65, Kind::kOverBudget);
  EXPECT_EQ(book_.LetIn(), Numbers({1}));
  EXPECT_EQ(book_.waiting_count(), 0u);
  EXPECT_EQ(book_.bytes(), 40);
}

TEST_F(BudgetBookTest, WhoDoesNotFitIsPassedOver) {
  ASSERT_TRUE(book_.Take(Holder(1), 50));
  Wait(1, 1);
  Wait(2, 2, 60);
  Wait(3, 3);
  EXPECT_EQ(book_.LetIn(), Numbers({3}));
  EXPECT_EQ(book_.waiting_count(), 2u);
}

TEST_F(BudgetBookTest, WhoIsNextNeedsNoRoom) {
  book_.TakeOverBudget(Holder(0, 1), 1000);
  Wait(1, 0);
  Wait(2, 1);
  Wait(3, 2);
  Wait(4, 0, 10, /*set=*/1);
  EXPECT_EQ(book_.LetInNext(&holders_[0], 1), Numbers({1, 2}));
  EXPECT_EQ(book_.waiting_count(), 2u);
  EXPECT_EQ(book_.bytes(), 1000);
}

TEST_F(BudgetBookTest, WhoNeedsNoRoomAnyMoreWaitsForNone) {
  book_.TakeOverBudget(Holder(0, 1), 1000);
  Wait(1, 1);
  Wait(2, 2);
  Wait(3, 1);
  EXPECT_EQ(book_.LetInHolder(Holder(1)), Numbers({1, 3}));
  EXPECT_EQ(book_.LetInHolder(Holder(1)), Numbers());
  EXPECT_EQ(book_.waiting_count(), 1u);
  EXPECT_EQ(book_.bytes(), 1000);
}

TEST_F(BudgetBookTest, WhoHasLeftIsNotLetIn) {
  Wait(1, 0);
  Wait(2, 0);
  book_.Leave(1);
  book_.Leave(1);
  EXPECT_EQ(book_.LetIn(), Numbers({2}));
  book_.Leave(2);
  EXPECT_EQ(book_.bytes(), 10);
}

// An admitted stream may never send anything.
class ReservedRoomTest : public BudgetBookTest {
 protected:
  static constexpr int64_t kMib = int64_t{1} << 20;

  // `count` streams of a contribution wait; returns how many are admitted.
  size_t LetIn(int index, int count) {
    for (int i = 0; i < count; ++i) Wait(++number_, index, kMib);
    return book_.LetIn().size();
  }

  int64_t number_ = 0;
};

TEST_F(ReservedRoomTest, OfWhatIsFreeAContributionReservesASixteenth) {
  book_ = BudgetBook(1024 * kMib);
  // After 60 of them there are 964 MiB left.
  EXPECT_EQ(LetIn(1, 256), 60u);
  EXPECT_EQ(LetIn(2, 256), 56u);
  EXPECT_FALSE(book_.IsScarce());
}

TEST_F(ReservedRoomTest, HoweverLittleIsLeftFourStreamsOfAContributionAreRead) {
  book_ = BudgetBook(10 * kMib);
  EXPECT_EQ(LetIn(1, 256), 4u);
  // The reservation limit, not the budget, holds the others back.
  EXPECT_FALSE(book_.IsScarce());
  EXPECT_EQ(LetIn(2, 256), 3u);
  EXPECT_TRUE(book_.IsScarce());
}

TEST_F(ReservedRoomTest, WhatHasComeOrIsGivenBackIsReservedNoMore) {
  book_ = BudgetBook(32 * kMib);
  EXPECT_EQ(LetIn(1, 8), 4u);
  book_.Receive(Holder(1), 2 * kMib);
  EXPECT_EQ(book_.bytes(), 4 * kMib);
  EXPECT_EQ(LetIn(1, 0), 2u);
  EXPECT_EQ(book_.bytes(), 6 * kMib);
  book_.Give(Holder(1), kMib, Kind::kReserved);
  EXPECT_EQ(LetIn(1, 0), 1u);
  // Arrived bytes do not count as reserved.
  book_.Give(Holder(1), 2 * kMib, Kind::kCome);
  EXPECT_EQ(LetIn(1, 0), 0u);
  EXPECT_EQ(book_.bytes(), 4 * kMib);
}

TEST_F(ReservedRoomTest, WhoIsNextIsNotHeldUpByWhatIsReserved) {
  book_ = BudgetBook(32 * kMib);
  EXPECT_EQ(LetIn(1, 8), 4u);
  EXPECT_EQ(book_.LetInNext(&holders_[0], 1), Numbers({5, 6, 7, 8}));
  EXPECT_EQ(book_.bytes(), 4 * kMib);
}

}  // namespace
}  // namespace atl::server
