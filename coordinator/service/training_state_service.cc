#include <deque>
#include <map>
#include <memory>
#include <set>
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
#include "coordinator/service/encoded_items.h"
#include "coordinator/service/log_secret.h"
#include "coordinator/service/run_event_writer.h"
#include "coordinator/service/services.h"
#include "coordinator/service/shared_answer.h"

namespace atl::coordinator {
namespace {

constexpr int64_t kPageBytes = EncodedItems::kPageBytesMax;

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

using States = v1::TrainingStateService;
using RawStates = States::WithRawCallbackMethod_GetRunState<
    States::WithRawCallbackMethod_ListIslands<
        States::WithRawCallbackMethod_ListRounds<
            States::WithRawCallbackMethod_GetMetrics<
                States::WithRawCallbackMethod_ListCheckpoints<
                    States::WithRawCallbackMethod_WatchRun<
                        States::WithRawCallbackMethod_GetCluster<
                            States::CallbackService>>>>>>>;

absl::StatusOr<grpc::ByteBuffer> CutMetrics(
    const EncodedItems& series, const v1::GetMetricsRequest& request) {
  std::set<std::string> wanted(request.names().begin(), request.names().end());
  std::vector<grpc::Slice> parts;
  for (size_t i = 0; i < series.names().size(); ++i) {
    if (request.names().empty() || wanted.erase(series.names()[i]) > 0) {
      series.Add(i, i + 1, parts);
    }
  }
  if (!wanted.empty()) {
    return InvalidFields({{"names", absl::StrCat("\"", *wanted.begin(),
                                                 "\" is not a metric of a "
                                                 "run")}});
  }
  series.AddRest(parts);
  return grpc::ByteBuffer(parts.data(), parts.size());
}

// Queries that readers may send often are answered from shared views.
class TrainingStateServiceImpl : public RawStates {
 public:
  TrainingStateServiceImpl(EventLoop& loop, std::string data_dir)
      : loop_(loop), data_dir_(std::move(data_dir)) {}

  grpc::ServerUnaryReactor* GetRunState(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    return AnswerShared<v1::GetRunStateRequest>(
        loop_, context, request, response,
        [](Coordinator& coordinator, RunMachine& run) {
          return [state = BuildRunState(run, coordinator)] {
            return EncodedItems(state);
          };
        },
        [](const EncodedItems& state, const v1::GetRunStateRequest&) {
          return state.Whole();
        });
  }

  grpc::ServerUnaryReactor* ListIslands(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    return AnswerShared<v1::ListIslandsRequest>(
        loop_, context, request, response,
        [](Coordinator& coordinator, RunMachine& run) {
          return [list = BuildIslands(run)] {
            return EncodedItems(list, list.islands(),
                                [](const v1::Island& island) {
                                  return island.island_id();
                                });
          };
        },
        [](const EncodedItems& list, const v1::ListIslandsRequest& asked) {
          return CutPage<v1::ListIslandsResponse>(
              list, asked, [&](const v1::ListIslandsRequest& request) {
                return PlanIslands(list.names().size(), request);
              });
        });
  }

  grpc::ServerUnaryReactor* ListCheckpoints(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
      grpc::ByteBuffer* response) override {
    return AnswerShared<v1::ListCheckpointsRequest>(
        loop_, context, request, response,
        [](Coordinator& coordinator, RunMachine& run) {
          return [list = BuildCheckpoints(run)] {
            return EncodedItems(list, list.checkpoints(), CheckpointName);
          };
        },
        [](const EncodedItems& list, const v1::ListCheckpointsRequest& asked) {
          return CutPage<v1::ListCheckpointsResponse>(
              list, asked, [&](const v1::ListCheckpointsRequest& request) {
                return PlanCheckpoints(list.names(), request);
              });
        });
  }

