#include "server/mirror/checkpoint_download.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/part_format.h"
#include "base/mirror/testing/small_checkpoint.h"
#include "base/object_store/file_store.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/records/run_records.h"
#include "server/store/run_store.h"
#include "server/store/shard_names.h"
#include "server/store/shard_range.h"
#include "server/store/testing/memory_record_store.h"
#include "server/store/version_file.h"

namespace atl::server {
namespace {

using ::testing::HasSubstr;

#define ASSERT_OK(expr)                                     \
  do {                                                      \
    const absl::Status assert_ok_status = (expr);           \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status; \
  } while (false)

constexpr int kStateCount = 1;
constexpr int32_t kShard = 0;
constexpr char kUid[] = "0123456789abcdef0123456789abcdef";

// A shard of another number of shards than the checkpoint's.
struct Resized {
  int manifest_shard_count;
  int32_t shard;
  int shard_count;
};

class CheckpointDownloadTest : public ::testing::Test {
 protected:
  CheckpointDownloadTest()
      : root_(JoinObjectName(::testing::TempDir(), RandomId())),
        store_(MakeFileStore(root_, PosixFileSystem())),
        manifest_(mirror::SmallManifest(layout_)),
        names_("data", "run", manifest_.run_uid(), kShard) {}
  ~CheckpointDownloadTest() override { std::filesystem::remove_all(root_); }

  // An empty shard, and a mirror with the checkpoint.
  void SetUp() override {
    ASSERT_OK(mirror::PutSmallCheckpoint(*store_, manifest_));
    v1::Run run;
    run.set_run_id("run");
    run.set_run_uid(manifest_.run_uid());
    run.set_run_epoch(2);
    *run.mutable_spec() = manifest_.spec();
    ASSERT_OK(CreateRun(records_, run, kShard, mirror::kSmallShardCount));
    ASSERT_OK(Open().status());
    restored_.set_commit_seq(9);
    restored_.set_pin_id(manifest_.pin().pin_id());
    *restored_.mutable_cut() = manifest_.pin().cut();
    restored_.set_mirror_run_epoch(manifest_.run_epoch());
    restored_.set_mirror_commit_seq(manifest_.pin().commit_seq());
  }

  absl::StatusOr<std::unique_ptr<RunStore>> Open() {
    return RunStore::Open(disk_, records_, "data", *ReadRun(records_),
                          kStateCount);
  }

  absl::Status Download(std::function<bool()> is_cancelled = nullptr) {
    const records::RunRecord record = *ReadRun(records_);
    return DownloadVersions(*store_, {disk_, records_, "data", record,
                                      kStateCount, restored_, is_cancelled});
  }

  absl::Status Rollback() {
    return RunStore::Rollback(disk_, records_, "data", *ReadRun(records_),
                              kStateCount, /*run_epoch=*/3, restored_, {});
  }

  // The store's path of a part of the shard.
  std::string PartPath(int32_t fragment) {
    for (const storage::v1::MirrorPart& part : manifest_.parts()) {
      if (part.shard() == kShard && part.fragment() == fragment) {
        return JoinObjectName(
            root_, mirror::PartName(mirror::GetPlace(manifest_), kShard,
                                    fragment, part.sha256()));
      }
    }
    ADD_FAILURE() << "no part of fragment " << fragment;
    return "";
  }

  // Checks that the shard has the cut, bit for bit, under the next run_epoch.
  void ExpectRestored() {
    const auto opened = Open();
    ASSERT_OK(opened.status());
    const RecoveredShard recovered = (*opened)->Recovered();
    EXPECT_EQ(recovered.run_epoch, 3);
    EXPECT_EQ(recovered.persisted_commit_seq, 9);
    for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
      const ShardRange& range = (*opened)->range(f);
      EXPECT_EQ(recovered.versions[f], manifest_.pin().cut(f).version());
      if (range.empty()) continue;
      const auto held = (*opened)->versions().Find(f, f + 1);
      ASSERT_TRUE(held.has_value());
      EXPECT_EQ(held->commit_seq, manifest_.pin().cut(f).commit_seq());
      storage::v1::MirrorPart part;
      part.set_shard(kShard);
      part.set_fragment(f);
      for (int array = 0; array <= kStateCount; ++array) {
        std::vector<float> elements(range.element_count());
        ASSERT_OK(held->file->Read(array, range.blocks(), elements.data()));
        EXPECT_EQ(elements,
                  mirror::SmallElements(
                      layout_, mirror::GetIdentity(manifest_, part), array));
      }
    }
  }

