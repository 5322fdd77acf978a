// RunStore over restarts, and on disks that are full, lose writes or return
// wrong bytes.

#include "server/store/run_store.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/codec/crc32c.h"
#include "base/codec/sha256.h"
#include "base/io/files.h"
#include "base/io/testing/fake_file_system.h"
#include "base/status/check.h"
#include "base/sync/mutex.h"
#include "gtest/gtest.h"
#include "server/store/manifest.h"
#include "server/store/testing/memory_record_store.h"
#include "server/store/records/run_records.h"

namespace atl::server {
namespace {

constexpr int kStateCount = 1;
const ShardNames kNames("data", "run", "", 0);
const std::string kVersions = kNames.versions();
const std::string kSums = kNames.sums();
const std::string kLog = kNames.log();
const std::string kCheckpoints = kNames.checkpoints();

v1::Run MakeRun(v1::Durability durability) {
  v1::Run run;
  run.set_run_id("run");
  run.set_run_epoch(1);
  v1::Layout* layout = run.mutable_spec()->mutable_layout();
  layout->set_fragment_count(1);
  v1::TensorSpec* tensor = layout->add_tensors();
  tensor->set_name("w");
  tensor->add_shape(10000);  // Three blocks.
  tensor->set_dtype(v1::DATA_TYPE_F32);
  tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
  tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  run.mutable_spec()->set_durability(durability);
  return run;
}

class RunStoreTest : public testing::Test {
 protected:
  RunStoreTest() { Create(v1::DURABILITY_MACHINE); }

  // A new run.
  void Create(v1::Durability durability) {
    RecordBatch batch;
    batch.Delete("run");
    CHECK(records_.Write(batch, Sync::kMachine).ok());
    CHECK(CreateRun(records_, MakeRun(durability), 0, 1).ok());
    const absl::Status opened = Reopen();
    CHECK(opened.ok()) << opened;
  }

  absl::Status Reopen() {
    store_.reset();
    auto run = ReadRun(records_);
    if (!run.ok()) return run.status();
    auto store = RunStore::Open(fs_, records_, "data", *run, kStateCount);
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    return absl::OkStatus();
  }

  absl::Status CutPowerAndReopen() {
    store_.reset();
    fs_.Crash();
    records_.CutPower();
    return Reopen();
  }

  static std::vector<float> Elements(float first) {
    std::vector<float> elements(10000);
    std::iota(elements.begin(), elements.end(), first);
    return elements;
  }

  absl::Status MakeVersion(int64_t version, float first) {
    auto file = store_->versions().New(0, version);
    if (!file.ok()) return file.status();
    for (int array = 0; array < 1 + kStateCount; ++array) {
      const auto elements = Elements(first + static_cast<float>(array));
      const absl::Status written =
          (*file)->Write(array, {0, 3}, elements.data());
      if (!written.ok()) return written;
    }
    store_->versions().Publish(0, version,
                               {*file, 0, Digest128{1, uint64_t(version)}});
    return version == 0 ? store_->versions().PersistVersion0(0, 2.25)
                        : absl::OkStatus();
  }

  static v1::Commit Commit(int64_t seq) {
    v1::Commit commit;
    commit.set_commit_seq(seq);
    commit.set_version(seq);
    return commit;
  }

  static v1::ContributionInfo Info(int32_t slot) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(1);
    info.mutable_key()->set_slot(slot);
    info.mutable_key()->set_seq(1);
    info.set_codec(v1::CODEC_F32);
    return info;
  }

  std::shared_ptr<Contribution> Bind(int32_t slot) {
    auto bound = store_->contributions().Bind(Info(slot));
    CHECK(bound.ok()) << bound.status();
    return *bound;
  }

  // Writes blocks of Elements(slot); true if the contribution is complete.
  absl::StatusOr<bool> WriteBlocks(Contribution& contribution,
                                   IndexRange blocks) {
    const auto elements = Elements(static_cast<float>(contribution.key().slot));
    const ShardRange& range = contribution.range();
    bool complete = false;
    for (const IndexRange claimed : contribution.Claim(blocks)) {
      std::vector<BlockFact> facts;
      for (int64_t b = claimed.begin; b < claimed.end; ++b) {
        const char* bytes = reinterpret_cast<const char*>(
            elements.data() + range.ElementOffset(b));
        facts.push_back({codec::Crc32c(absl::string_view(
                             bytes, range.ElementCount({b, b + 1}) * 4)),
                         1.0});
      }
      const absl::string_view bytes(
          reinterpret_cast<const char*>(elements.data() +
                                        range.ElementOffset(claimed.begin)),
          range.ElementCount(claimed) * 4);
      // In two pieces.
      auto written = store_->contributions().WriteBlocks(
          contribution, claimed, {bytes.substr(0, 7), bytes.substr(7)}, facts);
      if (!written.ok()) return written.status();
      complete |= *written;
    }
    return complete;
  }

  void StoreContribution(int32_t slot) {
    auto contribution = Bind(slot);
    auto complete = WriteBlocks(*contribution, {0, 3});
    ASSERT_TRUE(complete.ok() && *complete) << complete.status();
    const auto norm = store_->contributions().Finish(*contribution);
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_EQ(*norm, 3.0);
  }

