// A data directory of format 2 becomes one of format 3, also if the process
// dies on the way.

#include "server/directory/migrate_format2.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/dying_file_system.h"
#include "gtest/gtest.h"
#include "server/directory/server_directory.h"
#include "server/store/shard_names.h"
#include "server/store/testing/format2_writer.h"

namespace atl::server {
namespace {

class MigrateFormat2Test : public testing::Test {
 protected:
  // Two runs, the second with two shards, as a server of format 2 left them.
  void MakeFormat2() {
    std::string pattern = testing::TempDir() + "/format2_XXXXXX";
    data_ = mkdtemp(pattern.data());
    std::map<std::string, std::string> all = {{"server/id", "s0"},
                                              {"server/incarnation", "41"}};
    for (const auto& [run_id, shard] : kShards) {
      records::RunRecord record;
      record.set_format_number(1);
      record.mutable_run()->set_run_id(run_id);
      record.mutable_run()->set_run_epoch(7);
      record.set_shard(shard);
      record.set_shard_count(3);
      all[absl::StrCat("runs/", run_id, "/", shard)] =
          record.SerializeAsString();
      const std::string prefix = absl::StrCat("data/", run_id, "/", shard, "/");
      all[prefix + "state"] = absl::StrCat("state of ", run_id, shard);
      all[prefix + "stored/1"] = std::string(StoredBytes(run_id), 's');
      const std::string versions =
          absl::StrCat(data_, "/runs/", run_id, "/shard-", shard, "/versions");
      ASSERT_TRUE(fs_.CreateDirectories(versions).ok());
      ASSERT_TRUE(WriteFileAtomically(fs_, versions + "/f0-v0.ver",
                                      absl::StrCat(run_id, shard))
                      .ok());
    }
    WriteFormat2(data_ + "/records", all);
  }

  absl::StatusOr<std::unique_ptr<ServerDirectory>> Open(
      FileSystem& fs, const std::string& server_id = "s0") {
    return ServerDirectory::Open(fs, data_, server_id);
  }

  void ExpectAllThere(ServerDirectory& directory) {
    const auto shards = directory.OpenShards();
    ASSERT_TRUE(shards.ok()) << shards.status();
    ASSERT_EQ(shards->size(), kShards.size());
    for (size_t i = 0; i < kShards.size(); ++i) {
      const FoundShard& shard = (*shards)[i];
      ASSERT_TRUE(shard.status.ok()) << shard.status;
      EXPECT_EQ(shard.run_id, kShards[i].first);
      EXPECT_EQ(shard.shard, kShards[i].second);
      EXPECT_EQ(shard.run_uid, kNoRunUid);
      EXPECT_EQ(shard.record.run().run_epoch(), 7);
      EXPECT_EQ(*shard.records->Get("state"),
                absl::StrCat("state of ", shard.run_id, shard.shard));
      EXPECT_EQ(shard.records->Get("stored/1")->size(),
                StoredBytes(shard.run_id));
      EXPECT_EQ(shard.records->Scan("")->size(), 3u);
      EXPECT_EQ(*ReadFile(fs_, ShardNames(data_, shard.run_id, "", shard.shard)
                                   .VersionPath(0, 0)),
                absl::StrCat(shard.run_id, shard.shard));
    }
  }

  // In run one, the migration's first batch is full with it.
  static size_t StoredBytes(const std::string& run_id) {
    return run_id == "one" ? 1'100'000 : 10;
  }

  const std::vector<std::pair<std::string, int32_t>> kShards = {
      {"one", 0}, {"two", 0}, {"two", 2}};
  FileSystem& fs_ = PosixFileSystem();
  std::string data_;
};

TEST_F(MigrateFormat2Test, MovesEveryShardAndGoesOnCounting) {
  MakeFormat2();
  {
    const auto directory = Open(fs_);
    ASSERT_TRUE(directory.ok()) << directory.status();
    EXPECT_EQ((*directory)->incarnation(), 42);
    ExpectAllThere(**directory);
  }
  // The database is kept, and a program of format 2 finds none.
  EXPECT_TRUE(fs_.Exists(data_ + "/records.format2/CURRENT"));
  EXPECT_TRUE(std::filesystem::is_regular_file(data_ + "/records"));
  EXPECT_FALSE(fs_.Exists(data_ + "/runs/one"));
  const auto again = Open(fs_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->incarnation(), 43);
  ExpectAllThere(**again);
}

TEST_F(MigrateFormat2Test, ADeathAtAnyPointIsFollowedByTheRest) {
  MakeFormat2();
  const std::string original = data_;
  bool is_over = false;
  for (int point = 0; !is_over; ++point) {
    SCOPED_TRACE(point);
    data_ = absl::StrCat(original, "-", point);
    std::filesystem::copy(original, data_,
                          std::filesystem::copy_options::recursive);
    DyingFileSystem dying(fs_, point);
    is_over = Open(dying).ok();
    EXPECT_EQ(is_over, !dying.is_dead());
    const auto directory = Open(fs_);
    ASSERT_TRUE(directory.ok()) << directory.status();
    EXPECT_GE((*directory)->incarnation(), 42);
    EXPECT_LE((*directory)->incarnation(), 43);
    ExpectAllThere(**directory);
    EXPECT_TRUE(std::filesystem::is_regular_file(data_ + "/records"));
    std::filesystem::remove_all(data_);
  }
}

TEST_F(MigrateFormat2Test, AnotherServersDirectoryStaysAsItIs) {
  MakeFormat2();
  const absl::Status other = Open(fs_, "s1").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_TRUE(absl::StrContains(other.message(), "belongs to server s0"));
  EXPECT_TRUE(fs_.Exists(data_ + "/records/CURRENT"));
  EXPECT_TRUE(fs_.Exists(data_ + "/runs/one/shard-0/versions"));
  EXPECT_FALSE(fs_.Exists(data_ + "/identity"));
}

TEST_F(MigrateFormat2Test, ARunWhoseDirectoryWasRemovedIsLeftOut) {
  MakeFormat2();
  std::filesystem::remove_all(data_ + "/runs/two");
  const auto directory = Open(fs_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  const auto shards = (*directory)->OpenShards();
  ASSERT_TRUE(shards.ok()) << shards.status();
  ASSERT_EQ(shards->size(), 1u);
  EXPECT_EQ((*shards)[0].run_id, "one");
}

}  // namespace
}  // namespace atl::server
