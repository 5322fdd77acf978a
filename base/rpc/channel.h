// How we dial: channels to coordinators and servers.
//
// Every channel made here is a connection of its own, never shared behind our
// back: control and data must not share one, for a saturated link must not
// starve a heartbeat.

#ifndef BASE_RPC_CHANNEL_H_
#define BASE_RPC_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/tls.h"
#include "grpcpp/channel.h"

namespace atl::rpc {

// Largest control message, either way.
inline constexpr int kControlMessageBytesMax = 4 << 20;
// Largest data message: a chunk of 1 MiB and its header, with room.
inline constexpr int kDataMessageBytesMax = 2 << 20;

// What a channel carries.
enum class ChannelKind {
  kControl,  // Small messages.
  kData,     // Bulk.
};

struct ChannelOptions {
  ChannelKind kind = ChannelKind::kControl;
  TlsFiles tls;           // Empty: plaintext.
  bool insecure = false;  // Plaintext off loopback.
  // A ping after this long without traffic, and the wait for its answer before
  // the connection is given up.
  absl::Duration keepalive_time = absl::Seconds(20);
  absl::Duration keepalive_timeout = absl::Seconds(20);
  // What the peer may send on a call before we ask for it, beside the message
  // that we wait for; 0 lets gRPC find out what the link carries.
  int receive_window_bytes = 0;
  // Bounds of the wait between two attempts to connect.
  absl::Duration reconnect_delay_min = absl::Milliseconds(50);
  absl::Duration reconnect_delay_max = absl::Seconds(2);
  // Longest attempt to connect.
  absl::Duration connect_timeout = absl::Seconds(10);
};

// For a channel of `kind`.
ChannelOptions MakeChannelOptions(ChannelKind kind, const Security& security);

// A new channel to `address` (host:port). Connects at the first call.
//
// INVALID_ARGUMENT: the address is malformed; it is off loopback and neither
// TLS files nor `insecure` are given; the files do not fit.
// NOT_FOUND: a TLS file cannot be read.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const ChannelOptions& options);

}  // namespace atl::rpc

#endif  // BASE_RPC_CHANNEL_H_