  // Flips a byte of the only file in `directory` at `offset` from its end.
  void Damage(const std::string& directory, int64_t offset_from_end) {
    const auto names = fs_.List(directory);
    ASSERT_TRUE(names.ok() && names->size() == 1) << names.status();
    auto file = fs_.OpenForWrite(directory + "/" + (*names)[0]);
    ASSERT_TRUE(file.ok());
    const int64_t at = *(*file)->Size() - offset_from_end;
    char byte;
    ASSERT_TRUE((*file)->ReadAt(at, absl::MakeSpan(&byte, 1)).ok());
    byte ^= 0x40;
    ASSERT_TRUE((*file)->WriteAt(at, absl::string_view(&byte, 1)).ok());
    ASSERT_TRUE((*file)->Sync().ok());
  }

  FakeFileSystem fs_;
  MemoryRecordStore records_;
  std::unique_ptr<RunStore> store_;
};

// --- Versions ---------------------------------------------------------------

TEST_F(RunStoreTest, AVersionThatWasPersistedOutlivesAPowerCut) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(CutPowerAndReopen().ok());
  EXPECT_EQ(store_->Recovered().versions[0], 0);
  EXPECT_EQ(store_->Recovered().version0_norms_squared[0], 2.25);
  const auto held = store_->versions().Find(0, 0);
  ASSERT_TRUE(held.has_value());
  std::vector<float> read(10000);
  ASSERT_TRUE(held->file->Read(1, {0, 3}, read.data()).ok());
  EXPECT_EQ(read, Elements(6));
}

TEST_F(RunStoreTest, AVersionThatWasNotPersistedIsGoneAndItsFileToo) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  ASSERT_TRUE(Reopen().ok());
  EXPECT_FALSE(store_->versions().Find(0, 1).has_value());
  EXPECT_EQ(fs_.List(kVersions)->size(), 1);
}

TEST_F(RunStoreTest, AStartLeavesFilesOfAPersonAlone) {
  const auto check = [this](const std::vector<std::string>& leftovers) {
    for (const std::string& path : leftovers) {
      ASSERT_TRUE(WriteFileAtomically(fs_, path, "half").ok()) << path;
      ASSERT_TRUE(WriteFileAtomically(fs_, path + ".mine", "work").ok());
    }
    ASSERT_TRUE(Reopen().ok());
    for (const std::string& path : leftovers) {
      EXPECT_FALSE(fs_.Exists(path)) << path;
      EXPECT_TRUE(fs_.Exists(path + ".mine")) << path;
    }
  };
  check({kVersions + "/f0-v1.ver.tmp", kLog + "/0000000077.seg",
         kCheckpoints + "/a.json.tmp"});
  Create(v1::DURABILITY_ISLAND);
  check({kSums + "/f0-v9.sum"});
}

TEST_F(RunStoreTest, ACrashBetweenRenameAndStateLeavesTheOldVersion) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  records_.FailWrites(absl::UnavailableError("the process is about to die"));
  EXPECT_FALSE(store_->Persist(1, Commit(1), {}).ok());
  records_.FailWrites(absl::OkStatus());
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->Recovered().versions[0], 0);
  EXPECT_EQ(store_->Recovered().persisted_commit_seq, 0);
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  ASSERT_TRUE(store_->Persist(1, Commit(1), {}).ok());
  ASSERT_TRUE(CutPowerAndReopen().ok());
  EXPECT_EQ(store_->Recovered().versions[0], 1);
  EXPECT_EQ(store_->Recovered().persisted_commit_seq, 1);
}

TEST_F(RunStoreTest, StateHasTheNewestPositionOfTheCoordinatorsLog) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  EXPECT_EQ(store_->log_seen().index(), 0);
  v1::LogPosition log;
  log.set_cluster_id("c");
  log.set_index(12);
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  ASSERT_TRUE(store_->Persist(1, Commit(1), {}, /*keep=*/false, log).ok());
  ASSERT_TRUE(CutPowerAndReopen().ok());
  EXPECT_EQ(store_->log_seen().index(), 12);
  EXPECT_EQ(store_->log_seen().cluster_id(), "c");
}

TEST_F(RunStoreTest, AReaderGoesOnWithAVersionThatIsRemoved) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  const auto held = store_->versions().Find(0, 0);
  store_->versions().Remove(0, 0);
  std::vector<float> read(10000);
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  EXPECT_TRUE(held->file->Read(0, {0, 3}, read.data()).ok());
  EXPECT_EQ(read, Elements(5));
  EXPECT_EQ(fs_.List(kVersions)->size(), 1);
}

