// The coordinator calls of operators and readers: RunService and
// TrainingStateService, one method per call.
//
// Every call has a deadline and is made once. Errors are those of the service;
// UNAVAILABLE or DEADLINE_EXCEEDED, with the address, if the coordinator is
// away; and CANCELLED if the client was stopped.
//
// Thread-safe.

#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/rpc/call.h"
#include "base/rpc/channel.h"
#include "base/rpc/retry.h"

namespace atl::coordinator {

struct OperatorClientOptions {
  std::string address;                         // host:port
  rpc::ChannelOptions channel;                 // kControl.
  absl::Duration timeout = absl::Seconds(10);  // Of every unary call.
  rpc::RetryPolicy watch_retry;                // Of WatchRun.
  // A WatchRun stream that lasted this long worked, even without an event.
  // Longer than any attempt to connect.
  absl::Duration watch_had_after = absl::Minutes(1);
  // Called from any thread if `peer` has not answered for rpc::kSlowAfter.
  // `patience` is how long the call waits in all; `why` is as
  // rpc::DescribeSilence. WatchRun calls it when rpc::WaitNotice is due. May be
  // empty.
  std::function<void(absl::string_view peer, absl::Duration patience,
                     absl::string_view why)>
      on_waiting;
  std::stop_token stop;  // Once requested, unary calls end at once.
};

class OperatorClient {
 public:
  // A client on the channels of `dialer`, of kind kControl.
  OperatorClient(const OperatorClientOptions& options,
                 std::shared_ptr<rpc::Dialer> dialer);
  ~OperatorClient();
  OperatorClient(const OperatorClient&) = delete;
  OperatorClient& operator=(const OperatorClient&) = delete;

  // Returns once the channel is connected, or after `timeout`. gRPC works on a
  // TLS handshake only while somebody waits: calls that fail at once, with
  // pauses between, never finish one.
  void WaitForConnection(absl::Duration timeout);

  // RunService.
  absl::StatusOr<v1::CreateRunResponse> CreateRun(
      const v1::CreateRunRequest& request);
  absl::StatusOr<v1::GetRunResponse> GetRun(const v1::GetRunRequest& request);
  absl::StatusOr<v1::ListRunsResponse> ListRuns(
      const v1::ListRunsRequest& request);
  absl::StatusOr<v1::PauseRunResponse> PauseRun(
      const v1::PauseRunRequest& request);
  absl::StatusOr<v1::ResumeRunResponse> ResumeRun(
      const v1::ResumeRunRequest& request);
  absl::StatusOr<v1::CancelRunResponse> CancelRun(
      const v1::CancelRunRequest& request);
  absl::StatusOr<v1::DeleteRunResponse> DeleteRun(
      const v1::DeleteRunRequest& request);
  absl::StatusOr<v1::RemoveIslandResponse> RemoveIsland(
      const v1::RemoveIslandRequest& request);
  absl::StatusOr<v1::ExportCheckpointResponse> ExportCheckpoint(
      const v1::ExportCheckpointRequest& request);

  // TrainingStateService.
  absl::StatusOr<v1::GetRunStateResponse> GetRunState(
      const v1::GetRunStateRequest& request);
  absl::StatusOr<v1::ListIslandsResponse> ListIslands(
      const v1::ListIslandsRequest& request);
  absl::StatusOr<v1::ListRoundsResponse> ListRounds(
      const v1::ListRoundsRequest& request);
  absl::StatusOr<v1::GetMetricsResponse> GetMetrics(
      const v1::GetMetricsRequest& request);
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(
      const v1::ListCheckpointsRequest& request);
  absl::StatusOr<v1::GetClusterResponse> GetCluster(
      const v1::GetClusterRequest& request);

  // Passes every event after request.after_revision to `on_event`, in order and
  // once, until the run ends (OK), `on_event` returns false (OK), or `stop` is
  // requested (CANCELLED). A broken stream is reopened after the last event. If
  // no stream works for `patience`, returns the stream's error.
  absl::Status WatchRun(
      v1::WatchRunRequest request, absl::Duration patience,
      const std::function<bool(const v1::RunEvent&)>& on_event,
      std::stop_token stop);

  // Returns a client for background calls on the same connection; it may
  // outlive this one. It never calls on_waiting. Its unary calls last at most
  // `timeout_max` and end when `stop` is requested, not on this client's stop.
  std::unique_ptr<OperatorClient> InBackground(
      std::stop_token stop, absl::Duration timeout_max) const;

 private:
  struct Stubs;

  rpc::CallOptions CallOptions() const;
  // Reads one stream to its end and advances `request` past its events.
  absl::Status ReadEvents(
      v1::WatchRunRequest& request, bool& heard,
      const std::function<bool(const v1::RunEvent&)>& on_event,
      const std::stop_token& stop, bool& wanted);

  const OperatorClientOptions options_;
  const std::unique_ptr<const Stubs> stubs_;
};

// Returns a client with its own connection.
//
// Errors as rpc::MakeChannel.
absl::StatusOr<std::unique_ptr<OperatorClient>> MakeOperatorClient(
    const OperatorClientOptions& options);

}  // namespace atl::coordinator
