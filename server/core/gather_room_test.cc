#include "server/core/gather_room.h"

#include <vector>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

using Numbers = std::vector<int64_t>;

class GatherRoomTest : public testing::Test {
 protected:
  // Contribution `index` of `set`.
  const void* Holder(int index, int set = 0) {
    return &holders_[set][index];
  }
  void Wait(int64_t number, int index, int64_t bytes = 10, int set = 0) {
    room_.Wait(number, {Holder(index, set), bytes, &holders_[set], index});
  }

  const char holders_[2][8] = {};
  GatherRoom room_{100};
};

TEST_F(GatherRoomTest, WhoIsMergedFirstComesInFirst) {
  room_.TakeBeyond(Holder(0), 100);
  Wait(1, 5);
  Wait(2, 3);
  Wait(3, 4);
  Wait(4, 3);
  EXPECT_EQ(room_.LetIn(), Numbers());
  room_.Give(Holder(0), 15, /*is_beyond=*/true);
  EXPECT_EQ(room_.LetIn(), Numbers({2}));
  room_.Give(Holder(0), 20, true);
  EXPECT_EQ(room_.LetIn(), Numbers({4, 3}));
  room_.Give(Holder(0), 65, true);
  EXPECT_EQ(room_.LetIn(), Numbers({1}));
  EXPECT_EQ(room_.waiting_count(), 0u);
  EXPECT_EQ(room_.bytes(), 40);
}

TEST_F(GatherRoomTest, WhoDoesNotFitIsPassedOver) {
  ASSERT_TRUE(room_.Take(Holder(1), 50));
  Wait(1, 1);
  Wait(2, 2, 60);
  Wait(3, 3);
  EXPECT_EQ(room_.LetIn(), Numbers({3}));
  EXPECT_EQ(room_.waiting_count(), 2u);
}

// Whatever others hold.
TEST_F(GatherRoomTest, WhoIsNextNeedsNoRoom) {
  room_.TakeBeyond(Holder(0, 1), 1000);
  Wait(1, 0);
  Wait(2, 1);
  Wait(3, 2);
  Wait(4, 0, 10, /*set=*/1);
  EXPECT_EQ(room_.LetInNext(&holders_[0], 1), Numbers({1, 2}));
  EXPECT_EQ(room_.waiting_count(), 2u);
  EXPECT_EQ(room_.bytes(), 1000);
}

TEST_F(GatherRoomTest, WhoNeedsNoRoomAnyMoreWaitsForNone) {
  room_.TakeBeyond(Holder(0, 1), 1000);
  Wait(1, 1);
  Wait(2, 2);
  Wait(3, 1);
  EXPECT_EQ(room_.LetInHolder(Holder(1)), Numbers({1, 3}));
  EXPECT_EQ(room_.LetInHolder(Holder(1)), Numbers());
  EXPECT_EQ(room_.waiting_count(), 1u);
  EXPECT_EQ(room_.bytes(), 1000);
}

TEST_F(GatherRoomTest, WhoHasLeftIsNotLetIn) {
  Wait(1, 0);
  Wait(2, 0);
  room_.Leave(1);
  room_.Leave(1);
  EXPECT_EQ(room_.LetIn(), Numbers({2}));
  room_.Leave(2);
  EXPECT_EQ(room_.bytes(), 10);
}

}  // namespace
}  // namespace atl::server
