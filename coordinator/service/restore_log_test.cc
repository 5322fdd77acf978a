#include "coordinator/service/restore_log.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/io/posix_file_system.h"
#include "base/layout/layout.h"
#include "base/mirror/cluster_object.h"
#include "base/mirror/mirror_manifest.h"
#include "base/mirror/mirror_names.h"
#include "base/mirror/part_format.h"
#include "base/mirror/run_owner.h"
#include "base/object_store/file_store.h"
#include "base/random_id/random_id.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/testing/run_simulation.h"
#include "coordinator/service/init_log.h"
#include "coordinator/service/log_secret.h"
#include "coordinator/store/rocksdb_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using StatusCode = absl::StatusCode;
using storage::v1::MirrorManifest;

constexpr char kCluster[] = "0123456789abcdef0123456789abcdef";
constexpr char kRunUid[] = "11111111111111111111111111111111";
constexpr int64_t kJump = 1'000'000'000;

// A cluster with one run, whose log is in `c` and whose checkpoints round-2 and
// round-4 are in the mirror.
class RestoreLogTest : public testing::Test {
 protected:
  RestoreLogTest() {
    std::string pattern = testing::TempDir() + "/restore_XXXXXX";
    root_ = mkdtemp(pattern.data());
    mirror_ = MakeFileStore(root_ + "/mirror", PosixFileSystem());
    MakeLog();
  }
  ~RestoreLogTest() override { fs::remove_all(root_); }

  void MakeLog() {
    v1::RunSpec spec = SimpleSpec();
    spec.mutable_schedule()->set_round_count(6);
    spec.set_checkpoint_every_round_count(2);
    spec.mutable_checkpoint()->set_mirror(true);
    RunSimulation run(spec);
    run.makes_copies = true;
    run.StartServers();
    for (const char* id : {"i0", "i1"}) {
      ASSERT_TRUE(run.Join(id).ok());
      ASSERT_TRUE(run.Ready(id).ok());
    }
    for (int i = 0; run.state().commit_seq() < 5 && i < 100; ++i) {
      for (const char* id : {"i0", "i1"}) run.PushAll(id);
      run.FollowPlans();
      const auto work = run.machine().FindMirrorWork();
      if (work.has_value()) Mirror(run, work->manifest);
    }
    ASSERT_EQ(run.state().commit_seq(), 5);
    ASSERT_EQ(manifests_.size(), 2u);

    const auto made =
        InitLog({.data_dir = Dir("c"), .cluster_id = kCluster}, SystemClock());
    ASSERT_TRUE(made.ok()) << made.status();
    const auto store = *RocksDbStore::Open(Dir("c"));
    Batch batch;
    for (storage::v1::Record record : run.log()) {
      if (record.has_run_created()) {
        record.mutable_run_created()->set_run_uid(kRunUid);
      }
      batch.entries.push_back({"run", std::move(record)});
    }
    for (int64_t i = 0; i < 2; ++i) {
      storage::v1::Record& record = batch.entries.emplace_back().record;
      record.set_revision(2 + i);
      *record.mutable_time() = ToProto(run.now());
      storage::v1::ServerSet& set = *record.mutable_server_set();
      set.set_server_id(absl::StrCat("server-", i));
      set.set_address("127.0.0.1:1");
      set.set_incarnation(1);
    }
    ASSERT_TRUE(store->Append(batch).ok());
    seen_ = GoFurther(*store, run.now())->ServerPlan("server-0").log();
    cluster_ = GoFurther(*store, run.now())->DescribeForMirror();
    *cluster_.mutable_create_time() = ToProto(run.now());
    secret_ = root_ + "/secret";
    ASSERT_TRUE(
        WriteSecretFile(secret_, ReadLogOwner(*store)->secret).ok());
    PutCluster();
  }

  // Another start of the log, which neither the mirror nor the copy has.
  static std::unique_ptr<Coordinator> GoFurther(const Store& store,
                                                absl::Time now) {
    std::unique_ptr<Coordinator> further = Recover(store);
    further->Start(now, {RandomId(), RandomId(), RandomId()}, store.index());
    further->TakeEffects(now);
    return further;
  }

