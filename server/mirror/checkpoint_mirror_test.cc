#include "server/mirror/checkpoint_mirror.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "base/mirror/testing/small_checkpoint.h"
#include "base/object_store/file_store.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "base/status/check.h"
#include "base/time/testing/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using mirror::PartIdentity;
using storage::v1::MirrorManifest;
using storage::v1::MirrorPart;

// A store that calls `before` before each write, and fails it if that fails.
class HookedStore : public ObjectStore {
 public:
  using Hook = std::function<absl::Status(absl::string_view name)>;

  HookedStore(std::unique_ptr<ObjectStore> store, Hook before)
      : store_(std::move(store)), before_(std::move(before)) {}

  absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view prefix,
                                               int64_t count_max) override {
    return store_->List(prefix, count_max);
  }
  absl::StatusOr<ObjectInfo> Stat(absl::string_view name) override {
    return store_->Stat(name);
  }
  absl::Status Read(absl::string_view name, const ReadRange& range,
                    ObjectSink sink) override {
    return store_->Read(name, range, sink);
  }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(absl::string_view name,
                                                      WriteMode mode) override {
    const absl::Status status = before_(name);
    if (!status.ok()) return status;
    return store_->Write(name, mode);
  }
  absl::Status RemoveUnfinished(absl::string_view prefix) override {
    return store_->RemoveUnfinished(prefix);
  }
  std::string GetUrl(absl::string_view name) const override {
    return store_->GetUrl(name);
  }

 private:
  const std::unique_ptr<ObjectStore> store_;
  const Hook before_;
};

class CheckpointMirrorTest : public ::testing::Test {
 protected:
  CheckpointMirrorTest()
      : root_(JoinObjectName(::testing::TempDir(), RandomId())),
        manifest_(mirror::SmallManifest(layout_)) {}
  ~CheckpointMirrorTest() override {
    mirror_.reset();
    std::filesystem::remove_all(root_);
  }

