// Whose log it is, and who may be a server.

#include "coordinator/core/coordinator.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/status/refusal.h"
#include "coordinator/core/rounds/norm_bound.h"
#include "coordinator/core/testing/run_simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::HasSubstr;

std::string Reason(const absl::Status& status) {
  const std::optional<ErrorReason> reason = GetReason(status);
  return reason.has_value() ? reason->reason : "";
}

absl::Status CheckIsland(Coordinator& core, const v1::LogPosition& seen) {
  return core.CheckLog(seen, {"island", "a", "run"},
                       absl::FromUnixSeconds(2'000'000));
}

// The store of a coordinator: what was synced.
struct Disk {
  std::vector<LogEntry> entries;
  std::map<std::string, LogSnapshot> snapshots;
  int64_t index = 0;
};

// A coordinator on a disk, and its callers.
class Life {
 public:
  explicit Life(Disk& disk, const absl::Status& damage = absl::OkStatus())
      : disk_(disk) {
    options_.snapshots.log_records_max = 1000;
    core_ = std::make_unique<Coordinator>(options_);
    std::map<std::string, int64_t> revisions;
    for (const auto& [run_id, snapshot] : disk.snapshots) {
      EXPECT_TRUE(core_->Restore(snapshot).ok());
      revisions[run_id] = snapshot.snapshot.revision();
    }
    for (const LogEntry& entry : disk.entries) {
      if (entry.record.revision() <= revisions[entry.run_id]) continue;
      EXPECT_TRUE(core_->Replay(entry).ok());
    }
    static int life_count = 0;
    ++life_count;
    if (damage.ok()) {
      core_->Start(Now(),
                   {absl::StrCat("cluster", life_count),
                    absl::StrCat("start", life_count)},
                   disk.index);
    } else {
      core_->StartDamaged(Now(), damage);
    }
    Sync();
  }

  // Makes the newest decisions durable.
  Effects Sync() {
    core_->Advance(Now());
    Effects effects = core_->TakeEffects(Now());
    if (!effects.batch.empty()) ++disk_.index;
    for (const LogEntry& entry : effects.batch.entries) {
      disk_.entries.push_back(entry);
    }
    for (const LogSnapshot& snapshot : effects.batch.snapshots) {
      disk_.snapshots[snapshot.run_id] = snapshot;
    }
    return effects;
  }

  absl::Status CreateRun(const v1::RunSpec& spec = SimpleSpec()) {
    v1::CreateRunRequest request;
    request.set_run_id("run");
    *request.mutable_spec() = spec;
    const absl::Status status =
        core_->CreateRun(request, Now(), "uid").status();
    Sync();
    return status;
  }

  static v1::RegisterServerRequest Server(int shard) {
    v1::RegisterServerRequest request;
    request.set_server_id(absl::StrCat("server-", shard));
    request.set_address(absl::StrCat("host:", 1 + shard));
    request.set_incarnation(1);
    request.set_directory_id(absl::StrCat("directory-", shard));
    request.set_features(ProgramFeatures());
    return request;
  }

  absl::StatusOr<v1::RegisterServerResponse> Register(
      const v1::RegisterServerRequest& request) {
    auto response = core_->RegisterServer(request, Now());
    Sync();
    return response;
  }

  // Reports of a server that has version 0 of its shard.
  absl::Status Report(int shard, const v1::LogPosition& seen = {},
                      const std::string& run_uid = "uid",
                      int64_t incarnation = 1) {
    v1::ReportShardsRequest request;
    request.set_server_id(absl::StrCat("server-", shard));
    request.set_incarnation(incarnation);
    request.set_report_seq(++report_seq_);
    *request.mutable_log_seen() = seen;
    v1::ShardReport& report = *request.add_shards();
    report.set_run_id("run");
    report.set_run_uid(run_uid);
    report.set_run_epoch(1);
    report.set_shard(shard);
    report.set_initialized(true);
    report.add_version0_digests()->set_low(1);
    const absl::Status status = core_->ReportShards(request, Now()).status();
    Sync();
    return status;
  }

  // A run that is ACTIVE on two servers.
  void StartRun() {
    ASSERT_TRUE(CreateRun().ok());
    for (int shard : {0, 1}) ASSERT_TRUE(Register(Server(shard)).ok());
    for (int shard : {0, 1}) ASSERT_TRUE(Report(shard).ok());
    ASSERT_EQ(Run().state(), v1::RUN_STATE_ACTIVE);
  }

  v1::Run Run() { return BuildRun(Machine(), /*with_tensors=*/true); }
  RunMachine& Machine() { return **core_->FindRun("run"); }
  absl::StatusOr<RunAnswer> Step(const RunEvent& event) {
    absl::StatusOr<RunAnswer> answer = Machine().Step(event, Now());
    Sync();
    return answer;
  }
  v1::LogPosition Position() { return core_->ServerPlan("server-0").log(); }
  void Pass(absl::Duration duration) {
    passed_ += duration;
    Sync();
  }
  absl::Time Now() const { return absl::FromUnixSeconds(1'000'000) + passed_; }
  Coordinator& core() { return *core_; }

