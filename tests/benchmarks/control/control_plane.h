// The measured coordinator, in a process of its own; the probe, an idle server
// of the same gRPC that answers heartbeats; and a bare gRPC server, to compare
// what a connection takes.
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
  // Starts the bare server, on the coordinator's core.
  absl::Status StartBare();
  absl::StatusOr<std::shared_ptr<grpc::Channel>> DialBare(
      const std::string& name);
  // Requires: StartBare.
  pid_t bare_pid() const { return bare_->pid(); }

  bool has_coordinator() const { return coordinator_ != nullptr; }
  // Requires: has_coordinator().
  pid_t coordinator_pid() const { return coordinator_->pid(); }
  // Bytes of the coordinator's directory.
  int64_t LogBytes() const;

 private:
  // Starts this program in a role, and reads the address that it prints.
  absl::Status StartRole(const std::string& role,
                         std::unique_ptr<ChildProcess>& process,
                         std::string& address);
  absl::StatusOr<rpc::TlsFiles> Issue(const std::string& name);
  absl::StatusOr<std::shared_ptr<grpc::Channel>> DialAt(
      const std::string& address, const std::string& name);

  const ControlPlaneOptions options_;
  rpc::KeyAndCertificate authority_;
  std::map<std::string, rpc::TlsFiles> issued_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::unique_ptr<ChildProcess> probe_;
  std::unique_ptr<ChildProcess> bare_;
  std::string address_;
  std::string probe_address_;
  std::string bare_address_;
};

// The probe's process: serves, prints its address, and ends with its parent.
int RunProbe(const rpc::TlsFiles& tls);
// The same for the bare server: gRPC's own, with mutual TLS or without, and one
// service. A stream of it gets one message, and stays open.
int RunBare(const rpc::TlsFiles& tls);

}  // namespace atl::benchmarks