  void Mirror(RunSimulation& run, MirrorManifest manifest) {
    const event::MirrorEnded ended = {
        .run_epoch = manifest.run_epoch(),
        .pin_id = manifest.pin().pin_id(),
        .commit_seq = manifest.pin().commit_seq()};
    ASSERT_TRUE(run.machine().Step(ended, run.now()).ok());
    run.Flush();
    manifest.set_run_uid(kRunUid);
    *manifest.mutable_create_time() = ToProto(run.now());
    const RunLayout& layout = run.state().layout();
    for (storage::v1::MirrorPart& part : *manifest.mutable_parts()) {
      const mirror::PartIdentity identity =
          mirror::GetIdentity(manifest, part);
      part.set_size_bytes(
          static_cast<int64_t>(mirror::PartHeader(layout, identity).size()) +
          mirror::PartElementCount(layout, identity) *
              manifest.array_names_size() * 4);
    }
    manifests_.push_back(manifest);
    PutManifest(manifest);
  }
  // A restore does not look at the parts.
  void PutManifest(const MirrorManifest& manifest) {
    const absl::Status status = PutObject(
        *mirror_, mirror::ManifestName(mirror::GetPlace(manifest)),
        mirror::ManifestToJson(manifest), WriteMode::kReplace);
    ASSERT_TRUE(status.ok()) << status;
  }
  void PutCluster() {
    const absl::Status status = mirror::WriteCluster(*mirror_, cluster_);
    ASSERT_TRUE(status.ok()) << status;
  }

