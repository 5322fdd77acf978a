// Tests the three clients of the coordinator against scripted services on
// loopback, and the fakes against the same expectations.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/server_service.grpc.pb.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/rpc/call.h"
#include "base/rpc/listener.h"
#include "base/rpc/status.h"
#include "base/rpc/wait_notice.h"
#include "base/status/refusal.h"
#include "base/time/proto_time.h"
#include "coordinator/client/client.h"
#include "coordinator/client/island_control_client.h"
#include "coordinator/client/server_control_client.h"
#include "coordinator/client/testing/fake_island_control_client.h"
#include "coordinator/client/testing/fake_server_control_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr absl::Duration kLong = absl::Minutes(2);
constexpr char kSilent[] = "silent";

// The plans that streams send: the newest at once, then each new one. Streams
// end with the status given to End.
template <typename Plan>
class PlanBoard {
 public:
  void Publish(Plan plan) {
    std::lock_guard<std::mutex> lock(mutex_);
    plans_.push_back(std::move(plan));
    changed_.notify_all();
  }
  void End(absl::Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    end_ = std::move(status);
    changed_.notify_all();
  }

  template <typename Response>
  grpc::Status Stream(grpc::ServerContext* context,
                      grpc::ServerWriter<Response>* writer) {
    std::unique_lock<std::mutex> lock(mutex_);
    size_t sent = plans_.empty() ? 0 : plans_.size() - 1;
    while (!context->IsCancelled()) {
      for (; sent < plans_.size(); ++sent) {
        Response response;
        *response.mutable_plan() = plans_[sent];
        writer->Write(response);
      }
      if (end_.has_value()) return rpc::ToGrpc(*end_);
      changed_.wait_for(lock, std::chrono::milliseconds(5));
    }
    return grpc::Status::CANCELLED;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Plan> plans_;
  std::optional<absl::Status> end_;
};

std::string GetSession(const grpc::ServerContext& context) {
  const auto found = context.client_metadata().find(rpc::kSessionMetadata);
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

class IslandServiceDouble : public v1::IslandService::Service {
 public:
  // The caller of a call, as the call named it.
  struct Seen {
    std::string run_id;
    std::string island_id;
    int64_t island_epoch = 0;
    std::string session;
  };

  template <typename Request>
  grpc::Status See(const char* method, const grpc::ServerContext& context,
                   const Request& request) {
    std::lock_guard<std::mutex> lock(mutex);
    seen[method] = {request.run_id(), request.island_id(),
                    request.island_epoch(), GetSession(context)};
    return grpc::Status::OK;
  }

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest* request,
                    v1::JoinResponse* response) override {
    std::lock_guard<std::mutex> lock(mutex);
    log_seen["Join"] = request->log_seen();
    response->set_island_epoch(++epoch);
    response->set_session_secret(std::string("\x00\xff", 2));
    return grpc::Status::OK;
  }
  grpc::Status ReportReady(grpc::ServerContext* context,
                           const v1::ReportReadyRequest* request,
                           v1::ReportReadyResponse*) override {
    return See("ReportReady", *context, *request);
  }
  grpc::Status Heartbeat(grpc::ServerContext* context,
                         const v1::HeartbeatRequest* request,
                         v1::HeartbeatResponse* response) override {
    response->mutable_lease_duration()->set_seconds(7);
    response->mutable_lease_duration()->set_nanos(500000000);
    return See("Heartbeat", *context, *request);
  }
  grpc::Status ReportProgress(grpc::ServerContext* context,
                              const v1::ReportProgressRequest* request,
                              v1::ReportProgressResponse*) override {
    return See("ReportProgress", *context, *request);
  }
  grpc::Status Leave(grpc::ServerContext* context,
                     const v1::LeaveRequest* request,
                     v1::LeaveResponse*) override {
    return See("Leave", *context, *request);
  }
  grpc::Status WatchPlan(
      grpc::ServerContext* context, const v1::WatchPlanRequest* request,
      grpc::ServerWriter<v1::WatchPlanResponse>* writer) override {
    See("WatchPlan", *context, *request);
    {
      std::lock_guard<std::mutex> lock(mutex);
      log_seen["WatchPlan"] = request->log_seen();
      if (watch_refusal_count > 0) {
        --watch_refusal_count;
        return watch_refusal;
      }
    }
    return board.Stream(context, writer);
  }

  PlanBoard<v1::IslandPlan> board;
  std::mutex mutex;
  int64_t epoch = 0;
  std::map<std::string, Seen> seen;
  std::map<std::string, v1::LogPosition> log_seen;  // By method.
  int watch_refusal_count = 0;  // The next plan streams end with this.
  grpc::Status watch_refusal;
};

class ServerServiceDouble : public v1::ServerService::Service {
 public:
  grpc::Status RegisterServer(grpc::ServerContext*,
                              const v1::RegisterServerRequest*,
                              v1::RegisterServerResponse* response) override {
    response->set_coordinator_epoch(4);
    response->mutable_log()->set_cluster_id("cluster");
    response->mutable_log()->set_index(8);
    return grpc::Status::OK;
  }
  grpc::Status ReportShards(grpc::ServerContext*,
                            const v1::ReportShardsRequest* request,
                            v1::ReportShardsResponse* response) override {
    std::lock_guard<std::mutex> lock(mutex);
    report = *request;
    response->mutable_lease_duration()->set_seconds(9);
    response->set_plan_revision(8);
    for (const v1::ShardReport& changes : request->changes()) {
      response->add_whole_report_run_ids(changes.run_id());
    }
    return grpc::Status::OK;
  }
  grpc::Status WatchServerPlan(
      grpc::ServerContext* context, const v1::WatchServerPlanRequest* request,
      grpc::ServerWriter<v1::WatchServerPlanResponse>* writer) override {
    {
      std::lock_guard<std::mutex> lock(mutex);
      watched_incarnation = request->incarnation();
      watched_index = request->log_seen().index();
      watched.notify_all();
    }
    return board.Stream(context, writer);
  }

