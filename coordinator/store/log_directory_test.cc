#include "coordinator/store/log_directory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class LogDirectoryTest : public testing::Test {
 protected:
  LogDirectoryTest() {
    std::string pattern = testing::TempDir() + "/directory_XXXXXX";
    root_ = fs::path(mkdtemp(pattern.data())).lexically_normal();
    directory_ = root_ + "/c";
  }

  void Write(const std::string& name) {
    const fs::path path = fs::path(root_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  }

  std::string Error() const {
    return std::string(NoLogError(directory_).message());
  }

  std::string root_;
  std::string directory_;
};

TEST_F(LogDirectoryTest, AMissingOneIsFree) {
  EXPECT_TRUE(CheckFreeForLog(directory_).ok());
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(LogDirectoryTest, NeitherEmptyDirectoriesNorLostAndFoundCount) {
  fs::create_directories(directory_ + "/a/b");
  Write("c/lost+found/#12");
  EXPECT_TRUE(CheckFreeForLog(directory_).ok());
}

TEST_F(LogDirectoryTest, WhatAnInterruptedAttemptLeftIsFree) {
  for (const char* const name :
       {"c/lock", "c/LOCK", "c/IDENTITY", "c/MANIFEST-000001",
        "c/secret-exported"}) {
    Write(name);
  }
  EXPECT_TRUE(CheckFreeForLog(directory_).ok());
}

TEST_F(LogDirectoryTest, NamesAFileThatIsNoCoordinators) {
  // RocksDB would delete the table, and the names mean nothing further down.
  for (const std::string name : {"photo.jpg", "000009.sst", "000004.log",
                                 "a/b/lock", "a/lost+found/x"}) {
    Write("c/" + name);
    const absl::Status status = CheckFreeForLog(directory_);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat(directory_, "/", name)));
    fs::remove(directory_ + "/" + name);
  }
}

TEST_F(LogDirectoryTest, AFileIsNotFree) {
  Write("c");
  EXPECT_EQ(CheckFreeForLog(directory_).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(LogDirectoryTest, ALinkCountsAsAFile) {
  fs::create_directories(directory_);
  fs::create_directory_symlink(directory_, directory_ + "/loop");
  EXPECT_EQ(CheckFreeForLog(directory_).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(LogDirectoryTest, TheErrorNamesTheCommand) {
  const absl::Status status = NoLogError(directory_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Error(), HasSubstr("has no coordinator's log"));
  EXPECT_THAT(Error(),
              HasSubstr("atoll-coordinator init --data-dir " + directory_));
  EXPECT_THAT(Error(), HasSubstr("not mounted"));
  EXPECT_THAT(Error(), Not(HasSubstr("This directory has a log")));
}

TEST_F(LogDirectoryTest, TheErrorNamesALogNearby) {
  Write("old/CURRENT");
  EXPECT_THAT(Error(), Not(HasSubstr("old")));  // A database of somebody else.
  Write("old/mark");
  EXPECT_THAT(Error(), HasSubstr(root_ + "/old"));
  EXPECT_THAT(std::string(NoLogError(directory_ + "/").message()),
              HasSubstr(root_ + "/old"));
  Write("CURRENT");
  Write("mark");
  EXPECT_THAT(Error(), HasSubstr("log:\n  " + root_));
  Write("c/data/CURRENT");
  Write("c/data/mark");
  EXPECT_THAT(Error(), HasSubstr("log:\n  " + directory_ + "/data"));
}

}  // namespace
}  // namespace atl::coordinator