 private:
  CoordinatorOptions options_;
  Disk& disk_;
  absl::Duration passed_;
  std::unique_ptr<Coordinator> core_;
  int64_t report_seq_ = 0;
};

v1::JoinRequest JoinOf(const std::string& island_id) {
  v1::JoinRequest request;
  request.set_run_id("run");
  request.set_island_id(island_id);
  request.mutable_capabilities()->add_devices()->set_kind("cpu");
  request.mutable_capabilities()->set_data_fingerprint(
      SimpleSpec().data().fingerprint());
  request.mutable_capabilities()->set_features(ProgramFeatures());
  return request;
}

// --- The mirror --------------------------------------------------------------

TEST(CreateRunTest, ARunThatNeedsAMirrorIsRefusedWithoutOne) {
  v1::CreateRunRequest request;
  request.set_run_id("run");
  *request.mutable_spec() = SimpleSpec();
  request.mutable_spec()->mutable_checkpoint()->set_mirror(true);
  for (const bool has_mirror : {false, true}) {
    CoordinatorOptions options;
    options.has_mirror = has_mirror;
    Coordinator core(options);
    const absl::Time now = absl::FromUnixSeconds(1'000'000);
    core.Start(now, {"cluster", "start"}, 0);
    const absl::Status created = core.CreateRun(request, now, "uid").status();
    if (has_mirror) {
      EXPECT_TRUE(created.ok()) << created;
    } else {
      EXPECT_TRUE(HasReason(created, "NO_MIRROR")) << created;
    }
  }
}

// --- Positions ---------------------------------------------------------------

TEST(LogPositionTest, NamesTheBatchThatMadeAPlanDurable) {
  Disk disk;
  Life life(disk);
  EXPECT_EQ(life.Position().index(), 1);
  life.StartRun();
  EXPECT_EQ(life.Position().index(), disk.index);
  // An answer is given after its own batch is durable.
  const v1::JoinRequest request = JoinOf("a");
  const auto answer =
      life.Machine().Step(event::Join{request, "secret"}, life.Now());
  ASSERT_TRUE(answer.ok());
  const v1::IslandPlan plan =
      life.core().IslandPlan(life.Machine(), answer->joined.slot());
  EXPECT_EQ(plan.log().index(), disk.index + 1);
  life.Sync();
  EXPECT_EQ(disk.index, plan.log().index());
  EXPECT_EQ(life.Position().index(), disk.index);
  EXPECT_EQ(plan.run_uid(), "uid");
  EXPECT_EQ(life.core().ServerPlan("server-1").runs(0).run_uid(), "uid");
  EXPECT_EQ(life.Run().run_uid(), "uid");
}

// Otherwise a server could claim a batch that no log has.
TEST(LogPositionTest, ARepeatedRegistrationMakesNoBatch) {
  Disk disk;
  Life life(disk);
  const auto first = life.Register(Life::Server(0));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->log().index(), disk.index);
  const auto again = life.Register(Life::Server(0));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->log().index(), disk.index);
}

TEST(LogPositionTest, StaysInOneClusterOverStartsAndSnapshots) {
  Disk disk;
  std::vector<v1::LogPosition> seen;
  for (int i = 0; i < 3; ++i) {
    Life life(disk);
    seen.push_back(life.Position());
    EXPECT_EQ(life.core().coordinator_epoch(), i + 1);
    for (const v1::LogPosition& position : seen) {
      EXPECT_TRUE(CheckIsland(life.core(), position).ok());
    }
    EXPECT_EQ(seen.back().cluster_id(), seen.front().cluster_id());
  }
  EXPECT_NE(seen[0].start_id(), seen[1].start_id());
  // The starts are in the snapshot too.
  Coordinator source({.snapshots = {.log_records_max = 1}});
  for (const LogEntry& entry : disk.entries) {
    ASSERT_TRUE(source.Replay(entry).ok());
  }
  source.Start(absl::FromUnixSeconds(2'000'000), {"unused", "next"},
               disk.index);
  const Effects effects = source.TakeEffects(absl::FromUnixSeconds(2'000'000));
  ASSERT_EQ(effects.batch.snapshots.size(), 1u);
  Coordinator restored({});
  ASSERT_TRUE(restored.Restore(effects.batch.snapshots[0]).ok());
  restored.Start(absl::FromUnixSeconds(2'000'000), {"unused", "newest"},
                 disk.index + 1);
  for (const v1::LogPosition& position : seen) {
    EXPECT_TRUE(CheckIsland(restored, position).ok());
  }
}