  std::string Dir(const std::string& name) const { return root_ + "/" + name; }
  static std::set<std::string> Names(const std::string& directory) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory)) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  // Two logs from `spec`: the second one accepts the peers of the first, which
  // is fenced by those of the second.
  void CheckTheSecondWins(RestoreSpec spec) {
    std::vector<std::unique_ptr<RocksDbStore>> stores;
    std::vector<std::unique_ptr<Coordinator>> coordinators;
    std::vector<v1::ServerPlan> plans;
    for (const char* name : {"first", "second"}) {
      spec.data_dir = Dir(name);
      Restore(spec);
    }
    for (const char* name : {"first", "second"}) {
      stores.push_back(*RocksDbStore::Open(Dir(name)));
      coordinators.push_back(Start(*stores.back()));
      plans.push_back(coordinators.back()->ServerPlan("server-0"));
    }
    EXPECT_EQ(stores[1]->index() / kJump, stores[0]->index() / kJump + 1);
    EXPECT_GE(plans[1].coordinator_epoch(),
              plans[0].coordinator_epoch() + 1000);
    EXPECT_GE(plans[1].runs(0).run_epoch(), plans[0].runs(0).run_epoch() + 1000);
    EXPECT_GE(plans[1].runs(0).restored().commit_seq(),
              plans[0].runs(0).restored().commit_seq() + kJump);
    EXPECT_EQ(plans[1].runs(0).restored().pin_id(), "round-4");
    for (const int i : {1, 0}) {
      v1::ReportShardsRequest report;
      report.set_server_id("server-0");
      report.set_incarnation(1);
      *report.mutable_log_seen() = plans[1 - i].log();
      const absl::Status status =
          coordinators[i]->ReportShards(report, absl::Now()).status();
      EXPECT_EQ(status.ok(), i == 1) << status;
      EXPECT_EQ(coordinators[i]->CheckWritable().ok(), i == 1);
    }
  }

  RestoreSpec FromMirror() {
    RestoreSpec spec;
    spec.data_dir = Dir("new");
    spec.from = "file://" + root_ + "/mirror";
    spec.open_mirror = [this](const Waiting&) {
      return MakeFileStore(root_ + "/mirror", PosixFileSystem());
    };
    spec.secret_file = secret_;
    return spec;
  }
  RestoreSpec FromCopy() {
    RestoreSpec spec;
    spec.data_dir = Dir("new");
    spec.from = Dir("c");
    return spec;
  }
  RestoreResult Restore(const RestoreSpec& spec) {
    const auto restored = RestoreLog(spec, SystemClock());
    EXPECT_TRUE(restored.ok()) << restored.status();
    return restored.value_or(RestoreResult());
  }
  std::string Refused(const RestoreSpec& spec, StatusCode code) {
    const absl::Status status = RestoreLog(spec, SystemClock()).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  // Replays a store as a start does.
  static std::unique_ptr<Coordinator> Recover(const Store& store) {
    auto coordinator = std::make_unique<Coordinator>(CoordinatorOptions());
    const auto ids = store.ListLogs();
    for (const std::string& id : *ids) {
      const auto snapshot = *store.ReadSnapshot(id);
      int64_t revision = 0;
      if (snapshot.has_value()) {
        revision = snapshot->revision();
        EXPECT_TRUE(coordinator->Restore({id, *snapshot}).ok());
      }
      const auto records = store.Scan(id, revision, 10000);
      for (const auto& record : *records) {
        const absl::Status status = coordinator->Replay({id, record});
        EXPECT_TRUE(status.ok()) << status;
      }
    }
    return coordinator;
  }
  std::unique_ptr<Coordinator> Start(RocksDbStore& store) {
    EXPECT_TRUE(store.damage().ok()) << store.damage();
    std::unique_ptr<Coordinator> coordinator = Recover(store);
    const absl::Time now = std::max(absl::Now(), coordinator->newest_time());
    coordinator->Start(now, {RandomId(), RandomId(), RandomId()},
                       store.index());
    EXPECT_TRUE(store.Append(coordinator->TakeEffects(now).batch).ok());
    return coordinator;
  }
  // The new log is accepted by a server that had seen the lost one, which went
  // further, and its run goes on from round-4.
  void CheckGoesOn() {
    auto store = RocksDbStore::Open(Dir("new"));
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->index(), kJump);
    const std::unique_ptr<Coordinator> coordinator = Start(**store);
    const v1::ServerPlan plan = coordinator->ServerPlan("server-0");
    EXPECT_EQ(plan.log().cluster_id(), kCluster);
    EXPECT_GT(plan.log().index(), kJump);
    EXPECT_GT(plan.coordinator_epoch(), 1000);
    ASSERT_EQ(plan.runs_size(), 1);
    EXPECT_EQ(plan.runs(0).run_uid(), kRunUid);
    EXPECT_EQ(plan.runs(0).run_epoch(), 1001);
    EXPECT_EQ(plan.runs(0).run_state(), v1::RUN_STATE_ACTIVE);
    EXPECT_EQ(plan.runs(0).restored().pin_id(), "round-4");
    EXPECT_EQ(plan.runs(0).restored().commit_seq(), kJump);
    EXPECT_EQ(plan.runs(0).restored().mirror_commit_seq(), 5);
    EXPECT_THAT(plan.runs(0).members(), IsEmpty());
    v1::ReportShardsRequest report;
    report.set_server_id("server-0");
    report.set_incarnation(1);
    *report.mutable_log_seen() = seen_;
    const auto reported = coordinator->ReportShards(report, absl::Now());
    EXPECT_TRUE(reported.ok()) << reported.status();
    EXPECT_TRUE(coordinator->CheckWritable().ok());
    // A live island has an epoch of the lost log; it must not take the answer
    // for another process's.
    const RunMachine& run = **coordinator->FindRun("run");
    const absl::Status island = run.CheckIsland({"i0", 1, "secret of i0 0"});
    EXPECT_EQ(island.code(), StatusCode::kFailedPrecondition) << island;
    const RunState& state = run.state();
    EXPECT_EQ(state.fragments()[0].newest.version(), 4);
    for (const Member& member : state.members()) {
      EXPECT_GT(member.record.island_epoch(), 1000);
    }
  }

  std::string root_;
  std::string secret_;
  std::unique_ptr<ObjectStore> mirror_;
  std::vector<MirrorManifest> manifests_;
  storage::v1::ClusterObject cluster_;
  v1::LogPosition seen_;
};

TEST_F(RestoreLogTest, ALogFromTheMirrorGoesOnFromTheNewestCheckpoint) {
  const RestoreResult result = Restore(FromMirror());
  EXPECT_EQ(result.cluster_id, kCluster);
  EXPECT_THAT(result.warnings, IsEmpty());
  ASSERT_EQ(result.runs.size(), 1u);
  EXPECT_EQ(result.runs[0].run_id, "run");
  EXPECT_EQ(result.runs[0].pin_id, "round-4");
  EXPECT_EQ(result.runs[0].commit, 4);
  EXPECT_TRUE(IsSecretExported(Dir("new")));
  CheckGoesOn();
}

