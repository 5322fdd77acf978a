#include "cli/doctor/operator_judge.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kDay = absl::Hours(24);

ServiceFacts Server(const std::string& name = "server s0") {
  ServiceFacts server;
  server.name = name;
  server.address = "s0:7401";
  server.certificate_begin = kNow - 10 * kDay;
  server.certificate_end = kNow + 80 * kDay;
  server.clock_ahead = absl::Seconds(1);
  server.program_version = "0.1.0";
  server.health.emplace();
  server.health->set_disk_total_bytes(1000);
  server.health->set_disk_free_bytes(500);
  return server;
}

TEST(OperatorJudgeTest, AServerThatIsAwayFails) {
  EXPECT_EQ(JudgeReached("servers", {Server(), Server()}),
            Passed("servers", "all 2 answer"));
  ServiceFacts server = Server();
  server.alive = false;
  EXPECT_EQ(JudgeReached("servers", {Server(), server}).result,
            CheckResult::kFailed);
  server.reached = absl::UnavailableError("refused");
  EXPECT_THAT(JudgeReached("servers", {server}).message,
              HasSubstr("server s0 at s0:7401: refused"));
}

v1::GetClusterResponse Refused(const std::string& code) {
  v1::GetClusterResponse cluster;
  v1::RefusedPeer& peer = *cluster.add_refused_peers();
  peer.set_role("island");
  peer.set_name("a");
  peer.set_run_id("run");
  peer.mutable_fault()->set_code(code);
  peer.mutable_fault()->set_expected("cluster b");
  peer.mutable_fault()->set_found("cluster a");
  v1::RefusedPeer& server = *cluster.add_refused_peers();
  server = peer;
  server.set_role("server");
  server.set_name("s0");
  server.clear_run_id();
  return cluster;
}

TEST(OperatorJudgeTest, PeersOfAnotherClusterMeanAnotherDirectory) {
  EXPECT_EQ(JudgePeers({}), Passed("peers", "the coordinator refuses none"));
  const Check other = JudgePeers(Refused("OTHER_CLUSTER"));
  EXPECT_EQ(other.result, CheckResult::kFailed);
  EXPECT_THAT(other.message,
              HasSubstr("island a of run run belongs to cluster a, and the "
                        "coordinator is cluster b; server s0 belongs to"));
  EXPECT_THAT(other.action, HasSubstr("start it with the right --data-dir"));
  const Check copy = JudgePeers(Refused("STALE_INCARNATION"));
  EXPECT_THAT(copy.message, HasSubstr("server s0: STALE_INCARNATION"));
  EXPECT_THAT(copy.action, HasSubstr("its own --data-dir"));
}

TEST(OperatorJudgeTest, ServersThatAreRefusedNeedNoStart) {
  EXPECT_EQ(JudgeServers(Refused("OTHER_CLUSTER"), {}),
            NotChecked("servers", "the coordinator refuses them"));
  EXPECT_EQ(JudgeServers({}, {}).action, "Start atoll-server.");
  EXPECT_EQ(JudgeServers(Refused("OTHER_CLUSTER"), {Server()}).result,
            CheckResult::kPassed);
}

TEST(OperatorJudgeTest, ACopyOfTheSecretIsNeededWithAMirror) {
  v1::GetClusterResponse cluster;
  EXPECT_EQ(JudgeSecret(cluster).result, CheckResult::kPassed);
  cluster.set_has_mirror(true);
  const Check missing = JudgeSecret(cluster);
  EXPECT_EQ(missing.result, CheckResult::kWarn);
  EXPECT_THAT(missing.action, HasSubstr("atoll-coordinator secret"));
  cluster.set_log_secret_exported(true);
  EXPECT_EQ(JudgeSecret(cluster).result, CheckResult::kPassed);
}

TEST(OperatorJudgeTest, NoGateIsARemark) {
  EXPECT_EQ(JudgeReached("gates", {}).result, CheckResult::kWarn);
  EXPECT_THAT(JudgeReached("servers", {}).message, HasSubstr("no server"));
}

