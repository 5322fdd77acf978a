#include "cli/volunteer/local_name.h"

#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(LocalNameTest, IsShortAndOneForEachIsland) {
  const std::string name = LocalName("/d", "run", "a");
  EXPECT_EQ(name.size(), 37);
  EXPECT_EQ(name, LocalName("/d", "run", "a"));
  EXPECT_NE(name, LocalName("/d", "run", "b"));
  EXPECT_NE(name, LocalName("/d", "ru", "na"));
  EXPECT_NE(name, LocalName("/e", "run", "a"));
}

}  // namespace
}  // namespace atl::cli