TEST_F(RestoreLogTest, ALogFromAnOlderCopyGoesOnFromItsNewestCheckpoint) {
  const std::set<std::string> before = Names(Dir("c"));
  const RestoreResult result = Restore(FromCopy());
  ASSERT_EQ(result.runs.size(), 1u);
  EXPECT_EQ(result.runs[0].pin_id, "round-4");
  std::set<std::string> after = Names(Dir("c"));
  EXPECT_EQ(after.erase("restore-count"), 1u);
  EXPECT_EQ(after, before);
  EXPECT_FALSE(fs::exists(Dir("new.restoring")));
  CheckGoesOn();
}

TEST_F(RestoreLogTest, WithoutTheSecretPeersOfTheLostLogAreStillAccepted) {
  RestoreSpec spec = FromMirror();
  const std::string neither = [&] {
    RestoreSpec asked = spec;
    asked.secret_file.clear();
    return Refused(asked, StatusCode::kInvalidArgument);
  }();
  EXPECT_THAT(neither, AllOf(HasSubstr("--secret-file"),
                             HasSubstr("--without-secret")));
  spec.without_secret = true;
  Refused(spec, StatusCode::kInvalidArgument);  // Both.
  spec.secret_file.clear();
  Restore(spec);
  EXPECT_NE(*ReadLogSecret(Dir("new")), *ReadSecretFile(secret_));
  CheckGoesOn();
}

TEST_F(RestoreLogTest, ASecretOfAnotherLogIsRefused) {
  RestoreSpec spec = FromMirror();
  spec.secret_file = root_ + "/other";
  ASSERT_TRUE(WriteSecretFile(spec.secret_file, RandomId()).ok());
  EXPECT_THAT(Refused(spec, StatusCode::kInvalidArgument),
              AllOf(HasSubstr(spec.secret_file), HasSubstr(kCluster)));
  EXPECT_FALSE(fs::exists(spec.data_dir));
}

TEST_F(RestoreLogTest, SeveralClustersAreListed) {
  storage::v1::ClusterObject other = cluster_;
  other.set_cluster_id(std::string(32, 'f'));
  for (auto& start : *other.mutable_starts()) {
    start.set_cluster_id(other.cluster_id());
  }
  ASSERT_TRUE(mirror::WriteCluster(*mirror_, other).ok());
  RestoreSpec spec = FromMirror();
  EXPECT_THAT(Refused(spec, StatusCode::kInvalidArgument),
              AllOf(HasSubstr(kCluster), HasSubstr(other.cluster_id())));
  spec.cluster_id = kCluster;
  EXPECT_EQ(Restore(spec).cluster_id, kCluster);
}

TEST_F(RestoreLogTest, ADamagedOrSuspectCheckpointIsPassedOver) {
  for (const bool is_suspect : {false, true}) {
    SCOPED_TRACE(is_suspect);
    MirrorManifest newest = manifests_.back();
    newest.mutable_pin()->set_suspect(true);
    if (!is_suspect) newest.clear_started();
    PutManifest(newest);
    const RestoreResult result = Restore(FromMirror());
    ASSERT_EQ(result.runs.size(), 1u);
    EXPECT_EQ(result.runs[0].pin_id, "round-2");
    EXPECT_EQ(result.warnings.size(), is_suspect ? 0u : 1u);
    fs::remove_all(Dir("new"));
  }
}

TEST_F(RestoreLogTest, ARunWithoutACheckpointIsNamed) {
  storage::v1::ClusterRun& run = *cluster_.add_runs();
  run.set_run_id("young");
  run.set_run_uid(std::string(32, '2'));
  cluster_.set_log_index(cluster_.log_index() + 1);
  PutCluster();
  const RestoreResult result = Restore(FromMirror());
  ASSERT_EQ(result.runs.size(), 2u);
  EXPECT_EQ(result.runs[0].pin_id, "round-4");
  EXPECT_EQ(result.runs[1].run_id, "young");
  EXPECT_THAT(result.runs[1].pin_id, IsEmpty());
  EXPECT_THAT(result.runs[1].why_not, HasSubstr(run.run_uid()));
}

