// Runs are deleted, and servers are told until they have deleted their files.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CoordinatorDeletionTest : public testing::Test {
 protected:
  CoordinatorDeletionTest() {
    core_.Start(now_, {"cluster", "start"}, 0);
    Register("s0");
    Register("s1");
    Take();
  }

  void Register(const std::string& server_id,
                uint64_t features = ProgramFeatures()) {
    v1::RegisterServerRequest request;
    request.set_server_id(server_id);
    request.set_address("h:1");
    request.set_incarnation(++incarnation_);
    request.set_directory_id(absl::StrCat("directory of ", server_id));
    request.set_features(features);
    const auto registered = core_.RegisterServer(request, now_);
    ASSERT_TRUE(registered.ok()) << registered.status();
    incarnations_[server_id] = incarnation_;
  }

  // A placed run.
  void Create(const std::string& run_id, const std::string& run_uid) {
    v1::CreateRunRequest request;
    request.set_run_id(run_id);
    *request.mutable_spec() = SimpleSpec();
    const auto created = core_.CreateRun(request, now_, run_uid);
    ASSERT_TRUE(created.ok()) << created.status();
    EXPECT_EQ(created->run().run_uid(), run_uid);
  }

  void Cancel(const std::string& run_id) {
    RunMachine& run = **core_.FindRun(run_id);
    ASSERT_TRUE(run.Step(event::Cancel{}, now_).status().ok());
  }

  // Makes everything durable, as the service does.
  Effects Take() {
    Effects effects = core_.TakeEffects(now_);
    for (const LogEntry& entry : effects.batch.entries) {
      if (entry.run_id.empty()) own_log_.push_back(entry);
    }
    return effects;
  }

  // `shards`: (run_id, run_uid) of the shards that the server holds.
  void Report(const std::string& server_id,
              const std::vector<std::pair<std::string, std::string>>& shards) {
    v1::ReportShardsRequest request;
    request.set_server_id(server_id);
    request.set_incarnation(incarnations_[server_id]);
    request.set_report_seq(++report_seq_);
    request.set_plan_revision(core_.ServerPlan(server_id).revision());
    for (const auto& [run_id, run_uid] : shards) {
      v1::ShardReport& shard = *request.add_shards();
      shard.set_run_id(run_id);
      shard.set_run_uid(run_uid);
      shard.set_run_epoch(1);
      shard.set_shard(server_id == "s0" ? 0 : 1);
    }
    const auto reported = core_.ReportShards(request, now_);
    ASSERT_TRUE(reported.ok()) << reported.status();
  }

  // Run one, of which server s0 has files: a program that deletes nothing.
  void DeleteFromAnOldProgram() {
    Create("one", "u1");
    Take();
    Register("s0", /*features=*/0);
    Cancel("one");
    ASSERT_EQ(DeleteCode("one"), absl::StatusCode::kOk);
    Take();
  }

  static std::vector<std::string> Named(const Coordinator& core,
                                        const std::string& server_id) {
    std::vector<std::string> uids;
    const v1::ServerPlan plan = core.ServerPlan(server_id);
    for (const v1::DeletedRun& run : plan.deleted_runs()) {
      uids.push_back(run.run_uid());
    }
    return uids;
  }
  std::vector<std::string> Named(const std::string& server_id) const {
    return Named(core_, server_id);
  }

  absl::StatusCode DeleteCode(const std::string& run_id,
                              const std::string& run_uid = "") {
    return core_.DeleteRun(run_id, run_uid, now_).status().code();
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  Coordinator core_{{}};
  std::vector<LogEntry> own_log_;
  std::map<std::string, int64_t> incarnations_;
  int64_t incarnation_ = 0;
  int64_t report_seq_ = 0;
};