  void Start(int64_t bytes_per_second = 0) {
    mirror_ = std::make_unique<CheckpointMirror>(CheckpointMirrorOptions{
        .open =
            [this](const Waiting& waiting)
            -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
          return std::make_unique<HookedStore>(
              MakeFileStore(root_, PosixFileSystem()),
              [this, waiting](absl::string_view name) {
                return OnWrite(waiting, name);
              });
        },
        .bytes_per_second = bytes_per_second,
        .retry_delay = absl::ZeroDuration(),
        .waiting = {.clock = &clock_, .sleep = [this](absl::Duration nap) {
                      clock_.Advance(nap);
                    }}});
  }

  absl::Status OnWrite(const Waiting& waiting, absl::string_view name) {
    MutexLock lock(&mutex_);
    writes_.emplace_back(name);
    changed_.SignalAll();
    while (is_blocked_) {
      // Stores ask often whether they are cancelled.
      changed_.WaitWithTimeout(&mutex_, absl::Milliseconds(10));
      if (waiting.cancelled()) return absl::CancelledError("cancelled");
    }
    if (failures_left_ == 0) return absl::OkStatus();
    --failures_left_;
    return absl::UnavailableError("the mirror is away");
  }

  void Block(bool is_blocked) {
    MutexLock lock(&mutex_);
    is_blocked_ = is_blocked;
    changed_.SignalAll();
  }

  void FailWrites(int count) {
    MutexLock lock(&mutex_);
    failures_left_ = count;
  }

  void AwaitWrites(size_t count) {
    MutexLock lock(&mutex_);
    while (writes_.size() < count) changed_.Wait(&mutex_);
  }

  std::vector<std::string> writes() {
    MutexLock lock(&mutex_);
    return writes_;
  }

  // A sealed version with the elements of a shard's part.
  std::shared_ptr<VersionFile> MakeVersion(const PartIdentity& part,
                                           const ShardRange& range) {
    const auto state_count = static_cast<int>(part.array_names.size()) - 1;
    auto file = VersionFile::Create(
        disk_,
        absl::StrCat("s", part.shard, "-f", part.fragment, "-", ++file_count_),
        range, state_count);
    CHECK(file.ok()) << file.status();
    for (int array = 0; array <= state_count; ++array) {
      const std::vector<float> elements =
          mirror::SmallElements(layout_, part, array);
      CHECK((*file)->Write(array, range.blocks(), elements.data()).ok());
    }
    CHECK((*file)->Seal({.run_id = "run"}).ok());
    return *std::move(file);
  }

  MirrorJob MakeJob(int32_t shard, int64_t commit_seq = 5) {
    MirrorJob job;
    job.place = mirror::GetPlace(manifest_);
    job.place.commit_seq = commit_seq;
    job.shard = shard;
    for (int32_t f = 0; f < layout_.fragment_count(); ++f) {
      MirrorPart place;
      place.set_shard(shard);
      place.set_fragment(f);
      PartIdentity part = mirror::GetIdentity(manifest_, place);
      part.place = job.place;
      const ShardRange range(layout_, f, shard, mirror::kSmallShardCount);
      if (range.empty()) continue;
      job.parts.push_back({part, MakeVersion(part, range), range});
    }
    job.on_failed = [this](const absl::Status& status) {
      MutexLock lock(&mutex_);
      failure_ = status;
      changed_.SignalAll();
    };
    job.on_done = [this, shard,
                   commit_seq](const std::vector<MirroredPart>& parts) {
      MutexLock lock(&mutex_);
      done_[{shard, commit_seq}] = parts;
      changed_.SignalAll();
    };
    return job;
  }

  std::vector<MirroredPart> AwaitDone(int32_t shard, int64_t commit_seq = 5) {
    MutexLock lock(&mutex_);
    while (done_.count({shard, commit_seq}) == 0) changed_.Wait(&mutex_);
    return done_[{shard, commit_seq}];
  }

  void Drop(int32_t shard) {
    while (!mirror_->Drop(mirror::GetPlace(manifest_).run_uid, shard)) {
      std::this_thread::yield();
    }
  }

  // Uploads a checkpoint of all shards, in several parts each. Returns bytes a
  // second.
  double MeasureBurst(int64_t commit_seq) {
    const absl::Time begin = clock_.Now();
    for (int32_t shard = 0; shard < mirror::kSmallShardCount; ++shard) {
      mirror_->Add(MakeJob(shard, commit_seq));
    }
    int64_t size_bytes = 0;
    for (int32_t shard = 0; shard < mirror::kSmallShardCount; ++shard) {
      for (const MirroredPart& part : AwaitDone(shard, commit_seq)) {
        EXPECT_TRUE(part.is_new);
        size_bytes += part.size_bytes;
      }
    }
    return static_cast<double>(size_bytes) /
           absl::ToDoubleSeconds(clock_.Now() - begin);
  }

  // Empties the mirror.
  void Forget() {
    std::filesystem::remove_all(root_);
    MutexLock lock(&mutex_);
    done_.clear();
  }

  absl::Status AwaitFailure() {
    MutexLock lock(&mutex_);
    while (failure_.ok()) changed_.Wait(&mutex_);
    return failure_;
  }

  bool IsDone(int32_t shard, int64_t commit_seq) {
    MutexLock lock(&mutex_);
    return done_.count({shard, commit_seq}) > 0;
  }

  const RunLayout layout_ = *RunLayout::Create(mirror::SmallLayout());
  const std::string root_;
  const MirrorManifest manifest_;
  FakeFileSystem disk_;
  FakeClock clock_;
  int file_count_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<int32_t, int64_t>, std::vector<MirroredPart>> done_
      ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> writes_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool is_blocked_ ABSL_GUARDED_BY(mutex_) = false;
  int failures_left_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<CheckpointMirror> mirror_;
};

TEST_F(CheckpointMirrorTest, ThePartsOfAllShardsAreACheckpoint) {
  Start();
  MirrorManifest manifest = manifest_;
  for (int32_t shard = 0; shard < mirror::kSmallShardCount; ++shard) {
    mirror_->Add(MakeJob(shard));
  }
  for (int32_t shard = 0; shard < mirror::kSmallShardCount; ++shard) {
    for (const MirroredPart& part : AwaitDone(shard)) {
      EXPECT_TRUE(part.is_new);
      MirrorPart& listed = *manifest.add_parts();
      listed.set_shard(shard);
      listed.set_fragment(part.fragment);
      listed.set_sha256(part.sha256);
      listed.set_size_bytes(part.size_bytes);
    }
  }
  const auto store = MakeFileStore(root_, PosixFileSystem());
  const mirror::CheckpointPlace place = mirror::GetPlace(manifest);
  ASSERT_TRUE(PutObject(*store, mirror::ManifestName(place),
                        mirror::ManifestToJson(manifest), WriteMode::kCreate)
                  .ok());
  const auto opened = mirror::MirroredCheckpoint::Open(*store, place);
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::vector<float> parameters(layout_.element_count());
  const absl::Status read = (*opened)->Read(absl::MakeSpan(parameters));
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(parameters, mirror::SmallParameters(layout_));
}

