// Whole strict runs against real servers over loopback.

#include "server/parameter_server.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/features/features.h"
#include "base/io/files.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"
#include "server/service/testing/test_cluster.h"

namespace atl::server {
namespace {

#define ASSERT_OK(expr)                                     \
  do {                                                      \
    const absl::Status assert_ok_status = (expr);           \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status; \
  } while (false)

std::string FindState(int server_count, int merge_threads, int rounds) {
  TestCluster cluster(SmallRun(), server_count, merge_threads);
  EXPECT_TRUE(cluster.StartAll().ok());
  const absl::Status begun = cluster.Begin();
  EXPECT_TRUE(begun.ok()) << begun;
  for (int v = 0; v < rounds; ++v) {
    const absl::Status round = cluster.Round(v, 3);
    EXPECT_TRUE(round.ok()) << round;
  }
  const auto sha256 = cluster.Sha256();
  EXPECT_TRUE(sha256.ok()) << sha256.status();
  return sha256.ok() ? *sha256 : "";
}

TEST(ParameterServerTest, TheStateDependsNeitherOnShardsNorOnThreads) {
  const std::string one = FindState(1, 1, 3);
  EXPECT_EQ(FindState(3, 1, 3), one);
  EXPECT_EQ(FindState(2, 2, 3), one);
  EXPECT_NE(FindState(1, 1, 2), one);
}

TEST(ParameterServerTest, ARestartBetweenRoundsChangesNothing) {
  const std::string undisturbed = FindState(2, 1, 3);
  TestCluster cluster(SmallRun(), 2);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  ASSERT_OK(cluster.Round(0, 3));
  cluster.Stop(1);
  ASSERT_OK(cluster.Start(1));
  EXPECT_EQ(cluster.server(1).incarnation(), 2);
  ASSERT_OK(cluster.Round(1, 3));
  cluster.CutPower(0);
  ASSERT_OK(cluster.Start(0));
  ASSERT_OK(cluster.Round(2, 3));
  EXPECT_EQ(*cluster.Sha256(), undisturbed);
}

std::vector<v1::ContributionInfo> PushAll(TestCluster& cluster,
                                          int64_t version) {
  std::vector<v1::ContributionInfo> infos;
  for (int32_t slot = 0; slot < 3; ++slot) {
    const auto gradient = cluster.Gradient(0, slot, version);
    infos.push_back(cluster.Info(0, slot, version, gradient));
    const absl::Status pushed = cluster.Push(infos.back(), gradient);
    EXPECT_TRUE(pushed.ok()) << pushed;
  }
  return infos;
}

TEST(ParameterServerTest, WhatWasStoredOutlivesAPowerCut) {
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  const auto infos = PushAll(cluster, 0);
  cluster.CutPower(0);
  ASSERT_OK(cluster.Start(0));
  const auto report = cluster.WaitForReport(
      0, [](const v1::ShardReport& r) { return r.stored_size() == 3; });
  ASSERT_TRUE(report.ok()) << report.status();
  const auto digest = cluster.Seal(0, 0, infos);
  ASSERT_TRUE(digest.ok()) << digest.status();
  ASSERT_OK(cluster.Commit(0, 0, *digest));
}

TEST(ParameterServerTest, ACommitThatWasNotPersistedIsRedone) {
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  const auto infos = PushAll(cluster, 0);
  const auto digest = cluster.Seal(0, 0, infos);
  ASSERT_TRUE(digest.ok()) << digest.status();
  // The coordinator commits while the shard is down.
  cluster.CutPower(0);
  cluster.AddCommit(0, 0, *digest);
  ASSERT_OK(cluster.Start(0));
  const auto report = cluster.WaitForReport(0, [](const v1::ShardReport& r) {
    return r.persisted_commit_seq() == 1;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->stored_size(), 0);
  EXPECT_TRUE(cluster.Pull(0, 1).ok());
}

TEST(ParameterServerTest, ACommitWithAnotherDigestStopsTheShard) {
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  const auto digest = cluster.Seal(0, 0, PushAll(cluster, 0));
  ASSERT_TRUE(digest.ok()) << digest.status();
  Digest128 wrong = *digest;
  wrong.low ^= 1;
  cluster.AddCommit(0, 0, wrong);
  cluster.Publish();
  const auto report = cluster.WaitForReport(
      0, [](const v1::ShardReport& r) { return !r.fault().empty(); });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_NE(report->fault().find("DATA_LOSS"), std::string::npos);
  EXPECT_EQ(report->persisted_commit_seq(), 0);
}

TEST(ParameterServerTest, AnAbortedAttemptIsMergedAgainWithItsNewSet) {
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  const auto infos = PushAll(cluster, 0);
  const auto first = cluster.Seal(0, 0, infos);
  ASSERT_TRUE(first.ok()) << first.status();
  cluster.plan().clear_seals();
  cluster.plan().mutable_open_rounds(0)->set_attempt(1);
  const auto second = cluster.Seal(0, 0, {infos[0], infos[1]}, /*attempt=*/1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(*first, *second);
  ASSERT_OK(cluster.Commit(0, 0, *second, /*attempt=*/1));
}

TEST(ParameterServerTest, APinnedVersionStaysReadableAndAnOldOneDoesNot) {
  TestCluster cluster(SmallRun(), 2);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  ASSERT_OK(cluster.Round(0, 1));
  const auto pinned = cluster.Pull(0, 1);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  v1::Pin* pin = cluster.plan().add_pins();
  pin->set_pin_id("kept");
  for (int f = 0; f < 2; ++f) {
    v1::FragmentVersion* version = pin->add_cut();
    version->set_fragment(f);
    version->set_version(1);
  }
  for (int v = 1; v < 5; ++v) ASSERT_OK(cluster.Round(v, 1));
  EXPECT_EQ(*cluster.Pull(0, 1), *pinned);
  EXPECT_TRUE(cluster.Pull(0, 4).ok());  // The one before the newest.
  EXPECT_TRUE(absl::IsOutOfRange(cluster.Pull(0, 2).status()))
      << cluster.Pull(0, 2).status();
}

TEST(ParameterServerTest, ACheckpointIsDurableWithItsManifestAndGoneWithIt) {
  TestCluster cluster(SmallRun(), 2);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  ASSERT_OK(cluster.Round(0, 1));
  v1::Pin* pin = cluster.plan().add_pins();
  pin->set_pin_id("round-1");
  pin->set_commit_seq(3);
  pin->set_checkpoint(true);
  for (int f = 0; f < 2; ++f) {
    v1::FragmentVersion* version = pin->add_cut();
    version->set_fragment(f);
    version->set_version(1);
  }
  const auto durable = [](const v1::ShardReport& r) {
    return r.checkpoints_size() == 1 && r.checkpoints(0).durable() &&
           r.checkpoints(0).pin_id() == "round-1";
  };
  const auto path = [](int shard) {
    return TestCluster::Names(shard).ManifestPath("round-1");
  };
  cluster.Publish();
  for (int shard = 0; shard < 2; ++shard) {
    ASSERT_OK(cluster.WaitForReport(shard, durable).status());
    EXPECT_TRUE(cluster.fs(shard).Exists(path(shard)));
  }
  for (int v = 1; v < 4; ++v) ASSERT_OK(cluster.Round(v, 1));
  cluster.CutPower(1);
  ASSERT_OK(cluster.Start(1));
  ASSERT_OK(cluster.WaitForReport(1, durable).status());
  EXPECT_TRUE(cluster.Pull(0, 1).ok());
  cluster.plan().clear_pins();
  cluster.Publish();
  for (int shard = 0; shard < 2; ++shard) {
    ASSERT_OK(cluster
                  .WaitForReport(shard,
                                 [](const v1::ShardReport& r) {
                                   return r.checkpoints().empty();
                                 })
                  .status());
  }
  // The version is deleted after the manifest that names it.
  const absl::Time end = absl::Now() + TestCluster::kPatience;
  while (cluster.Pull(0, 1).ok() && absl::Now() < end) {
  }
  EXPECT_TRUE(absl::IsOutOfRange(cluster.Pull(0, 1).status()));
  // A pull ends at the first shard that has released it, so check both disks.
  for (int shard = 0; shard < 2; ++shard) {
    while (cluster.fs(shard).Exists(path(shard)) && absl::Now() < end) {
    }
    EXPECT_FALSE(cluster.fs(shard).Exists(path(shard)));
  }
}

TEST(ParameterServerTest, AContributionThatIsDamagedIsLostAndComesAgain) {
  Digest128 undisturbed;
  {
    TestCluster cluster(SmallRun(), 1);
    ASSERT_OK(cluster.StartAll());
    ASSERT_OK(cluster.Begin());
    undisturbed = *cluster.Seal(0, 0, PushAll(cluster, 0));
  }
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  const auto gradient = cluster.Gradient(0, 0, 0);
  const auto lost = cluster.Info(0, 0, 0, gradient);
  ASSERT_OK(cluster.Push(lost, gradient));
  // The round reserves several segments; the first one is used.
  const std::string log = TestCluster::Names(0).log();
  const auto names = cluster.fs(0).List(log);
  for (const std::string& name : *names) {
    auto file = cluster.fs(0).OpenForWrite(log + "/" + name);
    ASSERT_OK((*file)->WriteAt(*(*file)->Size() - 100, "damaged"));
  }
  auto infos = PushAll(cluster, 0);  // Slot 0's is there already.
  // An older report also has two of them.
  ASSERT_OK(
      cluster
          .WaitForReport(
              0, [](const v1::ShardReport& r) { return r.stored_size() == 3; })
          .status());
  cluster.AddSeal(0, 0, infos);
  ASSERT_OK(cluster
                .WaitForReport(0,
                               [](const v1::ShardReport& r) {
                                 return r.stored_size() == 2 &&
                                        r.fault().empty();
                               })
                .status());
  ASSERT_OK(cluster.Push(lost, gradient));
  const auto digest = cluster.WaitForPrepared(0, 0);
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(*digest, undisturbed);
  ASSERT_OK(cluster.Commit(0, 0, *digest));
}

TEST(ParameterServerTest, ACommittedContributionThatIsDamagedStopsTheShard) {
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  const auto infos = PushAll(cluster, 0);
  const auto digest = cluster.Seal(0, 0, infos);
  ASSERT_OK(digest.status());
  cluster.CutPower(0);
  cluster.AddCommit(0, 0, *digest);
  const std::string log = TestCluster::Names(0).log();
  const auto names = cluster.fs(0).List(log);
  for (const std::string& name : *names) {
    auto file = cluster.fs(0).OpenForWrite(log + "/" + name);
    ASSERT_OK((*file)->WriteAt(*(*file)->Size() - 100, "damaged"));
    ASSERT_OK((*file)->Sync());
  }
  ASSERT_OK(cluster.Start(0));
  const auto report = cluster.WaitForReport(
      0, [](const v1::ShardReport& r) { return !r.fault().empty(); });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_NE(report->fault().find("DATA_LOSS"), std::string::npos);
  EXPECT_NE(report->fault().find(".seg"), std::string::npos) << report->fault();
}

TEST(ParameterServerTest, ARunThatCannotBeOpenedIsReportedUnderItsEpoch) {
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  cluster.Stop(0);
  const std::string versions = TestCluster::Names(0).versions();
  const auto names = cluster.fs(0).List(versions);
  for (const std::string& name : *names) {
    ASSERT_OK(cluster.fs(0).Remove(versions + "/" + name));
  }
  ASSERT_OK(cluster.Start(0));
  const auto report = cluster.WaitForReport(
      0, [](const v1::ShardReport& r) { return !r.fault().empty(); });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->run_epoch(), 1);
}

TEST(ParameterServerTest, AShardThatCannotBeMadeNowIsMadeLater) {
  for (const int error_number : {ENOSPC, EMFILE}) {
    SCOPED_TRACE(error_number);
    TestCluster cluster(SmallRun(), 1);
    cluster.fs(0).AddFault({FakeFileSystem::Fault::Call::kList,
                            TestCluster::Names(0).versions(), error_number});
    ASSERT_OK(cluster.StartAll());
    ASSERT_OK(cluster.Begin());
    ASSERT_OK(cluster.Round(0, 2));
  }
}

// As if it were a link to a disk that is not there.
TEST(ParameterServerTest, ARunsDirectoryThatCannotBeReadIsTheFaultOfItsShard) {
  TestCluster cluster(SmallRun(), 2);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  cluster.Stop(1);
  cluster.fs(1).AddFault({FakeFileSystem::Fault::Call::kList,
                          TestCluster::Names(1).run_directory(), ENOENT});
  ASSERT_OK(cluster.Start(1));
  const auto report = cluster.WaitForReport(1, [](const v1::ShardReport& r) {
    return !r.fault().empty() && r.shard() == 1;
  });
  EXPECT_TRUE(report.ok()) << report.status();
  // Other runs are served, and a restart does not help.
  EXPECT_TRUE(cluster.metrics(1).ready().ok());
}

// A run without a run_uid that was deleted and created again has the same name.
TEST(ParameterServerTest, AShardWithoutARunUidIsNotReportedBeforeAPlan) {
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  cluster.Stop(0);
  coordinator::FakeServerControlClient control;
  ParameterServer::Options options;
  options.server_id = "server-0";
  options.data_dir = "data";
  Metrics metrics;
  const auto server = ParameterServer::Start(
      options, {cluster.fs(0), control, [](const std::string& run_id) {
                  return absl::StatusOr<v1::Run>(absl::NotFoundError(run_id));
                }, metrics});
  ASSERT_OK(server.status());
  ASSERT_TRUE(control.WaitForReports(1, TestCluster::kPatience));
  EXPECT_EQ(control.reports()[0].shards_size(), 0);
  v1::ServerPlan plan;
  plan.set_revision(1);
  plan.set_coordinator_epoch(1);
  *plan.add_runs() = cluster.plan();
  plan.mutable_runs(0)->set_run_uid(std::string(32, 'a'));
  control.SetPlan(plan);
  size_t count = 1;
  while (control.reports().back().shards().empty()) {
    ASSERT_TRUE(control.WaitForReports(++count, TestCluster::kPatience));
  }
  const v1::ShardReport report = control.reports().back().shards(0);
  EXPECT_EQ(report.run_uid(), std::string(32, 'a'));
  EXPECT_TRUE(report.initialized());
}

// Files of the run's records and versions, by path.
std::map<std::string, std::string> ReadFiles(FakeFileSystem& fs) {
  std::map<std::string, std::string> files;
  const ShardNames names = TestCluster::Names(0);
  for (const std::string& directory : {names.records(), names.versions()}) {
    const auto entries = fs.List(directory);
    for (const std::string& name : *entries) {
      const std::string path = absl::StrCat(directory, "/", name);
      files[path] = *ReadFile(fs, path);
    }
  }
  return files;
}

TEST(ParameterServerTest, DamagedRecordsStopTheirRunAloneAndItsVersionsStay) {
  TestCluster cluster(SmallRun(), 1);
  cluster.AddTwin();
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  ASSERT_OK(cluster.Round(0, 2));
  const auto newest = cluster.Pull(0, 1);
  ASSERT_OK(newest.status());
  cluster.Stop(0);
  const std::string log = TestCluster::Names(0).records() + "/000001.log";
  const std::string bytes = *ReadFile(cluster.fs(0), log);
  const size_t used = bytes.find_last_not_of('\0');
  {
    auto file = *cluster.fs(0).OpenForWrite(log);
    ASSERT_OK(file->WriteAt(static_cast<int64_t>(used * 3 / 4),
                            "damaged by a disk that lies"));
  }
  const auto files = ReadFiles(cluster.fs(0));
  ASSERT_OK(cluster.Start(0));
  const auto report = cluster.WaitForReport(
      0, [](const v1::ShardReport& r) { return !r.fault().empty(); });
  ASSERT_OK(report.status());
  EXPECT_NE(report->fault().find(log), std::string::npos) << report->fault();
  EXPECT_NE(report->fault().find("is damaged"), std::string::npos)
      << report->fault();
  const auto twin = cluster.WaitForReport(
      0, [](const v1::ShardReport& r) { return r.initialized(); },
      /*twin=*/true);
  ASSERT_OK(twin.status());
  EXPECT_EQ(twin->fault(), "");
  EXPECT_EQ(*cluster.Pull(0, 1), *newest);
  cluster.Stop(0);
  EXPECT_TRUE(ReadFiles(cluster.fs(0)) == files);
}

TEST(ParameterServerTest, WithoutOneRunsDirectoryTheOtherRunGoesOn) {
  TestCluster cluster(SmallRun(), 1);
  cluster.AddTwin();
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  cluster.Stop(0);
  const ShardNames names = TestCluster::Names(0);
  for (const std::string& directory :
       {names.records(), names.versions(), names.log()}) {
    const auto entries = cluster.fs(0).List(directory);
    for (const std::string& name : *entries) {
      ASSERT_OK(cluster.fs(0).Remove(absl::StrCat(directory, "/", name)));
    }
    ASSERT_OK(cluster.fs(0).Remove(directory));
  }
  ASSERT_OK(cluster.fs(0).Remove(names.checkpoints()));
  ASSERT_OK(cluster.fs(0).Remove(names.directory()));
  ASSERT_OK(cluster.fs(0).Remove(names.run_directory()));
  ASSERT_OK(cluster.Start(0));
  const auto twin = cluster.WaitForReport(
      0, [](const v1::ShardReport& r) { return r.initialized(); },
      /*twin=*/true);
  ASSERT_OK(twin.status());
  EXPECT_EQ(twin->fault(), "");
}

TEST(ParameterServerTest, AnImportBecomesVersion0OnAllShards) {
  v1::Run run = SmallRun();
  run.mutable_spec()->mutable_init()->set_import(true);
  TestCluster cluster(run, 2);
  ASSERT_OK(cluster.StartAll());
  ASSERT_TRUE(
      cluster
          .WaitForReport(
              1, [](const v1::ShardReport& r) { return !r.initialized(); })
          .ok());
  for (int32_t f = 0; f < 2; ++f) {
    ASSERT_OK(cluster.Import(f, cluster.Gradient(f, 5, 5)));
    ASSERT_OK(cluster.Import(f, cluster.Gradient(f, 5, 5)));
  }
  ASSERT_OK(cluster.Begin());
  EXPECT_EQ(*cluster.Pull(0, 0), cluster.Gradient(0, 5, 5));
  EXPECT_TRUE(
      absl::IsAlreadyExists(cluster.Import(0, cluster.Gradient(0, 6, 5))));
  ASSERT_OK(cluster.Round(0, 2));
  cluster.CutPower(0);
  ASSERT_OK(cluster.Start(0));
  ASSERT_OK(cluster.Round(1, 2));
}

TEST(ParameterServerTest, ACoordinatorThatTakesReportsOfChangesGetsThem) {
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  coordinator::FakeServerControlClient& control = cluster.control(0);
  v1::ReportShardsResponse answer;
  answer.mutable_lease_duration()->set_nanos(60'000'000);
  answer.set_coordinator_features(ProgramFeatures());
  control.SetReportResponse(answer);
  size_t seen = control.reports().size();
  // The next report that is whole, or of changes.
  const auto wait = [&](bool is_whole) {
    while (control.WaitForReports(seen + 1, TestCluster::kPatience)) {
      const v1::ReportShardsRequest report = control.report(seen++);
      EXPECT_EQ(report.shards_size() + report.changes_size(), 1);
      if (report.changes().empty() == is_whole) return report;
    }
    ADD_FAILURE() << "no report";
    return v1::ReportShardsRequest();
  };
  const v1::ReportShardsRequest first = wait(/*is_whole=*/false);
  EXPECT_EQ(first.changes(0).base_report_seq(), first.report_seq() - 1);
  PushAll(cluster, 0);
  for (int told_count = 0; told_count < 3;) {
    const v1::ReportShardsRequest report = wait(/*is_whole=*/false);
    ASSERT_FALSE(::testing::Test::HasFailure());
    told_count += report.changes(0).stored_size();
    ASSERT_LE(told_count, 3);
  }
  // The answer to a report is lost.
  control.FailNext("ReportShards", absl::UnavailableError("lost"));
  EXPECT_EQ(wait(/*is_whole=*/true).shards(0).stored_size(), 3);
  wait(/*is_whole=*/false);
  // The coordinator asks for a whole one.
  answer.add_whole_report_run_ids(cluster.plan().run_id());
  control.SetReportResponse(answer);
  EXPECT_EQ(wait(/*is_whole=*/true).shards(0).stored_size(), 3);
  answer.clear_whole_report_run_ids();
  control.SetReportResponse(answer);
  wait(/*is_whole=*/false);
  // It registers again, and the coordinator need not ask.
  v1::RegisterServerResponse registered;
  registered.set_coordinator_features(ProgramFeatures());
  control.SetRegisterResponse(registered);
  const size_t count = control.registrations().size();
  seen = control.reports().size();
  cluster.FailNext(0, "WaitForPlan", absl::UnavailableError("it has ended"));
  ASSERT_TRUE(cluster.WaitForRegistrations(0, count + 1));
  // One report may have begun before.
  ASSERT_TRUE(control.WaitForReports(control.reports().size() + 2,
                                     TestCluster::kPatience));
  const std::vector<v1::ReportShardsRequest> reports = control.reports();
  const auto whole =
      std::find_if(reports.begin() + static_cast<ptrdiff_t>(seen),
                   reports.end(), [](const v1::ReportShardsRequest& report) {
                     return report.changes().empty();
                   });
  ASSERT_NE(whole, reports.end());
  EXPECT_EQ(whole->shards(0).stored_size(), 3);
  seen = reports.size();
  wait(/*is_whole=*/false);
  // It has become an older program.
  answer.set_coordinator_features(0);
  control.SetReportResponse(answer);
  EXPECT_EQ(wait(/*is_whole=*/true).shards(0).stored_size(), 3);
}

v1::ServerPlan EmptyPlan(int64_t revision) {
  v1::ServerPlan plan;
  plan.set_revision(revision);
  plan.set_coordinator_epoch(1);
  plan.mutable_log()->set_cluster_id("cluster");
  return plan;
}

// As if its plan stream were stuck.
TEST(ParameterServerTest, EnrolledIslandsWaitForThePlanThatAnswersName) {
  FakeFileSystem fs;
  coordinator::FakeServerControlClient control;
  v1::ReportShardsResponse answer;
  answer.mutable_lease_duration()->set_nanos(600'000'000);
  answer.set_plan_revision(2);
  control.SetReportResponse(answer);
  control.SetPlan(EmptyPlan(1));
  ParameterServer::Options options;
  options.server_id = "server-0";
  options.data_dir = "data";
  Metrics metrics;
  const auto server = ParameterServer::Start(
      options, {fs, control, [](const std::string& run_id) {
                  return absl::StatusOr<v1::Run>(absl::NotFoundError(run_id));
                }, metrics});
  ASSERT_OK(server.status());
  rpc::Caller island = {Role::kIsland, "attic", RunScope()};
  island.scope.run_uid = "uid";
  island.scope.cluster_id = "cluster";
  const auto check = [&] {
    return (*server)->access().Check(island, "spring", "uid");
  };
  const absl::Time end = absl::Now() + TestCluster::kPatience;
  // It asks for the plan again, for which it has waited for a lease.
  size_t count = 0;
  while (control.registrations().size() < 3) {
    ASSERT_TRUE(absl::IsUnavailable(check())) << check();
    ASSERT_TRUE(control.WaitForReports(++count, end - absl::Now()));
  }
  EXPECT_EQ(control.reports().back().plan_revision(), 1);
  control.SetPlan(EmptyPlan(2));
  while (!check().ok()) {
    ASSERT_TRUE(control.WaitForReports(++count, end - absl::Now()));
  }
}

TEST(ParameterServerTest, ItRegistersAgainWhenTheCoordinatorForgotIt) {
  TestCluster cluster(SmallRun(), 1);
  ASSERT_OK(cluster.StartAll());
  ASSERT_OK(cluster.Begin());
  // A coordinator that is full is as good as away.
  const absl::Status full =
      RefuseForNow(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "full",
                   absl::Milliseconds(1));
  cluster.FailNext(0, "RegisterServer", full);
  cluster.FailNext(0, "ReportShards", full);
  cluster.FailNext(0, "WaitForPlan",
                   absl::FailedPreconditionError("not registered"));
  ASSERT_TRUE(cluster.WaitForRegistrations(0, 3));
  ASSERT_OK(cluster.Round(0, 2));
}

}  // namespace
}  // namespace atl::server
