// The services over loopback, on a store in memory: a whole strict run,
// streams, sessions, and a store that fails.

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment_service.grpc.pb.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/server_service.grpc.pb.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/random_id/random_id.h"
#include "base/rpc/chunk_codec.h"
#include "base/rpc/listener.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "coordinator/client/plan_parts.h"
#include "coordinator/core/log_history.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/testing/run_simulation.h"
#include "coordinator/service/encoded_items.h"
#include "coordinator/service/event_loop.h"
#include "coordinator/service/services.h"
#include "coordinator/service/shared_answer.h"
#include "coordinator/store/testing/memory_store.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr char kManifestUrl[] = "s3://bucket/text/manifest.json";

// "Signs" by naming what it was asked for.
class FakeSigner : public DataUrlSigner {
 public:
  void Sign(const std::string& manifest_url, std::vector<std::string> paths,
            Done done) override {
    v1::SignDataUrlsResponse response;
    for (const std::string& path : paths) {
      response.add_urls()->set_url(
          absl::StrCat("signed:", manifest_url, "+", path));
    }
    done(response);
  }
};

// One life of a coordinator on a store.
struct Life {
  explicit Life(Store& store, const SnapshotPolicy& snapshots = {},
                const StreamBound& event_streams = {100, 100}) {
    EventLoop::Spec spec;
    spec.coordinator.snapshots = snapshots;
    spec.event_streams = event_streams;
    spec.store = &store;
    spec.clock = &SystemClock();
    spec.recovery_period = absl::Milliseconds(1);
    loop = *EventLoop::Start(spec);
    run_service = MakeRunService(*loop);
    state_service = MakeTrainingStateService(*loop);
    island_service = MakeIslandService(*loop, &signer);
    server_service = MakeServerService(*loop);
    enrolment_service = MakeEnrolmentService(*loop, "", [] { return true; });
    rpc::RpcServer::Spec server_spec;
    server_spec.services = {run_service.get(), state_service.get(),
                            island_service.get(), server_service.get(),
                            enrolment_service.get()};
    server = *rpc::RpcServer::Start(server_spec);
    const auto channel = grpc::CreateChannel(
        server->address(), grpc::InsecureChannelCredentials());
    runs = v1::RunService::NewStub(channel);
    states = v1::TrainingStateService::NewStub(channel);
    islands = v1::IslandService::NewStub(channel);
    servers = v1::ServerService::NewStub(channel);
    enrolment = v1::EnrolmentService::NewStub(channel);
  }
  ~Life() {
    loop->Stop();
    server->Stop();
  }

  FakeSigner signer;
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<grpc::Service> run_service;
  std::unique_ptr<grpc::Service> state_service;
  std::unique_ptr<grpc::Service> island_service;
  std::unique_ptr<grpc::Service> server_service;
  std::unique_ptr<grpc::Service> enrolment_service;
  std::unique_ptr<rpc::RpcServer> server;
  std::unique_ptr<v1::RunService::Stub> runs;
  std::unique_ptr<v1::TrainingStateService::Stub> states;
  std::unique_ptr<v1::IslandService::Stub> islands;
  std::unique_ptr<v1::ServerService::Stub> servers;
  std::unique_ptr<v1::EnrolmentService::Stub> enrolment;
};

class ServicesTest : public testing::Test {
 protected:
  ServicesTest() : life_(std::make_unique<Life>(store_)) {}

  absl::Status CreateRun(const v1::RunSpec& spec = SimpleSpec(),
                         const std::string& run_id = "run") {
    v1::CreateRunRequest request;
    request.set_run_id(run_id);
    *request.mutable_spec() = spec;
    v1::CreateRunResponse response;
    grpc::ClientContext context;
    return rpc::FromGrpc(life_->runs->CreateRun(&context, request, &response));
  }

  absl::Status Register(int shard) {
    v1::RegisterServerRequest request;
    request.set_server_id(absl::StrCat("server-", shard));
    request.set_address("127.0.0.1:1");
    request.set_incarnation(1);
    v1::RegisterServerResponse response;
    grpc::ClientContext context;
    return rpc::FromGrpc(
        life_->servers->RegisterServer(&context, request, &response));
  }

  v1::ServerPlan ServerPlan(int shard) {
    v1::WatchServerPlanRequest request;
    request.set_server_id(absl::StrCat("server-", shard));
    request.set_incarnation(1);
    grpc::ClientContext context;
    const auto reader = life_->servers->WatchServerPlan(&context, request);
    v1::WatchServerPlanResponse response;
    EXPECT_TRUE(reader->Read(&response));
    context.TryCancel();
    reader->Finish();
    return response.plan();
  }

