#include "coordinator/service/listeners.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rpc/certificates/public_key.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "coordinator/service/services.h"

namespace atl::coordinator {
namespace {

// Limit of gRPC's buffers: about sixty of the largest messages. gRPC refuses an
// oversized message only after receiving it, so this is the effective bound.
constexpr int64_t kPortMemoryBytesMax = int64_t{256} << 20;

enum class ServiceKind { kRun, kTrainingState, kIsland, kServer, kEnrolment };

struct PortPlan {
  std::string name;
  std::string address;
  std::vector<ServiceKind> services;
};

std::vector<PortPlan> PlanPorts(const Listeners::Spec& spec) {
  std::vector<PortPlan> ports = {
      {"main", spec.main, {ServiceKind::kRun, ServiceKind::kEnrolment}}};
  auto place = [&](const std::string& name, const std::string& address,
                   std::vector<ServiceKind> own, ServiceKind kind) {
    if (address.empty()) {
      ports.front().services.push_back(kind);
    } else {
      ports.push_back({name, address, std::move(own)});
    }
  };
  place("query", spec.query, {ServiceKind::kTrainingState, ServiceKind::kRun},
        ServiceKind::kTrainingState);
  place("island", spec.island, {ServiceKind::kIsland, ServiceKind::kRun},
        ServiceKind::kIsland);
  place("server", spec.server, {ServiceKind::kServer, ServiceKind::kRun},
        ServiceKind::kServer);
  return ports;
}

rpc::ListenerOptions MakeListener(const PortPlan& port,
                                  const Listeners::Spec& spec) {
  rpc::ListenerOptions options;
  options.address = port.address;
  options.tls = spec.security.tls;
  options.insecure = spec.security.insecure;
  options.connection_age_max = spec.connection_age_max;
  return options;
}

// Empty without TLS, or if the certificate's file does not end with its root.
std::string ReadPin(const rpc::Security& security) {
  if (security.tls.empty()) return "";
  const absl::StatusOr<rpc::TlsMaterial> material =
      rpc::ReadTlsFiles(security.tls);
  if (!material.ok()) return "";  // The listener says why.
  const absl::StatusOr<std::string> root = rpc::FindRoot(material->cert_pem);
  if (!root.ok()) return "";
  const absl::StatusOr<rpc::PublicKey> key = rpc::ReadPublicKey(*root);
  return key.ok() ? rpc::ToPin(*key) : "";
}

std::unique_ptr<grpc::Service> MakeService(ServiceKind kind, EventLoop& loop,
                                           const std::string& pin,
                                           const Listeners::Spec& spec) {
  switch (kind) {
    case ServiceKind::kRun:
      return MakeRunService(loop);
    case ServiceKind::kTrainingState:
      return MakeTrainingStateService(loop, spec.data_dir);
    case ServiceKind::kIsland:
      return MakeIslandService(loop, spec.data_url_signer);
    case ServiceKind::kServer:
      return MakeServerService(loop);
    case ServiceKind::kEnrolment:
      return MakeEnrolmentService(loop, pin, [tls = spec.security.tls] {
        return tls.empty() || rpc::HasIslandCa(tls);
      });
  }
  return nullptr;
}

}  // namespace

absl::Status Listeners::Check(const Spec& spec) {
  for (const PortPlan& port : PlanPorts(spec)) {
    RETURN_IF_ERROR(Annotate(rpc::CheckListener(MakeListener(port, spec)),
                             absl::StrCat("the ", port.name, " port")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Listeners>> Listeners::Start(EventLoop& loop,
                                                            const Spec& spec) {
  std::unique_ptr<Listeners> listeners(new Listeners);
  const std::string pin = ReadPin(spec.security);
  for (const PortPlan& port : PlanPorts(spec)) {
    rpc::RpcServer::Spec server_spec;
    server_spec.listener = MakeListener(port, spec);
    server_spec.memory_bytes_max = kPortMemoryBytesMax;
    server_spec.metrics = spec.metrics;
    for (const ServiceKind kind : port.services) {
      listeners->services_.push_back(
          MakeService(kind, loop, pin, spec));
      server_spec.services.push_back(listeners->services_.back().get());
    }
    absl::StatusOr<std::unique_ptr<rpc::RpcServer>> server =
        rpc::RpcServer::Start(server_spec);
    if (!server.ok()) {
      return Annotate(server.status(),
                      absl::StrCat("the ", port.name, " port"));
    }
    listeners->ports_.push_back({port.name, (*server)->address()});
    listeners->servers_.push_back(*std::move(server));
  }
  return listeners;
}

Listeners::~Listeners() { Stop(); }

void Listeners::SetServing(bool serving) {
  for (const auto& server : servers_) server->SetServing(serving);
}

void Listeners::Stop() {
  for (const auto& server : servers_) server->Stop();
}

Health::Health(Metrics& metrics) : metrics_(metrics) {
  MutexLock lock(&mutex_);
  Show();
}

void Health::SetListeners(Listeners* listeners) {
  MutexLock lock(&mutex_);
  listeners_ = listeners;
  Show();
}

void Health::SetRefusal(const absl::Status& refusal) {
  MutexLock lock(&mutex_);
  refusal_ = refusal;
  Show();
}

void Health::SetStopping() {
  MutexLock lock(&mutex_);
  stopping_ = true;
  Show();
}

void Health::Show() {
  absl::Status ready;
  if (stopping_) {
    ready = absl::UnavailableError("stopping");
  } else if (listeners_ == nullptr) {
    ready = absl::UnavailableError("recovering: the log is being replayed");
  } else {
    ready = refusal_;
  }
  metrics_.SetReady(ready);
  if (listeners_ != nullptr) listeners_->SetServing(ready.ok());
}

}  // namespace atl::coordinator
