// A gRPC service whose every call is checked before anything of it runs.
//
// It stands for another service: it has that service's methods, and hands their
// calls on once the check has passed. So a service needs no code for it, and a
// new method is checked too. A refused call's message is not even read.
//
// gRPC gives a call of one request to its handler once the request is there, and
// a peer that never sends it has calls that nothing counts. So all methods are
// registered as those of many requests, and this reads the one request.
//
// gRPC has no such hook: an interceptor cannot end a call with its own status,
// and its authentication step ends the process at one header (CVE-2023-1428).

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server_context.h"

namespace atl::rpc {

// The methods of `service`, as "/atoll.v1.RunService/GetRun".
std::vector<std::string> MethodNames(const grpc::Service& service);

class GuardedService : public grpc::Service {
 public:
  // OK if the call may go to its handler; otherwise the call ends with this
  // status. Empty if the check needs long work first: what `make_later` returns
  // is then run once, on another thread, after that work. `call` lives until
  // then. If `make_later` returns an empty function, the check does the work
  // itself. `method`: "/atoll.v1.RunService/GetRun". Must be thread-safe.
  using Check = std::function<std::optional<absl::Status>(
      const grpc::ServerContextBase& call, absl::string_view method,
      absl::FunctionRef<std::function<void()>()> make_later)>;
  // Told when a call begins (true) and ends (false) to wait for its one request.
  using Wait = std::function<void(const grpc::ServerContextBase& call,
                                  bool waits)>;

  // `service` must outlive the result, and not be registered itself.
  // INTERNAL: it has a method that is not a callback's: gRPC would queue its
  // calls without a bound, or call another function.
  static absl::StatusOr<std::unique_ptr<GuardedService>> Make(
      grpc::Service& service, Check check, Wait wait);

 private:
  GuardedService(Check check, Wait wait)
      : check_(std::move(check)), wait_(std::move(wait)) {}

  const Check check_;
  const Wait wait_;
};

}  // namespace atl::rpc