  PlanBoard<v1::ServerPlan> board;
  std::mutex mutex;
  std::condition_variable watched;
  v1::ReportShardsRequest report;
  int64_t watched_incarnation = 0;
  int64_t watched_index = 0;  // Of log_seen.
};

// Streams the events of records 1 to 9; record 4 has two. A stream breaks after
// three records and ends with OK after the last.
class StateServiceDouble : public v1::TrainingStateService::Service {
 public:
  grpc::Status WatchRun(
      grpc::ServerContext*, const v1::WatchRunRequest* request,
      grpc::ServerWriter<v1::WatchRunResponse>* writer) override {
    if (quiet_count_ > 0) {
      --quiet_count_;
      std::mutex mutex;
      std::condition_variable never;
      std::unique_lock<std::mutex> lock(mutex);
      never.wait_for(lock, std::chrono::milliseconds(100),
                     [] { return false; });
      return {grpc::StatusCode::UNAVAILABLE, "break"};
    }
    int64_t revision = request->after_revision();
    for (int i = 0; i < 3 && revision < 9; ++i) {
      ++revision;
      v1::WatchRunResponse response;
      response.add_events()->set_revision(revision);
      if (revision == 4) response.add_events()->set_revision(revision);
      writer->Write(response);
    }
    return revision == 9 ? grpc::Status::OK
                         : grpc::Status(grpc::StatusCode::UNAVAILABLE, "break");
  }

  // Three islands, on two pages.
  grpc::Status ListIslands(grpc::ServerContext*,
                           const v1::ListIslandsRequest* request,
                           v1::ListIslandsResponse* response) override {
    const bool is_first = request->page_token().empty();
    for (int i = is_first ? 0 : 2; i < (is_first ? 2 : 3); ++i) {
      response->add_islands()->set_island_id(
          absl::StrCat(request->run_id(), "-", i));
    }
    if (is_first) response->set_next_page_token("after 1");
    ++island_page_count_;
    return grpc::Status::OK;
  }

  // Endless pages with a round each.
  grpc::Status ListRounds(grpc::ServerContext*,
                          const v1::ListRoundsRequest* request,
                          v1::ListRoundsResponse* response) override {
    const std::string& token = request->page_token();
    response->add_rounds()->set_commit_seq(
        request->after_commit_seq() + static_cast<int64_t>(token.size()) + 1);
    response->set_next_page_token(token + "x");
    return grpc::Status::OK;
  }

  // The next `count` streams send nothing for 100 ms, then break.
  void set_quiet_count(int count) { quiet_count_ = count; }
  int island_page_count() const { return island_page_count_; }

