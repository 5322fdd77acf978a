#include "coordinator/gate/gate_listener.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/metrics/connection_metrics.h"
#include "base/net/socket.h"
#include "base/rpc/tls_stream/link_load.h"
#include "base/rpc/tls_stream/tls_stream.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "coordinator/gate/enrolled_certificate.h"

namespace atl::coordinator {
namespace {

constexpr size_t kStackBytes = 1 << 20;
// A connection that lost its place has its thread until the coordinator answers.
constexpr size_t kThreadsOfAPlace = 2;
// Carries the messages that follow a LinkProbe. An error ends the connection.
void CarryProbe(v1::LinkDirection direction, rpc::TlsStream& stream) {
  if (direction == v1::LINK_DIRECTION_DOWN) {
    (void)rpc::SendLoad(stream, rpc::kLinkLoadTime, rpc::kLinkLoadBytesMax);
    return;
  }
  const absl::StatusOr<rpc::LinkLoad> load =
      rpc::ReceiveLoad(stream, rpc::kLinkLoadBytesMax);
  if (!load.ok()) return;
  v1::GateResponse response;
  response.mutable_link()->set_bytes(load->bytes);
  *response.mutable_link()->mutable_span_duration() = ToProto(load->span);
  *response.mutable_time() = ToProto(absl::Now());
  (void)stream.Send(response.SerializeAsString());
}

}  // namespace

absl::StatusOr<std::unique_ptr<GateListener>> GateListener::Start(
    const Spec& spec) {
  auto made = std::unique_ptr<GateListener>(new GateListener(spec));
  ASSIGN_OR_RETURN(made->stop_serving_, MakeWaker());
  absl::StatusOr<std::unique_ptr<net::BoundedListener>> listener =
      net::BoundedListener::Listen({.address = spec.address,
                                    .limits = spec.limits,
                                    .age_max = spec.connection_max,
                                    .trusted_proxies = spec.trusted_proxies});
  RETURN_IF_ERROR(Annotate(listener.status(), "--listen"));
  made->listener_ = *std::move(listener);
  made->connection_metrics_ = MakeConnectionMetrics(made->listener_);
  spec.metrics->Add(made->connection_metrics_);
  made->listener_->Run(
      [gate = made.get()](UniqueFd fd,
                          const net::BoundedListener::Connection& connection) {
        gate->JoinEnded();
        net::BoundUnsentBytes(fd.get());
        const bool started = gate->StartThread(std::make_unique<Connection>(
            Connection{gate, std::move(fd), connection.id,
                       connection.limit_key, {}}));
        if (!started) gate->listener_->Shut(connection.id);
      });
  return made;
}

GateListener::~GateListener() {
  if (listener_ == nullptr) return;
  Drain(absl::ZeroDuration());
  SetWaker(stop_serving_.get());
  {
    MutexLock lock(&mutex_);
    while (!running_.empty()) changed_.Wait(&mutex_);
  }
  JoinEnded();
}

void GateListener::Drain(absl::Duration grace) {
  listener_->Stop();
  MutexLock lock(&mutex_);
  changed_.AwaitWithTimeout(
      &mutex_, grace,
      [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return running_.empty(); });
}

bool GateListener::StartThread(std::unique_ptr<Connection> connection) {
  MutexLock lock(&mutex_);
  if (running_.size() >= kThreadsOfAPlace * spec_.limits.count_max) {
    return false;
  }
  connection->thread = running_.emplace(running_.end());
  // Not std::thread, whose stack has the default size, and which throws.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // The thread waits for mutex_ before it moves its number.
  const int error =
      pthread_create(&*connection->thread, &attributes,
                     &GateListener::ServeInThread, connection.get());
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    running_.erase(connection->thread);
    return false;
  }
  (void)connection.release();  // The thread's.
  return true;
}

void* GateListener::ServeInThread(void* argument) {
  const std::unique_ptr<Connection> connection(
      static_cast<Connection*>(argument));
  GateListener& gate = *connection->gate;
  gate.Serve(*connection);
  gate.listener_->End(connection->id);
  MutexLock lock(&gate.mutex_);
  gate.ended_.splice(gate.ended_.end(), gate.running_, connection->thread);
  gate.changed_.SignalAll();
  return nullptr;
}

void GateListener::Serve(Connection& connection) {
  const net::WaitLimits limits = {SystemClock().Now() + spec_.connection_max,
                                  stop_serving_.get()};
  const absl::StatusOr<std::unique_ptr<rpc::TlsStream>> stream =
      rpc::TlsStream::Accept(*spec_.files->Get()->context,
                             std::move(connection.fd), limits);
  if (!stream.ok()) return;
  const std::string chain_pem = (*stream)->peer_chain_pem();
  const absl::StatusOr<EnrolledCertificate> certificate =
      CheckEnrolledCertificate(
          chain_pem, spec_.files->Get()->island_ca.cert_pem, absl::Now());
  if (certificate.ok()) {
    listener_->Prove(connection.id,
                     absl::StrCat(certificate->identity.run_uid(), "/",
                                  certificate->identity.name()));
  }
  const absl::StatusOr<std::string> request = (*stream)->Receive();
  if (!request.ok()) return;
  const Gate::Answered answered =
      spec_.gate->Answer(*request, {connection.limit_key, chain_pem});
  // A peer that is gone, or late, asks again: the same key gets the same grant.
  const absl::Status sent = (*stream)->Send(answered.bytes);
  if (answered.probe == v1::LINK_DIRECTION_UNSPECIFIED) return;
  if (sent.ok()) CarryProbe(answered.probe, **stream);
  spec_.gate->EndProbe(connection.limit_key);
}

void GateListener::JoinEnded() {
  std::list<pthread_t> ended;
  {
    MutexLock lock(&mutex_);
    ended.swap(ended_);
  }
  for (const pthread_t thread : ended) pthread_join(thread, nullptr);
}

}  // namespace atl::coordinator