  void Report(int shard) {
    v1::ReportShardsRequest request;
    request.set_server_id(absl::StrCat("server-", shard));
    request.set_incarnation(1);
    request.set_report_seq(++report_seq_);
    v1::ShardReport& report = *request.add_shards();
    report.set_run_id("run");
    report.set_run_epoch(run_epoch_);
    report.set_shard(shard);
    report.set_initialized(true);
    report.add_version0_digests()->set_low(1);
    for (const v1::ContributionInfo& info : pushed_) {
      *report.add_stored()->mutable_info() = info;
    }
    const v1::ServerPlan plan = ServerPlan(shard);
    for (const v1::ServerRunPlan& run : plan.runs()) {
      report.set_persisted_commit_seq(run.commit_seq());
      for (const v1::Pin& pin : run.pins()) {
        v1::ShardCheckpoint& held = *report.add_checkpoints();
        held.set_pin_id(pin.pin_id());
        held.set_commit_seq(pin.commit_seq());
        held.set_durable(true);
      }
      for (const v1::Seal& seal : run.seals()) {
        v1::PreparedRound& prepared = *report.add_prepared();
        prepared.set_version(seal.version());
        prepared.set_attempt(seal.attempt());
        prepared.set_finite(true);
      }
    }
    for (int i = 0; i < refused_elsewhere_count_; ++i) {
      v1::RefusedContribution& refused = *report.add_refused();
      refused.mutable_key()->set_run_epoch(2);
      refused.mutable_key()->set_seq(i);
      refused.set_reason(std::string(256, 'x'));
    }
    for (const v1::ReportShardsRequest& part : CutReport(request)) {
      v1::ReportShardsResponse response;
      grpc::ClientContext context;
      const absl::Status status = rpc::FromGrpc(
          life_->servers->ReportShards(&context, part, &response));
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  void StartServers() {
    for (int shard : {0, 1}) ASSERT_TRUE(Register(shard).ok());
    for (int shard : {0, 1}) Report(shard);
  }

  absl::StatusOr<v1::JoinResponse> Join(const std::string& island_id,
                                        const v1::LogPosition& seen = {},
                                        const std::string& run_id = "run") {
    v1::JoinRequest request;
    request.set_run_id(run_id);
    *request.mutable_log_seen() = seen;
    request.set_island_id(island_id);
    request.mutable_capabilities()->add_devices()->set_kind("cpu");
    request.mutable_capabilities()->set_data_fingerprint(
        SimpleSpec().data().fingerprint());
    v1::JoinResponse response;
    grpc::ClientContext context;
    const absl::Status status =
        rpc::FromGrpc(life_->islands->Join(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }

  static void AddSession(grpc::ClientContext& context,
                         const v1::JoinResponse& joined) {
    context.AddMetadata("atoll-session",
                        absl::BytesToHexString(joined.session_secret()));
  }

  absl::Status Ready(const std::string& island_id,
                     const v1::JoinResponse& joined, int64_t commit_seq = 0) {
    v1::ReportReadyRequest request;
    request.set_commit_seq(commit_seq);
    request.set_run_id("run");
    request.set_island_id(island_id);
    request.set_island_epoch(joined.island_epoch());
    v1::ReportReadyResponse response;
    grpc::ClientContext context;
    AddSession(context, joined);
    return rpc::FromGrpc(
        life_->islands->ReportReady(&context, request, &response));
  }

  void Evaluate(const std::string& island_id, const v1::JoinResponse& joined,
                int64_t version, double loss) {
    v1::ReportProgressRequest request;
    request.set_run_id("run");
    request.set_island_id(island_id);
    request.set_island_epoch(joined.island_epoch());
    v1::Evaluation& evaluation = *request.add_evaluations();
    evaluation.set_version(version);
    evaluation.set_commit_seq(version);
    evaluation.set_loss(loss);
    v1::ReportProgressResponse response;
    grpc::ClientContext context;
    AddSession(context, joined);
    const absl::Status status = rpc::FromGrpc(
        life_->islands->ReportProgress(&context, request, &response));
    EXPECT_TRUE(status.ok()) << status;
  }

  void Push(const v1::JoinResponse& joined, int64_t version) {
    v1::ContributionInfo info;
    info.mutable_key()->set_run_epoch(run_epoch_);
    info.mutable_key()->set_slot(joined.slot());
    info.mutable_key()->set_seq(joined.next_seq() + version +
                                10 * (run_epoch_ - 1));
    info.set_anchor_version(version);
    info.set_codec(v1::CODEC_F32);
    info.set_step_count(4);
    info.set_token_count(80);
    pushed_.push_back(info);
  }

  v1::Run GetRun() { return AskForRun().run(); }

  v1::GetRunResponse AskForRun() {
    v1::GetRunRequest request;
    request.set_run_id("run");
    v1::GetRunResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(life_->runs->GetRun(&context, request, &response).ok());
    return response;
  }

  std::vector<v1::Round> ListRounds() {
    v1::ListRoundsRequest request;
    request.set_run_id("run");
    request.set_page_size(2);
    std::vector<v1::Round> rounds;
    while (true) {
      v1::ListRoundsResponse page;
      grpc::ClientContext context;
      const grpc::Status status =
          life_->states->ListRounds(&context, request, &page);
      EXPECT_TRUE(status.ok()) << status.error_message();
      rounds.insert(rounds.end(), page.rounds().begin(), page.rounds().end());
      if (page.next_page_token().empty()) return rounds;
      request.set_page_token(page.next_page_token());
    }
  }

  v1::GetMetricsResponse GetMetrics() {
    v1::GetMetricsRequest request;
    request.set_run_id("run");
    request.add_names("outer/gradient_norm");
    request.add_names("loss_metrics/outer_validation_loss");
    v1::GetMetricsResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(life_->states->GetMetrics(&context, request, &response).ok());
    return response;
  }

  std::vector<v1::RunEvent> WatchToTheEnd(int64_t after_revision) {
    v1::WatchRunRequest request;
    request.set_run_id("run");
    request.set_after_revision(after_revision);
    grpc::ClientContext context;
    const auto reader = life_->states->WatchRun(&context, request);
    std::vector<v1::RunEvent> events;
    v1::WatchRunResponse response;
    while (reader->Read(&response)) {
      events.insert(events.end(), response.events().begin(),
                    response.events().end());
    }
    EXPECT_TRUE(reader->Finish().ok());
    return events;
  }

  // Plays a run from its creation to its end.
  void RunAll(const v1::RunSpec& spec = SimpleSpec()) {
    ASSERT_TRUE(CreateRun(spec).ok());
    StartServers();
    const auto a = Join("a");
    const auto b = Join("b");
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_TRUE(Ready("a", *a).ok());
    ASSERT_TRUE(Ready("b", *b).ok());
    a_ = *a;
    b_ = *b;
    for (int64_t version = 0; version < 3; ++version) {
      PlayRound(version);
      if (version == 0) Evaluate("b", b_, 1, 2.5);
    }
    const v1::GetRunResponse ended = AskForRun();
    EXPECT_EQ(ended.run().state(), v1::RUN_STATE_COMPLETED);
    ASSERT_EQ(ended.cut_size(), 1);
    EXPECT_GT(ended.cut(0).version(), 0);
    EXPECT_GT(ended.shards_size(), 0);
  }

  void PlayRound(int64_t version) {
    Push(a_, version);
    Push(b_, version);
    for (int i = 0; i < 2; ++i) {
      for (int shard : {0, 1}) Report(shard);
    }
    pushed_.clear();
  }

  MemoryLogStore store_;
  std::unique_ptr<Life> life_;
  v1::JoinResponse a_, b_;  // Answers to the joins of RunAll.
  int64_t run_epoch_ = 1;
  std::vector<v1::ContributionInfo> pushed_;
  int64_t report_seq_ = 0;
  // Refused contributions of another run_epoch in every report.
  int refused_elsewhere_count_ = 0;
};

TEST_F(ServicesTest, SignsUrlsOfARunsDataOnly) {
  v1::RunSpec spec = SimpleSpec();
  spec.mutable_data()->set_url(kManifestUrl);
  spec.mutable_data()->set_order(v1::DATA_ORDER_BY_FILE);
  const absl::Status created = CreateRun(spec);
  ASSERT_TRUE(created.ok()) << created;
  const auto sign = [this](const std::string& run_id,
                           const std::vector<std::string>& paths,
                           v1::SignDataUrlsResponse& response) {
    v1::SignDataUrlsRequest request;
    request.set_run_id(run_id);
    for (const std::string& path : paths) request.add_paths(path);
    grpc::ClientContext context;
    return rpc::FromGrpc(
               life_->islands->SignDataUrls(&context, request, &response))
        .code();
  };
  v1::SignDataUrlsResponse response;
  EXPECT_EQ(sign("run", {"a", "b/c"}, response), absl::StatusCode::kOk);
  ASSERT_EQ(response.urls_size(), 2);
  EXPECT_EQ(response.urls(1).url(),
            "signed:s3://bucket/text/manifest.json+b/c");
  EXPECT_EQ(sign("other", {"a"}, response), absl::StatusCode::kNotFound);
  EXPECT_EQ(sign("run", {"../a"}, response),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sign("run", {}, response), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServicesTest, DrivesARunToItsEndAndTellsWhatItDid) {
  RunAll();
  v1::ListRoundsRequest request;
  request.set_run_id("run");
  request.set_page_size(2);
  v1::ListRoundsResponse page;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(life_->states->ListRounds(&context, request, &page).ok());
  }
  ASSERT_EQ(page.rounds_size(), 2);
  EXPECT_EQ(page.rounds(1).commit_seq(), 2);
  EXPECT_EQ(page.rounds(1).contributions_size(), 2);
  EXPECT_EQ(page.rounds(1).contributions(0).outcome(), v1::OUTCOME_MERGED);
  request.set_page_token(page.next_page_token());
  {
    grpc::ClientContext context;
    ASSERT_TRUE(life_->states->ListRounds(&context, request, &page).ok());
  }
  EXPECT_EQ(page.rounds_size(), 1);
  EXPECT_EQ(page.next_page_token(), "");
}

TEST_F(ServicesTest, AJoinIsAnsweredWithTheWholeRun) {
  ASSERT_TRUE(CreateRun().ok());
  const absl::StatusOr<v1::JoinResponse> joined = Join("a");
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_GT(joined->run().spec().layout().tensors_size(), 0);
  EXPECT_EQ(joined->run().SerializeAsString(), GetRun().SerializeAsString());
  EXPECT_EQ(Join("b", {}, "none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ServicesTest, AReadShowsWhatItsCallerDidBefore) {
  ASSERT_TRUE(CreateRun().ok());
  StartServers();
  v1::GetRunStateRequest request;
  request.set_run_id("run");
  for (int i = 0; i < 20; ++i) {
    const bool pauses = i % 2 == 0;
    v1::PauseRunRequest pause;
    pause.set_run_id("run");
    v1::PauseRunResponse paused;
    v1::ResumeRunRequest resume;
    resume.set_run_id("run");
    v1::ResumeRunResponse resumed;
    grpc::ClientContext steering;
    ASSERT_TRUE(
        (pauses ? life_->runs->PauseRun(&steering, pause, &paused)
                : life_->runs->ResumeRun(&steering, resume, &resumed))
            .ok());
    v1::GetRunStateResponse shown;
    grpc::ClientContext reading;
    ASSERT_TRUE(life_->states->GetRunState(&reading, request, &shown).ok());
    EXPECT_EQ(shown.run().state(),
              pauses ? v1::RUN_STATE_PAUSED : v1::RUN_STATE_ACTIVE);
  }
}

TEST_F(ServicesTest, PagesOfIslandsAndSomeMetricsArePartsOfTheWhole) {
  ASSERT_TRUE(CreateRun().ok());
  for (const char* id : {"a", "b"}) ASSERT_TRUE(Join(id).ok());
  const auto list = [this](int page_size, const std::string& token) {
    v1::ListIslandsRequest request;
    request.set_run_id("run");
    request.set_page_size(page_size);
    request.set_page_token(token);
    v1::ListIslandsResponse page;
    grpc::ClientContext context;
    const grpc::Status status =
        life_->states->ListIslands(&context, request, &page);
    EXPECT_EQ(status.ok(), page_size >= 0) << status.error_message();
    return page;
  };
  const v1::ListIslandsResponse whole = list(0, "");
  ASSERT_EQ(whole.islands_size(), 2);
  EXPECT_EQ(whole.islands(1).island_id(), "b");
  EXPECT_EQ(whole.next_page_token(), "");
  v1::ListIslandsResponse page = list(1, "");
  EXPECT_EQ(page.next_page_token(), "1");
  const v1::ListIslandsResponse rest = list(1, "1");
  EXPECT_EQ(rest.next_page_token(), "");
  page.MergeFrom(rest);
  page.clear_next_page_token();
  EXPECT_EQ(page.SerializeAsString(), whole.SerializeAsString());
  EXPECT_EQ(list(1, "7").islands_size(), 0);
  list(-1, "");

  EXPECT_EQ(GetMetrics().series_size(), 2);
  v1::GetMetricsRequest request;
  request.set_run_id("run");
  v1::GetMetricsResponse metrics;
  grpc::ClientContext all;
  ASSERT_TRUE(life_->states->GetMetrics(&all, request, &metrics).ok());
  EXPECT_GT(metrics.series_size(), 2);
  request.add_names("no such metric");
  grpc::ClientContext wrong;
  const grpc::Status status =
      life_->states->GetMetrics(&wrong, request, &metrics);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("no such metric"));
}

TEST_F(ServicesTest, ListsAreMadeInTheReadPoolAndCutIntoPages) {
  v1::RunSpec spec = SimpleSpec();
  spec.set_checkpoint_every_round_count(1);
  RunAll(spec);
  v1::CreateRunRequest second;
  second.set_run_id("second");
  *second.mutable_spec() = SimpleSpec();
  v1::CreateRunResponse created;
  grpc::ClientContext creating;
  ASSERT_TRUE(life_->runs->CreateRun(&creating, second, &created).ok());

  v1::ListRunsRequest runs;
  v1::ListRunsResponse run_page;
  v1::ListCheckpointsRequest checkpoints;
  checkpoints.set_run_id("run");
  v1::ListCheckpointsResponse checkpoint_page;
  const auto list_runs = [&](absl::Duration patience = absl::Minutes(1)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + patience));
    return life_->runs->ListRuns(&context, runs, &run_page).error_code();
  };
  const auto list_checkpoints = [&](absl::Duration patience =
                                        absl::Minutes(1)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + patience));
    return life_->states
        ->ListCheckpoints(&context, checkpoints, &checkpoint_page)
        .error_code();
  };
  // The thread of the core answers neither while the pool is busy.
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  for (int thread = 0; thread < 2; ++thread) {
    life_->loop->reads().RunOwn([ended] { ended.wait(); });
  }
  const absl::Duration soon = absl::Milliseconds(200);
  EXPECT_EQ(list_runs(soon), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(list_checkpoints(soon), grpc::StatusCode::DEADLINE_EXCEEDED);
  end.set_value();

  ASSERT_EQ(list_runs(), grpc::StatusCode::OK);
  const v1::ListRunsResponse all_runs = run_page;
  ASSERT_EQ(all_runs.runs_size(), 2);
  EXPECT_EQ(all_runs.next_page_token(), "");
  runs.set_page_size(1);
  ASSERT_EQ(list_runs(), grpc::StatusCode::OK);
  EXPECT_EQ(run_page.next_page_token(), "after run");
  ASSERT_EQ(run_page.runs_size(), 1);
  EXPECT_EQ(run_page.runs(0).SerializeAsString(),
            all_runs.runs(0).SerializeAsString());
  runs.set_page_token("after run");
  ASSERT_EQ(list_runs(), grpc::StatusCode::OK);
  ASSERT_EQ(run_page.runs_size(), 1);
  EXPECT_EQ(run_page.runs(0).run_id(), "second");
  runs.set_page_token("run");
  EXPECT_EQ(list_runs(), grpc::StatusCode::INVALID_ARGUMENT);

  ASSERT_EQ(list_checkpoints(), grpc::StatusCode::OK);
  const v1::ListCheckpointsResponse all = checkpoint_page;
  ASSERT_GE(all.checkpoints_size(), 2);
  EXPECT_EQ(all.next_page_token(), "");
  EXPECT_EQ(all.checkpoints(0).shards_size(), 2);
  checkpoints.set_page_size(1);
  for (const v1::Checkpoint& checkpoint : all.checkpoints()) {
    ASSERT_EQ(list_checkpoints(), grpc::StatusCode::OK);
    ASSERT_EQ(checkpoint_page.checkpoints_size(), 1);
    EXPECT_EQ(checkpoint_page.checkpoints(0).SerializeAsString(),
              checkpoint.SerializeAsString());
    checkpoints.set_page_token(checkpoint_page.next_page_token());
  }
  EXPECT_EQ(checkpoint_page.next_page_token(), "");
  checkpoints.set_page_token("round-1");
  EXPECT_EQ(list_checkpoints(), grpc::StatusCode::INVALID_ARGUMENT);
  checkpoints.set_run_id("third");
  EXPECT_EQ(list_checkpoints(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServicesTest, TheClusterAndTokensAreReadInThePool) {
  ASSERT_TRUE(CreateRun().ok());
  StartServers();
  {
    v1::AnnounceGateRequest request;
    request.set_address("gate.example.org:7402");
    request.set_pin(std::string(43, 'p'));
    v1::AnnounceGateResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(
        life_->enrolment->AnnounceGate(&context, request, &response).ok());
  }
  for (const char* token_id : {"abcdefghijkl", "bcdefghijklm"}) {
    v1::CreateTokenRequest request;
    v1::Token& token = *request.mutable_token();
    token.set_token_id(token_id);
    token.set_role(v1::ENROLLED_ROLE_ISLAND);
    token.set_run_id("run");
    token.set_use_count_max(1);
    *token.mutable_expire_time() = ToProto(absl::Now() + absl::Hours(1));
    request.set_secret_sha256(std::string(32, 's'));
    request.set_accept_unbounded(true);
    v1::CreateTokenResponse response;
    grpc::ClientContext context;
    const absl::Status made = rpc::FromGrpc(
        life_->enrolment->CreateToken(&context, request, &response));
    ASSERT_TRUE(made.ok()) << made;
  }
  v1::GetClusterResponse cluster;
  const auto get_cluster = [&](absl::Duration patience = absl::Minutes(1)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + patience));
    return life_->states->GetCluster(&context, {}, &cluster).error_code();
  };
  v1::ListTokensRequest asked;
  v1::ListTokensResponse tokens;
  const auto list_tokens = [&](absl::Duration patience = absl::Minutes(1)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + patience));
    return life_->enrolment->ListTokens(&context, asked, &tokens).error_code();
  };
  // The thread of the core answers neither while the pool is busy.
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  for (int thread = 0; thread < 2; ++thread) {
    life_->loop->reads().RunOwn([ended] { ended.wait(); });
  }
  const absl::Duration soon = absl::Milliseconds(200);
  EXPECT_EQ(get_cluster(soon), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(list_tokens(soon), grpc::StatusCode::DEADLINE_EXCEEDED);
  end.set_value();

  const absl::Time before = absl::Now();
  ASSERT_EQ(get_cluster(), grpc::StatusCode::OK);
  ASSERT_EQ(cluster.servers_size(), 2);
  EXPECT_TRUE(cluster.servers(1).alive());
  EXPECT_EQ(cluster.gates_size(), 1);
  EXPECT_FALSE(cluster.program_version().empty());
  EXPECT_GE(FromProto(cluster.time()), before);
  ASSERT_EQ(list_tokens(), grpc::StatusCode::OK);
  ASSERT_EQ(tokens.tokens_size(), 2);
  EXPECT_EQ(tokens.tokens(0).use_count_max(), 1);
  asked.set_run_id("run");
  ASSERT_EQ(list_tokens(), grpc::StatusCode::OK);
  EXPECT_EQ(tokens.tokens_size(), 2);
  asked.set_run_id("other");
  ASSERT_EQ(list_tokens(), grpc::StatusCode::OK);
  EXPECT_EQ(tokens.tokens_size(), 0);
}

TEST_F(ServicesTest, AnExportIsAnsweredWithTheWholeRun) {
  RunAll();
  v1::ExportCheckpointRequest request;
  request.set_run_id("run");
  request.set_pin_id("mine");
  v1::ExportCheckpointResponse exported;
  const auto ask = [&] {
    exported.Clear();
    grpc::ClientContext context;
    return rpc::FromGrpc(
        life_->runs->ExportCheckpoint(&context, request, &exported));
  };
  ASSERT_TRUE(ask().ok()) << ask();
  EXPECT_EQ(exported.pin().pin_id(), "mine");
  EXPECT_EQ(exported.shards_size(), 2);
  EXPECT_GT(exported.run().spec().layout().tensors_size(), 0);
  EXPECT_EQ(exported.run().SerializeAsString(), GetRun().SerializeAsString());
  request.set_release(true);
  ASSERT_TRUE(ask().ok()) << ask();
  EXPECT_FALSE(exported.has_run());
  request.set_run_id("other");
  EXPECT_TRUE(absl::IsNotFound(ask()));
}

TEST(CutPageTest, AFullPageContinuesAfterTheItemsThatFit) {
  v1::ListRunsResponse list;
  for (const char* id : {"a", "b", "c"}) {
    v1::Run& run = *list.add_runs();
    run.set_run_id(id);
    run.set_state_reason(
        std::string(EncodedItems::kPageBytesMax * 2 / 5, 'x'));
  }
  const EncodedItems items(list, list.runs(),
                           [](const v1::Run& run) { return run.run_id(); });
  v1::ListRunsRequest request;
  v1::ListRunsResponse page;
  const auto ask = [&] {
    const auto answer = CutPage<v1::ListRunsResponse>(
        items, request, [&](const v1::ListRunsRequest& asked) {
          return PlanRuns(items.names(), asked);
        });
    return answer.ok() && rpc::DecodeMessage(*answer, &page);
  };
  ASSERT_TRUE(ask());
  EXPECT_EQ(page.runs_size(), 2);
  EXPECT_EQ(page.next_page_token(), "after b");
  request.set_page_token(page.next_page_token());
  ASSERT_TRUE(ask());
  ASSERT_EQ(page.runs_size(), 1);
  EXPECT_EQ(page.runs(0).run_id(), "c");
  EXPECT_EQ(page.next_page_token(), "");
  request.set_page_token("after c");
  ASSERT_TRUE(ask());
  EXPECT_EQ(page.runs_size(), 0);
  request.set_page_token("b");
  EXPECT_FALSE(ask());
}

TEST_F(ServicesTest, DeletesARunWithItsHistory) {
  RunAll();
  v1::DeleteRunRequest request;
  request.set_run_id("run");
  v1::DeleteRunResponse response;
  const auto remove = [&] {
    grpc::ClientContext context;
    return rpc::FromGrpc(life_->runs->DeleteRun(&context, request, &response));
  };
  const std::string run_uid = GetRun().run_uid();
  ASSERT_TRUE(remove().ok());
  EXPECT_EQ(response.run_uid(), run_uid);
  ASSERT_EQ(response.waiting_server_ids_size(), 2);
  EXPECT_EQ(response.waiting_server_ids(0), "server-0");
  ASSERT_TRUE(remove().ok()) << "a repeat";
  EXPECT_EQ(ServerPlan(1).deleted_runs(0).run_uid(), run_uid);
  EXPECT_TRUE(absl::IsNotFound(Join("c").status()));
  ASSERT_TRUE(CreateRun().ok());
  EXPECT_NE(GetRun().run_uid(), run_uid);
  EXPECT_TRUE(ListRounds().empty());
  EXPECT_TRUE(absl::IsFailedPrecondition(remove())) << "it has not ended";
}

TEST_F(ServicesTest, TakesAShardsReportThatIsMoreThanAMessage) {
  refused_elsewhere_count_ = 20000;  // 5 MB.
  RunAll();
}

TEST_F(ServicesTest, ContinuesOnlyWhatAManifestSays) {
  const auto adopt = [this](const std::string& manifest) {
    v1::AdoptRunRequest request;
    request.set_manifest(manifest);
    v1::AdoptRunResponse response;
    grpc::ClientContext context;
    return rpc::FromGrpc(life_->runs->AdoptRun(&context, request, &response));
  };
  for (const std::string& wrong :
       {std::string("nonsense"), std::string(R"({"format": 7})"),
        std::string(R"({"format": 1, "new_field": 7})"),
        std::string(R"({"format": 1})"), std::string((3 << 20) + 1, ' ')}) {
    const absl::Status status = adopt(wrong);
    EXPECT_TRUE(HasReason(status, "INVALID_FIELDS")) << status;
  }
}

TEST_F(ServicesTest, RestoresARunInPlaceAndShowsOnePast) {
  v1::RunSpec spec = SimpleSpec();
  spec.set_checkpoint_every_round_count(1);
  RunAll(spec);
  for (int shard : {0, 1}) Report(shard);
  Evaluate("a", a_, 2, 9.0);
  ASSERT_EQ(ListRounds().size(), 3u);
  EXPECT_EQ(ListRounds()[1].evaluation().loss(), 9.0);
  const int64_t revision = GetRun().revision();

  v1::RestoreRunRequest request;
  request.set_run_id("run");
  request.set_from("round-1");
  v1::RestoreRunResponse response;
  const auto restore = [&] {
    grpc::ClientContext context;
    return rpc::FromGrpc(life_->runs->RestoreRun(&context, request, &response));
  };
  request.set_dry_run(true);
  ASSERT_TRUE(restore().ok()) << restore();
  EXPECT_FALSE(response.changed());
  EXPECT_EQ(response.lost_commit_count(), 2);
  EXPECT_EQ(GetRun().revision(), revision);
  request.set_dry_run(false);
  ASSERT_TRUE(restore().ok());
  EXPECT_TRUE(response.changed());
  EXPECT_EQ(response.run().state(), v1::RUN_STATE_ACTIVE);
  EXPECT_EQ(response.run().restored().commit_seq(), 4);
  ASSERT_EQ(ListRounds().size(), 1u);
  EXPECT_EQ(ListRounds()[0].evaluation().loss(), 2.5);
  EXPECT_EQ(GetMetrics().restores_size(), 1);
  EXPECT_EQ(GetMetrics().series(1).points_size(), 1);

  run_epoch_ = 2;
  for (int shard : {0, 1}) {
    EXPECT_EQ(ServerPlan(shard).runs(0).restored().pin_id(), "round-1");
    Report(shard);
  }
  EXPECT_TRUE(HasReason(Ready("a", a_, 3), "CUT_SUPERSEDED"));
  ASSERT_TRUE(Ready("a", a_, 4).ok());
  ASSERT_TRUE(Ready("b", b_, 4).ok());
  for (const int64_t version : {1, 2}) PlayRound(version);
  EXPECT_EQ(GetRun().state(), v1::RUN_STATE_COMPLETED);
  const std::vector<v1::Round> rounds = ListRounds();
  ASSERT_EQ(rounds.size(), 3u);
  EXPECT_EQ(rounds[1].commit_seq(), 5);
  EXPECT_EQ(rounds[1].version(), 2);
  EXPECT_FALSE(rounds[1].has_evaluation()) << "of the lost version 2";
  bool is_told = false;
  for (const v1::RunEvent& event : WatchToTheEnd(revision)) {
    is_told = is_told || event.run_restored().pin_id() == "round-1";
  }
  EXPECT_TRUE(is_told);
}

TEST_F(ServicesTest, StreamsEventsFromAnyRevisionOnUntilTheEnd) {
  ASSERT_TRUE(CreateRun().ok());
  std::vector<v1::RunEvent> live;
  std::thread watcher([&] { live = WatchToTheEnd(0); });
  RunAll();
  watcher.join();
  ASSERT_GT(live.size(), 10u);
  EXPECT_EQ(live.back().run_state_changed().state(), v1::RUN_STATE_COMPLETED);
  const std::vector<v1::RunEvent> rest = WatchToTheEnd(live[4].revision());
  ASSERT_EQ(rest.size(), live.size() - 5);
  for (size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i].DebugString(), live[i + 5].DebugString());
  }
  v1::WatchRunRequest request;
  request.set_run_id("run");
  request.set_after_revision(1'000'000);
  grpc::ClientContext context;
  EXPECT_EQ(life_->states->WatchRun(&context, request)->Finish().error_code(),
            grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(ServicesTest, OneRunCannotTakeTheEventStreamsOfOthers) {
  life_.reset();
  life_ = std::make_unique<Life>(store_, SnapshotPolicy(),
                                 StreamBound{.all = 3, .a_run = 2});
  ASSERT_TRUE(CreateRun().ok());
  ASSERT_TRUE(CreateRun(SimpleSpec(), "other").ok());
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchRunResponse>> reader;
  };
  std::vector<std::unique_ptr<Watch>> watches;
  const auto watch = [&](const std::string& run_id) {
    v1::WatchRunRequest request;
    request.set_run_id(run_id);
    watches.push_back(std::make_unique<Watch>());
    watches.back()->reader =
        life_->states->WatchRun(&watches.back()->context, request);
    v1::WatchRunResponse response;
    return watches.back()->reader->Read(&response);
  };
  EXPECT_TRUE(watch("run"));
  EXPECT_TRUE(watch("run"));
  EXPECT_FALSE(watch("run"));
  const absl::Status refused = rpc::FromGrpc(watches.back()->reader->Finish());
  EXPECT_TRUE(HasReason(refused, "TOO_MANY_STREAMS")) << refused;
  EXPECT_TRUE(IsAway(refused));
  watches.pop_back();
  EXPECT_TRUE(watch("other"));
  EXPECT_FALSE(watch("other")) << "the bound of all";
  EXPECT_FALSE(watches.back()->reader->Finish().ok());
  watches.pop_back();
  for (const auto& open : watches) {
    open->context.TryCancel();
    open->reader->Finish();
  }
}

