#include "cli/doctor/machine_facts.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

TEST(MachineFactsTest, ReadsTheAvailableMemory) {
  EXPECT_EQ(ParseAvailableMemory("MemTotal:       100 kB\n"
                                 "MemAvailable:    40 kB\n"),
            40 * 1024);
  EXPECT_EQ(ParseAvailableMemory("MemTotal: 100 kB\n"), 0);
  EXPECT_EQ(ParseAvailableMemory("MemAvailable: many kB\n"), 0);
  EXPECT_EQ(ParseAvailableMemory("MemAvailable: 9223372036854775807 kB\n"), 0);
}

TEST(MachineFactsTest, ADirectoryThatIsNotThereCountsAsItsParent) {
  const std::string parent =
      absl::StrCat(::testing::TempDir(), "/machine_facts_test");
  std::filesystem::create_directories(parent);
  EXPECT_EQ(FindExistingParent(parent + "/a/b"), parent);
  EXPECT_EQ(FindExistingParent("/no-such-directory"), "/");
  EXPECT_EQ(FindExistingParent("no-such-directory/a"), ".");
  const MachineFacts facts = ReadMachineFacts(parent + "/a/b", "/");
  EXPECT_TRUE(facts.state.status.ok()) << facts.state.status;
  EXPECT_EQ(facts.state.path, parent + "/a/b");
  EXPECT_GT(facts.state.total_bytes, 0);
  EXPECT_GE(facts.core_count, 1);
  EXPECT_GT(facts.memory_bytes, 0);
  EXPECT_FALSE(std::filesystem::exists(parent + "/a"));
}

TEST(MachineFactsTest, ASyncIsMeasuredAndLeavesNoFile) {
  const std::string directory =
      absl::StrCat(::testing::TempDir(), "/machine_facts_sync");
  std::filesystem::create_directories(directory);
  const auto sync = MeasureSync(directory);
  ASSERT_TRUE(sync.ok()) << sync.status();
  EXPECT_GT(*sync, absl::ZeroDuration());
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

TEST(MachineFactsTest, ADiskThatTakesNoFileIsAnError) {
  EXPECT_FALSE(MeasureSync("/proc/self").ok());
}

TEST(MachineFactsTest, TheMedianIgnoresOneSlowWrite) {
  EXPECT_EQ(FindMedian({absl::Seconds(9), absl::Seconds(1), absl::Seconds(2)}),
            absl::Seconds(2));
}

}  // namespace
}  // namespace atl::cli
