#include "worker/island/island_control.h"

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

TEST(IslandControlTest, KeepsTheNewestWishesAndTellsOfEachChange) {
  IslandControl control;
  int change_count = 0;
  control.Listen([&] { ++change_count; });
  control.Hold("someone types");
  control.Hold("someone types");
  EXPECT_EQ(change_count, 1);
  EXPECT_EQ(control.Get().hold, "someone types");
  control.Release();
  control.Finish();
  EXPECT_EQ(change_count, 3);
  EXPECT_TRUE(control.Get().hold.empty());
  EXPECT_TRUE(control.Get().finish);
  control.Listen(nullptr);
  control.Hold("pause");
  EXPECT_EQ(change_count, 3);
}

}  // namespace
}  // namespace atl::worker
