// A shard goes back to an earlier cut of its run.

#include <cerrno>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/codec/crc32c.h"
#include "base/io/files.h"
#include "base/io/testing/fake_file_system.h"
#include "base/status/check.h"
#include "gtest/gtest.h"
#include "server/store/records/run_records.h"
#include "server/store/run_store.h"
#include "server/store/testing/memory_record_store.h"

namespace atl::server {
namespace {

constexpr int64_t kElements = 10000;  // Three blocks.
constexpr int kStateCount = 1;
constexpr int64_t kNewest = 4;    // Versions 0 to 4, of commits 0 to 4.
constexpr int64_t kRestored = 9;  // commit_seq of the restore.
const ShardNames kNames("data", "run", "", 0);

#define ASSERT_OK(expr)                                     \
  do {                                                      \
    const absl::Status assert_ok_status = (expr);           \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status; \
  } while (false)

class RunStoreRestoreTest : public testing::TestWithParam<v1::Durability> {
 protected:
  // A shard at version 4 with checkpoints of 2 and 3, a stored, a partial and a
  // refused contribution, and a record of a merge.
  void SetUp() override {
    v1::Run run;
    run.set_run_id("run");
    run.set_run_epoch(1);
    v1::Layout* layout = run.mutable_spec()->mutable_layout();
    layout->set_fragment_count(1);
    v1::TensorSpec* tensor = layout->add_tensors();
    tensor->set_name("w");
    tensor->add_shape(kElements);
    tensor->set_dtype(v1::DATA_TYPE_F32);
    tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
    run.mutable_spec()->set_durability(GetParam());
    ASSERT_OK(CreateRun(records_, run, 0, 1));
    ASSERT_OK(Reopen());
    for (int64_t version = 0; version <= kNewest; ++version) {
      ASSERT_NO_FATAL_FAILURE(MakeVersion(version));
      if (version == 2 || version == 3) {
        ASSERT_OK(store_->manifests().Write(1, Pin(version)));
      }
    }
    // A version without a pin is released.
    store_->versions().Remove(0, 1);
    PreparedFact prepared;
    prepared.version = 4;
    ASSERT_OK(store_->versions().RecordPrepared(prepared));
    for (int32_t slot = 0; slot < 3; ++slot) {
      ASSERT_OK(store_->contributions().Bind(Info(slot)).status());
    }
    ASSERT_OK(store_->contributions().Refuse(Info(2), "NaN"));
    if (keeps_contributions()) {
      ASSERT_NO_FATAL_FAILURE(Store(0));
    }
    // A power cut loses none of it, whatever the level is.
    ASSERT_OK(store_->Flush());
    ASSERT_OK(records_.Write(RecordBatch(), Sync::kMachine));
  }

  bool keeps_contributions() const {
    return GetParam() != v1::DURABILITY_ISLAND;
  }

  absl::Status Reopen() {
    store_.reset();
    const auto run = ReadRun(records_);
    if (!run.ok()) return run.status();
    auto store = RunStore::Open(fs_, records_, "data", *run, kStateCount);
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    return absl::OkStatus();
  }
  void CutPower() {
    store_.reset();
    fs_.Crash();
    records_.CutPower();
  }

  static std::vector<float> Elements(int64_t version, int array) {
    std::vector<float> elements(kElements);
    std::iota(elements.begin(), elements.end(),
              static_cast<float>(100 * version + array));
    return elements;
  }

  void MakeVersion(int64_t version, int64_t run_epoch = 1,
                   int64_t commit_seq = -1) {
    const auto file = store_->versions().New(0, version);
    ASSERT_OK(file.status());
    for (int array = 0; array <= kStateCount; ++array) {
      ASSERT_OK((*file)->Write(array, {0, 3}, Elements(version, array).data()));
    }
    store_->versions().Publish(0, version,
                               {*file, 0, Digest128{1, uint64_t(version)}});
    if (version == 0) {
      ASSERT_OK(store_->versions().PersistVersion0(0, 2.25));
      return;
    }
    v1::Commit commit;
    commit.set_version(version);
    commit.set_commit_seq(commit_seq < 0 ? version : commit_seq);
    ASSERT_OK(store_->Persist(run_epoch, commit, {}));
  }

  void Store(int32_t slot) {
    const auto contribution =
        *store_->contributions().Bind(Info(slot));
    const auto elements = Elements(0, 0);
    for (const IndexRange blocks : contribution->Claim({0, 3})) {
      std::vector<BlockFact> facts;
      const ShardRange& range = contribution->range();
      const char* bytes = reinterpret_cast<const char*>(elements.data());
      for (int64_t b = blocks.begin; b < blocks.end; ++b) {
        facts.push_back({codec::Crc32c(absl::string_view(
                             bytes + range.ElementOffset(b) * 4,
                             range.ElementCount({b, b + 1}) * 4)),
                         1.0});
      }
      const auto written = store_->contributions().WriteBlocks(
          *contribution, blocks, {absl::string_view(bytes, kElements * 4)},
          facts);
      ASSERT_OK(written.status());
    }
    ASSERT_OK(store_->contributions().Finish(*contribution).status());
  }