TEST(OperatorJudgeTest, AGateNeedsListenersWithTheIslandCa) {
  EXPECT_EQ(JudgeIslandCa({Server()}, true).message,
            "not checked: no service uses TLS");
  ServiceFacts good = Server();
  good.admits_islands = true;
  EXPECT_EQ(JudgeIslandCa({good}, true),
            Passed("island_ca", "1 admit enrolled islands"));
  ServiceFacts bad = Server("server s1");
  bad.admits_islands = false;
  const Check failed = JudgeIslandCa({good, bad}, true);
  EXPECT_EQ(failed.result, CheckResult::kFailed);
  EXPECT_EQ(failed.message, "server s1 at s0:7401 admits no enrolled island");
  EXPECT_THAT(failed.action, HasSubstr("--tls-dir"));
  // A coordinator without it refuses the gate.
  EXPECT_EQ(JudgeIslandCa({bad}, false).result, CheckResult::kWarn);
}

TEST(OperatorJudgeTest, ACertificateIsOldInItsLastThirdOrWeek) {
  const auto judge = [](absl::Duration age, absl::Duration left) {
    ServiceFacts server = Server();
    server.certificate_begin = kNow - age;
    server.certificate_end = kNow + left;
    return JudgeCertificates({server}, kNow).result;
  };
  EXPECT_EQ(judge(20 * kDay, 10 * kDay), CheckResult::kPassed);
  EXPECT_EQ(judge(20 * kDay + absl::Minutes(1), 10 * kDay), CheckResult::kWarn);
  EXPECT_EQ(judge(kDay, 7 * kDay), CheckResult::kPassed);
  EXPECT_EQ(judge(kDay, 7 * kDay - absl::Minutes(1)), CheckResult::kWarn);
  EXPECT_EQ(judge(kDay, absl::Seconds(1)), CheckResult::kWarn);
  EXPECT_EQ(judge(kDay, absl::ZeroDuration()), CheckResult::kFailed);
}

TEST(OperatorJudgeTest, PlaintextHasNoCertificates) {
  ServiceFacts server = Server();
  server.certificate_end.reset();
  EXPECT_THAT(JudgeCertificates({server}, kNow).message,
              HasSubstr("not checked"));
}

TEST(OperatorJudgeTest, ClocksMayBeHalfAMinuteApart) {
  const auto judge = [](absl::Duration ahead) {
    ServiceFacts server = Server();
    server.clock_ahead = ahead;
    return JudgeClocks({Server(), server});
  };
  for (const int sign : {-1, 1}) {
    EXPECT_EQ(judge(sign * absl::Seconds(30)).result, CheckResult::kPassed);
    EXPECT_EQ(judge(sign * absl::Seconds(31)).result, CheckResult::kWarn);
    EXPECT_EQ(judge(sign * absl::Minutes(5)).result, CheckResult::kWarn);
    EXPECT_EQ(judge(sign * absl::Seconds(301)).result, CheckResult::kFailed);
  }
  EXPECT_THAT(judge(-absl::Minutes(10)).message, HasSubstr("10m00s behind"));
}

TEST(OperatorJudgeTest, AnotherVersionIsARemark) {
  EXPECT_EQ(JudgeVersions({Server()}, "0.1.0").result, CheckResult::kPassed);
  EXPECT_EQ(JudgeVersions({Server()}, "0.2.0"),
            Warn("version", "server s0 has 0.1.0",
                 JudgeVersions({Server()}, "0.2.0").action));
}

TEST(OperatorJudgeTest, ADiskIsNearlyFullBelowATenth) {
  const auto judge = [](int64_t free_bytes, absl::Duration sync) {
    ServiceFacts server = Server();
    server.health->set_disk_free_bytes(free_bytes);
    *server.health->mutable_sync_duration() = ToProto(sync);
    return JudgeDisks({server}).result;
  };
  EXPECT_EQ(judge(100, absl::Milliseconds(50)), CheckResult::kPassed);
  EXPECT_EQ(judge(99, absl::Milliseconds(50)), CheckResult::kWarn);
  EXPECT_EQ(judge(100, absl::Milliseconds(51)), CheckResult::kWarn);
  EXPECT_EQ(judge(20, absl::ZeroDuration()), CheckResult::kWarn);
  EXPECT_EQ(judge(19, absl::ZeroDuration()), CheckResult::kFailed);
}

