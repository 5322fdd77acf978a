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

TEST_F(DevDirectoryTest, IsForItsOwnerAlone) {
  std::filesystem::create_directories(path_ + "/coordinator");
  auto directory = DevDirectory::Open(path_, "run");
  ASSERT_FALSE(directory.ok());  // Not empty.
  std::filesystem::remove(path_ + "/coordinator");
  directory = DevDirectory::Open(path_, "run");
  ASSERT_TRUE(directory.ok()) << directory.status();
  ASSERT_TRUE((*directory)->MakeChildDirectory("coordinator").ok());
  for (const char* name : {"", "/coordinator"}) {
    EXPECT_EQ(static_cast<int>(
                  std::filesystem::status(path_ + name).permissions()),
              0700);
  }
}

TEST_F(DevDirectoryTest, FollowsNoLinkInIt) {
  ASSERT_TRUE(DevDirectory::Open(path_, "run").ok());
  const std::string secret = path_ + "-secret";
  std::ofstream(secret) << "of a person";
  std::filesystem::remove(path_ + "/lock");
  std::filesystem::create_symlink(secret, path_ + "/lock");
  EXPECT_FALSE(DevDirectory::Open(path_, "run").ok());
  std::filesystem::remove(path_ + "/lock");
  std::ofstream(path_ + "/lock") << "1";
  auto directory = DevDirectory::Open(path_, "run");
  ASSERT_TRUE(directory.ok()) << directory.status();
  std::filesystem::create_directory_symlink("/", path_ + "/server-0");
  EXPECT_FALSE((*directory)->MakeChildDirectory("server-0").ok());
  std::ifstream file(secret);
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(text, "of a person");
  std::filesystem::remove(secret);
}

TEST_F(DevDirectoryTest, IsNotOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  std::filesystem::create_directories(path_);
  ASSERT_EQ(::chown(path_.c_str(), 1, -1), 0);
  EXPECT_EQ(GetReason(DevDirectory::Open(path_, "run").status()), "NOT_OURS");
  EXPECT_TRUE(std::filesystem::is_empty(path_));
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
