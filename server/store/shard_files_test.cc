#include "server/store/shard_files.h"

#include <string>
#include <vector>

#include "base/io/testing/fake_file_system.h"
#include "gtest/gtest.h"
#include "server/store/shard_names.h"

namespace atl::server {
namespace {

// The folder and the name of a path.
bool IsOurs(const std::string& path) {
  const size_t name = path.rfind('/'), folder = path.rfind('/', name - 1);
  return IsShardFolder(path.substr(folder + 1, name - folder - 1)) &&
         IsShardFile(path.substr(folder + 1, name - folder - 1),
                     path.substr(name + 1));
}

TEST(ShardFilesTest, WhatAServerMakesIsOurs) {
  const ShardNames names("data", "run", "", 3);
  EXPECT_TRUE(IsOurs(names.VersionPath(0, 12)));
  EXPECT_TRUE(IsOurs(names.VersionPath(10, 0) + ".tmp"));
  EXPECT_TRUE(IsOurs(names.versions() + "/f0-v12.spare.tmp"));
  EXPECT_TRUE(IsOurs(names.SumPath(1, 2)));
  EXPECT_TRUE(IsOurs(names.deltas() + "/f0-v3.dlt"));
  EXPECT_TRUE(IsOurs(names.deltas() + "/f0-v3.dlt.tmp"));
  EXPECT_TRUE(IsOurs(names.deltas() + "/f0-v3.dlt.spare.tmp"));
  EXPECT_TRUE(IsOurs(names.SegmentPath(7)));
  EXPECT_TRUE(IsOurs(names.ManifestPath("pin-1")));
  EXPECT_TRUE(IsOurs(names.ManifestPath("pin-1") + ".tmp"));
  EXPECT_TRUE(IsOurs(names.records() + "/000001.log"));
  EXPECT_TRUE(IsOurs(names.records() + "/000001.log.tmp"));
  EXPECT_TRUE(IsOurs(names.records() + "/mark"));
  EXPECT_TRUE(IsOurs(names.records() + "/mark.tmp"));
}

TEST(ShardFilesTest, OtherNamesAreNot) {
  for (const char* path :
       {"/versions/notes.txt", "/versions/f0-v1.ver.bak", "/versions/f0-v1",
        "/versions/f-v1.ver", "/versions/a.tmp", "/versions/.nfs0001",
        "/sums/f0-v1.ver", "/deltas/f0-v1.dlt.old", "/log/x.seg",
        "/checkpoints/notes.txt", "/checkpoints/A B.json", "/checkpoints/.json",
        "/records/app.log", "/photos/1.seg", "/records/000001.log~"}) {
    EXPECT_FALSE(IsOurs(path)) << path;
  }
}

TEST(ShardFilesTest, DirectoriesNameARunAndAShard) {
  const std::string uid(32, 'a');
  const auto run = ParseRunDirectory("spring." + uid);
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->first, "spring");
  EXPECT_EQ(run->second, uid);
  EXPECT_EQ(ParseShardDirectory("shard-12"), 12);
  for (const char* name : {"spring", "spring.1", "Photos.old", ""}) {
    EXPECT_FALSE(ParseRunDirectory(name).has_value()) << name;
  }
  for (const char* name : {"shard-", "shard-01", "shard--1", "shard-x", "x"}) {
    EXPECT_FALSE(ParseShardDirectory(name).has_value()) << name;
  }
}

TEST(ShardFilesTest, AFolderIsListedWithoutTheFilesOfAPerson) {
  FakeFileSystem fs;
  ASSERT_TRUE(fs.CreateDirectories("versions/photos").ok());
  for (const char* name : {"f0-v1.ver", "f0-v2.ver.tmp", "notes.tmp"}) {
    ASSERT_TRUE(fs.OpenForWrite(std::string("versions/") + name).ok());
  }
  const auto names = ListShardFiles(fs, "versions", "versions");
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, (std::vector<std::string>{"f0-v1.ver", "f0-v2.ver.tmp"}));
}

}  // namespace
}  // namespace atl::server