TEST(LogPositionTest, ALogWithoutAClusterGetsOneAtItsNextStart) {
  Disk disk;
  LogEntry started;
  started.record.set_revision(1);
  started.record.mutable_coordinator_started()->set_coordinator_epoch(7);
  disk.entries.push_back(started);
  Life life(disk);
  EXPECT_EQ(life.core().coordinator_epoch(), 8);
  EXPECT_NE(life.Position().cluster_id(), "");
  EXPECT_EQ(life.Position().index(), 1);
}

// --- An older copy of the log ------------------------------------------------

// Two lives of one log: the second one starts on a copy that is older than what
// its servers and islands have seen.
class OlderLogTest : public testing::Test {
 protected:
  void SetUp() override {
    {
      Life life(disk_);
      life.StartRun();
      copy_ = disk_;
      const v1::JoinRequest request = JoinOf("a");
      ASSERT_TRUE(life.Step(event::Join{request, "secret"}).ok());
      seen_ = life.Position();
    }
    life_ = std::make_unique<Life>(copy_);
  }

  void ExpectFrozen() {
    const size_t entry_count = copy_.entries.size();
    for (const RunEvent& event :
         {RunEvent(event::Pause()), RunEvent(event::Resume()),
          RunEvent(event::Cancel())}) {
      EXPECT_EQ(Reason(life_->Step(event).status()), "LOG_BEHIND");
    }
    const v1::JoinRequest join = JoinOf("b");
    EXPECT_EQ(Reason(life_->Step(event::Join{join, "secret"}).status()),
              "LOG_BEHIND");
    v1::CreateRunRequest create;
    create.set_run_id("other");
    *create.mutable_spec() = SimpleSpec();
    EXPECT_EQ(Reason(life_->core().CreateRun(create, life_->Now()).status()),
              "LOG_BEHIND");
    EXPECT_EQ(Reason(life_->Report(0)), "LOG_BEHIND");
    EXPECT_EQ(Reason(life_->core().CheckServer("server-1", 1)), "LOG_BEHIND");
    EXPECT_EQ(Reason(life_->Register(Life::Server(1)).status()), "LOG_BEHIND");
    // It may have been created since.
    EXPECT_EQ(Reason(life_->core().FindRun("other").status()), "LOG_BEHIND");
    EXPECT_EQ(life_->core().NextTimer(), absl::InfiniteFuture());
    life_->Pass(absl::Hours(10));
    EXPECT_EQ(copy_.entries.size(), entry_count);
    EXPECT_EQ(life_->Run().state(), v1::RUN_STATE_ACTIVE);
    EXPECT_EQ(life_->Run().fault().code(), "LOG_BEHIND");
    EXPECT_EQ(life_->core().ListRuns().size(), 1u);
  }

  Disk disk_;
  Disk copy_;
  v1::LogPosition seen_;
  std::unique_ptr<Life> life_;
};

TEST_F(OlderLogTest, AServersRegistrationProvesIt) {
  v1::RegisterServerRequest request = Life::Server(0);
  *request.mutable_log_seen() = seen_;
  request.set_incarnation(2);
  request.set_address("elsewhere:1");
  const absl::Status status = life_->Register(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "LOG_BEHIND");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("batch ", seen_.index())));
  ExpectFrozen();
  EXPECT_THAT(life_->Run().fault().expected(),
              HasSubstr(absl::StrCat("batch ", seen_.index())));
  // Without a checkpoint there may be nothing to export.
  EXPECT_EQ(life_->Run().fault().next_command(), "atoll run show run");
  // Readers find the server where it is now.
  EXPECT_EQ(life_->core().FindServer("server-0")->address, "elsewhere:1");
}

TEST_F(OlderLogTest, ReadersFindAServerThatWasAway) {
  life_->Pass(absl::Hours(1));
  ASSERT_FALSE(life_->core().FindServer("server-0")->alive);
  v1::RegisterServerRequest request = Life::Server(0);
  *request.mutable_log_seen() = seen_;
  EXPECT_EQ(Reason(life_->Register(request).status()), "LOG_BEHIND");
  EXPECT_TRUE(life_->core().FindServer("server-0")->alive);
}

TEST_F(OlderLogTest, AReportProvesIt) {
  EXPECT_EQ(Reason(life_->Report(0, seen_)), "LOG_BEHIND");
  ExpectFrozen();
}

TEST_F(OlderLogTest, AnIslandProvesIt) {
  EXPECT_EQ(Reason(CheckIsland(life_->core(), seen_)), "LOG_BEHIND");
  const Effects effects = life_->Sync();
  // The streams of plans end.
  EXPECT_TRUE(effects.changed_servers.contains("server-0"));
  EXPECT_TRUE(effects.changed_runs.contains("run"));
  EXPECT_EQ(Reason(life_->Machine().CheckIsland({"a", 1, "secret"})),
            "LOG_BEHIND");
  ExpectFrozen();
}