TEST_F(RestoreLogTest, ACancelledRunStaysSo) {
  cluster_.mutable_runs(0)->set_cancelled(true);
  cluster_.set_log_index(cluster_.log_index() + 1);
  PutCluster();
  Restore(FromMirror());
  const auto store = *RocksDbStore::Open(Dir("new"));
  EXPECT_EQ(Recover(*store)->runs().at("run")->state().state(),
            v1::RUN_STATE_CANCELLED);
}

TEST_F(RestoreLogTest, RepeatingItChangesNothingUntilTheFirstStart) {
  for (const RestoreSpec& spec : {FromMirror(), FromCopy()}) {
    SCOPED_TRACE(spec.from);
    Restore(spec);
    EXPECT_EQ(Restore(spec).runs.at(0).pin_id, "round-4");
    {
      const auto store = *RocksDbStore::Open(Dir("new"));
      EXPECT_EQ(store->index(), kJump);
      Start(*store);
    }
    EXPECT_THAT(Refused(spec, StatusCode::kAlreadyExists),
                HasSubstr(kCluster));
    fs::remove_all(Dir("new"));
  }
}

TEST_F(RestoreLogTest, ALogThatIsLostAgainJumpsAgain) {
  Restore(FromMirror());
  fs::rename(Dir("new"), Dir("again"));
  RestoreSpec spec = FromCopy();
  spec.from = Dir("again");
  Restore(spec);
  const auto store = *RocksDbStore::Open(Dir("new"));
  EXPECT_EQ(store->index(), 2 * kJump);
  const std::unique_ptr<Coordinator> coordinator = Recover(*store);
  const RunState& state = coordinator->runs().at("run")->state();
  EXPECT_EQ(state.run_epoch(), 2001);
  EXPECT_EQ(state.commit_seq(), 2 * kJump);
}

// The mirror has no checkpoint of the new epoch yet, only the cluster object.
TEST_F(RestoreLogTest, ALogThatIsLostAgainAtOnceJumpsAgain) {
  Restore(FromMirror());
  {
    const auto store = *RocksDbStore::Open(Dir("new"));
    cluster_ = Start(*store)->DescribeForMirror();
  }
  PutCluster();
  fs::remove_all(Dir("new"));
  const RestoreResult result = Restore(FromMirror());
  ASSERT_EQ(result.runs.size(), 1u);
  EXPECT_EQ(result.runs[0].pin_id, "round-4");
  const auto store = *RocksDbStore::Open(Dir("new"));
  EXPECT_EQ(store->index(), 2 * kJump);
  const std::unique_ptr<Coordinator> coordinator = Recover(*store);
  const RunState& state = coordinator->runs().at("run")->state();
  EXPECT_EQ(state.run_epoch(), 2001);
  EXPECT_EQ(state.commit_seq(), 2 * kJump);
  for (const Member& member : state.members()) {
    EXPECT_GT(member.record.island_epoch(), 2000);
  }
}

TEST_F(RestoreLogTest, OfTwoLogsFromOneMirrorTheSecondWins) {
  CheckTheSecondWins(FromMirror());
}

TEST_F(RestoreLogTest, OfTwoLogsFromOneCopyTheSecondWins) {
  CheckTheSecondWins(FromCopy());
}

TEST_F(RestoreLogTest, ACopyWhoseCountIsDamagedIsRefused) {
  std::ofstream(Dir("c") + "/restore-count") << "many";
  EXPECT_THAT(Refused(FromCopy(), StatusCode::kDataLoss),
              HasSubstr("restore-count"));
}

TEST_F(RestoreLogTest, ASpecThatNoRunAcceptsIsRefusedByName) {
  MirrorManifest newest = manifests_.back();
  newest.mutable_spec()->mutable_inner()->set_batch_size(-1);
  PutManifest(newest);
  const RestoreResult result = Restore(FromMirror());
  EXPECT_EQ(result.runs.at(0).pin_id, "round-2");
  EXPECT_THAT(result.warnings,
              ElementsAre(AllOf(HasSubstr("manifest.json"),
                                HasSubstr("batch_size"))));
}

