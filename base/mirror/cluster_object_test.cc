#include "base/mirror/cluster_object.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/io/posix_file_system.h"
#include "base/mirror/mirror_names.h"
#include "base/mirror/mirror_writer.h"
#include "base/mirror/mirrored_checkpoint.h"
#include "base/object_store/file_store.h"
#include "base/object_store/object_url.h"
#include "base/random_id/random_id.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace atl::mirror {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Code = absl::StatusCode;
using storage::v1::ClusterObject;
using storage::v1::CoordinatorStarted;

constexpr char kId[] = "0123456789abcdef0123456789abcdef";
constexpr char kOther[] = "fedcba9876543210fedcba9876543210";

void AddStart(ClusterObject& object, const std::string& start_id,
              int64_t log_index, bool supersedes = false) {
  CoordinatorStarted& start = *object.add_starts();
  start.set_coordinator_epoch(object.starts_size());
  start.set_cluster_id(object.cluster_id());
  start.set_start_id(start_id);
  start.set_log_index(log_index);
  start.set_supersedes(supersedes);
  object.set_coordinator_epoch(object.starts_size());
}

// A log with the start "a" at batch 1 and "b" at batch 10.
ClusterObject Cluster(int64_t log_index, const std::string& id = kId) {
  ClusterObject object;
  object.set_format(kClusterFormat);
  object.set_cluster_id(id);
  AddStart(object, "a", 1);
  if (log_index >= 10) AddStart(object, "b", 10);
  object.set_log_index(log_index);
  object.add_servers()->set_server_id("s0");
  storage::v1::ClusterRun& run = *object.add_runs();
  run.set_run_id("run");
  run.set_run_uid(kOther);
  run.mutable_placed()->add_server_ids("s0");
  return object;
}

class ClusterObjectTest : public ::testing::Test {
 protected:
  ClusterObjectTest()
      : root_(JoinObjectName(::testing::TempDir(), RandomId())),
        store_(MakeFileStore(root_, PosixFileSystem())) {}
  ~ClusterObjectTest() override { std::filesystem::remove_all(root_); }

  absl::Status Write(const ClusterObject& object) {
    return WriteCluster(*store_, object);
  }

  // Damages an object, or makes one that is damaged.
  void Put(int64_t log_index, const std::string& text) {
    ASSERT_TRUE(PutObject(*store_, ClusterName({kId, log_index}), text,
                          WriteMode::kReplace)
                    .ok());
  }

  std::vector<int64_t> Indexes() {
    const auto objects = store_->List(ClusterPrefix(kId), 100);
    EXPECT_TRUE(objects.ok()) << objects.status();
    std::vector<int64_t> indexes;
    for (const ObjectInfo& info : *objects) {
      indexes.push_back(ParseClusterName(info.name)->log_index);
    }
    return indexes;
  }

  const std::string root_;
  const std::unique_ptr<ObjectStore> store_;
};

TEST_F(ClusterObjectTest, TheNewestOneIsRead) {
  for (const int64_t log_index : {5, 12}) {
    const absl::Status status = Write(Cluster(log_index));
    ASSERT_TRUE(status.ok()) << status;
  }
  ASSERT_TRUE(Write(Cluster(7, kOther)).ok());
  const auto listed = ListClusters(*store_);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_THAT(*listed,
              ElementsAre(ClusterPlace{kId, 12}, ClusterPlace{kOther, 7}));
  const auto found = ReadCluster(*store_, kId);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(
      found->object, Cluster(12)));
  EXPECT_THAT(found->warnings, IsEmpty());
}

TEST_F(ClusterObjectTest, AMirrorWithoutTheClusterSaysSo) {
  EXPECT_EQ(ReadCluster(*store_, kId).status().code(), Code::kNotFound);
  ASSERT_TRUE(Write(Cluster(5)).ok());
  const absl::Status status = ReadCluster(*store_, kOther).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(kOther));
  EXPECT_EQ(ReadCluster(*store_, "../x").status().code(),
            Code::kInvalidArgument);
}

TEST_F(ClusterObjectTest, ADamagedOneIsSkippedWithAWarning) {
  ASSERT_TRUE(Write(Cluster(5)).ok());
  ASSERT_TRUE(Write(Cluster(6)).ok());
  for (const std::string& damage :
       {std::string("{"), std::string("{\"format\": 2}"),
        std::string("{\"format\": 1, \"unknown\": 3}"), std::string()}) {
    Put(6, damage);
    const auto found = ReadCluster(*store_, kId);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->object.log_index(), 5);
    EXPECT_THAT(found->warnings,
                ElementsAre(HasSubstr(ClusterName({kId, 6}))));
  }
  Put(5, "");
  const absl::Status status = ReadCluster(*store_, kId).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(ClusterName({kId, 6})));
}

TEST_F(ClusterObjectTest, AnObjectThatContradictsItselfIsNotWritten) {
  std::vector<ClusterObject> wrong(13, Cluster(12));
  wrong[0].set_format(2);
  wrong[1].set_cluster_id("x");
  wrong[2].set_log_index(9);  // Before its newest start.
  wrong[3].clear_starts();
  wrong[4].mutable_starts(0)->set_log_secret("secret");
  wrong[5].mutable_starts(0)->set_cluster_id(kOther);
  wrong[6].mutable_servers(0)->set_server_id("../s0");
  wrong[7].mutable_runs(0)->set_run_id("");
  wrong[8].mutable_runs(0)->mutable_placed()->set_server_ids(0, "S");
  wrong[9].set_log_index(INT64_MAX);
  wrong[10].set_coordinator_epoch(INT64_MAX);
  wrong[11].mutable_runs(0)->mutable_placed()->set_placement_epoch(INT64_MAX);
  wrong[12].add_deleted()->set_run_uid(kOther);  // Its run's.
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_EQ(Write(wrong[i]).code(), Code::kInvalidArgument) << i;
  }
  EXPECT_FALSE(std::filesystem::exists(root_));
}