  // The rows are read and encoded off the loop.
  grpc::ServerUnaryReactor* ListRounds(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    using Call = RawCall<v1::ListRoundsRequest>;
    const auto call =
        std::make_shared<const Call>(context, *request, response);
    if (!call->caller.ok()) return AnswerError(context, call->caller.status());
    // Before the loop works for it.
    absl::StatusOr<ReadPool::Held> admitted =
        loop_.reads().Admit(call->origin);
    if (!admitted.ok()) {
      call->Finish(admitted.status());
      return call->reactor;
    }
    loop_.Post<AskedRounds>(
        [call](Coordinator& coordinator,
               absl::Time now) -> absl::StatusOr<AskedRounds> {
          ASSIGN_OR_RETURN(RunMachine* const run, call->FindRun(coordinator));
          ASSIGN_OR_RETURN(RoundsPage page,
                           PlanRounds(run->state(), call->request));
          return std::make_shared<const RoundsToRead>(
              RoundsToRead{run->state().run_uid(), std::move(page),
                           ListPhases(run->state(), run->observed())});
        },
        [this, call, held = *std::move(admitted)](
            absl::StatusOr<AskedRounds> asked) {
          absl::Status status = asked.status();
          if (status.ok()) {
            status = loop_.reads().Run(
                call->origin, held,
                [this, call, asked = *std::move(asked)](
                    const absl::Status& waits, ReadPool::Held held) {
                  call->reactor->Hold(std::move(held));
                  using Read = absl::StatusOr<grpc::ByteBuffer>;
                  FinishRounds(call, asked,
                               waits.ok()
                                   ? ReadPage(call->request.run_id(), *asked)
                                   : Read(waits));
                });
          }
          if (!status.ok()) call->Finish(status);
        },
        call->origin);
    return call->reactor;
  }

  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return AnswerShared<v1::GetMetricsRequest>(
        loop_, context, request, response,
        [](Coordinator& coordinator, RunMachine& run) {
          return [metrics = BuildMetrics(
                      run, coordinator.series(run.state().run_id()))] {
            return EncodedItems(metrics, metrics.series(),
                                [](const v1::MetricSeries& series) {
                                  return series.name();
                                });
          };
        },
        CutMetrics);
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

  grpc::ServerUnaryReactor* GetCluster(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
      grpc::ByteBuffer* response) override {
    return AnswerShared<v1::GetClusterRequest>(
        loop_, context, request, response,
        [this](Coordinator& coordinator, absl::Time now) {
          v1::GetClusterResponse cluster = coordinator.DescribeCluster(now);
          cluster.set_has_mirror(coordinator.HasMirror());
          return [this, cluster = std::move(cluster)]() mutable {
            cluster.set_log_secret_exported(!data_dir_.empty() &&
                                            IsSecretExported(data_dir_));
            cluster.set_program_version(kProgramVersion);
            *cluster.mutable_time() = ToProto(absl::Now());
            return EncodedItems(cluster);
          };
        },
        [](const EncodedItems& cluster, const v1::GetClusterRequest&) {
          return cluster.Whole();
        });
  }

 private:
  // A page of a run's history, as it was decided.
  struct RoundsToRead {
    std::string run_uid;
    RoundsPage page;
    std::vector<IslandPhases> islands;
  };
  using AskedRounds = std::shared_ptr<const RoundsToRead>;

  absl::StatusOr<grpc::ByteBuffer> ReadPage(const std::string& run_id,
                                            const RoundsToRead& asked) {
    ASSIGN_OR_RETURN(v1::ListRoundsResponse page,
                     ReadRounds(loop_.store(), run_id, asked.page));
    AddPhases(asked.islands, kPageBytes, page);
    return rpc::EncodeMessage(page);
  }

  // Answers with the page, unless its rows may be of another run by now.
  void FinishRounds(
      const std::shared_ptr<const RawCall<v1::ListRoundsRequest>>& call,
      const AskedRounds& asked, absl::StatusOr<grpc::ByteBuffer> read) {
    loop_.Post<grpc::ByteBuffer>(
        [call, asked, read = std::move(read)](Coordinator& coordinator,
                                              absl::Time now)
            -> absl::StatusOr<grpc::ByteBuffer> {
          ASSIGN_OR_RETURN(const RunMachine* const run,
                           coordinator.FindRun(call->request.run_id()));
          ASSIGN_OR_RETURN(const RoundsPage present,
                           PlanRounds(run->state(), {}));
          // The rows may have gone before they were read.
          if (run->state().run_uid() != asked->run_uid ||
              (!read.ok() && present.first_kept != asked->page.first_kept)) {
            return Refuse(absl::StatusCode::kUnavailable, "HISTORY_MOVED",
                          "rounds were deleted while they were read: call "
                          "again");
          }
          return read;
        },
        [call](absl::StatusOr<grpc::ByteBuffer> answer) {
          call->Finish(std::move(answer));
        });
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
