#include "base/rpc/channel.h"

#include "absl/strings/str_cat.h"
#include "base/rpc/frames.h"
#include "base/rpc/grpc_library.h"
#include "base/rpc/host_port.h"
#include "base/status/status_macros.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace atl::rpc {
namespace {

// Time without traffic before a ping, and the wait for its answer before the
// connection is closed.
constexpr int kKeepaliveMs = 20'000;
// Bounds of the wait between two connection attempts.
constexpr int kReconnectMsMin = 50;
constexpr int kReconnectMsMax = 2'000;
constexpr int kConnectTimeoutMs = 10'000;

grpc::ChannelArguments MakeArguments(const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  const int message_bytes_max = options.kind == ChannelKind::kControl
                                    ? kControlMessageBytesMax
                                    : kDataMessageBytesMax;
  arguments.SetMaxReceiveMessageSize(message_bytes_max);
  arguments.SetMaxSendMessageSize(message_bytes_max);
  // Do not share connections between channels.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMsMin);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMsMax);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  if (options.receive_window_bytes > 0) {
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                     options.receive_window_bytes);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE,
                   options.kind == ChannelKind::kData ? kPullFrameBytesMax
                                                      : kFrameBytesMax);
  // Our callers retry. gRPC's retries would buffer what is sent.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Ignore proxy settings of the environment: dial addresses as given.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetServiceConfigJSON("{}");
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  return arguments;
}

}  // namespace

ChannelOptions MakeChannelOptions(ChannelKind kind, const Security& security) {
  ChannelOptions options;
  options.kind = kind;
  options.tls = security.tls;
  options.insecure = security.insecure;
  return options;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const ChannelOptions& options) {
  ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  if (host_port.port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\": port 0 cannot be dialled"));
  }
  RETURN_IF_ERROR(CheckTlsFiles(options.tls));
  KeepGrpcRunning();
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (!options.tls.empty()) {
    ASSIGN_OR_RETURN(const TlsMaterial material, ReadTlsFiles(options.tls));
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = material.ca_pem;
    ssl.pem_private_key = material.key_pem;
    ssl.pem_cert_chain = material.cert_pem;
    credentials = grpc::SslCredentials(ssl);
  } else {
    if (!IsLoopbackHost(host_port.host) && !options.insecure) {
      return absl::InvalidArgumentError(absl::StrCat(
          "will not dial ", address,
          " in plaintext: give --tls-cert, --tls-key and --tls-ca, or "
          "--insecure if the network is trusted"));
    }
    credentials = grpc::InsecureChannelCredentials();
  }
  return grpc::CreateCustomChannel(address, credentials,
                                   MakeArguments(options));
}

}  // namespace atl::rpc