TEST_F(ClusterObjectTest, TheSameOneMayBeWrittenAgain) {
  ClusterObject object = Cluster(5);
  ASSERT_TRUE(Write(object).ok());
  object.mutable_create_time()->set_seconds(7);
  EXPECT_TRUE(Write(object).ok());
  object.mutable_servers(0)->set_address("h:1");
  EXPECT_EQ(Write(object).code(), Code::kFailedPrecondition);
}

TEST_F(ClusterObjectTest, AnOldCopyWritesNothing) {
  ASSERT_TRUE(Write(Cluster(12)).ok());
  // It ends before the newest object.
  EXPECT_EQ(Write(Cluster(11)).code(), Code::kFailedPrecondition);
  EXPECT_EQ(Write(Cluster(9)).code(), Code::kFailedPrecondition);
  // It was made before the start "b", and went on by itself.
  ClusterObject copy = Cluster(9);
  AddStart(copy, "c", 11);
  copy.set_log_index(20);
  const absl::Status status = Write(copy);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("older copy"));
  // It was made after the start "b", and before the object.
  copy = Cluster(11);
  AddStart(copy, "c", 12);
  copy.set_log_index(20);
  EXPECT_EQ(Write(copy).code(), Code::kFailedPrecondition);
  EXPECT_THAT(Indexes(), ElementsAre(12));
  // The log itself goes on.
  ClusterObject next = Cluster(12);
  AddStart(next, "c", 13);
  next.set_log_index(13);
  EXPECT_TRUE(Write(next).ok());
}

TEST_F(ClusterObjectTest, ALogThatSupersedesTheLostOneGoesOn) {
  ASSERT_TRUE(Write(Cluster(12)).ok());
  // Restored from an older copy, or from nothing.
  ClusterObject restored = Cluster(5);
  AddStart(restored, "c", 1'000'000'000, /*supersedes=*/true);
  restored.set_log_index(1'000'000'000);
  const absl::Status status = Write(restored);
  ASSERT_TRUE(status.ok()) << status;
  // The lost one comes back.
  EXPECT_EQ(Write(Cluster(13)).code(), Code::kFailedPrecondition);
}

TEST_F(ClusterObjectTest, StartsThatAreNoLongerKeptProveNothing) {
  ASSERT_TRUE(Write(Cluster(5)).ok());
  ClusterObject later = Cluster(12);
  later.mutable_starts()->DeleteSubrange(0, 1);
  EXPECT_TRUE(Write(later).ok());
}

TEST_F(ClusterObjectTest, ADamagedOneDoesNotHoldUpTheNext) {
  ASSERT_TRUE(Write(Cluster(5)).ok());
  Put(6, "{");
  EXPECT_TRUE(Write(Cluster(7)).ok());
  Put(9, "{");  // Of a log that went further.
  EXPECT_EQ(Write(Cluster(8)).code(), Code::kFailedPrecondition);
}

TEST_F(ClusterObjectTest, TheTwoNewestStay) {
  for (const int64_t log_index : {2, 3, 5, 8}) {
    ASSERT_TRUE(Write(Cluster(log_index)).ok());
  }
  ASSERT_TRUE(Write(Cluster(2, kOther)).ok());
  const std::string note = ClusterPrefix(kId) + "notes.txt";
  ASSERT_TRUE(
      PutObject(*store_, note, "a person's", WriteMode::kReplace).ok());
  // A killed coordinator leaves such a file.
  const std::string left = JoinObjectName(
      root_, absl::StrCat(ClusterPrefix(kId), ".atoll-", RandomId(),
                          "-00000000000000000004.json"));
  std::ofstream(left) << "x";
  const auto collected = CollectClusters(*store_, {kId, 5});
  ASSERT_TRUE(collected.ok()) << collected.status();
  EXPECT_EQ(*collected, 1);
  EXPECT_EQ(*CollectClusters(*store_, {kId, 8}), 1);
  EXPECT_EQ(*CollectClusters(*store_, {kId, 8}), 0);
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(store_->Remove(note).ok());
  EXPECT_THAT(Indexes(), ElementsAre(5, 8));
  EXPECT_THAT(*ListClusters(*store_), SizeIs(2));
  EXPECT_EQ(CollectClusters(*store_, {"", 8}).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ClusterObjectTest, CheckpointsAndClustersDoNotMeet) {
  ASSERT_TRUE(Write(Cluster(5)).ok());
  const auto checkpoints = ListCheckpoints(*store_);
  ASSERT_TRUE(checkpoints.ok()) << checkpoints.status();
  EXPECT_THAT(*checkpoints, IsEmpty());
  // Even for a run whose uid is the cluster's id.
  storage::v1::RunOwner owner;
  owner.set_run_uid(kId);
  owner.set_run_epoch(1);
  EXPECT_EQ(CollectRun(*store_, owner, {})->object_count, 0);
  EXPECT_THAT(Indexes(), ElementsAre(5));
  ASSERT_TRUE(PutObject(*store_, ManifestName({kId, 1, 2}), "",
                        WriteMode::kReplace)
                  .ok());
  EXPECT_THAT(*ListClusters(*store_), SizeIs(1));
}

}  // namespace
}  // namespace atl::mirror
