#include "cli/commands/join_result.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(JoinResultTest, TellsWhatBecameOfTheWork) {
  worker::IslandProgress at;
  at.version = 3;
  at.round_count = 30;
  at.contributions.merged_count = 2;
  at.contributions.late_count = 1;
  at.contributions.merged_tokens = 1234;
  const Json data = ToData(at, "spring", "kitchen");
  EXPECT_EQ(data["contributions"].dump(),
            R"({"merged":2,"late":1,"stale":0,"rejected":0,"dropped":0})");
  EXPECT_EQ(data["merged_tokens"], 1234);
  EXPECT_EQ(data["island_id"], "kitchen");
  EXPECT_TRUE(data["training_begin_time"].is_null()) << "no step was taken";
  EXPECT_TRUE(absl::StrContains(ToText(at, "spring", "kitchen"),
                                "2 merged with 1,234 tokens, 1 late"));
}

}  // namespace
}  // namespace atl::cli
