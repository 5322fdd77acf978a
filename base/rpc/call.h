// One unary call with a deadline, errors as absl::Status.

#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/rpc/status.h"
#include "base/sync/mutex.h"
#include "grpcpp/client_context.h"

namespace atl::rpc {

// Metadata of every call after Join.
inline constexpr char kSessionMetadata[] = "atoll-session";

// `bytes` in lower-case hex, as kSessionMetadata carries a session secret.
std::string ToHex(absl::string_view bytes);

// After this long, a person should be told what the program waits for.
inline constexpr absl::Duration kSlowAfter = absl::Seconds(2);

struct CallOptions {
  absl::Duration timeout = absl::Seconds(10);  // > 0.
  std::string session;  // Value of kSessionMetadata; empty for none.
  // Name of the callee for messages: "coordinator 127.0.0.1:7400".
  std::string peer;
  // Called once, from another thread, if there is no answer within kSlowAfter.
  // May be empty.
  std::function<void()> on_slow = nullptr;
  std::stop_token stop = {};  // A stop request ends the call at once.
  // Without a connection, wait for one until `timeout`, instead of failing.
  bool waits_for_connection = false;
};

// Calls `on_slow` from another thread if the object lives longer than `after`.
// The destructor waits for that call to return.
class SlowWatch {
 public:
  SlowWatch(std::function<void()> on_slow, absl::Duration after);
  ~SlowWatch();
  SlowWatch(const SlowWatch&) = delete;
  SlowWatch& operator=(const SlowWatch&) = delete;

 private:
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Does not run without `on_slow`.
};

// Sets the deadline and the session on `context`.
void Prepare(const CallOptions& options, grpc::ClientContext& context);

// Prefixes `status` with the peer's name if the peer cannot be reached, does
// not answer in time, or does not know the method.
absl::Status NamePeer(const absl::Status& status, absl::string_view peer);

// Calls `method` (&v1::RunService::Stub::GetRun) on `stub`.
//
// Errors: those of the service; DEADLINE_EXCEEDED: no answer within `timeout`;
// UNAVAILABLE: the peer cannot be reached; CANCELLED: stopped.
template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Call(Stub& stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                           const Request&,
                                                           Response*),
                              const Request& request,
                              const CallOptions& options) {
  grpc::ClientContext context;
  Prepare(options, context);
  const std::stop_callback cancel(options.stop,
                                  [&context] { context.TryCancel(); });
  const SlowWatch watch(options.on_slow, kSlowAfter);
  Response response;
  const absl::Status status =
      FromGrpc((stub.*method)(&context, request, &response));
  if (status.ok()) return response;
  if (absl::IsCancelled(status) && options.stop.stop_requested()) {
    return absl::CancelledError("stopped");
  }
  return NamePeer(status, options.peer);
}

}  // namespace atl::rpc
