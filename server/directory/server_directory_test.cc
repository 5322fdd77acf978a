#include "server/directory/server_directory.h"

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"
#include "server/store/shard_names.h"

namespace atl::server {
namespace {

constexpr char kUid[] = "0123456789abcdef0123456789abcdef";

v1::Run MakeRun(const std::string& run_id, const std::string& run_uid = kUid) {
  v1::Run run;
  run.set_run_id(run_id);
  run.set_run_uid(run_uid);
  run.set_run_epoch(7);
  return run;
}

v1::LogPosition MakePosition(const std::string& cluster_id, int64_t index) {
  v1::LogPosition position;
  position.set_cluster_id(cluster_id);
  position.set_start_id("start");
  position.set_index(index);
  return position;
}

class ServerDirectoryTest : public testing::Test {
 protected:
  ServerDirectoryTest() { Open(); }

  void Open() {
    directory_.reset();
    auto opened = ServerDirectory::Open(fs_, "data", "s0");
    ASSERT_TRUE(opened.ok()) << opened.status();
    directory_ = *std::move(opened);
  }
  void CrashAndOpen() {
    directory_.reset();
    fs_.Crash();
    Open();
  }

  void Create(const v1::Run& run, int32_t shard = 0) {
    const auto created = directory_->CreateShard(run, shard, 2);
    ASSERT_TRUE(created.ok()) << created.status();
    EXPECT_EQ(created->record.run().run_id(), run.run_id());
    ASSERT_TRUE(
        fs_.CreateDirectories(
               ShardNames("data", run.run_id(), run.run_uid(), shard)
                   .versions())
            .ok());
  }

  std::vector<FoundShard> OpenShards() {
    auto shards = directory_->OpenShards();
    EXPECT_TRUE(shards.ok()) << shards.status();
    return *std::move(shards);
  }

  void Damage(const std::string& path, int64_t offset) {
    auto file = *fs_.OpenForWrite(path);
    ASSERT_TRUE(file->WriteAt(offset, "damaged").ok());
  }

