// The calls of operators, readers and gates to the coordinator: RunService,
// TrainingStateService and EnrolmentService.
//
// Every unary call has a deadline and is made once. Errors are those of the
// service; UNAVAILABLE or DEADLINE_EXCEEDED, with the address, if the
// coordinator is away; and CANCELLED if the client was stopped.
//
// Thread-safe.

#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/rpc/call.h"
#include "base/rpc/channel.h"
#include "base/rpc/retry.h"
#include "grpcpp/channel.h"

namespace atl::coordinator {

struct ClientOptions {
  std::string address;                         // host:port
  rpc::ChannelOptions channel;                 // kControl.
  absl::Duration timeout = absl::Seconds(10);  // Every unary call's.
  // Without a connection a unary call waits for one, instead of failing at
  // once. gRPC connects only during calls, so a client with few calls needs it.
  bool waits_for_connection = false;
  rpc::RetryPolicy watch_retry;                // WatchRun's.
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

class Client {
 public:
  // A client on the channels of `dialer`, of kind kControl.
  Client(const ClientOptions& options, std::shared_ptr<rpc::Dialer> dialer);

  // Returns once the channel is connected, or after `timeout`. gRPC works on a
  // TLS handshake only while somebody waits: calls that fail at once, with
  // pauses between, never finish one.
  void WaitForConnection(absl::Duration timeout);

  absl::StatusOr<v1::GetRunResponse> GetRun(const std::string& run_id) const;
  absl::StatusOr<v1::GetRunStateResponse> GetRunState(
      const std::string& run_id) const;
  // Lists: all of their pages.
  absl::StatusOr<std::vector<v1::Run>> ListRuns() const;
  absl::StatusOr<std::vector<v1::Island>> ListIslands(
      const std::string& run_id) const;
  absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(
      const std::string& run_id) const;
  // Reads pages until one has the island. NO_SUCH_ISLAND: none has it.
  absl::StatusOr<v1::Island> FindIsland(const std::string& run_id,
                                        const std::string& island_id) const;
  // Each kept round after `after_commit_seq`, in order, until `on_round`
  // returns false (OK) or an error. Holds one page: all may be gigabytes.
  absl::Status ForEachRound(
      const std::string& run_id, int64_t after_commit_seq,
      absl::FunctionRef<absl::StatusOr<bool>(v1::Round&&)> on_round) const;

  // Makes any call: client.Call(&v1::RunService::Stub::PauseRun, request).
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request) const {
    Stub stub(dialer_->channel());
    return rpc::Call(stub, method, request, CallOptions());
  }

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
  std::unique_ptr<Client> InBackground(std::stop_token stop,
                                       absl::Duration timeout_max) const;

 private:
  rpc::CallOptions CallOptions() const;
  // Reads one stream to its end and advances `request` past its events.
  absl::Status ReadEvents(
      v1::WatchRunRequest& request, bool& heard,
      const std::function<bool(const v1::RunEvent&)>& on_event,
      const std::stop_token& stop, bool& wanted);

  const ClientOptions options_;
  const std::shared_ptr<rpc::Dialer> dialer_;
};

// Returns a client with its own connection.
//
// Errors as rpc::MakeChannel.
absl::StatusOr<std::unique_ptr<Client>> MakeClient(
    const ClientOptions& options);

}  // namespace atl::coordinator