  static v1::ContributionInfo Info(int32_t slot) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(1);
    info.mutable_key()->set_slot(slot);
    info.mutable_key()->set_seq(5);
    info.set_anchor_version(kNewest);
    info.set_codec(v1::CODEC_F32);
    return info;
  }

  static v1::Pin Pin(int64_t version) {
    v1::Pin pin;
    pin.set_pin_id(absl::StrCat("round-", version));
    pin.set_commit_seq(version + 1);
    pin.set_checkpoint(true);
    pin.add_cut()->set_version(version);
    pin.mutable_cut(0)->set_commit_seq(version);
    return pin;
  }

  // The restore to a version.
  static v1::RestoredCut Cut(int64_t version) {
    v1::RestoredCut restored;
    restored.set_commit_seq(kRestored);
    restored.set_pin_id(absl::StrCat("round-", version));
    *restored.mutable_cut() = Pin(version).cut();
    return restored;
  }

  absl::Status Rollback(const v1::RestoredCut& restored,
                        int64_t run_epoch = 2) {
    store_.reset();
    return RunStore::Rollback(fs_, records_, "data", *ReadRun(records_),
                              kStateCount, run_epoch, restored, {});
  }

  // All files of the shard, by path, and all records.
  std::map<std::string, std::string> ReadAll() {
    std::map<std::string, std::string> all;
    for (const std::string& directory :
         {kNames.versions(), kNames.log(), kNames.checkpoints()}) {
      const auto names = fs_.List(directory);
      CHECK(names.ok()) << names.status();
      for (const std::string& name : *names) {
        const std::string path = absl::StrCat(directory, "/", name);
        all[path] = *ReadFile(fs_, path);
      }
    }
    for (const char* const kind : {"state", "prepared/", "bound/", "chunk/",
                                   "stored/", "refused/", "kept/"}) {
      const auto records = records_.Scan(kind);
      for (const auto& [name, value] : *records) all[name] = value;
    }
    return all;
  }

  // The shard is at the cut of version 2, and nothing later is left.
  void ExpectVersion2() {
    const RecoveredShard recovered = store_->Recovered();
    EXPECT_EQ(recovered.run_epoch, 2);
    EXPECT_EQ(recovered.persisted_commit_seq, kRestored);
    EXPECT_EQ(recovered.versions[0], 2);
    EXPECT_EQ(recovered.version0_norms_squared[0], 2.25);
    EXPECT_EQ(recovered.held,
              (std::set<std::pair<int32_t, int64_t>>{{0, 0}, {0, 2}}));
    EXPECT_TRUE(recovered.stored.empty());
    EXPECT_TRUE(recovered.partial.empty());
    EXPECT_TRUE(recovered.refused.empty());
    EXPECT_TRUE(recovered.prepared.empty());
    EXPECT_TRUE(recovered.lost.empty());
    ASSERT_EQ(recovered.manifests.size(), 1u);
    EXPECT_EQ(recovered.manifests[0].pin_id, "round-2");
    EXPECT_EQ(recovered.manifests[0].fault, "");
    EXPECT_EQ(*fs_.List(kNames.versions()),
              (std::vector<std::string>{"f0-v0.ver", "f0-v2.ver"}));
    const auto held = store_->versions().Find(0, 2);
    ASSERT_TRUE(held.has_value());
    std::vector<float> elements(kElements);
    for (int array = 0; array <= kStateCount; ++array) {
      ASSERT_OK(held->file->Read(array, {0, 3}, elements.data()));
      EXPECT_EQ(elements, Elements(2, array));
    }
  }