  const RunLayout layout_ = *RunLayout::Create(mirror::SmallLayout());
  const std::string root_;
  const std::unique_ptr<ObjectStore> store_;
  storage::v1::MirrorManifest manifest_;
  const ShardNames names_;
  FakeFileSystem disk_;
  MemoryRecordStore records_;
  v1::RestoredCut restored_;
};

TEST_F(CheckpointDownloadTest, AnEmptyShardGetsTheCutBitForBit) {
  EXPECT_EQ(Rollback().code(), absl::StatusCode::kDataLoss);
  ASSERT_OK(Download());
  ASSERT_OK(Rollback());
  ASSERT_NO_FATAL_FAILURE(ExpectRestored());
}

TEST_F(CheckpointDownloadTest, AnotherNumberOfShardsGetsTheSameElements) {
  for (const Resized& is : {Resized{1, 0, 3}, Resized{1, 2, 3},
                            Resized{3, 0, 2}, Resized{3, 1, 2},
                            Resized{3, 0, 1}, Resized{2, 4, 7}}) {
    SCOPED_TRACE(absl::StrCat(is.manifest_shard_count, " to ", is.shard_count,
                              ", shard ", is.shard));
    manifest_ = mirror::SmallManifest(layout_);
    manifest_.set_shard_count(is.manifest_shard_count);
    std::filesystem::remove_all(root_);
    ASSERT_OK(mirror::PutSmallCheckpoint(*store_, manifest_));
    FakeFileSystem disk;
    MemoryRecordStore records;
    v1::Run run;
    run.set_run_id("run");
    run.set_run_uid(kUid);
    run.set_run_epoch(2);
    *run.mutable_spec() = manifest_.spec();
    ASSERT_OK(CreateRun(records, run, is.shard, is.shard_count));
    const records::RunRecord record = *ReadRun(records);
    ASSERT_OK(
        RunStore::Open(disk, records, "data", record, kStateCount).status());
    const DownloadSpec spec{disk,        records,   "data", record,
                            kStateCount, restored_, nullptr};
    ASSERT_OK(DownloadVersions(*store_, spec));
    ASSERT_OK(RunStore::Rollback(disk, records, "data", record, kStateCount,
                                 /*run_epoch=*/3, restored_, {}));
    const auto opened =
        RunStore::Open(disk, records, "data", record, kStateCount);
    ASSERT_OK(opened.status());
    for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
      const ShardRange& range = (*opened)->range(f);
      if (range.empty()) continue;
      const auto held = (*opened)->versions().Find(f, f + 1);
      ASSERT_TRUE(held.has_value());
      const mirror::PartIdentity part = {
          .place = mirror::GetPlace(manifest_),
          .shard = is.shard,
          .shard_count = is.shard_count,
          .fragment = f,
      };
      for (int array = 0; array <= kStateCount; ++array) {
        std::vector<float> elements(range.element_count());
        ASSERT_OK(held->file->Read(array, range.blocks(), elements.data()));
        EXPECT_EQ(elements, mirror::SmallElements(layout_, part, array));
      }
    }
  }
}

// A part that the shard needs only in part is read and checked whole.
TEST_F(CheckpointDownloadTest, ADamagedPartOfAnotherShardIsRefused) {
  for (const storage::v1::MirrorPart& part : manifest_.parts()) {
    if (part.shard() != 1 || part.fragment() != 0) continue;
    const std::string path = JoinObjectName(
        root_, mirror::PartName(mirror::GetPlace(manifest_), 1, 0,
                                part.sha256()));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x7f');
  }
  MemoryRecordStore records;
  v1::Run run = ReadRun(records_)->run();
  ASSERT_OK(CreateRun(records, run, /*shard=*/0, /*shard_count=*/2));
  const records::RunRecord record = *ReadRun(records);
  ASSERT_OK(
      RunStore::Open(disk_, records, "data", record, kStateCount).status());
  const DownloadSpec spec{disk_,       records,   "data", record,
                          kStateCount, restored_, nullptr};
  const absl::Status status = DownloadVersions(*store_, spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("shard-1-fragment-0"));
  EXPECT_THAT(status.message(), HasSubstr("SHA-256"));
  EXPECT_FALSE(disk_.Exists(names_.VersionPath(0, 1)));
}

TEST_F(CheckpointDownloadTest, WithoutARecordTheNextStartRemovesIt) {
  ASSERT_OK(Download());
  ASSERT_TRUE(disk_.Exists(names_.VersionPath(0, 1)));
  ASSERT_OK(Open().status());
  EXPECT_FALSE(disk_.Exists(names_.VersionPath(0, 1)));
  ASSERT_OK(Download());
  ASSERT_OK(Rollback());
  ASSERT_NO_FATAL_FAILURE(ExpectRestored());
}

TEST_F(CheckpointDownloadTest, WhatIsHereIsNotReadAgain) {
  ASSERT_OK(Download());
  std::filesystem::remove_all(root_);
  ASSERT_OK(Download());
  ASSERT_OK(Rollback());
  ASSERT_NO_FATAL_FAILURE(ExpectRestored());
}

TEST_F(CheckpointDownloadTest, ADamagedPartIsRefused) {
  std::filesystem::resize_file(PartPath(0), 100);
  absl::Status status = Download();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("has 100 bytes"));
  std::filesystem::remove(PartPath(0));
  status = Download();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("is missing"));
  EXPECT_FALSE(disk_.Exists(names_.VersionPath(0, 1)));
  EXPECT_EQ(Rollback().code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointDownloadTest, AnotherCutIsRefused) {
  restored_.mutable_cut(0)->mutable_digest()->set_low(1);
  const absl::Status status = Download();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("another one"));
}

TEST_F(CheckpointDownloadTest, ACheckpointThatIsNotThereIsNamed) {
  restored_.set_mirror_commit_seq(6);
  const absl::Status status = Download();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("--mirror"));
}

TEST_F(CheckpointDownloadTest, AStopEndsIt) {
  EXPECT_EQ(Download([] { return true; }).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_FALSE(disk_.Exists(names_.VersionPath(0, 1)));
}

}  // namespace
}  // namespace atl::server
