// The measured coordinator, in a process of its own, and the probe, an idle
// server of the same gRPC that answers heartbeats.
//
// With two or more cores the coordinator has the first one, and everything else
// the second.
//
// Not thread-safe.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/tls.h"
#include "grpcpp/channel.h"
#include "tests/benchmarks/child_process.h"

namespace atl::benchmarks {

struct ControlPlaneOptions {
  std::string directory;  // Created, and removed at the end.
  bool tls = false;       // Mutual TLS on every connection.
  std::string coordinator_binary;
};

class ControlPlane {
 public:
  explicit ControlPlane(const ControlPlaneOptions& options)
      : options_(options) {}
  // Kills the processes and removes their files.
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  absl::Status Start();
  // Kills the coordinator.
  void Kill() { coordinator_.reset(); }
  // Starts it again at the same address, and waits until it serves.
  absl::Status Restart();

  // A connection of its own to the coordinator. With TLS its owner is `name`,
  // "island:island-0"; each owner has one certificate.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Dial(const std::string& name);
  absl::StatusOr<std::shared_ptr<grpc::Channel>> DialProbe();

  bool has_coordinator() const { return coordinator_ != nullptr; }
  // Requires: has_coordinator().
  pid_t coordinator_pid() const { return coordinator_->pid(); }
  // Bytes of the coordinator's directory.
  int64_t LogBytes() const;

 private:
  absl::StatusOr<rpc::TlsFiles> Issue(const std::string& name);
  absl::StatusOr<std::shared_ptr<grpc::Channel>> DialAt(
      const std::string& address, const std::string& name);

  const ControlPlaneOptions options_;
  rpc::KeyAndCertificate authority_;
  std::map<std::string, rpc::TlsFiles> issued_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::unique_ptr<ChildProcess> probe_;
  std::string address_;
  std::string probe_address_;
};

// The probe's process: serves, prints its address, and ends with its parent.
int RunProbe(const rpc::TlsFiles& tls);

}  // namespace atl::benchmarks
