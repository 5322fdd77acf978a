#include "cli/flags/data_cache_flags.h"

#include <set>
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

TEST(BlockFinderTest, ALiteralCoordinatorIsInItsBlock) {
  for (const bool looks_up : {false, true}) {
    const auto find = [&](const std::string& address) {
      return MakeBlockFinder(address, looks_up, Proxy())();
    };
    EXPECT_EQ(find("127.0.0.1:7400"), std::set{AddressBlock::kLoopback});
    EXPECT_EQ(find("localhost:7400"), std::set{AddressBlock::kLoopback});
    EXPECT_EQ(find("192.168.1.2:7400"), std::set{AddressBlock::kPrivate192});
    EXPECT_EQ(find("[fd00::1]:7400"), std::set{AddressBlock::kUniqueLocal});
    EXPECT_EQ(find("8.8.8.8:7400"), std::set{AddressBlock::kPublic});
    EXPECT_TRUE(find("no address").empty());
  }
}

TEST(BlockFinderTest, ANameThatAPeerChoseIsNotLookedUp) {
  EXPECT_TRUE(
      MakeBlockFinder("c.invalid:7400", /*looks_up=*/false, Proxy())().empty());
}

}  // namespace
}  // namespace atl::cli
