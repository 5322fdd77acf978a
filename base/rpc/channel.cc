#include "base/rpc/channel.h"

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/host_port/host_port.h"
#include "base/rpc/certificates/revocation_list.h"
#include "base/rpc/frames.h"
#include "base/rpc/grpc_library.h"
#include "base/rpc/server_check.h"
#include "base/rpc/status.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "grpcpp/support/channel_arguments.h"

namespace atl::rpc {
namespace {

// Time without traffic before a ping, and the wait for its answer before the
// connection is closed. A control connection that a NAT has forgotten is found
// within half of the default lease, 30 s; bulk data may hold a ping up.
struct Keepalive {
  int time_ms;
  int timeout_ms;
};
constexpr Keepalive kControlKeepalive = {5'000, 10'000};
constexpr Keepalive kDataKeepalive = {20'000, 20'000};
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
  const Keepalive keepalive = options.kind == ChannelKind::kControl
                                  ? kControlKeepalive
                                  : kDataKeepalive;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.time_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.timeout_ms);
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
  // Ignore proxy settings of the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetServiceConfigJSON("{}");
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 16 << 10);
  return arguments;
}

// Sets the arguments of gRPC's own proxy mapper (src/core/lib/transport/
// http_connect_handshaker.h). The mapper would also read no_proxy of the
// environment.
void AddProxy(const Proxy& proxy, const std::string& address,
              grpc::ChannelArguments& arguments) {
  arguments.SetString("grpc.http_connect_server", address);
  if (const std::string value = proxy.authorization(); !value.empty()) {
    arguments.SetString("grpc.http_connect_headers",
                        absl::StrCat("Proxy-Authorization:", value));
  }
  // For TLS and HTTP/2; otherwise they would name the proxy.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, address);
}

absl::Status CheckDialled(const std::string& address,
                          const ChannelOptions& options) {
  ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  if (host_port.port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\": port 0 cannot be dialled"));
  }
  if (options.tls.empty() && !IsLoopbackHost(host_port.host) &&
      !options.insecure) {
    return absl::InvalidArgumentError(absl::StrCat(
        "will not dial ", address,
        " in plaintext: give --tls-dir (or --tls-cert, --tls-key and "
        "--tls-ca), or --insecure if the network is trusted; `atoll` and Python "
        "programs also read ATOLL_TLS_DIR and ATOLL_INSECURE=true"));
  }
  if (options.proxy.Serves(host_port.host)) {
    RETURN_IF_ERROR(options.proxy.CheckUsable());
  }
  return CheckTlsFiles(options.tls);
}

namespace tls = grpc::experimental;

// Checks the peer at the end of each handshake, which has proven that it has
// the certificate's key.
class PeerVerifier : public tls::ExternalCertificateVerifier {
 public:
  PeerVerifier(HostPort dialled, Role role,
               std::shared_ptr<const TlsMaterial> material)
      : dialled_(std::move(dialled)),
        role_(role),
        material_(std::move(material)),
        revoked_(RevocationList::Read(material_->crl_pem, material_->ca_pem)
                     .value_or(RevocationList())) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*done*/,
              grpc::Status* status) override {
    const grpc::string_ref chain = request->peer_cert_full_chain();
    const std::string chain_pem(chain.data(), chain.size());
    absl::Status checked = CheckServerCertificate(
        chain_pem, material_->ca_pem, dialled_, role_, absl::Now());
    if (checked.ok()) {
      checked = Annotate(revoked_.Check(chain_pem),
                         JoinHostPort(dialled_.host, dialled_.port));
    }
    *status = ToGrpc(checked);
    return true;  // It is done.
  }

  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const HostPort dialled_;
  const Role role_;
  const std::shared_ptr<const TlsMaterial> material_;
  const RevocationList revoked_;  // Servers' certificates among them.
};

std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(
    const std::string& address, Role role,
    std::shared_ptr<const TlsMaterial> material) {
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<tls::StaticDataCertificateProvider>(
          material->ca_pem,
          std::vector<tls::IdentityKeyCertPair>{
              {material->key_pem, material->cert_pem}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  // PeerVerifier checks all that OpenSSL would check, and more. OpenSSL's own
  // check says no more than "certificate verify failed".
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<PeerVerifier>(
          ParseHostPort(address).value_or(HostPort()), role,
          std::move(material)));
  return tls::TlsCredentials(options);
}

}  // namespace

ChannelOptions MakeChannelOptions(ChannelKind kind, const Security& security) {
  ChannelOptions options;
  options.kind = kind;
  options.tls = security.tls;
  options.insecure = security.insecure;
  options.proxy = security.proxy;
  return options;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const ChannelOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Dialer> dialer,
                   Dialer::Make(address, options));
  return dialer->channel();
}

Dialer::Dialer(std::string address, const ChannelOptions& options)
    : address_(std::move(address)), options_(options) {}

absl::StatusOr<std::unique_ptr<Dialer>> Dialer::Make(
    const std::string& address, const ChannelOptions& options) {
  RETURN_IF_ERROR(CheckDialled(address, options));
  KeepGrpcRunning();
  auto dialer = std::unique_ptr<Dialer>(new Dialer(address, options));
  if (!options.tls.empty()) {
    ASSIGN_OR_RETURN(
        dialer->source_,
        TlsSource::Open(options.tls, KeyUse::kClient,
                        absl::StrCat("the connection to ", address)));
  }
  return dialer;
}

std::shared_ptr<grpc::Channel> Dialer::channel() {
  std::shared_ptr<const TlsMaterial> material =
      source_ == nullptr ? nullptr : source_->Get();
  MutexLock lock(&mutex_);
  if (channel_ != nullptr && material == used_) return channel_;
  grpc::ChannelArguments arguments = MakeArguments(options_);
  const HostPort parsed = ParseHostPort(address_).value_or(HostPort());
  std::string dialled = JoinHostPort(parsed.host, parsed.port);
  if (options_.proxy.Serves(parsed.host)) {
    AddProxy(options_.proxy, address_, arguments);
    dialled = options_.proxy.name();
  }
  channel_ = grpc::CreateCustomChannel(
      dialled,
      material == nullptr
          ? grpc::InsecureChannelCredentials()
          : MakeCredentials(address_, options_.peer_role, material),
      arguments);
  used_ = std::move(material);
  return channel_;
}

}  // namespace atl::rpc