 private:
  std::atomic<int> island_page_count_{0};
  std::atomic<int> quiet_count_{0};
};

class RunServiceDouble : public v1::RunService::Service {
 public:
  grpc::Status GetRun(grpc::ServerContext* context,
                      const v1::GetRunRequest* request,
                      v1::GetRunResponse* response) override {
    // Does not answer for this run until the caller gives up.
    if (request->run_id() == kSilent) {
      if (!asked.HasBeenNotified()) asked.Notify();
      std::mutex mutex;
      std::condition_variable never;
      std::unique_lock<std::mutex> lock(mutex);
      while (!context->IsCancelled()) {
        never.wait_for(lock, std::chrono::milliseconds(5));
      }
      return grpc::Status::CANCELLED;
    }
    response->mutable_run()->set_run_id(request->run_id());
    return grpc::Status::OK;
  }
  grpc::Status RemoveIsland(grpc::ServerContext*,
                            const v1::RemoveIslandRequest*,
                            v1::RemoveIslandResponse*) override {
    return rpc::ToGrpc(Refuse(absl::StatusCode::kNotFound, "NO_SUCH_ISLAND",
                              "it has never joined"));
  }

  absl::Notification asked;  // A call for kSilent has come.
};

class ClientsTest : public ::testing::Test {
 protected:
  ClientsTest() {
    rpc::RpcServer::Spec spec;
    spec.services = {&islands_, &servers_, &runs_, &states_};
    server_ = *rpc::RpcServer::Start(spec);
    IslandControlClientOptions island;
    island.address = server_->address();
    client_ = *MakeIslandControlClient(island);
    control_ = *MakeServerControlClient(server_->address(), {});
    run_options_.address = server_->address();
    run_options_.watch_retry = {absl::Milliseconds(1), absl::Milliseconds(10)};
    run_client_ = *MakeClient(run_options_);
  }

  static v1::IslandPlan Plan(int64_t epoch, int64_t revision) {
    v1::IslandPlan plan;
    plan.set_coordinator_epoch(epoch);
    plan.set_revision(revision);
    return plan;
  }

  void JoinAs(const std::string& island_id) {
    v1::JoinRequest request;
    request.set_run_id("run-1");
    request.set_island_id(island_id);
    ASSERT_TRUE(client_->Join(request).ok());
  }

