// Channels to coordinators and servers.
//
// Every channel is a connection of its own. Control and data must not share
// one: a saturated link must not starve a heartbeat.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/rpc/tls.h"
#include "grpcpp/channel.h"

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
  TlsFiles tls;           // Empty: plaintext.
  bool insecure = false;  // Plaintext off loopback.
  // Bytes that the peer may send on a call ahead of the message being read. 0:
  // gRPC adapts it to the link's capacity.
  int receive_window_bytes = 0;
};

ChannelOptions MakeChannelOptions(ChannelKind kind, const Security& security);

// A new channel to `address` (host:port). It connects at the first call.
// INVALID_ARGUMENT: the address is malformed; it is off loopback without TLS
// files or `insecure`; the TLS files do not match.
// NOT_FOUND: a TLS file cannot be read.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const ChannelOptions& options);

}  // namespace atl::rpc
