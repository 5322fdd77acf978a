#include "server/service/held_bytes.h"

#include <memory>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

class HeldBytesTest : public testing::Test {
 protected:
  // As many bytes as holder `i` gets, one by one.
  int64_t TakeAll(int i) {
    int64_t count = 0;
    while (auto hold = held_->Take(&holders_[i], 1)) {
      holds_.push_back(*std::move(hold));
      ++count;
    }
    return count;
  }

  const std::shared_ptr<HeldBytes> held_ = std::make_shared<HeldBytes>(600, 9);
  const char holders_[4] = {};
  std::vector<HeldBytes::Hold> holds_;
};

TEST_F(HeldBytesTest, OneHolderLeavesHalfAndEveryOtherFindsRoom) {
  EXPECT_EQ(TakeAll(0), 300);
  EXPECT_EQ(TakeAll(1), 150);
  EXPECT_EQ(TakeAll(2), 75);
  EXPECT_GT(TakeAll(3), 0);
  EXPECT_LE(held_->bytes(), 600);
  EXPECT_FALSE(held_->Take(&holders_[0], 1).has_value());
}

TEST_F(HeldBytesTest, WhatEndsIsFreeAgain) {
  TakeAll(0);
  TakeAll(1);
  holds_.clear();
  EXPECT_EQ(held_->bytes(), 0);
  EXPECT_EQ(TakeAll(1), 300);
}

TEST_F(HeldBytesTest, WhatHasToBeTakenIsTakenAndCounted) {
  {
    const HeldBytes::Hold all = held_->TakeBeyond(&holders_[0], 700);
    EXPECT_TRUE(all.is_beyond());
    EXPECT_EQ(held_->bytes(), 700);
    EXPECT_FALSE(held_->Take(&holders_[1], 1).has_value());
  }
  EXPECT_EQ(held_->bytes(), 0);
  const auto hold = held_->Take(&holders_[1], 1);
  ASSERT_TRUE(hold.has_value());
  EXPECT_FALSE(hold->is_beyond());
}

TEST_F(HeldBytesTest, WhatIsBeyondIsCountedUntilItIsLetGo) {
  const auto within = held_->Take(&holders_[0], 5);
  {
    const HeldBytes::Hold beyond = held_->TakeBeyond(&holders_[0], 7);
    EXPECT_EQ(held_->beyond_bytes(), 7);
  }
  EXPECT_EQ(held_->beyond_bytes(), 0);
  EXPECT_EQ(held_->bytes(), 5);
}

TEST_F(HeldBytesTest, WhatIsAbandonedIsHeldUntilSomebodyFindsNoRoom) {
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
  // Who holds nothing has nothing to give up.
  held_->Abandon(&holders_[0], give_up);
  EXPECT_FALSE(held_->Take(&holders_[1], 601).has_value());
  TakeAll(0);
  held_->Abandon(&holders_[0], give_up);
  holds_.clear();
  EXPECT_FALSE(held_->Take(&holders_[1], 601).has_value());
  EXPECT_EQ(given_up_count, 1);
}

TEST_F(HeldBytesTest, SlicesHaveABoundOfTheirOwn) {
  EXPECT_TRUE(held_->AddSliceBytes(9));
  EXPECT_FALSE(held_->AddSliceBytes(1));
  held_->RemoveSliceBytes(1);
  EXPECT_TRUE(held_->AddSliceBytes(1));
}

}  // namespace
}  // namespace atl::server
