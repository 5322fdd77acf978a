#include "coordinator/client/operator_client.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/rpc/wait_notice.h"
#include "base/rpc/watch.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "grpcpp/channel.h"

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

}  // namespace

struct OperatorClient::Stubs {
  const std::shared_ptr<rpc::Dialer> dialer;

  std::unique_ptr<Runs::Stub> runs() const {
    return Runs::NewStub(dialer->channel());
  }
  std::unique_ptr<States::Stub> states() const {
    return States::NewStub(dialer->channel());
  }
};

OperatorClient::OperatorClient(const OperatorClientOptions& options,
                               std::shared_ptr<rpc::Dialer> dialer)
    : options_(options), stubs_(new Stubs{std::move(dialer)}) {}

OperatorClient::~OperatorClient() = default;

void OperatorClient::WaitForConnection(absl::Duration timeout) {
  stubs_->dialer->channel()->WaitForConnected(
      absl::ToChronoTime(absl::Now() + timeout));
}

absl::StatusOr<v1::CreateRunResponse> OperatorClient::CreateRun(
    const v1::CreateRunRequest& request) {
  return rpc::Call(*stubs_->runs(), &Runs::Stub::CreateRun, request,
                   CallOptions());
}

absl::StatusOr<v1::GetRunResponse> OperatorClient::GetRun(
    const v1::GetRunRequest& request) {
  return rpc::Call(*stubs_->runs(), &Runs::Stub::GetRun, request, CallOptions());
}

absl::StatusOr<v1::ListRunsResponse> OperatorClient::ListRuns(
    const v1::ListRunsRequest& request) {
  return rpc::Call(*stubs_->runs(), &Runs::Stub::ListRuns, request,
                   CallOptions());
}

absl::StatusOr<v1::PauseRunResponse> OperatorClient::PauseRun(
    const v1::PauseRunRequest& request) {
  return rpc::Call(*stubs_->runs(), &Runs::Stub::PauseRun, request,
                   CallOptions());
}

absl::StatusOr<v1::ResumeRunResponse> OperatorClient::ResumeRun(
    const v1::ResumeRunRequest& request) {
  return rpc::Call(*stubs_->runs(), &Runs::Stub::ResumeRun, request,
                   CallOptions());
}

absl::StatusOr<v1::CancelRunResponse> OperatorClient::CancelRun(
    const v1::CancelRunRequest& request) {
  return rpc::Call(*stubs_->runs(), &Runs::Stub::CancelRun, request,
                   CallOptions());
}

absl::StatusOr<v1::DeleteRunResponse> OperatorClient::DeleteRun(
    const v1::DeleteRunRequest& request) {
  return rpc::Call(*stubs_->runs(), &Runs::Stub::DeleteRun, request,
                   CallOptions());
}

absl::StatusOr<v1::RemoveIslandResponse> OperatorClient::RemoveIsland(
    const v1::RemoveIslandRequest& request) {
  return rpc::Call(*stubs_->runs(), &Runs::Stub::RemoveIsland, request,
                   CallOptions());
}

absl::StatusOr<v1::ExportCheckpointResponse> OperatorClient::ExportCheckpoint(
    const v1::ExportCheckpointRequest& request) {
  return rpc::Call(*stubs_->runs(), &Runs::Stub::ExportCheckpoint, request,
                   CallOptions());
}

absl::StatusOr<v1::GetRunStateResponse> OperatorClient::GetRunState(
    const v1::GetRunStateRequest& request) {
  return rpc::Call(*stubs_->states(), &States::Stub::GetRunState, request,
                   CallOptions());
}

absl::StatusOr<v1::ListIslandsResponse> OperatorClient::ListIslands(
    const v1::ListIslandsRequest& request) {
  return rpc::Call(*stubs_->states(), &States::Stub::ListIslands, request,
                   CallOptions());
}

absl::StatusOr<v1::ListRoundsResponse> OperatorClient::ListRounds(
    const v1::ListRoundsRequest& request) {
  return rpc::Call(*stubs_->states(), &States::Stub::ListRounds, request,
                   CallOptions());
}

absl::StatusOr<v1::GetMetricsResponse> OperatorClient::GetMetrics(
    const v1::GetMetricsRequest& request) {
  return rpc::Call(*stubs_->states(), &States::Stub::GetMetrics, request,
                   CallOptions());
}

absl::StatusOr<v1::ListCheckpointsResponse> OperatorClient::ListCheckpoints(
    const v1::ListCheckpointsRequest& request) {
  return rpc::Call(*stubs_->states(), &States::Stub::ListCheckpoints, request,
                   CallOptions());
}

absl::StatusOr<v1::GetClusterResponse> OperatorClient::GetCluster(
    const v1::GetClusterRequest& request) {
  return rpc::Call(*stubs_->states(), &States::Stub::GetCluster, request,
                   CallOptions());
}

absl::Status OperatorClient::WatchRun(
    v1::WatchRunRequest request, absl::Duration patience,
    const std::function<bool(const v1::RunEvent&)>& on_event,
    std::stop_token stop) {
  rpc::Backoff backoff(options_.watch_retry, std::random_device()());
  absl::Time away_since = absl::InfiniteFuture();  // Not away.
  rpc::WaitNotice notice;
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
      backoff.Reset();
    }
    away_since = std::min(away_since, now);
    const absl::Duration silence = now - away_since;
    if (rpc::IsFinal(status) || silence > patience) {
      return rpc::NamePeer(status, CallOptions().peer);
    }
    if (notice.IsDue(silence) && options_.on_waiting) {
      options_.on_waiting(CallOptions().peer, patience,
                          rpc::DescribeSilence(status));
    }
    WaitFor(backoff.Next(status), stop);
  }
  return absl::CancelledError("stopped");
}

std::unique_ptr<OperatorClient> OperatorClient::InBackground(
    std::stop_token stop, absl::Duration timeout_max) const {
  OperatorClientOptions options = options_;
  options.timeout = std::min(options.timeout, timeout_max);
  options.on_waiting = nullptr;
  options.stop = std::move(stop);
  return std::make_unique<OperatorClient>(options, stubs_->dialer);
}

rpc::CallOptions OperatorClient::CallOptions() const {
  const std::string peer = absl::StrCat("coordinator ", options_.address);
  rpc::CallOptions options = {options_.timeout, "", peer};
  if (options_.on_waiting) {
    options.on_slow = [this, peer] {
      options_.on_waiting(peer, options_.timeout,
                          rpc::DescribeSilence(absl::OkStatus()));
    };
  }
  options.stop = options_.stop;
  return options;
}

absl::Status OperatorClient::ReadEvents(
    v1::WatchRunRequest& request, bool& heard,
    const std::function<bool(const v1::RunEvent&)>& on_event,
    const std::stop_token& stop, bool& wanted) {
  grpc::ClientContext context;
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  const auto reader = stubs_->states()->WatchRun(&context, request);
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

absl::StatusOr<std::unique_ptr<OperatorClient>> MakeOperatorClient(
    const OperatorClientOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<rpc::Dialer> dialer,
                   rpc::Dialer::Make(options.address, options.channel));
  return std::make_unique<OperatorClient>(options, std::move(dialer));
}

}  // namespace atl::coordinator