TEST_F(OlderLogTest, ACopyThatWentItsOwnWayIsFoundToo) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(life_->Step(event::Pause()).ok());
    ASSERT_TRUE(life_->Step(event::Resume()).ok());
  }
  ASSERT_GT(copy_.index, seen_.index());
  EXPECT_EQ(Reason(life_->Report(0, seen_)), "LOG_BEHIND");
  ExpectFrozen();
}

TEST_F(OlderLogTest, ACutCanStillBeRead) {
  EXPECT_FALSE(CheckIsland(life_->core(), seen_).ok());
  v1::ExportCheckpointRequest request;
  request.set_run_id("run");
  request.set_pin_id("export-1");
  request.mutable_lease_duration()->set_seconds(60);
  const auto answer = life_->Step(event::Export{request});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->exported.pin().cut_size(), 1);
  EXPECT_TRUE(life_->Machine().state().pins().empty());
  request.set_keep_bytes_max(1);
  EXPECT_FALSE(life_->Step(event::Export{request}).ok());
  request.clear_keep_bytes_max();
  request.set_release(true);
  EXPECT_TRUE(life_->Step(event::Export{request}).ok());
}

TEST_F(OlderLogTest, ARestoreIsRefused) {
  EXPECT_FALSE(CheckIsland(life_->core(), seen_).ok());
  v1::RestoreRunRequest request;
  request.set_run_id("run");
  request.set_dry_run(true);
  EXPECT_EQ(Reason(life_->Step(event::Restore{request}).status()),
            "LOG_BEHIND");
}

TEST_F(OlderLogTest, TheNewestLogHasNoFault) {
  Life newest(disk_);
  v1::RegisterServerRequest request = Life::Server(0);
  *request.mutable_log_seen() = seen_;
  EXPECT_TRUE(newest.Register(request).ok());
  EXPECT_TRUE(CheckIsland(newest.core(), seen_).ok());
  EXPECT_FALSE(newest.Run().has_fault());
}

TEST(DamagedLogTest, IsOnlyRead) {
  Disk disk;
  { Life(disk).StartRun(); }
  const size_t entry_count = disk.entries.size();
  Life life(disk, absl::DataLossError("it has 3 batches, 5 were synced"));
  EXPECT_EQ(life.core().coordinator_epoch(), 1);
  EXPECT_EQ(life.Run().fault().code(), "LOG_DAMAGED");
  EXPECT_THAT(life.Run().fault().found(), HasSubstr("3 batches"));
  EXPECT_NE(life.Run().fault().next_command(), "");
  EXPECT_EQ(Reason(life.Step(event::Cancel()).status()), "LOG_DAMAGED");
  EXPECT_EQ(Reason(life.Register(Life::Server(0)).status()), "LOG_DAMAGED");
  EXPECT_EQ(Reason(life.Report(0)), "LOG_DAMAGED");
  life.Pass(absl::Hours(1));
  EXPECT_EQ(disk.entries.size(), entry_count);
}

// --- Other clusters and directories ------------------------------------------

TEST(ServerIdentityTest, AServerOfAnotherClusterIsRefusedAndShown) {
  Disk disk;
  Life life(disk);
  ASSERT_TRUE(life.CreateRun().ok());
  v1::RegisterServerRequest stranger = Life::Server(0);
  stranger.mutable_log_seen()->set_cluster_id("stranger");
  stranger.mutable_log_seen()->set_start_id("s");
  stranger.mutable_log_seen()->set_index(1);
  const absl::Status status = life.Register(stranger).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "OTHER_CLUSTER");
  EXPECT_THAT(std::string(status.message()), HasSubstr("cluster stranger"));
  EXPECT_EQ(life.Run().fault().code(), "OTHER_CLUSTER");
  EXPECT_THAT(life.Run().fault().found(), HasSubstr("server-0"));
  EXPECT_EQ(Reason(CheckIsland(life.core(), stranger.log_seen())),
            "OTHER_CLUSTER");
  EXPECT_THAT(life.Sync().warnings,
              testing::Contains(HasSubstr("refused island a of run run")));
  const v1::GetClusterResponse cluster =
      life.core().DescribeCluster(life.Now());
  ASSERT_EQ(cluster.refused_peers_size(), 2);
  EXPECT_EQ(cluster.refused_peers(0).name(), "a");
  EXPECT_EQ(cluster.refused_peers(1).name(), "server-0");
  EXPECT_EQ(cluster.refused_peers(1).fault().found(), "cluster stranger");
  // Nothing else stops, and the run starts by itself once fit servers come.
  for (int shard : {0, 1}) ASSERT_TRUE(life.Register(Life::Server(shard)).ok());
  EXPECT_FALSE(life.Run().has_fault());
  for (int shard : {0, 1}) ASSERT_TRUE(life.Report(shard).ok());
  EXPECT_EQ(life.Run().state(), v1::RUN_STATE_ACTIVE);
}

