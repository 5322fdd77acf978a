#include "cli/dev/dev_directory.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "cli/output/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

class DevDirectoryTest : public ::testing::Test {
 protected:
  DevDirectoryTest()
      : path_(absl::StrCat(::testing::TempDir(), "/dev-", ::getpid())) {}
  ~DevDirectoryTest() override { std::filesystem::remove_all(path_); }

  std::string path_;
};

TEST_F(DevDirectoryTest, IsTakenByOneAtATime) {
  auto first = DevDirectory::Open(path_, "run");
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = DevDirectory::Open(path_, "run");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ToExitCode(second.status()), ExitCode::kConflict);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("process ", ::getpid())));
  first->reset();
  EXPECT_TRUE(DevDirectory::Open(path_, "run").ok());
}

TEST_F(DevDirectoryTest, IsOfOneRun) {
  ASSERT_TRUE(DevDirectory::Open(path_, "first").ok());
  const absl::Status other = DevDirectory::Open(path_, "second").status();
  EXPECT_EQ(ToExitCode(other), ExitCode::kConflict);
  EXPECT_THAT(std::string(other.message()), HasSubstr("has the run first"));
  EXPECT_TRUE(DevDirectory::Open(path_, "first").ok());
}

TEST_F(DevDirectoryTest, AnOlderVersionsDirectoryKeepsItsRun) {
  std::filesystem::create_directories(path_ + "/coordinator/data");
  std::ofstream(path_ + "/lock") << "1\n";
  std::ofstream(path_ + "/result.json") << R"({"run_id": "first"})";
  EXPECT_EQ(ToExitCode(DevDirectory::Open(path_, "second").status()),
            ExitCode::kConflict);
  EXPECT_TRUE(DevDirectory::Open(path_, "first").ok());
}

TEST_F(DevDirectoryTest, IsNotADirectoryOfAPerson) {
  std::filesystem::create_directories(path_);
  std::ofstream(path_ + "/thesis.txt") << "years of work";
  const absl::Status status = DevDirectory::Open(path_, "run").status();
  EXPECT_EQ(ToExitCode(status), ExitCode::kConflict);
  EXPECT_FALSE(std::filesystem::exists(path_ + "/lock"));
}

TEST_F(DevDirectoryTest, APortFileIsReadOnceItsLineIsWhole) {
  auto directory = DevDirectory::Open(path_, "run");
  ASSERT_TRUE(directory.ok());
  const std::string path = (*directory)->File("port");
  EXPECT_EQ(ReadPortFile(path), 0);
  std::ofstream(path) << "47";
  EXPECT_EQ(ReadPortFile(path), 0);
  std::ofstream(path) << "4711\n";
  EXPECT_EQ(ReadPortFile(path), 4711);
  std::ofstream(path) << "127.0.0.1:4712\n";
  EXPECT_EQ(ReadPortFile(path), 4712);
}

}  // namespace
}  // namespace atl::cli