  FakeFileSystem fs_;
  MemoryRecordStore records_;
  std::unique_ptr<RunStore> store_;
};

INSTANTIATE_TEST_SUITE_P(
    Levels, RunStoreRestoreTest,
    testing::Values(v1::DURABILITY_MACHINE, v1::DURABILITY_PROCESS,
                    v1::DURABILITY_ISLAND),
    [](const auto& level) { return v1::Durability_Name(level.param); });

TEST_P(RunStoreRestoreTest, GoesBackBitForBitAndGoesOnFromThere) {
  const std::string file = *ReadFile(fs_, kNames.VersionPath(0, 2));
  ASSERT_OK(Rollback(Cut(2)));
  ASSERT_OK(Reopen());
  ExpectVersion2();
  EXPECT_EQ(*ReadFile(fs_, kNames.VersionPath(0, 2)), file);
  // A version number comes again, with another commit_seq.
  ASSERT_NO_FATAL_FAILURE(MakeVersion(3, 2, kRestored + 1));
  CutPower();
  ASSERT_OK(Reopen());
  EXPECT_EQ(store_->Recovered().versions[0], 3);
  EXPECT_EQ(store_->Recovered().persisted_commit_seq, kRestored + 1);
}

// FAULT: power is cut after the restore, before the shard is opened again.
TEST_P(RunStoreRestoreTest, OutlivesAPowerCutAndIsDoneOnce) {
  ASSERT_OK(Rollback(Cut(2)));
  CutPower();
  const auto state = ReadAll();
  ASSERT_OK(Rollback(Cut(2)));
  EXPECT_EQ(ReadAll(), state);
  ASSERT_OK(Reopen());
  ExpectVersion2();
}

// FAULT: the process dies before each step of a restore.
TEST_P(RunStoreRestoreTest, AFailureAtAnyStepLeavesTheOldStateForAnother) {
  using Call = FakeFileSystem::Fault::Call;
  for (const bool at_manifest : {true, false}) {
    SCOPED_TRACE(at_manifest);
    if (at_manifest) {
      fs_.AddFault({.call = Call::kSyncDirectory,
                    .path_part = kNames.checkpoints(),
                    .error_number = ENOSPC});
    } else {
      records_.FailWrites(absl::ResourceExhaustedError("full"));
    }
    EXPECT_FALSE(Rollback(Cut(2)).ok());
    records_.FailWrites(absl::OkStatus());
    CutPower();
    ASSERT_OK(Reopen());
    EXPECT_EQ(store_->Recovered().run_epoch, 1);
    EXPECT_EQ(store_->Recovered().persisted_commit_seq, kNewest);
    EXPECT_EQ(store_->Recovered().versions[0], kNewest);
    EXPECT_EQ(store_->Recovered().refused.size(), 1u);
  }
  ASSERT_OK(Rollback(Cut(2)));
  ASSERT_OK(Reopen());
  ExpectVersion2();
}

TEST_P(RunStoreRestoreTest, AVersionThatIsNotHereIsNamedAndNothingIsDeleted) {
  const std::string path = kNames.VersionPath(0, 2);
  const auto refuse = [&](const v1::RestoredCut& cut, const std::string& named) {
    const auto before = ReadAll();
    const absl::Status status = Rollback(cut);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_NE(status.message().find(named), std::string::npos) << status;
    EXPECT_NE(status.message().find("another checkpoint"), std::string::npos)
        << status;
    EXPECT_EQ(ReadAll(), before);
  };
  refuse(Cut(1), "version 1 of fragment 0");  // Released.
  refuse(Cut(5), kNames.VersionPath(0, 5));   // Never made.
  v1::RestoredCut other = Cut(2);
  other.mutable_cut(0)->set_commit_seq(7);
  refuse(other, "of commit 2, not 7");
  other = Cut(2);
  other.mutable_cut(0)->mutable_digest()->set_low(77);
  refuse(other, "digest");
  other.clear_cut();
  refuse(other, "each of its 1 fragments");
  {
    auto file = *fs_.OpenForWrite(path);
    ASSERT_OK(file->WriteAt(4096 + 3 * 16384, "damaged"));  // The state.
  }
  refuse(Cut(2), path);
}

TEST_P(RunStoreRestoreTest, ADamagedNewestVersionDoesNotHinderIt) {
  store_.reset();
  {
    auto file = *fs_.OpenForWrite(kNames.VersionPath(0, kNewest));
    ASSERT_OK(file->WriteAt(0, "damaged"));
    ASSERT_OK(file->Sync());
  }
  EXPECT_TRUE(absl::IsDataLoss(Reopen()));
  // Its checkpoints are reported all the same.
  const auto before = ReadAll();
  {
    const auto stopped = RunStore::OpenStopped(
        fs_, records_, "data", *ReadRun(records_), kStateCount);
    ASSERT_OK(stopped.status());
    EXPECT_EQ((*stopped)->Recovered().manifests.size(), 2u);
    EXPECT_EQ((*stopped)->Recovered().persisted_commit_seq, kNewest);
  }
  EXPECT_EQ(ReadAll(), before);
  ASSERT_OK(Rollback(Cut(2)));
  ASSERT_OK(Reopen());
  ExpectVersion2();
}

TEST_P(RunStoreRestoreTest, KeepsWhatEarlierCommitsMergedForPins) {
  if (!keeps_contributions()) GTEST_SKIP();
  for (const int64_t commit_seq : {2, 3}) {
    records::KeptRecord kept;
    *kept.mutable_stored()->mutable_info() =
        Info(static_cast<int32_t>(5 + commit_seq));
    kept.mutable_stored()->set_segment(100 + commit_seq);
    kept.set_commit_seq(commit_seq);
    RecordBatch batch;
    batch.Put(ShardNames::KeyedName("kept", ContributionKey::FromProto(
                                                kept.stored().info().key())),
              kept.SerializeAsString());
    ASSERT_OK(records_.Write(batch, Sync::kMachine));
  }
  ASSERT_OK(Rollback(Cut(2)));
  ASSERT_OK(Reopen());
  EXPECT_EQ(store_->Recovered().kept_commits, (std::set<int64_t>{2}));
}

}  // namespace
}  // namespace atl::server