TEST_F(ServicesTest, KeepsWhatReadersAskThroughSnapshotsAndARestart) {
  life_.reset();
  const SnapshotPolicy often = {.log_records_max = 1};
  life_ = std::make_unique<Life>(store_, often);
  RunAll();
  const std::vector<v1::Round> rounds = ListRounds();
  ASSERT_EQ(rounds.size(), 3u);
  EXPECT_EQ(rounds[0].contributions_size(), 2);
  EXPECT_EQ(rounds[0].evaluation().loss(), 2.5);
  EXPECT_FALSE(rounds[1].has_evaluation());
  const v1::GetMetricsResponse metrics = GetMetrics();
  EXPECT_EQ(metrics.series(0).points_size(), 1);
  EXPECT_EQ(metrics.series(1).points_size(), 3);
  const auto snapshot = store_.ReadSnapshot("run");
  ASSERT_TRUE(snapshot.ok() && snapshot->has_value());
  ASSERT_GT((*snapshot)->compacted_revision(), 1);

  life_.reset();
  life_ = std::make_unique<Life>(store_, often);
  const std::vector<v1::Round> again = ListRounds();
  ASSERT_EQ(again.size(), rounds.size());
  for (size_t i = 0; i < rounds.size(); ++i) {
    EXPECT_EQ(again[i].DebugString(), rounds[i].DebugString());
  }
  EXPECT_EQ(GetMetrics().DebugString(), metrics.DebugString());
}

