// Checkpoints of real servers over loopback are copied to a mirror.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/mirror_names.h"
#include "base/mirror/mirror_writer.h"
#include "base/mirror/open_mirror.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/mirror/checkpoint_mirror.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

#define ASSERT_OK(expr)                                     \
  do {                                                      \
    const absl::Status assert_ok_status = (expr);           \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status; \
  } while (false)

v1::Run MirroredRun() {
  v1::Run run = SmallRun();
  run.set_run_uid("0123456789abcdef0123456789abcdef");
  run.mutable_spec()->mutable_checkpoint()->set_mirror(true);
  return run;
}

class MirrorTest : public ::testing::Test {
 protected:
  MirrorTest()
      : root_(JoinObjectName(::testing::TempDir(), RandomId())),
        open_(mirror::MakeMirrorOpener(absl::StrCat("file://", root_), {},
                                       {})) {}
  ~MirrorTest() override { std::filesystem::remove_all(root_); }

  // Waits until the shard has copied `count` checkpoints; checks that their
  // parts are in the mirror, under `run_epoch`.
  void ExpectCopied(TestCluster& cluster, int shard, int count,
                    int64_t run_epoch) {
    const auto copied = [&](const v1::ShardReport& report) {
      int found = 0;
      for (const auto& checkpoint : report.checkpoints()) {
        found += checkpoint.mirrored();
      }
      return found == count && report.run_epoch() == run_epoch;
    };
    const auto report = cluster.WaitForReport(shard, copied);
    ASSERT_OK(report.status());
    EXPECT_THAT(report->blocked_reason(), IsEmpty());
    const auto store = open_(atl::Waiting());
    ASSERT_OK(store.status());
    for (const auto& checkpoint : report->checkpoints()) {
      EXPECT_GT(checkpoint.mirrored_parts_size(), 0);
      EXPECT_EQ(checkpoint.array_names(0), "theta");
      for (const v1::MirroredPart& part : checkpoint.mirrored_parts()) {
        const std::string name = mirror::PartName(
            {MirroredRun().run_uid(), run_epoch, checkpoint.commit_seq()},
            shard, part.fragment(), part.sha256());
        const auto info = (*store)->Stat(name);
        ASSERT_OK(info.status());
        EXPECT_EQ(info->size_bytes, part.size_bytes());
      }
    }
  }

  const std::string root_;
  const mirror::MirrorOpener open_;
};

TEST_F(MirrorTest, EveryDurableCheckpointIsCopiedAlsoAfterARestore) {
  TestCluster cluster(MirroredRun(), 2);
  cluster.options().mirror = CheckpointMirrorOptions{.open = open_};
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  ASSERT_OK(cluster.Round(0, 3));
  const v1::Pin pin = cluster.AddCheckpoint("round-1");
  ASSERT_OK(cluster.Round(1, 3));
  cluster.AddCheckpoint("round-2");
  for (const int shard : {0, 1}) {
    ASSERT_NO_FATAL_FAILURE(ExpectCopied(cluster, shard, 2, 1));
  }
  cluster.Restore(pin);
  for (const int shard : {0, 1}) {
    ASSERT_NO_FATAL_FAILURE(ExpectCopied(cluster, shard, 1, 2));
  }
}

// Two servers copy round-1; another cluster continues from it.
class ContinueTest : public MirrorTest {
 protected:
  static constexpr int64_t kEpoch = 1001;
  static constexpr int64_t kSeq = 1'000'000'000;

  // Writes the manifest as a coordinator does; sets version_ and sha256_.
  void SetUp() override {
    TestCluster lost(MirroredRun(), 2);
    lost.options().mirror = CheckpointMirrorOptions{.open = open_};
    ASSERT_OK(lost.StartAll());
    ASSERT_OK(lost.Begin());
    ASSERT_OK(lost.Round(0, 3));
    storage::v1::MirrorManifest manifest;
    manifest.set_format(mirror::kManifestFormat);
    manifest.set_run_id(MirroredRun().run_id());
    manifest.set_run_uid(MirroredRun().run_uid());
    manifest.set_run_epoch(1);
    *manifest.mutable_spec() = MirroredRun().spec();
    manifest.set_shard_count(2);
    *manifest.mutable_pin() = lost.AddCheckpoint("round-1");
    const RunLayout& layout = lost.layout();
    for (int32_t f = 0; f < layout.fragment_count(); ++f) {
      const auto elements = lost.Pull(f, 1);
      ASSERT_OK(elements.status());
      version_.push_back(*elements);
      *manifest.mutable_pin()->mutable_cut(f)->mutable_digest() =
          RangeDigest(layout, f, {0, layout.fragment_block_count(f)},
                      *elements)
              .ToProto();
    }
    for (const int32_t shard : {0, 1}) {
      ASSERT_NO_FATAL_FAILURE(ExpectCopied(lost, shard, 1, 1));
      const auto report = lost.WaitForReport(
          shard, [](const v1::ShardReport& report) {
            return report.checkpoints_size() == 1 &&
                   report.checkpoints(0).mirrored();
          });
      ASSERT_OK(report.status());
      *manifest.mutable_array_names() = report->checkpoints(0).array_names();
      for (const auto& copied : report->checkpoints(0).mirrored_parts()) {
        storage::v1::MirrorPart& part = *manifest.add_parts();
        part.set_shard(shard);
        part.set_fragment(copied.fragment());
        part.set_size_bytes(copied.size_bytes());
        part.set_sha256(copied.sha256());
      }
    }
    const auto store = open_(atl::Waiting());
    ASSERT_OK(store.status());
    ASSERT_OK(mirror::WriteManifest(**store, manifest));
    version0_ = lost.plan().version0();
    pin_ = manifest.pin();
    ASSERT_OK(lost.Round(1, 3));
    sha256_ = *lost.Sha256();
  }

