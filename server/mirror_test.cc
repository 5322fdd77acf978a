// Checkpoints of real servers over loopback are copied to a mirror.

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/mirror/mirror_names.h"
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