  ClientOptions run_options_;
  IslandServiceDouble islands_;
  ServerServiceDouble servers_;
  RunServiceDouble runs_;
  StateServiceDouble states_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<IslandControlClient> client_;
  std::unique_ptr<ServerControlClient> control_;
  std::unique_ptr<Client> run_client_;
};

// --- Islands -----------------------------------------------------------------

TEST_F(ClientsTest, NobodySpeaksBeforeItHasJoined) {
  const auto code = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(client_->ReportReady(0).code(), code);
  EXPECT_EQ(client_->Heartbeat({}).status().code(), code);
  EXPECT_EQ(client_->ReportProgress({}).code(), code);
  EXPECT_EQ(client_->Leave({}).code(), code);
  EXPECT_EQ(client_->WaitForPlan({}, kLong, {}).status().code(), code);
}

TEST_F(ClientsTest, EveryCallAfterJoinCarriesWhoItIsFor) {
  JoinAs("island-1");
  islands_.board.Publish(Plan(1, 1));
  ASSERT_TRUE(client_->ReportReady(3).ok());
  ASSERT_TRUE(client_->ReportProgress({}).ok());
  const auto answer = client_->Heartbeat({});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(FromProto(answer->lease_duration()), absl::Milliseconds(7500));
  ASSERT_TRUE(client_->WaitForPlan({}, kLong, {}).ok());
  ASSERT_TRUE(client_->Leave({}).ok());
  std::lock_guard<std::mutex> lock(islands_.mutex);
  EXPECT_EQ(islands_.seen.size(), 5);
  for (const auto& [method, seen] : islands_.seen) {
    EXPECT_EQ(seen.run_id, "run-1") << method;
    EXPECT_EQ(seen.island_id, "island-1") << method;
    EXPECT_EQ(seen.island_epoch, 1) << method;
    EXPECT_EQ(seen.session, "00ff") << method;
  }
}

TEST_F(ClientsTest, SendsTheNewestPlaceOfTheLogThatItHasSeen) {
  const auto index = [&](const std::string& method) {
    std::lock_guard<std::mutex> lock(islands_.mutex);
    return islands_.log_seen[method].index();
  };
  v1::JoinRequest request;
  request.set_run_id("run-1");
  request.set_island_id("island-1");
  request.mutable_log_seen()->set_cluster_id("c");
  request.mutable_log_seen()->set_index(4);
  ASSERT_TRUE(client_->Join(request).ok());
  EXPECT_EQ(index("Join"), 4);
  v1::IslandPlan plan = Plan(1, 1);
  plan.mutable_log()->set_cluster_id("c");
  plan.mutable_log()->set_index(9);
  islands_.board.Publish(plan);
  ASSERT_TRUE(client_->WaitForPlan({}, kLong, {}).ok());
  EXPECT_EQ(index("WatchPlan"), 4);
  // The caller's position is older than the one that the client has seen since.
  ASSERT_TRUE(client_->Join(request).ok());
  EXPECT_EQ(index("Join"), 9);
  ASSERT_TRUE(client_->WaitForPlan({}, kLong, {}).ok());
  EXPECT_EQ(index("WatchPlan"), 9);
}

TEST_F(ClientsTest, FollowsThePlanAgainOnceTheLogIsRepaired) {
  {
    std::lock_guard<std::mutex> lock(islands_.mutex);
    islands_.watch_refusal = rpc::ToGrpc(Refuse(
        absl::StatusCode::kFailedPrecondition, "LOG_BEHIND", "older log"));
    islands_.watch_refusal_count = 2;
  }
  islands_.board.Publish(Plan(1, 1));
  JoinAs("island-1");
  const auto plan = client_->WaitForPlan({}, kLong, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->revision(), 1);
}

TEST_F(ClientsTest, WaitsForAPlanThatIsNewer) {
  JoinAs("island-1");
  islands_.board.Publish(Plan(1, 5));
  const auto first = client_->WaitForPlan({}, kLong, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->revision(), 5);
  EXPECT_EQ(client_->WaitForPlan(ToPosition(*first), absl::ZeroDuration(), {})
                .status()
                .code(),
            absl::StatusCode::kDeadlineExceeded);
  std::thread publisher([&] { islands_.board.Publish(Plan(1, 6)); });
  const auto second = client_->WaitForPlan(ToPosition(*first), kLong, {});
  publisher.join();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->revision(), 6);
  // A request after an older position returns the newest at once.
  EXPECT_EQ(client_->WaitForPlan({}, kLong, {})->revision(), 6);
}

TEST_F(ClientsTest, NeverReturnsAPlanOfAnOlderLifeOfTheCoordinator) {
  JoinAs("island-1");
  islands_.board.Publish(Plan(2, 1));
  const auto newest = client_->WaitForPlan({}, kLong, {});
  ASSERT_TRUE(newest.ok());
  islands_.board.Publish(Plan(1, 900));
  islands_.board.Publish(Plan(2, 2));
  const auto next = client_->WaitForPlan(ToPosition(*newest), kLong, {});
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->coordinator_epoch(), 2);
  EXPECT_EQ(next->revision(), 2);
}