TEST_F(RunStoreTest, AReleasedFileIsWrittenAgainAndNoneIsMade) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  for (int64_t v = 1; v <= 6; ++v) {
    ASSERT_TRUE(MakeVersion(v, static_cast<float>(v)).ok());
    ASSERT_TRUE(store_->Persist(1, Commit(v), {}).ok());
    store_->versions().Remove(0, v - 1);
    // From now on the disk is too full for a new file.
    if (v == 2) fs_.SetCapacity(1);
  }
  std::vector<float> read(10000);
  ASSERT_TRUE(
      store_->versions().Find(0, 6)->file->Read(0, {0, 3}, read.data()).ok());
  EXPECT_EQ(read, Elements(6));
  ASSERT_TRUE(CutPowerAndReopen().ok());
  EXPECT_EQ(store_->Recovered().versions[0], 6);
  EXPECT_EQ(fs_.List(kVersions)->size(), 1);
  ASSERT_TRUE(
      store_->versions().Find(0, 6)->file->Read(0, {0, 3}, read.data()).ok());
  EXPECT_EQ(read, Elements(6));
}

TEST_F(RunStoreTest, ADamagedVersionIsNamed) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  const auto held = store_->versions().Find(0, 0);
  Damage(kVersions, 8000);  // In the last array.
  std::vector<float> read(10000);
  EXPECT_TRUE(held->file->Read(0, {0, 3}, read.data()).ok());
  const absl::Status status = held->file->Read(1, {0, 3}, read.data());
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(status.message().find("f0-v0.ver"), std::string::npos) << status;
}

TEST_F(RunStoreTest, ADamagedTableOrHeaderIsFoundAtTheStart) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  Damage(kVersions, 1);
  absl::Status status = Reopen();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(status.message().find("f0-v0.ver"), std::string::npos) << status;
}

TEST_F(RunStoreTest, ADamagedOldVersionIsNotHeldAndTheRestGoesOn) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  Damage(kVersions, 1);
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  ASSERT_TRUE(store_->Persist(1, Commit(1), {}).ok());
  ASSERT_TRUE(Reopen().ok());
  EXPECT_FALSE(store_->versions().Find(0, 0).has_value());
  EXPECT_TRUE(store_->versions().Find(0, 1).has_value());
}

TEST_F(RunStoreTest, AMissingVersionIsNamed) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(fs_.Remove(kVersions + "/f0-v0.ver").ok());
  const absl::Status status = Reopen();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(status.message().find("f0-v0.ver"), std::string::npos) << status;
}

// --- Checkpoints ------------------------------------------------------------

v1::Pin Checkpoint(const std::string& pin_id, int64_t version) {
  v1::Pin pin;
  pin.set_pin_id(pin_id);
  pin.set_commit_seq(version + 1);
  pin.set_checkpoint(true);
  pin.add_cut()->set_version(version);
  return pin;
}

TEST_F(RunStoreTest, AManifestNamesSizeAndSha256OfWhatIsOnTheDisk) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(store_->manifests().Write(1, Checkpoint("first", 0)).ok());
  const std::string text =
      *ReadFile(fs_, kCheckpoints + "/first.json");
  const auto manifest = ParseManifest(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->run_id, "run");
  EXPECT_EQ(manifest->commit_seq, 1);
  EXPECT_EQ(manifest->layout_fingerprint, store_->layout().fingerprint());
  EXPECT_EQ(manifest->parent_pin_id, "");
  ASSERT_EQ(manifest->files.size(), 1);
  EXPECT_EQ(manifest->files[0].file, "versions/f0-v0.ver");
  const std::string bytes =
      *ReadFile(fs_, kVersions + "/f0-v0.ver");
  EXPECT_EQ(manifest->files[0].size_bytes, bytes.size());
  EXPECT_EQ(manifest->files[0].sha256,
            codec::ToHex(codec::ComputeSha256(bytes)));

  ASSERT_TRUE(MakeVersion(1, 7).ok());
  EXPECT_TRUE(
      absl::IsDataLoss(store_->manifests().Write(1, Checkpoint("early", 1))))
      << "a version that is not persisted";
  ASSERT_TRUE(store_->Persist(1, Commit(1), {}).ok());
  ASSERT_TRUE(store_->manifests().Write(1, Checkpoint("second", 1)).ok());
  const auto second =
      ParseManifest(*ReadFile(fs_, kCheckpoints + "/second.json"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->parent_pin_id, "first");
  EXPECT_EQ(second->parent_sha256, codec::ToHex(codec::ComputeSha256(text)));
}

TEST_F(RunStoreTest, AManifestOutlivesAPowerCutAndIsDeletedForGood) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(store_->manifests().Write(1, Checkpoint("kept", 0)).ok());
  ASSERT_TRUE(store_->manifests().Write(1, Checkpoint("gone", 0)).ok());
  ASSERT_TRUE(store_->manifests().Drop("gone").ok());
  ASSERT_TRUE(store_->manifests().Drop("never").ok());
  ASSERT_TRUE(CutPowerAndReopen().ok());
  const RecoveredShard recovered = store_->Recovered();
  ASSERT_EQ(recovered.manifests.size(), 1);
  EXPECT_EQ(recovered.manifests[0].pin_id, "kept");
  EXPECT_EQ(recovered.manifests[0].commit_seq, 1);
  EXPECT_EQ(recovered.manifests[0].versions,
            (std::map<int32_t, int64_t>{{0, 0}}));
  EXPECT_EQ(recovered.manifests[0].fault, "");
}

