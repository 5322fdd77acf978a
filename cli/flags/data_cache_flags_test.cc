#include "cli/flags/data_cache_flags.h"

#include <string>

#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

TEST(DataCacheFlagsTest, TheSizeHasAUnit) {
  EXPECT_EQ(*ReadCacheSize({}), 20'000'000'000);
  EXPECT_EQ(*ReadCacheSize({.size = "500MB"}), 500'000'000);
  const absl::Status wrong = ReadCacheSize({.size = "500"}).status();
  EXPECT_EQ(ToExitCode(wrong), ExitCode::kUsage);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("--cache-size"));
}

TEST(DataCacheFlagsTest, TheDefaultIsInTheStateDirectory) {
  EXPECT_EQ(DefaultDataCache("/home/anna/.local/state/atoll"),
            "/home/anna/.local/state/atoll/data-cache");
}

}  // namespace
}  // namespace atl::cli