TEST_F(CheckpointMirrorTest, AServerThatWasKilledGoesOnAtTheFirstMissingPart) {
  Start();
  mirror_->Add(MakeJob(0));
  const std::vector<MirroredPart> first = AwaitDone(0);
  ASSERT_THAT(first, SizeIs(2));
  mirror_.reset();
  const auto store = MakeFileStore(root_, PosixFileSystem());
  const mirror::CheckpointPlace place = mirror::GetPlace(manifest_);
  // As a kill in the midst of the second part leaves it.
  ASSERT_TRUE(
      store->Remove(mirror::PartName(place, 0, 1, first[1].sha256)).ok());
  const auto torn = store->Write(mirror::PartName(place, 0, 1, "torn"),
                                 WriteMode::kCreate);
  ASSERT_TRUE(torn.ok() && (*torn)->Append("torn").ok());
  {
    MutexLock lock(&mutex_);
    done_.clear();
  }
  Start();
  mirror_->Add(MakeJob(0));
  const std::vector<MirroredPart> second = AwaitDone(0);
  ASSERT_THAT(second, SizeIs(2));
  EXPECT_FALSE(second[0].is_new);
  EXPECT_TRUE(second[1].is_new);
  EXPECT_EQ(second[1].sha256, first[1].sha256);
  int file_count = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root_)) {
    file_count += entry.is_regular_file();
  }
  EXPECT_EQ(file_count, 2);
}

TEST_F(CheckpointMirrorTest, AFailureIsTriedAgain) {
  Start();
  FailWrites(3);
  mirror_->Add(MakeJob(0));
  EXPECT_THAT(AwaitDone(0), Each(Field(&MirroredPart::is_new, true)));
  EXPECT_THAT(writes(), SizeIs(5));
}

TEST_F(CheckpointMirrorTest, AFailureIsTold) {
  Start();
  FailWrites(1 << 30);
  mirror_->Add(MakeJob(0));
  EXPECT_EQ(AwaitFailure(), absl::UnavailableError("the mirror is away"));
}

TEST_F(CheckpointMirrorTest, ANewerCheckpointReplacesOneThatWaits) {
  Start();
  Block(true);
  mirror_->Add(MakeJob(0, 5));
  AwaitWrites(1);
  mirror_->Add(MakeJob(0, 6));
  mirror_->Add(MakeJob(1, 6));
  mirror_->Add(MakeJob(0, 7));
  Block(false);
  AwaitDone(0, 5);
  AwaitDone(0, 7);
  AwaitDone(1, 6);
  EXPECT_FALSE(IsDone(0, 6));
}

TEST_F(CheckpointMirrorTest, ADroppedShardIsNotInUse) {
  Start();
  Block(true);
  MirrorJob job = MakeJob(0);
  const std::weak_ptr<const VersionFile> file = job.parts[0].file;
  mirror_->Add(std::move(job));
  AwaitWrites(1);
  mirror_->Add(MakeJob(0, 6));
  Drop(0);
  EXPECT_TRUE(file.expired());
  Block(false);
  EXPECT_FALSE(IsDone(0, 5));
  EXPECT_FALSE(IsDone(0, 6));
  mirror_->Add(MakeJob(1));
  AwaitDone(1);
}

TEST_F(CheckpointMirrorTest, UploadsKeepToTheBandwidth) {
  constexpr int64_t kRate = 64 << 10;
  Start(kRate);
  for (int64_t burst = 0; burst < 4; ++burst) {
    EXPECT_NEAR(MeasureBurst(5 + burst) / kRate, 1, 0.05) << burst;
    // Idle time is not made up for.
    clock_.Advance(absl::Hours(burst));
  }
}

// Shows that MeasureBurst can tell.
TEST_F(CheckpointMirrorTest, ATenthMoreBandwidthIsSeen) {
  constexpr int64_t kRate = 64 << 10;
  for (const double factor : {0.9, 1.1}) {
    Start(static_cast<int64_t>(factor * kRate));
    EXPECT_NEAR(MeasureBurst(5) / kRate, factor, 0.05 * factor);
    EXPECT_GT(std::abs(MeasureBurst(6) / kRate - 1), 0.05);
    mirror_.reset();
    Forget();
  }
}

TEST_F(CheckpointMirrorTest, ADamagedVersionIsNotMirrored) {
  Start();
  MirrorJob job = MakeJob(2);
  const std::string path = job.parts[0].file->path();
  {
    const auto file = *disk_.OpenForWrite(path);
    ASSERT_TRUE(file->WriteAt(4096 + 100, "damage").ok());
  }
  mirror_->Add(std::move(job));
  mirror_->Add(MakeJob(1));
  AwaitDone(1);
  Drop(2);
  EXPECT_FALSE(IsDone(2, 5));
  for (const std::string& name : writes()) {
    EXPECT_THAT(name, HasSubstr("/shard-1-"));
  }
}

}  // namespace
}  // namespace atl::server