TEST(ServerIdentityTest, AnotherDirectoryIsRefusedWhileARunNeedsTheOldOne) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  v1::RegisterServerRequest other = Life::Server(0);
  other.set_directory_id("other");
  other.set_incarnation(99);
  other.set_address("other:1");
  const absl::Status status = life.Register(other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "OTHER_DIRECTORY");
  // The live process goes on, and the run with it.
  EXPECT_TRUE(life.Report(0).ok());
  EXPECT_EQ(life.core().FindServer("server-0")->address, "host:1");
  EXPECT_FALSE(life.Run().has_fault());
  // Without the live process the run says what is wrong.
  life.Pass(absl::Minutes(1));
  EXPECT_EQ(life.Run().fault().code(), "OTHER_DIRECTORY");
  EXPECT_THAT(life.Run().fault().expected(), HasSubstr("directory-0"));
  EXPECT_THAT(life.Run().fault().found(), HasSubstr("other"));
  EXPECT_NE(life.Run().fault().next_command(), "");
  v1::RegisterServerRequest right = Life::Server(0);
  right.set_incarnation(2);
  EXPECT_TRUE(life.Register(right).ok());
  EXPECT_FALSE(life.Run().has_fault());
}

v1::ReplaceServerResponse Replace(Life& life, const std::string& server_id,
                                  const std::string& with = "") {
  v1::ReplaceServerRequest request;
  request.set_server_id(server_id);
  request.set_with_server_id(with);
  const auto answer = life.core().ReplaceServer(request, life.Now());
  EXPECT_TRUE(answer.ok()) << answer.status();
  life.Sync();
  return answer.value_or(v1::ReplaceServerResponse());
}

std::string ReasonOfReplace(Life& life, const std::string& server_id,
                            const std::string& with) {
  v1::ReplaceServerRequest request;
  request.set_server_id(server_id);
  request.set_with_server_id(with);
  return Reason(life.core().ReplaceServer(request, life.Now()).status());
}

TEST(ReplaceServerTest, AnotherDirectoryIsTakenOnceAnOperatorSaysSo) {
  Disk disk;
  {
    Life life(disk);
    life.StartRun();
    // While it is alive, nothing is lost.
    v1::ReplaceServerResponse answer = Replace(life, "server-0");
    EXPECT_FALSE(answer.changed());
    EXPECT_TRUE(answer.registered());
    ASSERT_EQ(answer.runs_size(), 1);
    EXPECT_TRUE(answer.runs(0).reported());
    EXPECT_FALSE(answer.runs(0).lost());

    life.Pass(absl::Minutes(1));
    v1::RegisterServerRequest other = Life::Server(0);
    other.set_directory_id("other");
    EXPECT_EQ(Reason(life.Register(other).status()), "OTHER_DIRECTORY");
    EXPECT_EQ(life.Run().fault().next_command(),
              "atoll server replace server-0");
    answer = Replace(life, "server-0");
    EXPECT_TRUE(answer.changed());
    EXPECT_FALSE(answer.registered());
    EXPECT_FALSE(Replace(life, "server-0").changed());
  }
  // The decision is in the log. An equal incarnation is no hindrance.
  Life life(disk);
  v1::RegisterServerRequest other = Life::Server(0);
  other.set_directory_id("other");
  ASSERT_TRUE(life.Register(other).ok());
  EXPECT_EQ(life.core().FindServer("server-0")->directory_id, "other");
  EXPECT_EQ(life.Machine().state().placement_epoch(), 2);
  const v1::ReplaceServerResponse answer = Replace(life, "server-0");
  EXPECT_FALSE(answer.changed());
  EXPECT_TRUE(answer.registered());
  EXPECT_FALSE(answer.runs(0).reported());
  // From then on only this one is the server.
  EXPECT_EQ(Reason(life.Register(Life::Server(0)).status()),
            "OTHER_DIRECTORY");
  EXPECT_EQ(Reason(life.core().CheckServer("server-0", 1, "directory-0")),
            "NOT_REGISTERED");
  EXPECT_TRUE(life.core().CheckServer("server-0", 1, "other").ok());
}

TEST(ReplaceServerTest, AnOlderCopyWithFewerStartsIsTaken) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  v1::RegisterServerRequest newest = Life::Server(0);
  newest.set_incarnation(7);
  ASSERT_TRUE(life.Register(newest).ok());
  life.Pass(absl::Minutes(1));
  v1::RegisterServerRequest copy = Life::Server(0);
  copy.set_incarnation(3);
  EXPECT_EQ(Reason(life.Register(copy).status()), "STALE_INCARNATION");
  EXPECT_TRUE(Replace(life, "server-0").changed());
  ASSERT_TRUE(life.Register(copy).ok());
  EXPECT_EQ(life.core().FindServer("server-0")->incarnation, 3);
  EXPECT_EQ(life.Machine().state().placement_epoch(), 1);
}