TEST_F(ClientsTest, SaysWhyThePlanEnds) {
  JoinAs("island-1");
  islands_.board.End(absl::AbortedError("another process has joined"));
  EXPECT_EQ(client_->WaitForPlan({}, kLong, {}).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(ClientsTest, FollowsThePlanOfItsNewestJoin) {
  JoinAs("island-1");
  islands_.board.Publish(Plan(1, 1));
  ASSERT_TRUE(client_->WaitForPlan({}, kLong, {}).ok());
  JoinAs("island-1");
  ASSERT_TRUE(client_->WaitForPlan({}, kLong, {}).ok());
  std::lock_guard<std::mutex> lock(islands_.mutex);
  EXPECT_EQ(islands_.seen["WatchPlan"].island_epoch, 2);
}

TEST_F(ClientsTest, IsNoMemberAfterItHasLeft) {
  JoinAs("island-1");
  ASSERT_TRUE(client_->Leave({}).ok());
  EXPECT_EQ(client_->Heartbeat({}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClientsTest, NamesTheCoordinatorThatIsAway) {
  JoinAs("island-1");
  const std::string address = server_->address();
  server_.reset();
  const absl::Status status = client_->ReportReady(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "coordinator " + address))
      << status;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(client_->WaitForPlan({}, kLong, stop.get_token()).status().code(),
            absl::StatusCode::kCancelled);
}

// --- Servers -----------------------------------------------------------------

TEST_F(ClientsTest, AServerRegistersFollowsItsPlanAndReports) {
  EXPECT_EQ(control_->ReportShards({}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  v1::RegisterServerRequest request;
  request.set_server_id("server-0");
  request.set_incarnation(12);
  const auto response = control_->RegisterServer(request);
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->coordinator_epoch(), 4);
  v1::ServerPlan plan;
  plan.set_coordinator_epoch(4);
  plan.set_revision(8);
  servers_.board.Publish(plan);
  const auto newest = control_->WaitForPlan({}, kLong, {});
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->revision(), 8);
  v1::ReportShardsRequest report;
  report.set_report_seq(2);
  const auto answer = control_->ReportShards(report);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->lease_duration().seconds(), 9);
  EXPECT_EQ(answer->plan_revision(), 8);
  std::lock_guard<std::mutex> lock(servers_.mutex);
  EXPECT_EQ(servers_.report.server_id(), "server-0");
  EXPECT_EQ(servers_.report.incarnation(), 12);
  EXPECT_EQ(servers_.report.report_seq(), 2);
  EXPECT_EQ(servers_.watched_incarnation, 12);
  EXPECT_EQ(servers_.watched_index, 8);
}

TEST_F(ClientsTest, TheAnswerToAReportIsThatToAllItsMessages) {
  v1::RegisterServerRequest request;
  request.set_server_id("server-0");
  ASSERT_TRUE(control_->RegisterServer(request).ok());
  v1::ReportShardsRequest report;
  for (const char* const run_id : {"a", "b", "c"}) {
    v1::ShardReport& changes = *report.add_changes();
    changes.set_run_id(run_id);
    changes.set_blocked_reason(std::string(900 << 10, 'x'));
  }
  const auto answer = control_->ReportShards(report);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(answer->whole_report_run_ids(),
              ::testing::UnorderedElementsAre("a", "b", "c"));
  EXPECT_EQ(answer->lease_duration().seconds(), 9);
}

TEST_F(ClientsTest, AServerThatRegistersAgainWatchesFromWhatItHasReported) {
  v1::RegisterServerRequest request;
  request.set_server_id("server-0");
  ASSERT_TRUE(control_->RegisterServer(request).ok());
  servers_.board.Publish({});
  ASSERT_TRUE(control_->WaitForPlan({}, kLong, {}).ok());
  v1::ReportShardsRequest report;
  report.mutable_log_seen()->set_cluster_id("cluster");
  report.mutable_log_seen()->set_index(11);
  ASSERT_TRUE(control_->ReportShards(report).ok());
  // The stream ends, and the client opens another.
  servers_.board.End(absl::UnavailableError("again"));
  std::unique_lock<std::mutex> lock(servers_.mutex);
  EXPECT_EQ(servers_.report.log_seen().index(), 11);
  EXPECT_TRUE(servers_.watched.wait_for(
      lock, absl::ToChronoMilliseconds(kLong),
      [&] { return servers_.watched_index == 11; }));
}

// --- Operators and readers ---------------------------------------------------

TEST_F(ClientsTest, AsksForARun) {
  v1::GetRunRequest request;
  request.set_run_id("run-7");
  const auto response =
      run_client_->Call(&v1::RunService::Stub::GetRun, request);
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->run().run_id(), "run-7");
  EXPECT_EQ(
      run_client_->Call(&v1::RunService::Stub::ListRuns, {}).status().code(),
      absl::StatusCode::kUnimplemented);
}

TEST_F(ClientsTest, AListHasAllPages) {
  const auto islands = run_client_->ListIslands("run-7");
  ASSERT_TRUE(islands.ok()) << islands.status();
  ASSERT_EQ(islands->size(), 3);
  for (size_t i = 0; i < islands->size(); ++i) {
    EXPECT_EQ((*islands)[i].island_id(), absl::StrCat("run-7-", i));
  }
  EXPECT_EQ(run_client_->ListCheckpoints("run-7").status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(ClientsTest, NoPageIsReadAfterThatOfTheIsland) {
  const auto first = run_client_->FindIsland("run-7", "run-7-1");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->island_id(), "run-7-1");
  EXPECT_EQ(states_.island_page_count(), 1);
  const auto last = run_client_->FindIsland("run-7", "run-7-2");
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->island_id(), "run-7-2");
  const absl::Status none =
      run_client_->FindIsland("run-7", "run-7-3").status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_TRUE(HasReason(none, "NO_SUCH_ISLAND"));
  EXPECT_EQ(states_.island_page_count(), 5);
}

TEST_F(ClientsTest, NoRoundIsReadAfterTheLastThatIsWanted) {
  std::vector<int64_t> seen;
  const absl::Status read = run_client_->ForEachRound(
      "run-7", 4, [&](v1::Round&& round) -> absl::StatusOr<bool> {
        seen.push_back(round.commit_seq());
        return round.commit_seq() < 6;
      });
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_THAT(seen, ::testing::ElementsAre(5, 6));
  EXPECT_TRUE(absl::IsAborted(run_client_->ForEachRound(
      "run-7", 4, [](v1::Round&&) { return absl::AbortedError("no"); })));
}

TEST_F(ClientsTest, AnErrorKeepsItsReason) {
  const absl::Status status =
      run_client_->Call(&v1::RunService::Stub::RemoveIsland, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetReason(status)->reason, "NO_SUCH_ISLAND");
}

TEST_F(ClientsTest, ACallNamesACoordinatorThatIsAway) {
  server_.reset();
  const absl::Status status =
      run_client_->Call(&v1::RunService::Stub::GetRun, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), run_options_.address))
      << status;
}