TEST_F(ServicesTest, TellsAWatcherOfCompactedRevisionsToListAgain) {
  life_.reset();
  life_ = std::make_unique<Life>(store_, SnapshotPolicy{.log_records_max = 1});
  RunAll();
  const int64_t compacted = (*store_.ReadSnapshot("run"))->compacted_revision();
  ASSERT_GT(compacted, 1);
  v1::WatchRunRequest request;
  request.set_run_id("run");
  request.set_after_revision(compacted - 1);
  grpc::ClientContext context;
  const absl::Status refused =
      rpc::FromGrpc(life_->states->WatchRun(&context, request)->Finish());
  EXPECT_EQ(refused.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(GetReason(refused)->reason, "REVISION_COMPACTED");
  // Watching from there misses nothing; 0 gives everything kept.
  const std::vector<v1::RunEvent> kept = WatchToTheEnd(compacted);
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept.back().run_state_changed().state(), v1::RUN_STATE_COMPLETED);
  EXPECT_EQ(WatchToTheEnd(0).size(), kept.size());
  EXPECT_TRUE(WatchToTheEnd(GetRun().revision()).empty());
}

TEST_F(ServicesTest, SendsAnIslandItsPlanAndFencesItsEarlierLife) {
  ASSERT_TRUE(CreateRun().ok());
  const auto joined = Join("a");
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(joined->session_secret().size(), 32u);
  EXPECT_EQ(joined->run().spec().layout().tensors_size(), 1);
  v1::WatchPlanRequest request;
  request.set_run_id("run");
  request.set_island_id("a");
  request.set_island_epoch(joined->island_epoch());
  grpc::ClientContext context;
  AddSession(context, *joined);
  const auto reader = life_->islands->WatchPlan(&context, request);
  v1::WatchPlanResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.plan().run_state(), v1::RUN_STATE_STARTING);
  EXPECT_GE(response.plan().revision(), joined->plan().revision());
  StartServers();
  while (response.plan().cut().empty()) ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.plan().shards_size(), 2);
  EXPECT_EQ(response.plan().shards(1).address(), "127.0.0.1:1");
  ASSERT_TRUE(Join("a").ok());
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Ready("a", *joined).code(), absl::StatusCode::kAborted);
}

