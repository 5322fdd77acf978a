#include "base/mirror/mirror_writer.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/io/posix_file_system.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "base/mirror/part_format.h"
#include "base/mirror/testing/small_checkpoint.h"
#include "base/object_store/file_store.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::mirror {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Code = absl::StatusCode;
using storage::v1::MirrorManifest;
using storage::v1::MirrorPart;

class MirrorWriterTest : public ::testing::Test {
 protected:
  MirrorWriterTest()
      : root_(JoinObjectName(::testing::TempDir(), RandomId())),
        store_(MakeFileStore(root_, PosixFileSystem())) {}
  ~MirrorWriterTest() override { std::filesystem::remove_all(root_); }

  // A manifest whose parts are in the mirror.
  MirrorManifest PutParts(int64_t run_epoch, int64_t commit_seq) {
    MirrorManifest manifest = SmallManifest(layout_);
    manifest.set_run_epoch(run_epoch);
    manifest.mutable_pin()->set_commit_seq(commit_seq);
    for (int32_t shard = 0; shard < kSmallShardCount; ++shard) {
      for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
        MirrorPart part;
        part.set_shard(shard);
        part.set_fragment(f);
        const PartIdentity identity = GetIdentity(manifest, part);
        if (PartElementCount(layout_, identity) == 0) continue;
        const std::string bytes = SmallPart(layout_, identity);
        part.set_sha256(codec::ToHex(codec::ComputeSha256(bytes)));
        part.set_size_bytes(static_cast<int64_t>(bytes.size()));
        Put(NameOf(manifest, part), bytes);
        *manifest.add_parts() = part;
      }
    }
    return manifest;
  }

  MirrorManifest PutCheckpoint(int64_t run_epoch, int64_t commit_seq) {
    const MirrorManifest manifest = PutParts(run_epoch, commit_seq);
    const absl::Status status = WriteManifest(*store_, manifest);
    EXPECT_TRUE(status.ok()) << status;
    return manifest;
  }

  static std::string NameOf(const MirrorManifest& manifest,
                            const MirrorPart& part) {
    return PartName(GetPlace(manifest), part.shard(), part.fragment(),
                    part.sha256());
  }

  void Put(const std::string& name, const std::string& bytes) {
    EXPECT_TRUE(PutObject(*store_, name, bytes, WriteMode::kReplace).ok());
  }

  absl::StatusOr<Collected> Collect(int64_t run_epoch,
                                    const std::set<CheckpointPlace>& kept,
                                    int64_t since_run_epoch = 1) {
    storage::v1::RunOwner owner;
    owner.set_run_uid(SmallManifest(layout_).run_uid());
    owner.set_run_epoch(run_epoch);
    owner.set_since_run_epoch(since_run_epoch);
    return CollectRun(*store_, owner, kept);
  }

  int64_t CountObjects() {
    return static_cast<int64_t>(store_->List("", 1000)->size());
  }

  const RunLayout layout_ = *RunLayout::Create(SmallLayout());
  const std::string root_;
  const std::unique_ptr<ObjectStore> store_;
};

TEST_F(MirrorWriterTest, AManifestIsWrittenOnce) {
  MirrorManifest manifest = PutCheckpoint(2, 5);
  EXPECT_THAT(*ListCheckpoints(*store_), ElementsAre(GetPlace(manifest)));
  // An earlier process, whose answer was lost, wrote it at another time.
  manifest.mutable_create_time()->set_seconds(1);
  EXPECT_TRUE(WriteManifest(*store_, manifest).ok());
  // The run went on before the next process wrote it again.
  manifest.add_members()->set_merged_count(7);
  manifest.mutable_pin()->set_suspect(true);
  EXPECT_TRUE(WriteManifest(*store_, manifest).ok());
  manifest.set_run_id("other");
  EXPECT_EQ(WriteManifest(*store_, manifest).code(), Code::kAlreadyExists);
  EXPECT_EQ((*MirroredCheckpoint::Open(*store_, GetPlace(manifest)))
                ->manifest()
                .run_id(),
            "run");
}