TEST_F(CoordinatorDeletionTest, OnlyARunThatHasEndedIsDeleted) {
  Create("one", "u1");
  const auto refused = core_.DeleteRun("one", "", now_);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("`atoll run cancel one`"));
  Cancel("one");
  EXPECT_EQ(DeleteCode("one", "u2"), absl::StatusCode::kNotFound);
  EXPECT_EQ(DeleteCode("two"), absl::StatusCode::kNotFound);
  const auto deleted = core_.DeleteRun("one", "u1", now_);
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_EQ(deleted->run_uid(), "u1");
  EXPECT_THAT(deleted->waiting_server_ids(), ElementsAre("s0", "s1"));
  EXPECT_TRUE(absl::IsNotFound(core_.FindRun("one").status()));
  EXPECT_TRUE(core_.ListRuns().empty());
}

TEST_F(CoordinatorDeletionTest, ARunWithAFaultIsDeletedToo) {
  Create("one", "u1");
  Take();
  v1::ReportShardsRequest request;
  request.set_server_id("s0");
  request.set_incarnation(incarnations_["s0"]);
  request.set_report_seq(++report_seq_);
  v1::ShardReport& shard = *request.add_shards();
  shard.set_run_id("one");
  shard.set_run_uid("u1");
  shard.set_run_epoch(1);
  shard.set_fault("a block is damaged");
  ASSERT_TRUE(core_.ReportShards(request, now_).ok());
  EXPECT_EQ(DeleteCode("one"), absl::StatusCode::kOk);
}

TEST_F(CoordinatorDeletionTest, EverythingOfTheRunLeavesTheLogAtOnce) {
  Create("one", "u1");
  Take();
  Cancel("one");
  ASSERT_EQ(DeleteCode("one"), absl::StatusCode::kOk);
  const Effects effects = Take();
  EXPECT_THAT(effects.batch.deleted_runs, ElementsAre("one"));
  EXPECT_TRUE(effects.changed_runs.contains("one"));
  EXPECT_THAT(effects.changed_servers, ElementsAre("s0", "s1"));
  ASSERT_EQ(effects.batch.entries.size(), 1u);
  EXPECT_EQ(effects.batch.entries[0].run_id, "");
  EXPECT_EQ(effects.batch.entries[0].record.run_deleted().run_uid(), "u1");
  EXPECT_TRUE(effects.batch.history.empty());
  EXPECT_TRUE(Take().batch.deleted_runs.empty());
}

TEST_F(CoordinatorDeletionTest, TheIdIsFreeAtOnce) {
  Create("one", "u1");
  Take();
  Cancel("one");
  ASSERT_EQ(DeleteCode("one"), absl::StatusCode::kOk);
  Create("one", "u2");
  const Effects effects = Take();
  EXPECT_THAT(effects.batch.deleted_runs, ElementsAre("one"));
  int64_t revision = 0;
  for (const LogEntry& entry : effects.batch.entries) {
    if (entry.run_id != "one") continue;
    EXPECT_EQ(entry.record.revision(), ++revision);
  }
  EXPECT_GT(revision, 0);
  // The new run is placed where the old one still has files.
  const v1::ServerPlan plan = core_.ServerPlan("s0");
  ASSERT_EQ(plan.runs_size(), 1);
  EXPECT_EQ(plan.runs(0).run_uid(), "u2");
  EXPECT_THAT(Named("s0"), ElementsAre("u1"));
  // The old run's uid names the old run, the id the new one.
  EXPECT_EQ(DeleteCode("one", "u1"), absl::StatusCode::kOk);
  EXPECT_EQ(DeleteCode("one"), absl::StatusCode::kFailedPrecondition);
  // The server's reports of the old run do not count for the new one.
  Report("s0", {{"one", "u1"}});
  RunMachine& run = **core_.FindRun("one");
  EXPECT_FALSE(run.observed().shards[0].reported);
  EXPECT_FALSE(run.fault().has_value());
  Report("s0", {{"one", "u1"}, {"one", "u2"}});
  EXPECT_TRUE(run.observed().shards[0].reported);
  EXPECT_FALSE(run.fault().has_value());
  EXPECT_THAT(Named("s0"), ElementsAre("u1"));
}

