#include "cli/flags/lent_flags.h"

#include "absl/strings/match.h"
#include "base/flags/flags.h"
#include "cli/output/error.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(LentFlagsTest, AreRead) {
  LentFlags flags;
  flags::Command app("app", "");
  AddLentFlags(app, flags);
  ASSERT_EQ(app.Parse({"--memory", "4GB", "--disk", "20GB"}).error, "");
  const auto lent = ReadLent(flags);
  ASSERT_TRUE(lent.ok()) << lent.status();
  EXPECT_EQ(lent->memory_bytes, 4'000'000'000);
  EXPECT_EQ(lent->disk_bytes, 20'000'000'000);
  EXPECT_EQ(ReadLent({})->memory_bytes, 0);
}

TEST(LentFlagsTest, ErrorsNameTheFlag) {
  const absl::Status memory = ReadLent({.memory = "4"}).status();
  EXPECT_EQ(ToExitCode(memory), ExitCode::kUsage);
  EXPECT_TRUE(absl::StartsWith(memory.message(), "--memory")) << memory;
  const absl::Status disk = ReadLent({.disk = "x"}).status();
  EXPECT_TRUE(absl::StartsWith(disk.message(), "--disk")) << disk;
}

}  // namespace
}  // namespace atl::cli