TEST(ReplaceServerTest, TheShardsGoToAnotherServer) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  EXPECT_EQ(ReasonOfReplace(life, "server-0", "server-2"), "SERVER_ALIVE");
  life.Pass(absl::Minutes(1));
  EXPECT_EQ(ReasonOfReplace(life, "server-9", ""), "NO_SUCH_SERVER");
  EXPECT_EQ(ReasonOfReplace(life, "server-0", "server-2"), "SERVER_AWAY");
  for (int shard : {1, 2}) ASSERT_TRUE(life.Register(Life::Server(shard)).ok());
  EXPECT_EQ(ReasonOfReplace(life, "server-0", "server-1"), "SERVER_TAKEN");
  v1::ReplaceServerResponse answer = Replace(life, "server-0", "server-2");
  EXPECT_TRUE(answer.changed());
  EXPECT_TRUE(answer.registered());
  EXPECT_EQ(answer.server_id(), "server-2");
  ASSERT_EQ(answer.runs_size(), 1);
  EXPECT_FALSE(answer.runs(0).reported());
  EXPECT_EQ(life.Machine().state().placement_epoch(), 2);
  EXPECT_THAT(life.Machine().state().server_ids(),
              ::testing::ElementsAre("server-2", "server-1"));
  ASSERT_EQ(life.core().ServerPlan("server-2").runs_size(), 1);
  EXPECT_EQ(life.core().ServerPlan("server-2").runs(0).shard(), 0);
  EXPECT_EQ(life.core().ServerPlan("server-0").runs_size(), 0);
  // Typed again, it says how far the shards are.
  answer = Replace(life, "server-0", "server-2");
  EXPECT_FALSE(answer.changed());
  EXPECT_EQ(answer.runs_size(), 1);
}

TEST(ServerIdentityTest, AnOlderCopyWithTheSameIncarnationIsHeard) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  v1::ReportShardsRequest request;
  request.set_server_id("server-0");
  request.set_incarnation(1);
  request.set_report_seq(1000);
  ASSERT_TRUE(life.core().ReportShards(request, life.Now()).ok());
  // It was copied before its last start, so it counts that start again.
  ASSERT_TRUE(life.Register(Life::Server(0)).ok());
  request.set_report_seq(1);
  v1::ShardReport& report = *request.add_shards();
  report.set_run_id("run");
  report.set_run_uid("uid");
  report.set_run_epoch(1);
  report.set_fault("an older copy");
  report.mutable_fault_detail()->set_code("SHARD_BEHIND");
  ASSERT_TRUE(life.core().ReportShards(request, life.Now()).ok());
  life.Sync();
  EXPECT_EQ(life.Run().fault().code(), "SHARD_BEHIND");
}

TEST(ServerReportsTest, TheAnswerNamesRunsThatNeedWholeReports) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  v1::ReportShardsRequest request;
  request.set_server_id("server-0");
  request.set_incarnation(1);
  request.set_report_seq(10);
  v1::ShardReport& report = *request.add_changes();
  report.set_run_id("run");
  report.set_run_uid("uid");
  report.set_run_epoch(1);
  report.set_initialized(true);
  report.set_base_report_seq(9);
  const auto report_now = [&] {
    const auto answer = life.core().ReportShards(request, life.Now());
    life.Sync();
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_NE(answer->coordinator_features() & kReportsOfChanges, 0u);
    return answer->whole_report_run_ids_size();
  };
  report.set_blocked_reason("changed");
  EXPECT_EQ(report_now(), 1);
  EXPECT_EQ(life.Machine().observed().shards[0].report.blocked_reason(), "");
  report.set_base_report_seq(0);
  request.set_report_seq(11);
  EXPECT_EQ(report_now(), 0);
  EXPECT_EQ(report_now(), 0) << "a repeat";
  report.set_base_report_seq(11);
  report.set_blocked_reason("again");
  request.set_report_seq(12);
  EXPECT_EQ(report_now(), 0);
  EXPECT_EQ(report_now(), 0) << "a repeat";
  EXPECT_EQ(life.Machine().observed().shards[0].report.blocked_reason(),
            "again");
  // A server that registers again may have lost an answer: its next report must
  // be whole.
  ASSERT_TRUE(life.Register(Life::Server(0)).ok());
  report.set_base_report_seq(12);
  request.set_report_seq(13);
  EXPECT_EQ(report_now(), 1);
}

