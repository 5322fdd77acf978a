#include "coordinator/client/operator_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/rpc/call.h"
#include "base/rpc/watch.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"

namespace atl::coordinator {
namespace {

using Runs = v1::RunService;
using States = v1::TrainingStateService;

// Waits for `duration`, or until `stop` is requested.
void WaitFor(absl::Duration duration, const std::stop_token& stop) {
  Mutex mutex;
  CondVar stopped;
  const std::stop_callback wake(stop, [&] {
    MutexLock lock(&mutex);
    stopped.SignalAll();
  });
  MutexLock lock(&mutex);
  stopped.AwaitWithTimeout(&mutex, duration,
                           [&] { return stop.stop_requested(); });
}

class GrpcOperatorClient : public OperatorClient {
 public:
  GrpcOperatorClient(const OperatorClientOptions& options,
                     const std::shared_ptr<grpc::Channel>& channel)
      : options_(options),
        channel_(channel),
        runs_(Runs::NewStub(channel)),
        states_(States::NewStub(channel)) {}

  absl::StatusOr<v1::CreateRunResponse> CreateRun(
      const v1::CreateRunRequest& request) override {
    return rpc::Call(*runs_, &Runs::Stub::CreateRun, request, Options());
  }
  absl::StatusOr<v1::GetRunResponse> GetRun(
      const v1::GetRunRequest& request) override {
    return rpc::Call(*runs_, &Runs::Stub::GetRun, request, Options());
  }
  absl::StatusOr<v1::ListRunsResponse> ListRuns(
      const v1::ListRunsRequest& request) override {
    return rpc::Call(*runs_, &Runs::Stub::ListRuns, request, Options());
  }
  absl::StatusOr<v1::PauseRunResponse> PauseRun(
      const v1::PauseRunRequest& request) override {
    return rpc::Call(*runs_, &Runs::Stub::PauseRun, request, Options());
  }
  absl::StatusOr<v1::ResumeRunResponse> ResumeRun(
      const v1::ResumeRunRequest& request) override {
    return rpc::Call(*runs_, &Runs::Stub::ResumeRun, request, Options());
  }
  absl::StatusOr<v1::CancelRunResponse> CancelRun(
      const v1::CancelRunRequest& request) override {
    return rpc::Call(*runs_, &Runs::Stub::CancelRun, request, Options());
  }
  absl::StatusOr<v1::RemoveIslandResponse> RemoveIsland(
      const v1::RemoveIslandRequest& request) override {
    return rpc::Call(*runs_, &Runs::Stub::RemoveIsland, request, Options());
  }
  absl::StatusOr<v1::ExportCheckpointResponse> ExportCheckpoint(
      const v1::ExportCheckpointRequest& request) override {
    return rpc::Call(*runs_, &Runs::Stub::ExportCheckpoint, request, Options());
  }

  absl::StatusOr<v1::GetRunStateResponse> GetRunState(
      const v1::GetRunStateRequest& request) override {
    return rpc::Call(*states_, &States::Stub::GetRunState, request, Options());
  }
  absl::StatusOr<v1::ListIslandsResponse> ListIslands(
      const v1::ListIslandsRequest& request) override {
    return rpc::Call(*states_, &States::Stub::ListIslands, request, Options());
  }
  absl::StatusOr<v1::ListRoundsResponse> ListRounds(
      const v1::ListRoundsRequest& request) override {
    return rpc::Call(*states_, &States::Stub::ListRounds, request, Options());
  }
  absl::StatusOr<v1::GetMetricsResponse> GetMetrics(
      const v1::GetMetricsRequest& request) override {
    return rpc::Call(*states_, &States::Stub::GetMetrics, request, Options());
  }
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(
      const v1::ListCheckpointsRequest& request) override {
    return rpc::Call(*states_, &States::Stub::ListCheckpoints, request,
                     Options());
  }

  absl::Status WatchRun(
      v1::WatchRunRequest request, absl::Duration patience,
      const std::function<bool(const v1::RunEvent&)>& on_event,
      std::stop_token stop) override {
    rpc::Backoff backoff(options_.watch_retry, options_.seed);
    absl::Time away_since = absl::InfiniteFuture();  // Not away.
    bool told = false;
    while (!stop.stop_requested()) {
      bool wanted = true, heard = false;
      const absl::Time begin = absl::Now();
      const absl::Status status =
          ReadEvents(request, heard, on_event, stop, wanted);
      if (!wanted) return absl::OkStatus();
      if (stop.stop_requested()) break;
      const absl::Time now = absl::Now();
      // The stream of an idle run is silent.
      if (heard || now - begin > options_.watch_had_after) {
        away_since = now;
        told = false;
        backoff.Reset();
      }
      away_since = std::min(away_since, now);
      const absl::Duration silence = now - away_since;
      if (rpc::IsFinal(status) || silence > patience) {
        return rpc::NamePeer(status, Options().peer);
      }
      if (!told && silence >= rpc::kSlowAfter && options_.on_waiting) {
        told = true;
        options_.on_waiting(Options().peer, patience);
      }
      WaitFor(backoff.Next(status), stop);
    }
    return absl::CancelledError("stopped");
  }

  std::unique_ptr<OperatorClient> InBackground(
      std::stop_token stop, absl::Duration timeout_max) const override {
    OperatorClientOptions options = options_;
    options.timeout = std::min(options.timeout, timeout_max);
    options.on_waiting = nullptr;
    options.stop = std::move(stop);
    return std::make_unique<GrpcOperatorClient>(options, channel_);
  }

 private:
  rpc::CallOptions Options() const {
    const std::string peer = absl::StrCat("coordinator ", options_.address);
    rpc::CallOptions options = {options_.timeout, "", peer};
    if (options_.on_waiting) {
      options.on_slow = [this, peer] {
        options_.on_waiting(peer, options_.timeout);
      };
    }
    options.stop = options_.stop;
    return options;
  }

  // Reads one stream to its end and advances `request` past its events.
  absl::Status ReadEvents(
      v1::WatchRunRequest& request, bool& heard,
      const std::function<bool(const v1::RunEvent&)>& on_event,
      const std::stop_token& stop, bool& wanted) {
    grpc::ClientContext context;
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    const auto reader = states_->WatchRun(&context, request);
    // Events of one record share its revision.
    const int64_t after_revision = request.after_revision();
    v1::WatchRunResponse response;
    while (wanted && reader->Read(&response)) {
      heard = true;
      for (const v1::RunEvent& event : response.events()) {
        if (event.revision() <= after_revision) continue;
        request.set_after_revision(event.revision());
        wanted = on_event(event);
        if (!wanted) break;
      }
    }
    if (!wanted) context.TryCancel();
    return rpc::FromGrpc(reader->Finish());
  }

  const OperatorClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Runs::Stub> runs_;
  const std::unique_ptr<States::Stub> states_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OperatorClient>> MakeOperatorClient(
    const OperatorClientOptions& options) {
  rpc::ChannelOptions channel_options = options.channel;
  channel_options.kind = rpc::ChannelKind::kControl;
  ASSIGN_OR_RETURN(const auto channel,
                   rpc::MakeChannel(options.address, channel_options));
  return std::make_unique<GrpcOperatorClient>(options, channel);
}

}  // namespace atl::coordinator