  FakeFileSystem fs_;
  std::unique_ptr<ServerDirectory> directory_;
};

// --- Identity ----------------------------------------------------------------

TEST_F(ServerDirectoryTest, CountsStartsAndKeepsItsId) {
  const std::string id = directory_->directory_id();
  EXPECT_EQ(id.size(), 32u);
  for (int64_t start = 1; start < 5; ++start) {
    EXPECT_EQ(directory_->incarnation(), start);
    EXPECT_EQ(directory_->directory_id(), id);
    CrashAndOpen();
  }
}

TEST_F(ServerDirectoryTest, ATornIdentityNeverGivesAnIncarnationAgain) {
  Open();
  ASSERT_EQ(directory_->incarnation(), 2);
  Damage("data/identity", SlotFile::kSlotBytes + 30);
  Open();
  EXPECT_EQ(directory_->incarnation(), 3);
}

TEST_F(ServerDirectoryTest, AnotherServersDirectoryIsRefused) {
  const auto other = ServerDirectory::Open(fs_, "data", "s1");
  EXPECT_EQ(other.status(),
            absl::FailedPreconditionError(
                "the data directory belongs to server s0, not s1; give "
                "--server-id=s0 or another --data-dir"));
  Open();
  EXPECT_EQ(directory_->incarnation(), 2);
}

TEST(ServerDirectoryOnDiskTest, ASecondProcessIsTurnedAway) {
  std::string pattern = testing::TempDir() + "/directory_XXXXXX";
  const std::string data = mkdtemp(pattern.data());
  FileSystem& fs = PosixFileSystem();
  auto first = ServerDirectory::Open(fs, data, "s0");
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = ServerDirectory::Open(fs, data, "s0").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_TRUE(absl::StrContains(second.message(), "another process"));
  first->reset();
  first = ServerDirectory::Open(fs, data, "s0");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->incarnation(), 2);
}

TEST_F(ServerDirectoryTest, APositionIsDurableOncePersisted) {
  EXPECT_EQ(directory_->log_seen().cluster_id(), "");
  directory_->NoteLog(MakePosition("c", 5), 2);
  directory_->NoteLog(MakePosition("c", 4), 1);
  directory_->NoteLog(MakePosition("other", 9), 0);
  directory_->NoteLog(v1::LogPosition(), 0);
  EXPECT_EQ(directory_->log_seen().index(), 5);
  EXPECT_EQ(directory_->log_seen().cluster_id(), "c");
  EXPECT_EQ(directory_->coordinator_epoch(), 2);
  ASSERT_TRUE(directory_->PersistLog().ok());
  directory_->NoteLog(MakePosition("c", 6), 3);
  CrashAndOpen();
  EXPECT_EQ(directory_->log_seen().index(), 5);
  EXPECT_EQ(directory_->coordinator_epoch(), 2);
  EXPECT_EQ(directory_->incarnation(), 2);
}

// --- Shards ------------------------------------------------------------------

TEST_F(ServerDirectoryTest, FindsTheShardsThatWereMade) {
  Create(MakeRun("one"));
  Create(MakeRun("two"), 1);
  Create(MakeRun("two"), 2);
  Open();
  const auto shards = OpenShards();
  ASSERT_EQ(shards.size(), 3u);
  EXPECT_EQ(shards[0].run_id, "one");
  EXPECT_EQ(shards[0].run_uid, kUid);
  EXPECT_EQ(shards[0].record.run().run_epoch(), 7);
  EXPECT_EQ(shards[2].run_id, "two");
  EXPECT_EQ(shards[2].shard, 2);
  EXPECT_EQ(shards[2].record.shard_count(), 2);
  for (const FoundShard& shard : shards) {
    EXPECT_TRUE(shard.status.ok()) << shard.status;
    EXPECT_NE(shard.records, nullptr);
  }
}

TEST_F(ServerDirectoryTest, WhatIsNoShardIsLeftAlone) {
  Create(MakeRun("one"));
  const std::string run = absl::StrCat("data/runs/one.", kUid);
  for (const std::string& path :
       {std::string("data/runs/notes"), std::string("data/runs/one"),
        std::string("data/runs/one.0"), run + ".deleted/shard-0/versions",
        run + "/shard-x", run + "/shard-01", run + "/lost+found"}) {
    ASSERT_TRUE(fs_.CreateDirectories(path).ok());
  }
  // A crash came before its record.
  ASSERT_TRUE(fs_.CreateDirectories(run + "/shard-3/records").ok());
  Open();
  EXPECT_EQ(OpenShards().size(), 1u);
  EXPECT_TRUE(fs_.Exists("data/runs/one.0"));
  EXPECT_TRUE(fs_.Exists(run + "/shard-x"));
}

TEST_F(ServerDirectoryTest, ADamagedRunHasAFaultAndOthersGoOn) {
  for (const char* run : {"a", "b", "c", "d"}) Create(MakeRun(run));
  const auto directory = [](const std::string& run) {
    return ShardNames("data", run, kUid, 0).records();
  };
  // The snapshot is damaged, so even the run's record is gone.
  Damage(directory("a") + "/000001.log", 0);
  const auto names = fs_.List(directory("b"));
  for (const std::string& name : *names) {
    ASSERT_TRUE(fs_.Remove(absl::StrCat(directory("b"), "/", name)).ok());
  }
  fs_.AddFault({.call = FakeFileSystem::Fault::Call::kList,
                .path_part = "/c.",
                .error_number = EIO});
  Open();
  const auto shards = OpenShards();
  ASSERT_EQ(shards.size(), 4u);
  EXPECT_TRUE(absl::StrContains(shards[0].status.message(),
                                "records/000001.log: record 1 is damaged"))
      << shards[0].status;
  EXPECT_TRUE(absl::StrContains(shards[1].status.message(),
                                "no record of the run"))
      << shards[1].status;
  EXPECT_TRUE(
      absl::StrContains(shards[2].status.message(), "Input/output error"))
      << shards[2].status;
  EXPECT_TRUE(shards[3].status.ok()) << shards[3].status;
  EXPECT_EQ(shards[3].run_id, "d");
}

TEST_F(ServerDirectoryTest, DamageBehindTheRunsRecordLeavesOldRecords) {
  Create(MakeRun("one"));
  auto shards = OpenShards();
  RecordBatch batch;
  batch.Put("state", std::string(1000, 's'));
  ASSERT_TRUE(shards[0].records->Write(batch, Sync::kMachine).ok());
  shards.clear();
  const std::string log =
      ShardNames("data", "one", kUid, 0).records() + "/000001.log";
  const std::string bytes = *ReadFile(fs_, log);
  Damage(log, static_cast<int64_t>(bytes.find(std::string(100, 's'))));
  shards = OpenShards();
  ASSERT_EQ(shards.size(), 1u);
  EXPECT_TRUE(shards[0].status.ok()) << shards[0].status;
  EXPECT_EQ(shards[0].record.run().run_id(), "one");
  EXPECT_TRUE(absl::IsDataLoss(shards[0].records->damage()));
}

TEST_F(ServerDirectoryTest, ADirectoryUnderAnotherRunsNameHasAFault) {
  Create(MakeRun("one"));
  const std::string from = ShardNames("data", "one", kUid, 0).records();
  const std::string to = ShardNames("data", "two", kUid, 0).records();
  ASSERT_TRUE(fs_.CreateDirectories(to).ok());
  const auto names = fs_.List(from);
  for (const std::string& name : *names) {
    ASSERT_TRUE(fs_.Rename(absl::StrCat(from, "/", name),
                           absl::StrCat(to, "/", name))
                    .ok());
  }
  const auto shards = OpenShards();
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_TRUE(absl::StrContains(shards[1].status.message(),
                                "has the records of run one."))
      << shards[1].status;
}

TEST_F(ServerDirectoryTest, ARunWithoutUidLiesUnderZeros) {
  Create(MakeRun("old", ""));
  EXPECT_TRUE(fs_.Exists(
      "data/runs/old.00000000000000000000000000000000/shard-0/records"));
  const auto shards = OpenShards();
  ASSERT_EQ(shards.size(), 1u);
  EXPECT_TRUE(shards[0].status.ok()) << shards[0].status;
  EXPECT_EQ(shards[0].record.run().run_uid(), "");
}

TEST_F(ServerDirectoryTest, AShardIsMadeOnce) {
  Create(MakeRun("one"));
  v1::Run other = MakeRun("one");
  other.set_run_epoch(9);
  const auto again = directory_->CreateShard(other, 0, 2);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->record.run().run_epoch(), 7);
}

}  // namespace
}  // namespace atl::server