TEST_F(RunStoreTest, AStartSaysWhatOfACheckpointIsBrokenAndGoesOn) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(store_->manifests().Write(1, Checkpoint("a", 0)).ok());
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  ASSERT_TRUE(store_->Persist(1, Commit(1), {}).ok());
  const std::string path = kVersions + "/f0-v0.ver";
  auto file = fs_.OpenForWrite(path);
  ASSERT_TRUE((*file)->WriteAt(*(*file)->Size(), "more").ok());
  ASSERT_TRUE(Reopen().ok());
  ASSERT_EQ(store_->Recovered().manifests.size(), 1);
  std::string fault = store_->Recovered().manifests[0].fault;
  EXPECT_NE(fault.find("f0-v0.ver"), std::string::npos) << fault;
  ASSERT_TRUE(fs_.Remove(path).ok());
  ASSERT_TRUE(Reopen().ok());
  fault = store_->Recovered().manifests[0].fault;
  EXPECT_NE(fault.find("missing"), std::string::npos) << fault;
}

TEST_F(RunStoreTest, AManifestThatCannotBeReadIsRemovedToBeWrittenAgain) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(store_->manifests().Write(1, Checkpoint("a", 0)).ok());
  const std::string directory = kCheckpoints + "/";
  const std::string text = *ReadFile(fs_, directory + "a.json");
  // Half a manifest, the manifest of another pin, and a file of a crash.
  ASSERT_TRUE(WriteFileAtomically(fs_, directory + "a.json",
                                  text.substr(0, text.size() / 2))
                  .ok());
  ASSERT_TRUE(WriteFileAtomically(fs_, directory + "b.json", text).ok());
  ASSERT_TRUE(WriteFileAtomically(fs_, directory + "c.json.tmp", text).ok());
  ASSERT_TRUE(Reopen().ok());
  EXPECT_TRUE(store_->Recovered().manifests.empty());
  EXPECT_TRUE(fs_.List(kCheckpoints)->empty());
}

// --- Contributions ----------------------------------------------------------

TEST_F(RunStoreTest, WhatIsStoredOutlivesAPowerCut) {
  StoreContribution(2);
  ASSERT_TRUE(CutPowerAndReopen().ok());
  ASSERT_EQ(store_->Recovered().stored.size(), 1);
  EXPECT_EQ(store_->Recovered().stored[0].norm_squared, 3.0);
  std::vector<float> read(10000);
  ASSERT_TRUE(store_->contributions()
                  .Find(ContributionKey::FromProto(Info(2).key()))
                  ->Read({0, 3}, read.data())
                  .ok());
  EXPECT_EQ(read, Elements(2));
}

TEST_F(RunStoreTest, WhatIsStoredAtLevelProcessOutlivesTheProcess) {
  Create(v1::DURABILITY_PROCESS);
  StoreContribution(2);
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->Recovered().stored.size(), 1);
}

TEST_F(RunStoreTest, AFlushMakesWhatIsStoredAtLevelProcessOutliveAPowerCut) {
  Create(v1::DURABILITY_PROCESS);
  StoreContribution(2);
  ASSERT_TRUE(store_->Flush().ok());
  StoreContribution(3);
  ASSERT_TRUE(CutPowerAndReopen().ok());
  ASSERT_EQ(store_->Recovered().stored.size(), 1);
  std::vector<float> read(10000);
  ASSERT_TRUE(store_->contributions()
                  .Find(ContributionKey::FromProto(Info(2).key()))
                  ->Read({0, 3}, read.data())
                  .ok());
  EXPECT_EQ(read, Elements(2));
}

TEST_F(RunStoreTest, AFlushThatTheDiskFailsSaysSo) {
  Create(v1::DURABILITY_PROCESS);
  StoreContribution(2);
  fs_.AddFault({FakeFileSystem::Fault::Call::kSync, kLog, EIO});
  EXPECT_TRUE(absl::IsDataLoss(store_->Flush()));
}

TEST_F(RunStoreTest, BlocksOfAPartOutliveTheProcess) {
  ASSERT_FALSE(*WriteBlocks(*Bind(0), {1, 2}));
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->Recovered().partial.size(), 1);
  auto contribution = Bind(0);
  EXPECT_EQ(contribution->Missing(), (std::vector<IndexRange>{{0, 1}, {2, 3}}));
  ASSERT_TRUE(*WriteBlocks(*contribution, {0, 3}));
  EXPECT_EQ(*store_->contributions().Finish(*contribution), 3.0);
}

TEST_F(RunStoreTest, BlocksWhoseBytesAreWrongAfterACrashAreMissing) {
  ASSERT_FALSE(*WriteBlocks(*Bind(0), {0, 2}));
  Damage(kLog, 10000 * 4 - 4096 * 4 - 5);  // In block 1.
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(Bind(0)->Missing(), (std::vector<IndexRange>{{1, 3}}));
}

