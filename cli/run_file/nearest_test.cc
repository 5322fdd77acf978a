#include "cli/run_file/nearest.h"

#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(NearestTest, CountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("form", "from"), 1);
  EXPECT_EQ(EditDistance("same", "same"), 0);
}

TEST(NearestTest, FindsTheMisspelledName) {
  EXPECT_EQ(NearestName("learning_rte", {"momentum", "learning_rate"}),
            "learning_rate");
}

TEST(NearestTest, OffersNothingForAStranger) {
  EXPECT_EQ(NearestName("zebra", {"momentum", "learning_rate"}), "");
}

}  // namespace
}  // namespace atl::cli
