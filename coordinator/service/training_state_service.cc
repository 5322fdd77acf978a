#include "coordinator/service/training_state_service.h"

#include "absl/strings/str_cat.h"
#include "base/rpc/status_details.h"
#include "base/status/status_macros.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/run_event_writer.h"

namespace atl::coordinator {
namespace {

// A page ends early once it holds so much: messages are bounded.
constexpr size_t kPageBytes = 2 << 20;

// Reads the rounds of a page from the log.
absl::StatusOr<v1::ListRoundsResponse> ReadRounds(const Store& store,
                                                  const RunState& state,
                                                  const RoundsPage& page) {
  v1::ListRoundsResponse response;
  size_t byte_count = 0;
  for (int64_t revision : page.revisions) {
    ASSIGN_OR_RETURN(const std::vector<storage::v1::Record> records,
                     store.Scan(state.run_id(), revision - 1, 1));
    if (records.empty() || !records[0].has_round_committed()) {
      return absl::DataLossError("the log does not hold a round that it had");
    }
    v1::Round round = FinishRound(state, records[0].round_committed().round());
    byte_count += round.ByteSizeLong();
    if (byte_count > kPageBytes && response.rounds_size() > 0) {
      response.set_next_page_token(absl::StrCat(
          response.rounds(response.rounds_size() - 1).commit_seq()));
      return response;
    }
    *response.add_rounds() = std::move(round);
  }
  response.set_next_page_token(page.next_page_token);
  return response;
}

}  // namespace

grpc::ServerUnaryReactor* TrainingStateServiceImpl::GetRunState(
    grpc::CallbackServerContext* context, const v1::GetRunStateRequest* request,
    v1::GetRunStateResponse* response) {
  return Answer<v1::GetRunStateResponse>(
      loop_, context, response,
      [=](Coordinator& coordinator,
          absl::Time now) -> absl::StatusOr<v1::GetRunStateResponse> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        return BuildRunState(*run, coordinator);
      });
}

grpc::ServerUnaryReactor* TrainingStateServiceImpl::ListIslands(
    grpc::CallbackServerContext* context, const v1::ListIslandsRequest* request,
    v1::ListIslandsResponse* response) {
  return Answer<v1::ListIslandsResponse>(
      loop_, context, response,
      [=](Coordinator& coordinator,
          absl::Time now) -> absl::StatusOr<v1::ListIslandsResponse> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        return BuildIslands(*run, *request);
      });
}

grpc::ServerUnaryReactor* TrainingStateServiceImpl::ListRounds(
    grpc::CallbackServerContext* context, const v1::ListRoundsRequest* request,
    v1::ListRoundsResponse* response) {
  // The log is read once the page's records are durable, in the answer.
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  struct Planned {
    const RunState* state;
    RoundsPage page;
  };
  loop_.Post<Planned>(
      [request](Coordinator& coordinator,
                absl::Time now) -> absl::StatusOr<Planned> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        ASSIGN_OR_RETURN(RoundsPage page, PlanRounds(run->state(), *request));
        return Planned{&run->state(), std::move(page)};
      },
      [this, reactor, response](absl::StatusOr<Planned> planned) {
        if (!planned.ok()) {
          return reactor->Finish(
              rpc::ToGrpc(rpc::WithDefaultReason(planned.status())));
        }
        absl::StatusOr<v1::ListRoundsResponse> read =
            ReadRounds(loop_.store(), *planned->state, planned->page);
        if (read.ok()) *response = *std::move(read);
        reactor->Finish(rpc::ToGrpc(rpc::WithDefaultReason(read.status())));
      });
  return reactor;
}

grpc::ServerUnaryReactor* TrainingStateServiceImpl::GetMetrics(
    grpc::CallbackServerContext* context, const v1::GetMetricsRequest* request,
    v1::GetMetricsResponse* response) {
  return Answer<v1::GetMetricsResponse>(
      loop_, context, response,
      [=](Coordinator& coordinator,
          absl::Time now) -> absl::StatusOr<v1::GetMetricsResponse> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        return BuildMetrics(*run, coordinator.series(request->run_id()),
                            *request);
      });
}

grpc::ServerWriteReactor<v1::WatchRunResponse>*
TrainingStateServiceImpl::WatchRun(grpc::CallbackServerContext* context,
                                   const v1::WatchRunRequest* request) {
  auto writer = RunEventWriter::Make(loop_.store(), request->run_id(),
                                     request->after_revision());
  loop_.WatchLog(request->run_id(), request->after_revision(), writer);
  return writer.get();
}

grpc::ServerUnaryReactor* TrainingStateServiceImpl::ListCheckpoints(
    grpc::CallbackServerContext* context,
    const v1::ListCheckpointsRequest* request,
    v1::ListCheckpointsResponse* response) {
  return Answer<v1::ListCheckpointsResponse>(
      loop_, context, response,
      [=](Coordinator& coordinator,
          absl::Time now) -> absl::StatusOr<v1::ListCheckpointsResponse> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        return BuildCheckpoints(*run, *request);
      });
}

}  // namespace atl::coordinator