TEST_F(RunStoreTest, AllBlocksWithoutARecordAreFinishedLater) {
  ASSERT_TRUE(*WriteBlocks(*Bind(0), {0, 3}));
  ASSERT_TRUE(Reopen().ok());
  auto contribution = Bind(0);
  EXPECT_TRUE(contribution->Missing().empty());
  EXPECT_EQ(contribution->state(), Contribution::State::kPartial);
  ASSERT_TRUE(contribution->TakeFinish());
  EXPECT_FALSE(contribution->TakeFinish());
  EXPECT_TRUE(store_->contributions().Finish(*contribution).ok());
}

TEST_F(RunStoreTest, ADamagedContributionIsNamed) {
  StoreContribution(2);
  Damage(kLog, 100);
  ASSERT_TRUE(Reopen().ok());
  std::vector<float> read(10000);
  const absl::Status status =
      store_->contributions()
          .Find(ContributionKey::FromProto(Info(2).key()))
          ->Read({0, 3}, read.data());
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(status.message().find(".seg"), std::string::npos) << status;
}

TEST_F(RunStoreTest, AStoredContributionWithoutItsSegmentIsLostAndComesAgain) {
  StoreContribution(1);
  const auto names = fs_.List(kLog);
  StoreContribution(2);
  ASSERT_TRUE(fs_.Remove(kLog + "/" + (*names)[0]).ok());
  ASSERT_TRUE(Reopen().ok());
  ASSERT_EQ(store_->Recovered().stored.size(), 1);
  EXPECT_EQ(store_->Recovered().stored[0].info.key().slot(), 2);
  const RecoveredShard recovered = store_->Recovered();
  ASSERT_EQ(recovered.lost.size(), 1);
  const auto& [key, why] = *recovered.lost.begin();
  EXPECT_EQ(key.slot, 1);
  EXPECT_NE(why.find((*names)[0]), std::string::npos) << why;
  // Other segments do not get the number that its record still names.
  StoreContribution(3);
  EXPECT_FALSE(fs_.Exists(kLog + "/" + (*names)[0]));
  StoreContribution(1);
  ASSERT_TRUE(CutPowerAndReopen().ok());
  EXPECT_EQ(store_->Recovered().stored.size(), 3);
  EXPECT_TRUE(store_->Recovered().lost.empty());
}

TEST_F(RunStoreTest, ASegmentThatIsBroughtBackHoldsItsContributionAgain) {
  StoreContribution(1);
  const std::string path = kLog + "/" + (*fs_.List(kLog))[0];
  const std::string aside = "data/aside";
  ASSERT_TRUE(fs_.Rename(path, aside).ok());
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->Recovered().lost.size(), 1);
  ASSERT_TRUE(fs_.Rename(aside, path).ok());
  ASSERT_TRUE(Reopen().ok());
  EXPECT_TRUE(store_->Recovered().lost.empty());
  EXPECT_EQ(store_->Recovered().stored.size(), 1);
}

// It is not removed: the next start may be able to read it.
TEST_F(RunStoreTest, ASegmentThatCannotBeReadAtAStartIsLostUntilItCan) {
  StoreContribution(0);
  const auto names = *fs_.List(kLog);
  ASSERT_EQ(names.size(), 1);
  fs_.AddFault({.call = FakeFileSystem::Fault::Call::kRead,
                .path_part = ".seg",
                .error_number = EIO});
  ASSERT_TRUE(Reopen().ok());
  EXPECT_TRUE(store_->Recovered().stored.empty());
  EXPECT_EQ(store_->Recovered().lost.size(), 1);
  EXPECT_EQ(*fs_.List(kLog), names);
  // No other segment takes its name.
  StoreContribution(1);
  EXPECT_EQ(fs_.List(kLog)->size(), 2);
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->Recovered().stored.size(), 2);
}

// The same without a record that names the segment.
TEST_F(RunStoreTest, ASpareSegmentThatCannotBeReadAtAStartKeepsItsName) {
  ASSERT_TRUE(store_->ReserveRound(0, 0, 1).ok());
  StoreContribution(0);
  ASSERT_TRUE(store_->contributions().Drop({Bind(0)->key()}).ok());
  ASSERT_EQ(fs_.List(kLog)->size(), 1);
  fs_.AddFault({.call = FakeFileSystem::Fault::Call::kRead,
                .path_part = ".seg",
                .error_number = EIO});
  ASSERT_TRUE(Reopen().ok());
  StoreContribution(1);
  EXPECT_EQ(fs_.List(kLog)->size(), 2);
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->Recovered().stored.size(), 1);
  StoreContribution(2);
  EXPECT_EQ(fs_.List(kLog)->size(), 2) << "it is used again";
}