TEST(ServerIdentityTest, AnotherDirectoryIsTakenIfNoRunNeedsTheOldOne) {
  Disk disk;
  Life life(disk);
  v1::RegisterServerRequest old = Life::Server(0);
  old.set_incarnation(5);
  ASSERT_TRUE(life.Register(old).ok());
  v1::RegisterServerRequest other = Life::Server(0);
  other.set_directory_id("other");
  // The live process would not notice an equal or smaller incarnation.
  EXPECT_EQ(Reason(life.Register(other).status()), "OTHER_DIRECTORY");
  EXPECT_TRUE(life.core().CheckServer("server-0", 5).ok());
  life.Pass(absl::Minutes(1));
  ASSERT_TRUE(life.Register(other).ok());
  EXPECT_EQ(life.core().FindServer("server-0")->directory_id, "other");
  EXPECT_TRUE(life.core().CheckServer("server-0", 1).ok());
  EXPECT_FALSE(life.core().CheckServer("server-0", 5).ok());
  other.set_directory_id("third");
  other.set_incarnation(2);
  ASSERT_TRUE(life.Register(other).ok());
  // The directory is in the log.
  Life next(disk);
  EXPECT_EQ(next.core().FindServer("server-0")->directory_id, "third");
  EXPECT_EQ(next.core().FindServer("server-0")->features, ProgramFeatures());
}

TEST(ServerIdentityTest, ACopyOfADirectoryDoesNotServeBesidesTheOriginal) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  v1::RegisterServerRequest copy = Life::Server(0);
  copy.set_address("copy:1");
  EXPECT_EQ(Reason(life.Register(copy).status()), "STALE_INCARNATION");
  EXPECT_EQ(life.core().FindServer("server-0")->address, "host:1");
  EXPECT_TRUE(life.Report(0).ok());
  // As before: the greater number of starts fences the smaller one.
  copy.set_incarnation(2);
  EXPECT_TRUE(life.Register(copy).ok());
  EXPECT_EQ(Reason(life.Report(0)), "STALE_INCARNATION");
  EXPECT_EQ(Reason(life.Register(Life::Server(0)).status()),
            "STALE_INCARNATION");
  EXPECT_FALSE(life.Run().has_fault());
  // Without the newest process the run says which one is missing.
  life.Pass(absl::Minutes(1));
  EXPECT_EQ(life.Run().fault().code(), "STALE_INCARNATION");
  EXPECT_THAT(life.Run().fault().expected(), HasSubstr("incarnation 2"));
  EXPECT_THAT(life.Run().fault().found(), HasSubstr("incarnation 1"));
  ASSERT_TRUE(life.Register(copy).ok());
  EXPECT_FALSE(life.Run().has_fault());
}

TEST(ServerIdentityTest, AnUpgradedServerBringsItsDirectorysId) {
  Disk disk;
  Life life(disk);
  ASSERT_TRUE(life.CreateRun().ok());
  for (int shard : {0, 1}) {
    v1::RegisterServerRequest old = Life::Server(shard);
    old.clear_directory_id();
    old.clear_features();
    ASSERT_TRUE(life.Register(old).ok());
  }
  v1::RegisterServerRequest upgraded = Life::Server(0);
  EXPECT_EQ(Reason(life.Register(upgraded).status()), "STALE_INCARNATION");
  upgraded.set_incarnation(2);
  ASSERT_TRUE(life.Register(upgraded).ok());
  v1::RegisterServerRequest older = upgraded;
  older.set_incarnation(3);
  older.clear_directory_id();
  EXPECT_EQ(Reason(life.Register(older).status()), "OTHER_DIRECTORY");
}

// --- The norm bound ----------------------------------------------------------

TEST(CreateRunTest, ANewRunBoundsEnrolledIslands) {
  Disk disk;
  Life life(disk);
  ASSERT_TRUE(life.CreateRun().ok());
  EXPECT_EQ(life.Machine().state().spec().outer().enrolled_norm_factor(),
            kEnrolledNormFactorDefault);
  // The same client's spec again is the same run, and so is what it reads.
  EXPECT_TRUE(life.CreateRun().ok());
  EXPECT_TRUE(life.CreateRun(life.Machine().state().spec()).ok());
  v1::RunSpec other = SimpleSpec();
  other.mutable_outer()->set_enrolled_norm_factor(0);
  other.mutable_schedule()->set_round_count(77);
  const absl::Status refused = life.CreateRun(other);
  EXPECT_EQ(Reason(refused), "OTHER_SPEC");
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr("(other in: outer, schedule)"));
}

TEST(CreateRunTest, AnExplicit0AndDurabilityIslandHaveNoBound) {
  v1::RunSpec none = SimpleSpec();
  none.mutable_outer()->set_enrolled_norm_factor(0);
  v1::RunSpec live = SimpleSpec();
  live.set_durability(v1::DURABILITY_ISLAND);
  for (const v1::RunSpec& spec : {none, live}) {
    Disk disk;
    Life life(disk);
    ASSERT_TRUE(life.CreateRun(spec).ok());
    EXPECT_EQ(life.Machine().state().spec().outer().enrolled_norm_factor(), 0);
    EXPECT_TRUE(life.CreateRun(spec).ok());
  }
}

// --- Features ----------------------------------------------------------------