TEST_F(CoordinatorDeletionTest, ServersAreToldUntilTheyHaveLetGo) {
  Create("one", "u1");
  Take();
  Cancel("one");
  ASSERT_EQ(DeleteCode("one"), absl::StatusCode::kOk);
  Take();
  EXPECT_THAT(Named("s0"), ElementsAre("u1"));
  EXPECT_THAT(Named("s1"), ElementsAre("u1"));
  Report("s0", {{"one", "u1"}});
  EXPECT_TRUE(Take().batch.empty());
  EXPECT_THAT(Named("s0"), ElementsAre("u1"));
  Report("s0", {});
  const Effects effects = Take();
  ASSERT_EQ(effects.batch.entries.size(), 1u);
  EXPECT_EQ(effects.batch.entries[0].record.run_forgotten().server_id(), "s0");
  EXPECT_THAT(Named("s0"), IsEmpty());
  EXPECT_THAT(Named("s1"), ElementsAre("u1"));
  // A repeat of the deletion says who is left.
  EXPECT_THAT(core_.DeleteRun("one", "", now_)->waiting_server_ids(),
              ElementsAre("s1"));
  // A restart of the server changes nothing.
  Register("s1");
  Take();
  EXPECT_THAT(Named("s1"), ElementsAre("u1"));
  Report("s1", {});
  Take();
  EXPECT_THAT(Named("s1"), IsEmpty());
  EXPECT_EQ(DeleteCode("one"), absl::StatusCode::kNotFound);
}

TEST_F(CoordinatorDeletionTest, AProgramThatDeletesNothingIsToldForever) {
  DeleteFromAnOldProgram();
  Report("s0", {{"one", ""}});
  Report("s0", {});
  EXPECT_THAT(Named("s0"), ElementsAre("u1"));
  Register("s0");
  Take();
  Report("s0", {});
  EXPECT_THAT(Named("s0"), IsEmpty());
}

// It cannot tell the two runs apart: it would go on with the old files, and
// delete the new run's once it is upgraded.
TEST_F(CoordinatorDeletionTest, AProgramThatDeletesNothingGetsNoRunWithTheId) {
  DeleteFromAnOldProgram();
  Create("one", "u2");
  RunMachine& run = **core_.FindRun("one");
  EXPECT_THAT(run.state().server_ids(), IsEmpty());
  EXPECT_THAT(run.waits_for(), HasSubstr("server s0 lacks run uids"));
  Create("two", "u3");
  EXPECT_THAT((*core_.FindRun("two"))->state().server_ids(),
              ElementsAre("s0", "s1"));
  // Once it is upgraded, it deletes them first.
  Register("s0");
  EXPECT_THAT(run.state().server_ids(), ElementsAre("s0", "s1"));
  Take();
  EXPECT_THAT(Named("s0"), ElementsAre("u1"));
  Report("s0", {{"one", ""}});
  EXPECT_FALSE(run.observed().shards[0].reported);
  Report("s0", {});
  Take();
  EXPECT_THAT(Named("s0"), IsEmpty());
  Report("s0", {{"one", "u2"}});
  EXPECT_TRUE(run.observed().shards[0].reported);
}

TEST_F(CoordinatorDeletionTest, ARestartRemembersWhoHasFiles) {
  Create("one", "u1");
  Create("two", "u2");
  Take();
  for (const char* id : {"one", "two"}) {
    Cancel(id);
    ASSERT_EQ(DeleteCode(id), absl::StatusCode::kOk);
  }
  Take();
  Report("s0", {{"two", "u2"}});
  Take();
  // From the records.
  Coordinator second({});
  for (const LogEntry& entry : own_log_) {
    ASSERT_TRUE(second.Replay(entry).ok());
  }
  // From a snapshot.
  CoordinatorOptions options;
  options.snapshots.log_records_max = 1;
  Coordinator third(options);
  for (const LogEntry& entry : own_log_) {
    ASSERT_TRUE(third.Replay(entry).ok());
  }
  third.Start(now_, {"cluster", "third"}, 10);
  const Effects effects = third.TakeEffects(now_);
  ASSERT_EQ(effects.batch.snapshots.size(), 1u);
  Coordinator fourth({});
  ASSERT_TRUE(fourth.Restore(effects.batch.snapshots[0]).ok());
  for (Coordinator* core : {&second, &third, &fourth}) {
    EXPECT_THAT(Named(*core, "s0"), ElementsAre("u2"));
    EXPECT_THAT(Named(*core, "s1"), ElementsAre("u1", "u2"));
    EXPECT_TRUE(absl::IsNotFound(core->FindRun("one").status()));
  }
}