TEST_F(RunStoreTest, AShortSegmentIsLostToo) {
  StoreContribution(1);
  const std::string path = kLog + "/" + (*fs_.List(kLog))[0];
  const std::string bytes = *ReadFile(fs_, path);
  ASSERT_TRUE(fs_.Remove(path).ok());
  auto file = fs_.OpenForWrite(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(
      (*file)->WriteAt(0, absl::string_view(bytes).substr(0, 9000)).ok());
  ASSERT_TRUE(Reopen().ok());
  EXPECT_TRUE(store_->Recovered().stored.empty());
}

TEST_F(RunStoreTest, DamagedContributionsOfASealAreFoundAndLost) {
  StoreContribution(1);
  const std::string path = kLog + "/" + (*fs_.List(kLog))[0];
  Damage(kLog, 100);
  StoreContribution(2);
  v1::Seal seal;
  *seal.add_contributions()->mutable_key() = Info(1).key();
  *seal.add_contributions()->mutable_key() = Info(2).key();
  const std::vector<ContributionKey> damaged =
      store_->contributions().FindDamaged(seal);
  ASSERT_EQ(damaged.size(), 1);
  EXPECT_EQ(damaged[0].slot, 1);
  ASSERT_TRUE(store_->contributions().Lose(damaged).ok());
  EXPECT_EQ(store_->contributions().Find(damaged[0]), nullptr);
  EXPECT_FALSE(fs_.Exists(path));
  ASSERT_TRUE(CutPowerAndReopen().ok());
  ASSERT_EQ(store_->Recovered().stored.size(), 1);
  EXPECT_EQ(store_->Recovered().stored[0].info.key().slot(), 2);
  StoreContribution(1);
  EXPECT_TRUE(store_->contributions().FindDamaged(seal).empty());
}

TEST_F(RunStoreTest, SegmentsAreUsedAgain) {
  ASSERT_TRUE(store_->ReserveRound(0, 0, 2).ok());
  for (int round = 1; round <= 5; ++round) {
    StoreContribution(0);
    StoreContribution(1);
    const std::vector<ContributionKey> keys = {
        ContributionKey::FromProto(Info(0).key()),
        ContributionKey::FromProto(Info(1).key())};
    ASSERT_TRUE(store_->contributions().Drop(keys).ok());
  }
  EXPECT_EQ(fs_.List(kLog)->size(), 2);
  ASSERT_TRUE(Reopen().ok());
  EXPECT_TRUE(store_->Recovered().stored.empty());
  StoreContribution(0);
  EXPECT_EQ(fs_.List(kLog)->size(), 2);
}

TEST_F(RunStoreTest, ARunThatHasEndedLeavesNoSpareFile) {
  ASSERT_TRUE(store_->ReserveRound(0, 0, 3).ok());
  StoreContribution(0);
  ASSERT_EQ(fs_.List(kLog)->size(), 3);
  store_->DropSpares();
  // Stored contributions stay.
  EXPECT_EQ(fs_.List(kLog)->size(), 1);
  EXPECT_TRUE(fs_.List(kVersions)->empty());
  const ContributionKey keys[] = {
      ContributionKey::FromProto(Info(0).key())};
  ASSERT_TRUE(store_->contributions().Drop(keys).ok());
  store_->DropSpares();
  EXPECT_TRUE(fs_.List(kLog)->empty());
  // The run can continue.
  StoreContribution(1);
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->Recovered().stored.size(), 1);
}

TEST_F(RunStoreTest, ARunThatHasEndedLeavesNoSpareVersion) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  ASSERT_TRUE(store_->Persist(1, Commit(1), {}).ok());
  store_->versions().Remove(0, 0);
  ASSERT_EQ(fs_.List(kVersions)->size(), 2);
  store_->DropSpares();
  EXPECT_EQ(fs_.List(kVersions)->size(), 1);
  ASSERT_TRUE(CutPowerAndReopen().ok());
  EXPECT_EQ(store_->Recovered().versions[0], 1);
  ASSERT_TRUE(MakeVersion(2, 9).ok());
}

TEST_F(RunStoreTest, ARunThatHasEndedLeavesNoSpareSum) {
  Create(v1::DURABILITY_ISLAND);
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  const auto file = store_->versions().New(0, 1);
  const auto sum = store_->sums().New(0, 1);
  ASSERT_TRUE(file.ok() && sum.ok());
  ASSERT_TRUE(store_->PublishPrepared(PreparedFact(), *file, *sum).ok());
  ASSERT_EQ(fs_.List(kSums)->size(), 1);
  store_->DropSpares();
  EXPECT_EQ(fs_.List(kSums)->size(), 1) << "it is used";
  store_->DiscardVersion(0, 1);
  ASSERT_EQ(fs_.List(kSums)->size(), 1) << "it is spare";
  store_->DropSpares();
  EXPECT_TRUE(fs_.List(kSums)->empty());
  EXPECT_TRUE(store_->sums().New(0, 1).ok());
}

// An error that repeats for hours has the same text each time.
TEST_F(RunStoreTest, ASegmentThatCannotBeMadeTakesNoNumber) {
  using Call = FakeFileSystem::Fault::Call;
  for (const Call call : {Call::kOpen, Call::kReserve, Call::kWrite,
                          Call::kSync, Call::kSyncDirectory}) {
    SCOPED_TRACE(static_cast<int>(call));
    FakeFileSystem::Fault fault;
    fault.call = call;
    fault.path_part = kLog;
    fault.error_number = EROFS;
    fault.fail_count = 2;
    fs_.AddFault(fault);
    const absl::Status first = store_->ReserveRound(0, 0, 1);
    EXPECT_FALSE(first.ok());
    EXPECT_EQ(store_->ReserveRound(0, 0, 1), first);
  }
  ASSERT_TRUE(store_->ReserveRound(0, 0, 1).ok());
  EXPECT_EQ(*fs_.List(kLog), std::vector<std::string>{"0000000001.seg"});
}

