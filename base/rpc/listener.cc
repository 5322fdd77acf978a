#include "base/rpc/listener.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/host_port/host_port.h"
#include "base/metrics/connection_metrics.h"
#include "base/rpc/call_metrics.h"
#include "base/rpc/caller_check.h"
#include "base/rpc/frames.h"
#include "base/rpc/grpc_library.h"
#include "base/rpc/guarded_service.h"
#include "base/rpc/reflection_service.h"
#include "base/rpc/server_credentials.h"
#include "base/rpc/small_frames.h"
#include "base/status/status_macros.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"

namespace atl::rpc {
namespace {

// Connections of a port, and those whose peer has shown no certificate yet.
constexpr int kConnectionCountMax = 8192;
constexpr int kStrangerCountMax = 1024;
// A call's headers, with 32 for each. In memory a header of one byte takes
// more than 100.
constexpr int kMetadataBytesMax = 4 << 10;
// Bytes of one read of a socket.
constexpr int kControlReadBytesMax = 32 << 10;
constexpr int kBulkReadBytesMax = 128 << 10;
constexpr absl::Duration kConnectionGraceMax = absl::Minutes(1);
// Threads of synchronous handlers.
constexpr int kThreadCountMax = 64;
// The wait for a ping's answer.
constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(20);
// Calls that are still open this long after Stop are cancelled.
constexpr absl::Duration kStopGrace = absl::Milliseconds(200);

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

void SetLimits(const RpcServer::Spec& spec, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(spec.message_bytes_max);
  builder.SetMaxSendMessageSize(spec.message_bytes_max);
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  grpc::ResourceQuota quota;
  quota.Resize(static_cast<size_t>(spec.memory_bytes_max));
  quota.SetMaxThreads(kThreadCountMax);
  builder.SetResourceQuota(quota);
  if (spec.receive_window_bytes > 0) {
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                               spec.receive_window_bytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  // A whole read is parsed before any call of it can be refused.
  builder.AddChannelArgument(
      GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE,
      spec.receive_window_bytes > 0 ? kBulkReadBytesMax : kControlReadBytesMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytesMax);
  const absl::Duration age = spec.listener.connection_age_max;
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(age));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             Milliseconds(std::min(age, kConnectionGraceMax)));
  // gRPC tells its peer only of a setting that differs from its table.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsMax - 1);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds(spec.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             Milliseconds(spec.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(kKeepaliveTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
}

// All services of a port whose own ones are `services`.
std::vector<std::string> ServiceNames(
    const std::vector<grpc::Service*>& services) {
  std::set<std::string> names = {"grpc.reflection.v1alpha.ServerReflection"};
  for (const grpc::Service* service : services) {
    for (const std::string& method : MethodNames(*service)) {
      names.insert(method.substr(1, method.rfind('/') - 1));
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace

absl::Status CheckListener(const ListenerOptions& options) {
  ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(options.address));
  RETURN_IF_ERROR(CheckTlsFiles(options.tls));
  if (!options.tls.empty() && options.insecure) {
    return absl::InvalidArgumentError(
        "--insecure contradicts --tls-cert, --tls-key and --tls-ca: give one "
        "or the other");
  }
  if (options.connection_age_max < absl::Seconds(1) ||
      options.connection_age_max > absl::Hours(24)) {
    return absl::InvalidArgumentError(
        "--connection-age-s must be in [1, 86400]");
  }
  if (options.tls.empty() && !options.insecure &&
      !IsLoopbackHost(host_port.host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "will not listen on ", options.address,
        " in plaintext: give --tls-cert, --tls-key and --tls-ca, or "
        "--insecure to let anyone who reaches the port act as an operator"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const Spec& spec) {
  RETURN_IF_ERROR(CheckListener(spec.listener));
  ASSIGN_OR_RETURN(const HostPort host_port,
                   ParseHostPort(spec.listener.address));
  KeepGrpcRunning();
  EndSmallFrames();
  auto server = std::unique_ptr<RpcServer>(new RpcServer);
  ASSIGN_OR_RETURN(server->listener_,
                   net::BoundedListener::Listen(
                       {.address = host_port,
                        .limits = {.count_max = kConnectionCountMax,
                                   .stranger_max = kStrangerCountMax},
                        .first_bytes_max = spec.handshake_timeout}));
  if (spec.metrics != nullptr) {
    server->connection_metrics_ = MakeConnectionMetrics(server->listener_);
    spec.metrics->Add(server->connection_metrics_);
  }
  std::shared_ptr<CallerCheck> check;
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::InsecureServerCredentials();
  if (!spec.listener.tls.empty()) {
    ASSIGN_OR_RETURN(
        check,
        CallerCheck::Open(
            spec.listener.tls,
            absl::StrCat("the listener on ", spec.listener.address)));
    credentials = MakeServerCredentials(check);
  }
  server->guard_ = std::make_unique<CallGuard>(
      server->listener_, check,
      /*holds_readers=*/spec.receive_window_bytes == 0);
  grpc::ServerBuilder builder;
  SetLimits(spec, builder);
  server->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      credentials);
  std::vector<grpc::Service*> services = spec.services;
  services.push_back(&server->health_);
  server->reflection_ = MakeReflectionService(ServiceNames(services));
  services.push_back(server->reflection_.get());
  for (grpc::Service*& service : services) {
    if (check == nullptr) break;
    ASSIGN_OR_RETURN(std::unique_ptr<grpc::Service> guarded,
                     server->guard_->Guard(*service));
    service = guarded.get();
    server->guarded_.push_back(std::move(guarded));
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  builder.SetContextAllocator(server->guard_->MakeContexts());
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(server->guard_->MakeInterceptors());
  if (spec.metrics != nullptr) {
    interceptors.push_back(MakeCallMetrics(*spec.metrics));
  }
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) {
    return absl::InternalError(
        absl::StrCat("gRPC does not serve ", spec.listener.address));
  }
  server->port_ = server->listener_->address().port;
  server->address_ = JoinHostPort(host_port.host, server->port_);
  server->listener_->Run(
      [acceptor = server->acceptor_.get()](
          UniqueFd fd, const net::BoundedListener::Connection&) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
            connection;
        connection.fd = fd.Release();
        acceptor->HandleNewConnection(&connection);
      });
  return server;
}

RpcServer::~RpcServer() { Stop(); }

void RpcServer::SetServing(bool serving) {
  health_.SetServing(serving);
}

void RpcServer::SetServing(const std::string& name, bool serving) {
  health_.SetServing(name, serving);
}

void RpcServer::Stop() {
  if (server_ == nullptr) return;
  SetServing(false);
  listener_->Stop();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + kStopGrace));
  server_->Wait();
}

}  // namespace atl::rpc
