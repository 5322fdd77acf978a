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
  auto first = DevDirectory::Open(path_);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = DevDirectory::Open(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ToExitCode(second.status()), ExitCode::kConflict);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("process ", ::getpid())));
  first->reset();
  EXPECT_TRUE(DevDirectory::Open(path_).ok());
}

TEST_F(DevDirectoryTest, APortFileIsReadOnceItsLineIsWhole) {
  auto directory = DevDirectory::Open(path_);
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