TEST_F(RunStoreTest, SpareSegmentsAreAsManyAsARoundReserves) {
  ASSERT_TRUE(store_->ReserveRound(0, 0, 2).ok());
  std::vector<ContributionKey> keys;
  for (int32_t slot = 0; slot < 10; ++slot) {
    StoreContribution(slot);
    keys.push_back(Bind(slot)->key());
  }
  EXPECT_EQ(fs_.List(kLog)->size(), 10u);
  ASSERT_TRUE(store_->contributions().Drop(keys).ok());
  EXPECT_EQ(fs_.List(kLog)->size(), 2u);
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(fs_.List(kLog)->size(), 2u) << "a start keeps them";
  StoreContribution(0);
  StoreContribution(1);
  EXPECT_EQ(fs_.List(kLog)->size(), 2u) << "and uses them";
}

// A full disk also fails the deletion of records.
TEST_F(RunStoreTest, WhatCouldNotBeFreedIsFreedByTheNextThatCan) {
  StoreContribution(0);
  records_.FailWrites(absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(store_->contributions().Drop({Bind(0)->key()}).ok());
  records_.FailWrites(absl::OkStatus());
  StoreContribution(1);
  ASSERT_TRUE(store_->contributions().Drop({Bind(1)->key()}).ok());
  StoreContribution(2);
  StoreContribution(3);
  EXPECT_EQ(fs_.List(kLog)->size(), 2u);

  // A key that is bound again frees its old segment.
  records_.FailWrites(absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(store_->contributions().Drop({Bind(2)->key()}).ok());
  records_.FailWrites(absl::OkStatus());
  StoreContribution(2);
  Bind(4);
  EXPECT_EQ(fs_.List(kLog)->size(), 3u);
  ASSERT_TRUE(CutPowerAndReopen().ok());
  std::vector<float> elements(10000);
  for (const int32_t slot : {2, 3}) {
    ASSERT_TRUE(Bind(slot)->Read({0, 3}, elements.data()).ok());
    EXPECT_EQ(elements, Elements(static_cast<float>(slot)));
  }
}

// An import is bound to the same key again. A batch that was made before that
// deletes its old records: the batch of its Drop or, if that failed, the next.
TEST_F(RunStoreTest, WhatIsBoundAnewOutlivesTheDeletionOfWhatItWas) {
  for (const bool has_failed : {false, true}) {
    SCOPED_TRACE(has_failed);
    StoreContribution(0);
    const auto key = ContributionKey::FromProto(Info(0).key());
    std::vector<ContributionKey> next = {key};
    if (has_failed) {
      StoreContribution(1);
      records_.FailWrites(absl::ResourceExhaustedError("full"));
      EXPECT_FALSE(store_->contributions().Drop(next).ok());
      records_.FailWrites(absl::OkStatus());
      next = {ContributionKey::FromProto(Info(1).key())};
    }
    Mutex mutex;
    CondVar changed;
    bool is_stored = false;
    std::thread again;
    records_.BeforeNextWrite([&] {
      again = std::thread([&] {
        StoreContribution(0);
        MutexLock lock(&mutex);
        is_stored = true;
        changed.SignalAll();
      });
      // Bind must wait for this batch.
      MutexLock lock(&mutex);
      EXPECT_FALSE(changed.AwaitWithTimeout(&mutex, absl::Milliseconds(200),
                                            [&] { return is_stored; }));
    });
    EXPECT_TRUE(store_->contributions().Drop(next).ok());
    again.join();
    ASSERT_TRUE(Reopen().ok());
    ASSERT_EQ(store_->Recovered().stored.size(), 1);
    EXPECT_EQ(store_->Recovered().stored[0].info.key().slot(), 0);
    ASSERT_TRUE(store_->contributions().Drop({key}).ok());
  }
}

// Until STATE has the commit, a start merges it again.
TEST_F(RunStoreTest, WhatACommitMergedStaysUntilItIsPersisted) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  StoreContribution(0);
  StoreContribution(1);
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  const std::vector<ContributionKey> keys = {
      ContributionKey::FromProto(Info(0).key())};
  records_.FailWrites(absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(store_->Persist(1, Commit(1), keys).ok());
  records_.FailWrites(absl::OkStatus());
  ASSERT_TRUE(store_->contributions().Drop({Bind(1)->key()}).ok());
  StoreContribution(2);
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->Recovered().persisted_commit_seq, 0);
  const auto merged = store_->contributions().Find(keys[0]);
  ASSERT_NE(merged, nullptr);
  std::vector<float> elements(10000);
  EXPECT_TRUE(merged->Read({0, 3}, elements.data()).ok());
  EXPECT_EQ(elements, Elements(0));
}

TEST_F(RunStoreTest, PersistFreesWhatItsCommitDecided) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  StoreContribution(0);
  StoreContribution(1);
  ASSERT_TRUE(MakeVersion(1, 7).ok());
  const std::vector<ContributionKey> keys = {
      ContributionKey::FromProto(Info(0).key())};
  ASSERT_TRUE(store_->Persist(1, Commit(1), keys).ok());
  ASSERT_TRUE(CutPowerAndReopen().ok());
  ASSERT_EQ(store_->Recovered().stored.size(), 1);
  EXPECT_EQ(store_->Recovered().stored[0].info.key().slot(), 1);
}