TEST_F(RestoreLogTest, CheckpointsOfAnotherClusterAreNotUsed) {
  MirrorManifest theirs = manifests_.back();
  theirs.set_run_epoch(1001);
  PutManifest(theirs);
  storage::v1::RunOwner owner;
  owner.set_format(mirror::kOwnerFormat);
  owner.set_run_id("run");
  owner.set_run_uid(kRunUid);
  owner.set_run_epoch(1);
  owner.set_cluster_id(kCluster);
  ASSERT_TRUE(mirror::TakeOwnership(*mirror_, owner).ok());
  owner.set_run_epoch(1001);
  owner.set_cluster_id(std::string(32, 'f'));
  ASSERT_TRUE(mirror::TakeOwnership(*mirror_, owner).ok());
  const RestoreResult result = Restore(FromMirror());
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr(owner.cluster_id())));
  // Not 2001, which would take the run from that cluster.
  CheckGoesOn();
}

// A crash may leave any beginning of the copy.
TEST_F(RestoreLogTest, ContinuesAfterAnInterruption) {
  fs::create_directory(Dir("new.restoring"));
  std::ofstream(Dir("new.restoring") + "/restoring");
  fs::copy_file(Dir("c") + "/mark", Dir("new.restoring") + "/mark");
  Restore(FromCopy());
  CheckGoesOn();
}

TEST_F(RestoreLogTest, KeepsOutOfOthersDirectories) {
  fs::create_directory(Dir("new"));
  std::ofstream(Dir("new") + "/photo.jpg") << "x";
  for (const RestoreSpec& spec : {FromMirror(), FromCopy()}) {
    EXPECT_THAT(Refused(spec, StatusCode::kFailedPrecondition),
                HasSubstr("photo.jpg"));
  }
  fs::rename(Dir("new"), Dir("new.restoring"));
  EXPECT_THAT(Refused(FromCopy(), StatusCode::kFailedPrecondition),
              HasSubstr("new.restoring"));
  EXPECT_TRUE(fs::exists(Dir("new.restoring") + "/photo.jpg"));
}

TEST_F(RestoreLogTest, ACopyInUseOrWithoutALogIsRefused) {
  {
    const auto store = *RocksDbStore::Open(Dir("c"));
    EXPECT_THAT(Refused(FromCopy(), StatusCode::kFailedPrecondition),
                HasSubstr(Dir("c")));
  }
  RestoreSpec spec = FromCopy();
  spec.secret_file = secret_;
  EXPECT_THAT(Refused(spec, StatusCode::kInvalidArgument),
              HasSubstr("--secret-file"));
  spec = FromCopy();
  spec.from = root_;
  EXPECT_THAT(Refused(spec, StatusCode::kNotFound), HasSubstr(root_));
}

// A run of which the copy has no checkpoint waits for a decision: nothing says
// whether it had gone further.
TEST_F(RestoreLogTest, ARunOfACopyWithoutACheckpointIsPaused) {
  {
    const auto store = *RocksDbStore::Open(Dir("c"));
    const std::unique_ptr<Coordinator> coordinator = Start(*store);
    v1::CreateRunRequest request;
    request.set_run_id("young");
    *request.mutable_spec() = SimpleSpec();
    ASSERT_TRUE(
        coordinator->CreateRun(request, absl::Now(), RandomId()).ok());
    ASSERT_TRUE(
        store->Append(coordinator->TakeEffects(absl::Now()).batch).ok());
  }
  const RestoreResult result = Restore(FromCopy());
  ASSERT_EQ(result.runs.size(), 2u);
  EXPECT_THAT(result.runs[1].pin_id, IsEmpty());
  EXPECT_THAT(result.runs[1].why_not, HasSubstr("atoll run resume young"));
  const auto store = *RocksDbStore::Open(Dir("new"));
  EXPECT_EQ(Recover(*store)->runs().at("young")->state().state(),
            v1::RUN_STATE_PAUSED);
}

}  // namespace
}  // namespace atl::coordinator
