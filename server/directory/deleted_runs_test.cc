#include "server/directory/deleted_runs.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

namespace fs = std::filesystem;

constexpr char kUid[] = "0123456789abcdef0123456789abcdef";

std::string RunPath(const std::string& run_id) {
  return absl::StrCat("data/runs/", run_id, ".", kUid);
}

class DeletedRunsTest : public testing::Test {
 protected:
  DeletedRunsTest() {
    for (const std::string& run : {run_, other_}) {
      EXPECT_TRUE(fs_.CreateDirectories(run + "/shard-0/versions").ok());
      EXPECT_TRUE(fs_.CreateDirectories(run + "/shard-0/log").ok());
      EXPECT_TRUE(
          WriteFileAtomically(fs_, run + "/shard-0/versions/f0-v1.ver", "theta")
              .ok());
      EXPECT_TRUE(
          WriteFileAtomically(fs_, run + "/shard-0/log/0000000001.seg", "log")
              .ok());
    }
  }

  FakeFileSystem fs_;
  const std::string run_ = RunPath("x");
  const std::string marked_ = run_ + ".deleted";
  const std::string other_ = RunPath("y");
};

TEST_F(DeletedRunsTest, AMarkedDirectoryIsRemovedWithAllThatAServerMade) {
  ASSERT_TRUE(MarkDeleted(fs_, run_).ok());
  EXPECT_FALSE(fs_.Exists(run_));
  EXPECT_TRUE(fs_.Exists(marked_ + "/shard-0/versions/f0-v1.ver"));
  RemoveDeletedRuns(fs_, "data");
  EXPECT_FALSE(fs_.Exists(marked_));
  EXPECT_FALSE(fs_.Exists(marked_ + "/shard-0/versions/f0-v1.ver"));
  EXPECT_TRUE(fs_.Exists(other_ + "/shard-0/versions/f0-v1.ver"));
  EXPECT_TRUE(fs_.Exists(other_ + "/shard-0/log/0000000001.seg"));
}

TEST_F(DeletedRunsTest, FilesOfAPersonStay) {
  const std::string all[] = {marked_ + "/notes.txt",
                             marked_ + "/shard-0/photo.jpg",
                             marked_ + "/shard-0/versions/f0-v1.ver.bak",
                             marked_ + "/shard-0/mine/f0-v1.ver"};
  ASSERT_TRUE(MarkDeleted(fs_, run_).ok());
  ASSERT_TRUE(fs_.CreateDirectories(marked_ + "/shard-0/mine").ok());
  for (const std::string& path : all) {
    ASSERT_TRUE(WriteFileAtomically(fs_, path, "years of work").ok());
  }
  RemoveDeletedRuns(fs_, "data");
  for (const std::string& path : all) EXPECT_TRUE(fs_.Exists(path)) << path;
  EXPECT_FALSE(fs_.Exists(marked_ + "/shard-0/versions/f0-v1.ver"));
  EXPECT_FALSE(fs_.Exists(marked_ + "/shard-0/log"));
}

TEST_F(DeletedRunsTest, ADirectoryThatIsNoRunsStays) {
  for (const char* run : {"data/runs/tensorboard", "data/runs/x.1"}) {
    const std::string path = absl::StrCat(run, ".deleted/shard-0/log");
    ASSERT_TRUE(fs_.CreateDirectories(path).ok());
    RemoveDeletedRuns(fs_, "data");
    EXPECT_TRUE(fs_.Exists(path));
  }
}

TEST_F(DeletedRunsTest, LinksAreNotFollowed) {
  const std::string root =
      absl::StrCat(testing::TempDir(), "/deleted_runs_", ::getpid());
  const std::string marked = root + "/" + marked_;
  const std::string behind = root + "/elsewhere/shard-0/versions/f0-v1.ver";
  const std::string links[] = {marked, marked + "/shard-0",
                               marked + "/shard-0/versions",
                               marked + "/shard-0/versions/f0-v1.ver"};
  std::string target = root + "/elsewhere";
  for (const std::string& link : links) {
    fs::create_directories(fs::path(behind).parent_path());
    std::ofstream(behind) << "theta";
    fs::create_directories(fs::path(link).parent_path());
    fs::create_symlink(target, link);
    RemoveDeletedRuns(PosixFileSystem(), root + "/data");
    EXPECT_TRUE(fs::exists(behind)) << link;
    EXPECT_TRUE(fs::is_symlink(link)) << link;
    fs::remove_all(root + "/data");
    const std::string next[] = {"/shard-0", "/versions", "/f0-v1.ver", ""};
    target += next[&link - links];
  }
  fs::remove_all(root);
}

TEST_F(DeletedRunsTest, MarkingAgainIsNoError) {
  ASSERT_TRUE(MarkDeleted(fs_, run_).ok());
  EXPECT_TRUE(MarkDeleted(fs_, run_).ok());
  EXPECT_TRUE(fs_.Exists(marked_ + "/shard-0/log"));
}

TEST_F(DeletedRunsTest, WhatAnEarlierDeletionLeftUnderTheNameGoesFirst) {
  ASSERT_TRUE(MarkDeleted(fs_, run_).ok());
  ASSERT_TRUE(fs_.CreateDirectories(run_).ok());
  ASSERT_TRUE(WriteFileAtomically(fs_, run_ + "/new", "").ok());
  ASSERT_TRUE(MarkDeleted(fs_, run_).ok());
  EXPECT_FALSE(fs_.Exists(marked_ + "/shard-0/log"));
  EXPECT_TRUE(fs_.Exists(marked_ + "/new"));
}

TEST_F(DeletedRunsTest, AFailedMarkIsReported) {
  fs_.AddFault({FakeFileSystem::Fault::Call::kSyncDirectory, "data/runs", EIO});
  EXPECT_FALSE(MarkDeleted(fs_, run_).ok());
  EXPECT_TRUE(MarkDeleted(fs_, run_).ok());
}

TEST_F(DeletedRunsTest, WhatCannotBeRemovedIsRemovedLater) {
  ASSERT_TRUE(MarkDeleted(fs_, run_).ok());
  fs_.AddFault({FakeFileSystem::Fault::Call::kRemove, "versions/f0", EIO});
  RemoveDeletedRuns(fs_, "data");
  EXPECT_TRUE(fs_.Exists(marked_ + "/shard-0/versions/f0-v1.ver"));
  RemoveDeletedRuns(fs_, "data");
  EXPECT_FALSE(fs_.Exists(marked_));
}

}  // namespace
}  // namespace atl::server