TEST_F(RunStoreTest, ARefusalIsRememberedAndFreesTheSegment) {
  ASSERT_TRUE(WriteBlocks(*Bind(0), {0, 1}).ok());
  v1::ContributionInfo info = Info(0);
  info.set_anchor_version(3);
  const auto key = ContributionKey::FromProto(info.key());
  ASSERT_TRUE(store_->contributions().Refuse(info, "NaN").ok());
  ASSERT_TRUE(CutPowerAndReopen().ok());
  EXPECT_EQ(store_->Recovered().refused.at(key).reason, "NaN");
  EXPECT_EQ(store_->Recovered().refused.at(key).anchor_version, 3);
  EXPECT_TRUE(store_->Recovered().partial.empty());
  StoreContribution(1);
  EXPECT_EQ(fs_.List(kLog)->size(), 1);
}

// --- A full disk ------------------------------------------------------------

TEST_F(RunStoreTest, AFullDiskRefusesAContributionAndLeavesNoFile) {
  fs_.SetCapacity(20000);
  const auto bound = store_->contributions().Bind(Info(0));
  EXPECT_TRUE(absl::IsResourceExhausted(bound.status())) << bound.status();
  EXPECT_TRUE(fs_.List(kLog)->empty());
  fs_.SetCapacity(1 << 30);
  StoreContribution(0);
}

TEST_F(RunStoreTest, AReservedRoundNeedsNoMoreSpace) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  ASSERT_TRUE(store_->ReserveRound(0, 0, 2).ok());
  fs_.SetCapacity(1);
  StoreContribution(0);
  StoreContribution(1);
  EXPECT_TRUE(MakeVersion(1, 7).ok());
  EXPECT_TRUE(store_->Persist(1, Commit(1), {}).ok());
}

TEST_F(RunStoreTest, AReservationThatComesLateLeavesTheVersionsFileAlone) {
  ASSERT_TRUE(MakeVersion(0, 5).ok());
  auto file = store_->versions().New(0, 1);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(store_->ReserveRound(0, 0, 1).ok());
  for (int array = 0; array < 1 + kStateCount; ++array) {
    ASSERT_TRUE((*file)->Write(array, {0, 3}, Elements(7).data()).ok());
  }
  store_->versions().Publish(0, 1, {*file, 0, Digest128{1, 1}});
  ASSERT_TRUE(store_->Persist(1, Commit(1), {}).ok());
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->Recovered().versions[0], 1);
}

TEST_F(RunStoreTest, AnErrorOfTheDiskIsNotSwallowed) {
  auto contribution = Bind(0);
  fs_.AddFault({.call = FakeFileSystem::Fault::Call::kWrite,
                .path_part = "",
                .error_number = EIO});
  EXPECT_TRUE(absl::IsDataLoss(WriteBlocks(*contribution, {0, 3}).status()));
  EXPECT_EQ(contribution->Missing(), (std::vector<IndexRange>{{0, 3}}));
  ASSERT_TRUE(*WriteBlocks(*contribution, {0, 3}));
  records_.FailWrites(absl::ResourceExhaustedError("full"));
  EXPECT_FALSE(store_->contributions().Finish(*contribution).ok());
  EXPECT_EQ(contribution->state(), Contribution::State::kPartial);
  records_.FailWrites(absl::OkStatus());
  ASSERT_TRUE(contribution->TakeFinish());
  EXPECT_TRUE(store_->contributions().Finish(*contribution).ok());
}

// After a failed sync the system marks the bytes as written, so a second sync
// would succeed although they are not on the disk.
TEST_F(RunStoreTest, WhatCouldNotBeSyncedHasToComeAgain) {
  auto contribution = Bind(0);
  ASSERT_TRUE(*WriteBlocks(*contribution, {0, 3}));
  fs_.AddFault({.call = FakeFileSystem::Fault::Call::kSync,
                .path_part = "",
                .error_number = EIO});
  EXPECT_TRUE(
      absl::IsDataLoss(store_->contributions().Finish(*contribution).status()));
  EXPECT_FALSE(contribution->TakeFinish());
  EXPECT_EQ(store_->contributions().Find(contribution->key()), nullptr);
  // After a restart neither.
  ASSERT_TRUE(Reopen().ok());
  EXPECT_EQ(store_->contributions().Find(contribution->key()), nullptr);

  StoreContribution(0);
  ASSERT_TRUE(CutPowerAndReopen().ok());
  const auto stored = store_->contributions().Find(contribution->key());
  ASSERT_NE(stored, nullptr);
  std::vector<float> elements(10000);
  EXPECT_TRUE(stored->Read({0, 3}, elements.data()).ok());
  EXPECT_EQ(elements, Elements(0));
}

}  // namespace
}  // namespace atl::server