TEST_F(CoordinatorDeletionTest, ARunThatWasNeverPlacedLeavesNothing) {
  v1::CreateRunRequest request;
  request.set_run_id("one");
  *request.mutable_spec() = SimpleSpec();
  request.mutable_spec()->set_server_count(3);
  ASSERT_TRUE(core_.CreateRun(request, now_, "u1").ok());
  Cancel("one");
  const auto deleted = core_.DeleteRun("one", "", now_);
  ASSERT_TRUE(deleted.ok());
  EXPECT_THAT(deleted->waiting_server_ids(), IsEmpty());
  EXPECT_EQ(DeleteCode("one"), absl::StatusCode::kNotFound);
}

TEST_F(CoordinatorDeletionTest, NoNewRunsIdLooksLikeAFlag) {
  v1::CreateRunRequest request;
  *request.mutable_spec() = SimpleSpec();
  request.set_run_id("-one");
  const absl::Status status = core_.CreateRun(request, now_, "u1").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  request.set_run_id("one-");
  EXPECT_TRUE(core_.CreateRun(request, now_, "u1").ok());
}

TEST_F(CoordinatorDeletionTest, AFullCoordinatorSaysHowToMakeRoom) {
  v1::CreateRunRequest request;
  *request.mutable_spec() = SimpleSpec();
  for (int64_t i = 0; i < kRunsMax; ++i) {
    Create(absl::StrCat("r", i), absl::StrCat("u", i));
  }
  request.set_run_id("one-more");
  const absl::Status full = core_.CreateRun(request, now_, "x").status();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("`atoll run delete RUN`"));
  Cancel("r7");
  ASSERT_EQ(DeleteCode("r7"), absl::StatusCode::kOk);
  EXPECT_TRUE(core_.CreateRun(request, now_, "x").ok());
}

TEST(CoordinatorDeletionBoundTest, RemembersOnlySoManyAndNamesTheServersAway) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  Coordinator core({});
  int64_t revision = 0;
  const auto replay = [&](storage::v1::Record record) {
    record.set_revision(++revision);
    ASSERT_TRUE(core.Replay({"", std::move(record)}).ok());
  };
  for (const char* id : {"s0", "s1"}) {
    storage::v1::Record record;
    record.mutable_server_set()->set_server_id(id);
    record.mutable_server_set()->set_incarnation(1);
    record.mutable_server_set()->set_features(ProgramFeatures());
    replay(record);
  }
  // Two servers wait for each.
  for (int64_t i = 0; i < kDeletedWaitingMax / 2; ++i) {
    storage::v1::Record record;
    record.mutable_run_deleted()->set_run_id("gone");
    record.mutable_run_deleted()->set_run_uid(absl::StrCat("u", i));
    record.mutable_run_deleted()->add_server_ids("s0");
    record.mutable_run_deleted()->add_server_ids("s1");
    replay(record);
  }
  core.Start(now, {"cluster", "start"}, revision);
  v1::CreateRunRequest request;
  request.set_run_id("one");
  *request.mutable_spec() = SimpleSpec();
  ASSERT_TRUE(core.CreateRun(request, now, "last").ok());
  ASSERT_TRUE((*core.FindRun("one"))->Step(event::Cancel{}, now).ok());
  const absl::Time later = now + absl::Hours(1);
  core.Advance(later);
  const absl::Status full = core.DeleteRun("one", "", later).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(std::string(full.message()), HasSubstr("away are s0, s1"));
  EXPECT_TRUE(core.FindRun("one").ok());
}

}  // namespace
}  // namespace atl::coordinator
