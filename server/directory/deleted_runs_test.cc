#include "server/directory/deleted_runs.h"

#include <cerrno>
#include <string>

#include "base/io/files.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr char kRun[] = "data/runs/x.1";
constexpr char kOther[] = "data/runs/y.2";

class DeletedRunsTest : public testing::Test {
 protected:
  DeletedRunsTest() {
    for (const std::string run : {kRun, kOther}) {
      EXPECT_TRUE(fs_.CreateDirectories(run + "/shard-0/versions").ok());
      EXPECT_TRUE(
          WriteFileAtomically(fs_, run + "/shard-0/versions/f0", "theta").ok());
      EXPECT_TRUE(WriteFileAtomically(fs_, run + "/shard-0/log", "log").ok());
    }
  }

  FakeFileSystem fs_;
};

TEST_F(DeletedRunsTest, AMarkedDirectoryIsRemovedWithAllThatIsInIt) {
  ASSERT_TRUE(MarkDeleted(fs_, kRun).ok());
  EXPECT_FALSE(fs_.Exists(kRun));
  EXPECT_TRUE(fs_.Exists("data/runs/x.1.deleted/shard-0/versions/f0"));
  RemoveDeletedRuns(fs_, "data");
  EXPECT_FALSE(fs_.Exists("data/runs/x.1.deleted"));
  EXPECT_FALSE(fs_.Exists("data/runs/x.1.deleted/shard-0/versions/f0"));
  EXPECT_TRUE(fs_.Exists("data/runs/y.2/shard-0/versions/f0"));
  EXPECT_TRUE(fs_.Exists("data/runs/y.2/shard-0/log"));
}

TEST_F(DeletedRunsTest, MarkingAgainIsNoError) {
  ASSERT_TRUE(MarkDeleted(fs_, kRun).ok());
  EXPECT_TRUE(MarkDeleted(fs_, kRun).ok());
  EXPECT_TRUE(fs_.Exists("data/runs/x.1.deleted/shard-0/log"));
}

TEST_F(DeletedRunsTest, WhatAnEarlierDeletionLeftUnderTheNameGoesFirst) {
  ASSERT_TRUE(MarkDeleted(fs_, kRun).ok());
  ASSERT_TRUE(fs_.CreateDirectories(kRun).ok());
  ASSERT_TRUE(WriteFileAtomically(fs_, std::string(kRun) + "/new", "").ok());
  ASSERT_TRUE(MarkDeleted(fs_, kRun).ok());
  EXPECT_FALSE(fs_.Exists("data/runs/x.1.deleted/shard-0/log"));
  EXPECT_TRUE(fs_.Exists("data/runs/x.1.deleted/new"));
}

TEST_F(DeletedRunsTest, AFailedMarkIsReported) {
  fs_.AddFault({FakeFileSystem::Fault::Call::kSyncDirectory, "data/runs", EIO});
  EXPECT_FALSE(MarkDeleted(fs_, kRun).ok());
  EXPECT_TRUE(MarkDeleted(fs_, kRun).ok());
}

TEST_F(DeletedRunsTest, WhatCannotBeRemovedIsRemovedLater) {
  ASSERT_TRUE(MarkDeleted(fs_, kRun).ok());
  fs_.AddFault({FakeFileSystem::Fault::Call::kRemove, "versions/f0", EIO});
  RemoveDeletedRuns(fs_, "data");
  EXPECT_TRUE(fs_.Exists("data/runs/x.1.deleted/shard-0/versions/f0"));
  RemoveDeletedRuns(fs_, "data");
  EXPECT_FALSE(fs_.Exists("data/runs/x.1.deleted"));
}

}  // namespace
}  // namespace atl::server