TEST_F(ClientsTest, ACallThatWaitsForAConnectionDoesNotFailAtOnce) {
  server_.reset();
  run_options_.waits_for_connection = true;
  run_options_.timeout = absl::Milliseconds(50);
  const absl::Status status = (*MakeClient(run_options_))
                                  ->Call(&v1::RunService::Stub::GetRun, {})
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(absl::StrContains(status.message(), run_options_.address))
      << status;
}

TEST_F(ClientsTest, ACallEndsAtItsDeadline) {
  run_options_.timeout = absl::Milliseconds(50);
  v1::GetRunRequest request;
  request.set_run_id(kSilent);
  EXPECT_EQ((*MakeClient(run_options_))
                ->Call(&v1::RunService::Stub::GetRun, request)
                .status()
                .code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientsTest, ACallWithoutAnAnswerEndsWhenItsClientIsStopped) {
  std::stop_source stop;
  ClientOptions options = run_options_;
  options.timeout = absl::Hours(1);
  options.stop = stop.get_token();
  const auto client = *MakeClient(options);
  v1::GetRunRequest request;
  request.set_run_id(kSilent);
  std::thread stopper([&] {
    runs_.asked.WaitForNotification();
    stop.request_stop();
  });
  absl::Status status =
      client->Call(&v1::RunService::Stub::GetRun, request).status();
  stopper.join();
  EXPECT_EQ(status, absl::CancelledError("stopped"));
  // A later call does not begin.
  status = client->Call(&v1::RunService::Stub::GetRun, request).status();
  EXPECT_EQ(status, absl::CancelledError("stopped"));
  // A background client has its own stop.
  std::stop_source other;
  const auto background =
      client->InBackground(other.get_token(), absl::InfiniteDuration());
  request.set_run_id("run");
  EXPECT_TRUE(background->Call(&v1::RunService::Stub::GetRun, request).ok());
  other.request_stop();
  EXPECT_EQ(background->Call(&v1::RunService::Stub::GetRun, request).status(),
            absl::CancelledError("stopped"));
}

TEST_F(ClientsTest, WhatIsAskedInTheBackgroundSaysNothingAndHasItsOwnBound) {
  ClientOptions options = run_options_;
  options.timeout = absl::Hours(1);
  std::atomic<int> count{0};
  options.on_waiting = [&](absl::string_view, absl::Duration,
                           absl::string_view) { ++count; };
  const auto client = *MakeClient(options);
  v1::GetRunRequest request;
  request.set_run_id(kSilent);
  const auto background =
      client->InBackground({}, rpc::kSlowAfter + absl::Milliseconds(200));
  EXPECT_EQ(
      background->Call(&v1::RunService::Stub::GetRun, request).status().code(),
      absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(count, 0);
}

TEST_F(ClientsTest, WatchesARunThroughBreaksSeeingEveryEventOnce) {
  std::vector<int64_t> revisions;
  const absl::Status status =
      run_client_->WatchRun({}, kLong,
                            [&](const v1::RunEvent& event) {
                              revisions.push_back(event.revision());
                              return true;
                            },
                            {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(revisions, (std::vector<int64_t>{1, 2, 3, 4, 4, 5, 6, 7, 8, 9}));
}

TEST_F(ClientsTest, StopsWatchingWhenItsCallerHasSeenEnough) {
  int count = 0;
  EXPECT_TRUE(run_client_
                  ->WatchRun({}, kLong,
                             [&](const v1::RunEvent&) { return ++count < 5; },
                             {})
                  .ok());
  EXPECT_EQ(count, 5);
}

TEST_F(ClientsTest, LosesPatienceWithACoordinatorThatIsAway) {
  server_.reset();
  EXPECT_EQ(run_client_
                ->WatchRun({}, absl::Milliseconds(50),
                           [](const v1::RunEvent&) { return true; }, {})
                .code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ClientsTest, SaysOnceThatACoordinatorIsAway) {
  ClientOptions options = run_options_;
  int count = 0;
  const absl::Duration patience_max =
      rpc::WaitNotice::kFirst + absl::Milliseconds(200);
  options.on_waiting = [&](absl::string_view peer, absl::Duration patience,
                           absl::string_view why) {
    ++count;
    EXPECT_EQ(peer, "coordinator " + run_options_.address);
    EXPECT_EQ(patience, patience_max);
    EXPECT_EQ(why, "it refuses connections");
  };
  const auto client = *MakeClient(options);
  server_.reset();
  EXPECT_EQ(client
                ->WatchRun({}, patience_max,
                           [](const v1::RunEvent&) { return true; }, {})
                .code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(count, 1);
}

// The run is idle for long, then its coordinator restarts.
TEST_F(ClientsTest, AQuietStreamThatBreaksIsNoSilence) {
  ClientOptions options = run_options_;
  options.watch_had_after = absl::Milliseconds(50);
  const auto client = *MakeClient(options);
  states_.set_quiet_count(3);
  int count = 0;
  const absl::Status status = client->WatchRun(
      {}, absl::Milliseconds(90),
      [&](const v1::RunEvent&) {
        ++count;
        return true;
      },
      {});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(count, 10);
}

// --- Fakes -------------------------------------------------------------------

TEST(FakeCoordinatorClientTest, ActsAsItIsTold) {
  FakeIslandControlClient fake;
  v1::JoinResponse response;
  response.set_slot(2);
  response.mutable_plan()->set_revision(1);
  fake.SetJoinResponse(response);
  fake.FailNext("Join", absl::UnavailableError("away"));
  EXPECT_EQ(fake.Join({}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fake.Join({})->slot(), 2);
  EXPECT_EQ(fake.joins().size(), 2);
  const auto plan = fake.WaitForPlan({}, kLong, {});
  ASSERT_TRUE(plan.ok());
  std::thread publisher([&] {
    v1::IslandPlan newer;
    newer.set_revision(2);
    fake.SetPlan(newer);
  });
  EXPECT_EQ(fake.WaitForPlan(ToPosition(*plan), kLong, {})->revision(), 2);
  publisher.join();
  ASSERT_TRUE(fake.ReportReady(5).ok());
  ASSERT_TRUE(fake.Heartbeat({}).ok());
  EXPECT_EQ(fake.heartbeat_count(), 1);
  ASSERT_TRUE(fake.Leave({}).ok());
  EXPECT_TRUE(fake.left().has_value());
}

TEST(FakeServerControlClientTest, ActsAsItIsTold) {
  FakeServerControlClient fake;
  v1::ServerPlan plan;
  plan.set_revision(3);
  fake.SetPlan(plan);
  EXPECT_EQ(fake.WaitForPlan({}, kLong, {})->revision(), 3);
  fake.FailNext("ReportShards", absl::AbortedError("old"));
  EXPECT_FALSE(fake.ReportShards({}).ok());
  std::thread reporter([&] { EXPECT_TRUE(fake.ReportShards({}).ok()); });
  EXPECT_TRUE(fake.WaitForReports(1, kLong));
  reporter.join();
  EXPECT_EQ(fake.reports().size(), 1);
}

}  // namespace
}  // namespace atl::coordinator
