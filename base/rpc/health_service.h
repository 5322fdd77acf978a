// Health (grpc.health.v1): tells a client whether a port, or one service of it,
// can answer calls.
//
// gRPC's own cannot be guarded (base/rpc/call_guard.h): a peer that sends no
// request has calls there that nothing counts.
//
// Thread-safe.

#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/sync/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace atl::rpc {

class HealthService : public grpc::health::v1::Health::CallbackService {
 public:
  // Knows the port as a whole, which does not serve yet.
  HealthService();

  // Sets the answer for every name that is known.
  void SetServing(bool serving);
  // Sets the answer for one name, which is known from now on.
  void SetServing(const std::string& name, bool serving);

  grpc::ServerUnaryReactor* Check(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request,
      grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  Status StatusOf(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets each watcher write what is new.
  void Tell();

  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, bool> serving_ ABSL_GUARDED_BY(mutex_);
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::rpc