TEST(OperatorJudgeTest, AServerThatSaysNothingOfItsDiskIsARemark) {
  ServiceFacts server = Server();
  server.health.reset();
  EXPECT_THAT(JudgeDisks({server}).message, HasSubstr("does not say"));
  EXPECT_EQ(JudgeDisks({server}).result, CheckResult::kWarn);
}

v1::GetRunStateResponse MakeRun(v1::RunState state) {
  v1::GetRunStateResponse run;
  run.mutable_run()->set_run_id("spring");
  run.mutable_run()->set_state(state);
  return run;
}

TEST(OperatorJudgeTest, ARunThatDoesNotGoOnSaysWhy) {
  EXPECT_EQ(JudgeRuns({MakeRun(v1::RUN_STATE_ACTIVE)}, 0, kNow),
            Passed("runs", "1, none is blocked"));
  v1::GetRunStateResponse run = MakeRun(v1::RUN_STATE_PAUSED);
  run.mutable_run()->set_state_reason("an operator paused it");
  EXPECT_THAT(JudgeRuns({run}, 0, kNow).message, HasSubstr("PAUSED: an operator"));
  EXPECT_EQ(JudgeRuns({run}, 0, kNow).result, CheckResult::kWarn);
  run.mutable_run()->mutable_fault()->set_code("LOG_BEHIND");
  EXPECT_EQ(JudgeRuns({run}, 0, kNow).result, CheckResult::kFailed);
  run.mutable_run()->set_state(v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(JudgeRuns({run}, 0, kNow).result, CheckResult::kPassed);
}

TEST(OperatorJudgeTest, AShardThatIsBlockedIsARemarkAndAStoppedOneFails) {
  v1::GetRunStateResponse run = MakeRun(v1::RUN_STATE_ACTIVE);
  v1::ServerState& server = *run.add_servers();
  server.mutable_placement()->set_server_id("s0");
  server.set_blocked_reason("the disk is full");
  EXPECT_EQ(JudgeRuns({run}, 0, kNow).result, CheckResult::kWarn);
  EXPECT_THAT(JudgeRuns({run}, 0, kNow).message, HasSubstr("server s0: the disk"));
  server.set_fault("DATA_LOSS");
  EXPECT_EQ(JudgeRuns({run}, 0, kNow).result, CheckResult::kFailed);
}

TEST(OperatorJudgeTest, AMirrorWithoutTheNewestCheckpointIsARemark) {
  v1::GetRunStateResponse run = MakeRun(v1::RUN_STATE_ACTIVE);
  v1::RunMirror& mirror = *run.mutable_mirror();
  mirror.set_lag(12);
  *mirror.mutable_wait_start_time() = ToProto(kNow - absl::Minutes(59));
  EXPECT_EQ(JudgeRuns({run}, 0, kNow).result, CheckResult::kPassed);
  *mirror.mutable_wait_start_time() = ToProto(kNow - absl::Minutes(61));
  EXPECT_EQ(JudgeRuns({run}, 0, kNow).result, CheckResult::kWarn);
  EXPECT_THAT(JudgeRuns({run}, 0, kNow).message, HasSubstr("12 commits"));
  mirror.set_error("the bucket is away");
  EXPECT_THAT(JudgeRuns({run}, 0, kNow).message,
              HasSubstr("the bucket is away"));
}

TEST(OperatorJudgeTest, NamesThreeAndCountsTheRest) {
  std::vector<ServiceFacts> servers;
  for (int i = 0; i < 5; ++i) {
    servers.push_back(Server(std::string("s") + static_cast<char>('0' + i)));
    servers.back().health.reset();
  }
  EXPECT_THAT(JudgeDisks(servers).message, HasSubstr("and 2 more"));
}

}  // namespace
}  // namespace atl::cli