TEST(FeaturesTest, AServerThatLacksOneIsNotChosen) {
  Disk disk;
  Life life(disk);
  ASSERT_TRUE(life.CreateRun().ok());
  v1::RegisterServerRequest lacking = Life::Server(0);
  lacking.set_features(ProgramFeatures() & ~kOuterFedavg);
  ASSERT_TRUE(life.Register(lacking).ok());
  ASSERT_TRUE(life.Register(Life::Server(1)).ok());
  EXPECT_TRUE(life.Machine().state().server_ids().empty());
  EXPECT_THAT(life.Machine().waits_for(),
              HasSubstr(DescribeFeatures(kOuterFedavg)));
  EXPECT_THAT(life.Machine().waits_for(), HasSubstr("1 of 2"));
  ASSERT_TRUE(life.Register(Life::Server(2)).ok());
  EXPECT_THAT(life.Machine().state().server_ids(),
              testing::ElementsAre("server-1", "server-2"));
}

TEST(FeaturesTest, AServerWithoutBitsHasThoseOfItsTime) {
  Disk disk;
  Life life(disk);
  ASSERT_TRUE(life.CreateRun().ok());
  for (int shard : {0, 1}) {
    v1::RegisterServerRequest old = Life::Server(shard);
    old.clear_features();
    ASSERT_TRUE(life.Register(old).ok());
  }
  EXPECT_EQ(life.Machine().state().server_ids().size(), 2u);
}

TEST(FeaturesTest, AnIslandThatLacksOneIsRefused) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  v1::JoinRequest request = JoinOf("a");
  request.mutable_capabilities()->set_features(ProgramFeatures() &
                                               ~kOuterFedavg);
  const absl::Status status =
      life.Step(event::Join{request, "secret"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "MISSING_FEATURES");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(DescribeFeatures(kOuterFedavg)));
  request.mutable_capabilities()->set_features(0);
  EXPECT_TRUE(life.Step(event::Join{request, "secret"}).ok());
}

TEST(WeightUnitTest, AnIslandThatCountsAnotherUnitThanTheRunIsRefused) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  v1::JoinRequest request = JoinOf("a");
  request.mutable_capabilities()->set_weight_unit(v1::WEIGHT_UNIT_STEPS);
  const absl::Status status =
      life.Step(event::Join{request, "secret"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "OTHER_WEIGHT_UNIT");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("counts steps, and the run weighs contributions by "
                        "tokens"));
  request.mutable_capabilities()->set_weight_unit(v1::WEIGHT_UNIT_TOKENS);
  EXPECT_TRUE(life.Step(event::Join{request, "secret"}).ok());
}

// --- Other runs --------------------------------------------------------------

TEST(OtherRunTest, AShardOfAnotherRunWithThisIdPausesTheRun) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  v1::RegisterServerRequest restarted = Life::Server(0);
  restarted.set_incarnation(2);
  ASSERT_TRUE(life.Register(restarted).ok());
  ASSERT_TRUE(life.Report(0, {}, "other", /*incarnation=*/2).ok());
  EXPECT_EQ(life.Run().state(), v1::RUN_STATE_PAUSED);
  const v1::Fault fault = life.Run().fault();
  EXPECT_EQ(fault.code(), "OTHER_RUN");
  EXPECT_THAT(fault.expected(), HasSubstr("uid"));
  EXPECT_THAT(fault.found(), HasSubstr("other"));
  EXPECT_EQ(fault.next_command(), "atoll run show run");
  EXPECT_EQ(Reason(life.Step(event::Resume()).status()), "SHARD_FAULT");
  // With the right files it goes on.
  restarted.set_incarnation(3);
  ASSERT_TRUE(life.Register(restarted).ok());
  ASSERT_TRUE(life.Report(0, {}, "uid", /*incarnation=*/3).ok());
  EXPECT_FALSE(life.Run().has_fault());
  EXPECT_TRUE(life.Step(event::Resume()).ok());
  EXPECT_EQ(life.Run().state(), v1::RUN_STATE_ACTIVE);
}

TEST(OtherRunTest, FilesOfAnOlderRunBesidesTheRunsOwnDoNotStopIt) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  ASSERT_TRUE(life.Report(0, {}, "older").ok());
  EXPECT_EQ(life.Run().state(), v1::RUN_STATE_ACTIVE);
  EXPECT_FALSE(life.Run().has_fault());
}

TEST(OtherRunTest, AnIslandWithACheckpointOfAnotherRunIsRefused) {
  Disk disk;
  Life life(disk);
  life.StartRun();
  v1::JoinRequest request = JoinOf("a");
  request.set_run_uid("other");
  const absl::Status status =
      life.Step(event::Join{request, "secret"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "OTHER_RUN");
  EXPECT_THAT(std::string(status.message()), HasSubstr("other"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("uid"));
  request.set_run_uid("uid");
  EXPECT_TRUE(life.Step(event::Join{request, "secret"}).ok());
}

}  // namespace
}  // namespace atl::coordinator
