#include <deque>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/obs/version.h"
#include "base/rpc/chunk_codec.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/outputs/round_phases.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/log_secret.h"
#include "coordinator/service/run_event_writer.h"
#include "coordinator/service/services.h"

namespace atl::coordinator {
namespace {

// A page ends early at this size, because messages are bounded.
constexpr int64_t kPageBytes = 2 << 20;

// Adds evaluations to the rounds of fragment 0. They came after the commits.
// One of a lost cut may still have the version's row.
absl::Status AddEvaluations(const Store& store, const std::string& run_id,
                            const std::deque<v1::Restore>& restores,
                            v1::ListRoundsResponse& response) {
  std::map<int64_t, v1::Round*> rounds;  // By version.
  for (v1::Round& round : *response.mutable_rounds()) {
    if (round.fragment() == 0) rounds[round.version()] = &round;
  }
  if (rounds.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<HistoryRow> rows,
                   store.ReadHistory(run_id, HistoryTable::kEvaluations,
                                     rounds.begin()->first,
                                     rounds.rbegin()->first + 1, kPageBytes));
  for (const HistoryRow& row : rows) {
    const auto round = rounds.find(row.number);
    if (round == rounds.end()) continue;
    v1::Evaluation evaluation;
    if (!evaluation.ParseFromString(row.value)) {
      return absl::DataLossError("an evaluation cannot be read back");
    }
    if (IsSuperseded(restores, evaluation.commit_seq())) continue;
    *round->second->mutable_evaluation() = std::move(evaluation);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ListRoundsResponse> ReadRounds(const Store& store,
                                                  const std::string& run_id,
                                                  const RoundsPage& page) {
  ASSIGN_OR_RETURN(const std::vector<HistoryRow> rows,
                   store.ReadHistory(run_id, HistoryTable::kRounds, page.begin,
                                     page.end, kPageBytes));
  v1::ListRoundsResponse response;
  response.set_first_kept_commit_seq(page.first_kept);
  int64_t next = page.begin;
  for (const HistoryRow& row : rows) {
    if (row.number != next++ ||
        !response.add_rounds()->ParseFromString(row.value)) {
      return absl::DataLossError("the history lacks a round");
    }
  }
  if (rows.empty() && page.begin < page.end) {
    return absl::DataLossError("the history lacks a round");
  }
  if (!page.last || next < page.end) {
    response.set_next_page_token(absl::StrCat(next - 1));
  }
  RETURN_IF_ERROR(AddEvaluations(store, run_id, page.restores, response));
  return response;
}

class TrainingStateServiceImpl
    : public v1::TrainingStateService::WithRawCallbackMethod_WatchRun<
          v1::TrainingStateService::CallbackService> {
 public:
  TrainingStateServiceImpl(EventLoop& loop, std::string data_dir)
      : loop_(loop), data_dir_(std::move(data_dir)) {}

  grpc::ServerUnaryReactor* GetRunState(
      grpc::CallbackServerContext* context,
      const v1::GetRunStateRequest* request,
      v1::GetRunStateResponse* response) override {
    return AnswerForRun(
        loop_, context, request, response,
        [=](Coordinator& coordinator, RunMachine& run, absl::Time now) {
          return BuildRunState(run, coordinator);
        });
  }

  grpc::ServerUnaryReactor* ListIslands(
      grpc::CallbackServerContext* context,
      const v1::ListIslandsRequest* request,
      v1::ListIslandsResponse* response) override {
    return AnswerForRun(
        loop_, context, request, response,
        [=](Coordinator& coordinator, RunMachine& run, absl::Time now) {
          return BuildIslands(run, *request);
        });
  }

  grpc::ServerUnaryReactor* ListRounds(
      grpc::CallbackServerContext* context,
      const v1::ListRoundsRequest* request,
      v1::ListRoundsResponse* response) override {
    // The pool reads the history, once the page's rounds are durable.
    const absl::StatusOr<rpc::Caller> caller = rpc::GetCaller(*context);
    if (!caller.ok()) return AnswerError(context, caller.status());
    auto* const reactor = new HeldReactor;
    const CallOrigin origin = GetOrigin(context, *request);
    loop_.Post<AskedRounds>(
        [request, caller = *caller](
            Coordinator& coordinator,
            absl::Time now) -> absl::StatusOr<AskedRounds> {
          ASSIGN_OR_RETURN(
              RunMachine* const run,
              FindRunFor(coordinator, caller, request->run_id()));
          ASSIGN_OR_RETURN(RoundsPage page, PlanRounds(run->state(), *request));
          return AskedRounds{run->state().run_uid(), std::move(page)};
        },
        [=, this](absl::StatusOr<AskedRounds> asked) {
          absl::Status status = asked.status();
          if (status.ok()) {
            status = loop_.reads().Run(
                origin, [=, this, asked = *std::move(asked)](
                            const absl::Status& admitted,
                            ReadPool::Held held) {
                  reactor->Hold(std::move(held));
                  absl::Status done = admitted;
                  if (done.ok()) done = ReadPage(*request, asked, *response);
                  reactor->Finish(rpc::ToGrpc(WithDefaultReason(done)));
                });
          }
          if (!status.ok()) {
            reactor->Finish(rpc::ToGrpc(WithDefaultReason(status)));
          }
        },
        origin);
    return reactor;
  }

  grpc::ServerUnaryReactor* GetMetrics(
      grpc::CallbackServerContext* context,
      const v1::GetMetricsRequest* request,
      v1::GetMetricsResponse* response) override {
    return AnswerForRun(
        loop_, context, request, response,
        [=](Coordinator& coordinator, RunMachine& run, absl::Time now) {
          return BuildMetrics(run, coordinator.series(request->run_id()),
                              *request);
        });
  }

  // Its messages are encoded once for all streams of a run.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchRun(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* bytes) override {
    v1::WatchRunRequest request;
    absl::StatusOr<rpc::Caller> caller = rpc::GetCaller(*context);
    if (caller.ok() && !rpc::DecodeMessage(*bytes, &request)) {
      caller = absl::InvalidArgumentError("the request is no WatchRunRequest");
    }
    auto writer = RunEventWriter::Make(request.after_revision());
    if (caller.ok()) {
      loop_.WatchLog(request.run_id(), request.after_revision(), writer,
                     ChecksRunFor(*caller),
                     caller->scope.enrolled() ? rpc::GetCallerName(*context)
                                              : "",
                     GetOrigin(context, bytes->Length(), request.run_id()));
    } else {
      writer->End(caller.status());
    }
    return writer.get();
  }

  grpc::ServerUnaryReactor* ListCheckpoints(
      grpc::CallbackServerContext* context,
      const v1::ListCheckpointsRequest* request,
      v1::ListCheckpointsResponse* response) override {
    return AnswerForRun(
        loop_, context, request, response,
        [=](Coordinator& coordinator, RunMachine& run, absl::Time now) {
          return BuildCheckpoints(run, *request);
        });
  }

  grpc::ServerUnaryReactor* GetCluster(
      grpc::CallbackServerContext* context,
      const v1::GetClusterRequest* request,
      v1::GetClusterResponse* response) override {
    // Not on the loop's thread, which waits for no directory.
    const bool is_exported = !data_dir_.empty() && IsSecretExported(data_dir_);
    return Answer<v1::GetClusterResponse>(
        loop_, context, request, response,
        [is_exported](Coordinator& coordinator, absl::Time now) {
          v1::GetClusterResponse cluster = coordinator.DescribeCluster(now);
          cluster.set_has_mirror(coordinator.HasMirror());
          cluster.set_log_secret_exported(is_exported);
          cluster.set_program_version(kProgramVersion);
          *cluster.mutable_time() = ToProto(absl::Now());
          return cluster;
        });
  }

 private:
  // A page of a run's history, as it was decided.
  struct AskedRounds {
    std::string run_uid;
    RoundsPage page;
  };

  // Deletes itself once gRPC no longer has the answer.
  class HeldReactor final : public grpc::ServerUnaryReactor {
   public:
    // Before Finish.
    void Hold(ReadPool::Held held) { held_ = std::move(held); }
    void OnDone() override { delete this; }

   private:
    ReadPool::Held held_;
  };

  // Reads rounds, and adds what only the core knows. Waits for the loop, so that
  // a thread of the pool has one page, and encodes it.
  absl::Status ReadPage(const v1::ListRoundsRequest& request,
                        const AskedRounds& asked,
                        v1::ListRoundsResponse& response) {
    absl::StatusOr<v1::ListRoundsResponse> read =
        ReadRounds(loop_.store(), request.run_id(), asked.page);
    const auto done = std::make_shared<std::promise<absl::Status>>();
    loop_.Post<bool>(
        [&](Coordinator& coordinator, absl::Time now) -> absl::StatusOr<bool> {
          ASSIGN_OR_RETURN(const RunMachine* const run,
                           coordinator.FindRun(request.run_id()));
          ASSIGN_OR_RETURN(const RoundsPage present,
                           PlanRounds(run->state(), {}));
          // The rows may have gone before they were read.
          if (run->state().run_uid() != asked.run_uid ||
              (!read.ok() && present.first_kept != asked.page.first_kept)) {
            return Refuse(absl::StatusCode::kUnavailable, "HISTORY_MOVED",
                          "rounds were deleted while they were read: call "
                          "again");
          }
          RETURN_IF_ERROR(read.status());
          AddPhases(run->state(), run->observed(), kPageBytes, *read);
          return true;
        },
        [done](absl::StatusOr<bool> result) {
          done->set_value(result.status());
        });
    RETURN_IF_ERROR(done->get_future().get());
    response = *std::move(read);
    return absl::OkStatus();
  }

  EventLoop& loop_;
  const std::string data_dir_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeTrainingStateService(EventLoop& loop,
                                                        std::string data_dir) {
  return std::make_unique<TrainingStateServiceImpl>(loop, std::move(data_dir));
}

}  // namespace atl::coordinator