TEST_F(MirrorWriterTest, AManifestNeedsItsParts) {
  const MirrorManifest manifest = PutParts(2, 5);
  const std::string name = NameOf(manifest, manifest.parts(3));
  Put(name, "short");
  EXPECT_EQ(WriteManifest(*store_, manifest).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(store_->Remove(name).ok());
  const absl::Status status = WriteManifest(*store_, manifest);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  EXPECT_THAT(*ListCheckpoints(*store_), IsEmpty());
}

TEST_F(MirrorWriterTest, OnlyWhatTheRunNoLongerKeepsIsRemoved) {
  const CheckpointPlace old = GetPlace(PutCheckpoint(1, 5));
  const CheckpointPlace kept = GetPlace(PutCheckpoint(1, 7));
  const CheckpointPlace coming = GetPlace(PutParts(2, 9));
  PutParts(2, 8);  // Its pin was released before its manifest was written.
  Put(PlaceName(old) + "notes.txt", "a person's");
  Put("fedcba9876543210fedcba9876543210/1/5/manifest.json", "another run's");
  const absl::StatusOr<Collected> collected = Collect(2, {kept, coming});
  ASSERT_TRUE(collected.ok()) << collected.status();
  EXPECT_EQ(collected->checkpoint_count, 1);
  EXPECT_EQ(collected->object_count, 10);
  EXPECT_EQ(CountObjects(), 5 + 1 + 5 + 2);
  const auto opened = MirroredCheckpoint::Open(*store_, kept);
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE((*opened)->Read().ok());
  EXPECT_TRUE(store_->Stat(PlaceName(old) + "notes.txt").ok());
  EXPECT_EQ(Collect(2, {kept, coming})->object_count, 0);
}

TEST_F(MirrorWriterTest, UnfinishedUploadsGoWithTheirCheckpoint) {
  const CheckpointPlace old = GetPlace(PutCheckpoint(1, 5));
  const CheckpointPlace kept = GetPlace(PutCheckpoint(1, 7));
  // A killed server leaves such files.
  const std::string left =
      absl::StrCat(".atoll-", RandomId(), "-shard-0-fragment-0-");
  for (const CheckpointPlace& place : {old, kept}) {
    std::ofstream(JoinObjectName(root_, PlaceName(place) + left)) << "x";
  }
  ASSERT_TRUE(Collect(1, {kept}).ok());
  EXPECT_FALSE(std::filesystem::exists(
      JoinObjectName(root_, PlaceName(old) + left)));
  EXPECT_TRUE(std::filesystem::exists(
      JoinObjectName(root_, PlaceName(kept) + left)));
}

TEST_F(MirrorWriterTest, ACheckpointThatCameMeanwhileStays) {
  const CheckpointPlace kept = GetPlace(PutCheckpoint(2, 7));
  PutParts(2, 9);
  EXPECT_EQ(Collect(2, {kept})->object_count, 0);
  EXPECT_EQ(CountObjects(), 5 + 1 + 5);
}

TEST_F(MirrorWriterTest, AnOldCopyOfTheCoordinatorRemovesNothing) {
  PutCheckpoint(1, 5);
  PutCheckpoint(2, 6);
  const int64_t object_count = CountObjects();
  EXPECT_EQ(Collect(1, {}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(CountObjects(), object_count);
  EXPECT_EQ(CollectRun(*store_, storage::v1::RunOwner(), {}).status().code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(Collect(2, {}).ok());
  EXPECT_EQ(CountObjects(), 0);
}

TEST_F(MirrorWriterTest, WhatAnotherClusterWroteStays) {
  const CheckpointPlace source = GetPlace(PutCheckpoint(1, 5));
  PutCheckpoint(1, 4);
  PutCheckpoint(1, 9);
  PutParts(1, 11);
  const CheckpointPlace copy = GetPlace(PutCheckpoint(1001, 5));
  PutCheckpoint(1001, 20);
  const CheckpointPlace newest = GetPlace(PutCheckpoint(1001, 30));
  // The owner has a checkpoint of the source's cut, and of no other.
  const auto collected = Collect(1001, {copy, newest}, 1001);
  ASSERT_TRUE(collected.ok()) << collected.status();
  EXPECT_EQ(collected->checkpoint_count, 2);
  EXPECT_THAT(*ListCheckpoints(*store_),
              ElementsAre(CheckpointPlace{source.run_uid, 1, 4},
                          CheckpointPlace{source.run_uid, 1, 9}, copy, newest));
  // As one cluster's all others go.
  EXPECT_EQ(Collect(1001, {newest})->checkpoint_count, 3);
  EXPECT_EQ(CountObjects(), 5 + 1);
}

TEST_F(MirrorWriterTest, ALaterOwnerStopsACollection) {
  PutCheckpoint(1, 5);
  const std::string run_uid = SmallManifest(layout_).run_uid();
  Put(OwnerName({run_uid, 1001}), "{}");
  EXPECT_EQ(Collect(1, {}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Collect(1001, {})->checkpoint_count, 1);
  EXPECT_TRUE(store_->Stat(OwnerName({run_uid, 1001})).ok());
}

TEST_F(MirrorWriterTest, ACheckpointOfANewerFormatStays) {
  const MirrorManifest newer = PutParts(1, 5);
  std::string json = ManifestToJson(newer);
  json.replace(json.find("\"format\": 1"), 11, "\"format\": 2");
  Put(ManifestName(GetPlace(newer)), json);
  const MirrorManifest damaged = PutParts(1, 6);
  Put(ManifestName(GetPlace(damaged)), "{");
  const CheckpointPlace kept = GetPlace(PutCheckpoint(1, 7));
  EXPECT_EQ(Collect(1, {kept})->checkpoint_count, 1);
  EXPECT_EQ(CountObjects(), 2 * (5 + 1));
  EXPECT_TRUE(store_->Stat(ManifestName(GetPlace(newer))).ok());
  EXPECT_TRUE(store_->Stat(NameOf(newer, newer.parts(0))).ok());
}

}  // namespace
}  // namespace atl::mirror