TEST_F(ServicesTest, RefusesACallWithoutTheSessionsSecret) {
  ASSERT_TRUE(CreateRun().ok());
  auto joined = Join("a");
  ASSERT_TRUE(joined.ok());
  joined->set_session_secret(std::string(32, 'x'));
  const absl::Status status = Ready("a", *joined);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(GetReason(status)->reason, "WRONG_SESSION");
}

TEST_F(ServicesTest, NamesEveryWrongFieldInTheErrorsDetails) {
  v1::CreateRunRequest request;
  request.set_run_id("run");
  *request.mutable_spec() = SimpleSpec();
  request.mutable_spec()->mutable_inner()->set_batch_size(0);
  request.mutable_spec()->set_server_count(-1);
  v1::CreateRunResponse response;
  grpc::ClientContext context;
  const absl::Status status =
      rpc::FromGrpc(life_->runs->CreateRun(&context, request, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  std::vector<std::string> fields;
  for (const auto& violation : GetFieldViolations(status)) {
    fields.push_back(violation.field);
  }
  EXPECT_THAT(fields, testing::ElementsAre("spec.inner.batch_size",
                                           "spec.server_count"));
}

TEST_F(ServicesTest, TellsNothingOfWhatItCouldNotWriteDown) {
  ASSERT_TRUE(CreateRun().ok());
  store_.FailAppends(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(Join("a").status().code(), absl::StatusCode::kResourceExhausted);
  store_.FailAppends(absl::OkStatus());
  absl::StatusOr<v1::JoinResponse> joined = Join("a");
  while (!joined.ok()) joined = Join("a");
  EXPECT_EQ(joined->island_epoch(), 1);  // The refused Join left no trace.
  EXPECT_EQ(joined->plan().coordinator_epoch(), 2);
}

TEST_F(ServicesTest, GoesOnWithItsRunsInTheNextLife) {
  ASSERT_TRUE(CreateRun().ok());
  StartServers();
  const auto a = Join("a");
  ASSERT_TRUE(a.ok());
  life_.reset();
  life_ = std::make_unique<Life>(store_);
  EXPECT_EQ(GetRun().state(), v1::RUN_STATE_ACTIVE);
  EXPECT_TRUE(Ready("a", *a).ok());  // The session outlives the restart.
  EXPECT_EQ(ServerPlan(0).coordinator_epoch(), 2);
}

TEST_F(ServicesTest, GivesARunAnIdOfItsOwn) {
  ASSERT_TRUE(CreateRun().ok());
  const std::string run_uid = GetRun().run_uid();
  EXPECT_TRUE(IsRandomId(run_uid)) << run_uid;
  EXPECT_TRUE(CreateRun().ok());
  EXPECT_EQ(GetRun().run_uid(), run_uid);
  const auto joined = Join("a");
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(joined->run().run_uid(), run_uid);
  EXPECT_EQ(joined->plan().run_uid(), run_uid);
  StartServers();
  EXPECT_EQ(ServerPlan(0).runs(0).run_uid(), run_uid);
  EXPECT_EQ(ServerPlan(0).log().cluster_id(),
            joined->plan().log().cluster_id());
}

TEST_F(ServicesTest, OnlyReadsOnceAnIslandHasSeenMoreOfTheLog) {
  ASSERT_TRUE(CreateRun().ok());
  const auto joined = Join("a");
  ASSERT_TRUE(joined.ok());
  EXPECT_TRUE(Join("a", joined->plan().log()).ok());
  v1::LogPosition seen = joined->plan().log();
  seen.set_index(seen.index() + 1000);
  // As a coordinator with a newer copy of this log has given it.
  const auto records = store_.Scan("", 0, 1);
  ASSERT_TRUE(records.ok());
  seen.set_proof(ProvePosition(
      records->front().coordinator_started().log_secret(), seen));
  // The run may be one that the older log does not have.
  const absl::Status status = Join("b", seen, "newer-run").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetReason(status)->reason, "LOG_BEHIND");
  EXPECT_EQ(GetReason(Join("b").status())->reason, "LOG_BEHIND");
  EXPECT_EQ(GetReason(Ready("a", *joined))->reason, "LOG_BEHIND");
  EXPECT_EQ(GetReason(Register(0))->reason, "LOG_BEHIND");
  EXPECT_EQ(GetRun().fault().code(), "LOG_BEHIND");
  EXPECT_EQ(GetRun().fault().next_command(), "atoll run show run");
}

TEST_F(ServicesTest, EndsStreamsWithUnavailableWhenItStops) {
  ASSERT_TRUE(CreateRun().ok());
  const auto joined = Join("a");
  ASSERT_TRUE(joined.ok());
  v1::WatchPlanRequest request;
  request.set_run_id("run");
  request.set_island_id("a");
  request.set_island_epoch(1);
  grpc::ClientContext context;
  AddSession(context, *joined);
  const auto reader = life_->islands->WatchPlan(&context, request);
  v1::WatchPlanResponse response;
  ASSERT_TRUE(reader->Read(&response));
  life_->loop->Stop();
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace atl::coordinator
