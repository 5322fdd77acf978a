#include "cli/volunteer/local_name.h"

#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(LocalNameTest, IsShortAndOneForEachIsland) {
  const std::string name = LocalName("h:1", "run", "a");
  EXPECT_EQ(name.size(), 37);
  EXPECT_EQ(name, LocalName("h:1", "run", "a"));
  EXPECT_NE(name, LocalName("h:1", "run", "b"));
  EXPECT_NE(name, LocalName("h:1", "ru", "na"));
  EXPECT_NE(name, LocalName("h:2", "run", "a"));
}

}  // namespace
}  // namespace atl::cli
