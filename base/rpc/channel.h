// Channels to coordinators and servers.
//
// Every channel is a connection of its own. Control and data must not share
// one: a saturated link must not starve a heartbeat.
//
// Under TLS the peer's certificate must fit the dialled host and have the role
// `peer_role` (base/rpc/server_check.h). If it does not, calls end with
// UNAVAILABLE and the reason: the peer may get the right one later.
//
// A proxy changes neither: TLS is with the peer, through the proxy. Without one
// in the options none is used; gRPC reads no environment.

#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/host_port/proxy.h"
#include "base/identity/identity.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/tls_source.h"
#include "base/sync/mutex.h"

namespace grpc {
class Channel;
}

namespace atl::rpc {

// Largest control message, either way.
inline constexpr int kControlMessageBytesMax = 4 << 20;
// Largest data message: a chunk of 1 MiB, its header, and a margin.
inline constexpr int kDataMessageBytesMax = 2 << 20;

enum class ChannelKind {
  kControl,  // Small messages.
  kData,     // Bulk.
};

struct ChannelOptions {
  ChannelKind kind = ChannelKind::kControl;
  TlsFiles tls;                         // Empty: plaintext.
  bool insecure = false;                // Plaintext off loopback.
  Role peer_role = Role::kCoordinator;  // Under TLS, what the peer must be.
  // Bytes that the peer may send on a call ahead of the message being read. 0:
  // gRPC adapts it to the link's capacity.
  int receive_window_bytes = 0;
  // Looks up the dialled name and connects us to it.
  Proxy proxy;
};

ChannelOptions MakeChannelOptions(ChannelKind kind, const Security& security);

// A new channel to `address` (host:port). It connects at the first call.
// INVALID_ARGUMENT: the address is malformed; it is off loopback without TLS
// files or `insecure`; the proxy has a fault; the TLS files do not match.
// NOT_FOUND: a TLS file cannot be read.
// UNAUTHENTICATED: our certificate has expired, or its extended key usage does
// not include clientAuth.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const ChannelOptions& options);

// The channel to an address, made again when the TLS files change. Calls on the
// old channel continue. Thread-safe.
//
//   v1::RunService::NewStub(dialer->channel())->GetRun(...)
class Dialer {
 public:
  // Errors as MakeChannel.
  static absl::StatusOr<std::unique_ptr<Dialer>> Make(
      const std::string& address, const ChannelOptions& options);

  // For the next call. A stub on it is cheap.
  std::shared_ptr<grpc::Channel> channel();

 private:
  Dialer(std::string address, const ChannelOptions& options);

  const std::string address_;
  const ChannelOptions options_;
  std::unique_ptr<TlsSource> source_;  // Null: plaintext.
  Mutex mutex_;
  // The TLS files with which channel_ was made.
  std::shared_ptr<const TlsMaterial> used_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::rpc