  // A cluster whose first plan continues the run.
  std::unique_ptr<TestCluster> Continue(int server_count) {
    v1::Run run = MirroredRun();
    run.set_run_epoch(kEpoch);
    auto cluster = std::make_unique<TestCluster>(run, server_count);
    cluster->options().mirror = CheckpointMirrorOptions{.open = open_};
    v1::ServerRunPlan& plan = cluster->plan();
    plan.set_run_epoch(kEpoch);
    plan.set_run_state(v1::RUN_STATE_ACTIVE);
    plan.set_started(true);
    *plan.mutable_version0() = version0_;
    plan.set_commit_seq(kSeq);
    *plan.add_pins() = pin_;
    for (const v1::FragmentVersion& version : pin_.cut()) {
      v1::OpenRound& open = *plan.add_open_rounds();
      open.set_fragment(version.fragment());
      open.set_version(version.version());
    }
    v1::RestoredCut& restored = *plan.mutable_restored();
    restored.set_commit_seq(kSeq);
    restored.set_pin_id(pin_.pin_id());
    *restored.mutable_cut() = pin_.cut();
    restored.set_mirror_run_epoch(1);
    restored.set_mirror_commit_seq(pin_.commit_seq());
    return cluster;
  }

  std::vector<std::vector<float>> version_;  // By fragment.
  google::protobuf::RepeatedPtrField<v1::FragmentVersion> version0_;
  v1::Pin pin_;
  std::string sha256_;  // After another round.
};

TEST_F(ContinueTest, NewShardsOfAnotherNumberGoToTheCutAtOnce) {
  for (const int server_count : {1, 3}) {
    const auto cluster = Continue(server_count);
    ASSERT_OK(cluster->StartAll());
    for (int shard = 0; shard < server_count; ++shard) {
      const auto report = cluster->WaitForRestore(shard);
      ASSERT_OK(report.status());
      EXPECT_THAT(report->fault(), IsEmpty());
      EXPECT_TRUE(report->initialized());
      EXPECT_EQ(report->persisted_commit_seq(), kSeq);
      ASSERT_OK(cluster->WaitForPlan(shard));
    }
    for (int32_t f = 0; f < 2; ++f) {
      EXPECT_EQ(*cluster->Pull(f, 1), version_[f]);
    }
    ASSERT_OK(cluster->Round(1, 3));
    EXPECT_EQ(*cluster->Sha256(), sha256_);
  }
}

TEST_F(ContinueTest, AShardThatWasAtTheCutIsBehindIfItsDirectoryIsEmpty) {
  const auto cluster = Continue(1);
  cluster->plan().set_acknowledged_commit_seq(kSeq);
  ASSERT_OK(cluster->StartAll());
  const auto report =
      cluster->WaitForReport(0, [](const v1::ShardReport& report) {
        return !report.fault().empty();
      });
  ASSERT_OK(report.status());
  EXPECT_THAT(report->fault(), HasSubstr("SHARD_BEHIND"));
}

TEST_F(MirrorTest, AServerThatStartsAgainReportsItsPartsAgain) {
  TestCluster cluster(MirroredRun(), 1);
  cluster.options().mirror = CheckpointMirrorOptions{.open = open_};
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  ASSERT_OK(cluster.Round(0, 3));
  cluster.AddCheckpoint("round-1");
  ASSERT_NO_FATAL_FAILURE(ExpectCopied(cluster, 0, 1, 1));
  cluster.CutPower(0);
  ASSERT_OK(cluster.Start(0));
  ASSERT_NO_FATAL_FAILURE(ExpectCopied(cluster, 0, 1, 1));
}

TEST_F(MirrorTest, AServerWithoutAMirrorSaysSo) {
  TestCluster cluster(MirroredRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  ASSERT_OK(cluster.Round(0, 3));
  cluster.AddCheckpoint("round-1");
  const auto report =
      cluster.WaitForReport(0, [](const v1::ShardReport& report) {
        return !report.blocked_reason().empty();
      });
  ASSERT_OK(report.status());
  EXPECT_THAT(report->blocked_reason(), HasSubstr("--mirror"));
  EXPECT_FALSE(report->checkpoints(0).mirrored());
  ASSERT_OK(cluster.Round(1, 3));  // The run goes on.
}

}  // namespace
}  // namespace atl::server
