#include "coordinator/gate/gate_listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <utility>

#include "absl/time/clock.h"
#include "base/host_port/limit_key.h"
#include "base/net/socket.h"
#include "base/obs/log.h"
#include "base/rpc/tls_stream/link_load.h"
#include "base/rpc/tls_stream/tls_stream.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

constexpr size_t kStackBytes = 1 << 20;
// The pause after an accept that fails for lack of descriptors or memory.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// A wait that only a waker ends.
constexpr absl::Duration kLong = absl::Hours(1);

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

GateListener::GateListener(const Spec& spec)
    : spec_(spec),
      connections_(prometheus::BuildGauge()
                       .Name("atoll_gate_connections")
                       .Help("Open connections of the gate.")
                       .Register(spec.metrics->registry())
                       .Add({})),
      refused_(prometheus::BuildCounter()
                   .Name("atoll_gate_refused_connections_total")
                   .Help("Connections that the gate closed at once, because "
                         "too many were open.")
                   .Register(spec.metrics->registry())
                   .Add({})),
      limit_(spec.connection_count_max, spec.address_connection_count_max) {}

absl::StatusOr<std::unique_ptr<GateListener>> GateListener::Start(
    const Spec& spec) {
  auto made = std::unique_ptr<GateListener>(new GateListener(spec));
  ASSIGN_OR_RETURN(made->stop_accepting_, MakeWaker());
  ASSIGN_OR_RETURN(made->stop_serving_, MakeWaker());
  absl::StatusOr<UniqueFd> listening = net::Listen(spec.address);
  RETURN_IF_ERROR(Annotate(listening.status(), "--listen"));
  made->listening_ = *std::move(listening);
  ASSIGN_OR_RETURN(made->address_, net::LocalAddress(made->listening_.get()));
  made->thread_ = std::thread([listener = made.get()] { listener->Run(); });
  return made;
}

GateListener::~GateListener() {
  Drain(absl::ZeroDuration());
  if (stop_serving_.valid()) SetWaker(stop_serving_.get());
  {
    MutexLock lock(&mutex_);
    while (!running_.empty()) changed_.Wait(&mutex_);
  }
  JoinEnded();
}

void GateListener::Drain(absl::Duration grace) {
  if (!thread_.joinable()) return;
  SetWaker(stop_accepting_.get());
  thread_.join();
  listening_ = UniqueFd();
  MutexLock lock(&mutex_);
  changed_.AwaitWithTimeout(
      &mutex_, grace,
      [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return running_.empty(); });
}

void GateListener::Run() {
  for (;;) {
    const absl::Status status = net::WaitForSocket(
        listening_.get(), POLLIN,
        {SystemClock().Now() + kLong, stop_accepting_.get()});
    if (absl::IsCancelled(status)) return;
    JoinEnded();
    if (status.ok()) Accept();
  }
}

void GateListener::Accept() {
  sockaddr_storage address = {};
  absl::StatusOr<UniqueFd> fd = net::Accept(listening_.get(), &address);
  if (absl::IsResourceExhausted(fd.status())) {
    LOG(WARNING) << fd.status().message();
    (void)net::WaitForSocket(
        -1, 0, {SystemClock().Now() + kAcceptPause, stop_accepting_.get()});
  }
  if (!fd.ok()) return;
  const std::string key =
      ToLimitKey(reinterpret_cast<const sockaddr&>(address));
  net::BoundUnsentBytes(fd->get());
  if (!StartThread(*std::move(fd), key)) refused_.Increment();
}

bool GateListener::StartThread(UniqueFd fd, const std::string& key) {
  MutexLock lock(&mutex_);
  if (!limit_.Add(key)) return false;
  auto connection = std::make_unique<Connection>();
  connection->listener = this;
  connection->fd = std::move(fd);
  connection->key = key;
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
    limit_.Remove(key);
    return false;
  }
  (void)connection.release();  // The thread's.
  connections_.Set(limit_.count());
  return true;
}

void* GateListener::ServeInThread(void* argument) {
  const std::unique_ptr<Connection> connection(
      static_cast<Connection*>(argument));
  GateListener& listener = *connection->listener;
  listener.Serve(*connection);
  MutexLock lock(&listener.mutex_);
  listener.limit_.Remove(connection->key);
  listener.connections_.Set(listener.limit_.count());
  listener.ended_.splice(listener.ended_.end(), listener.running_,
                         connection->thread);
  listener.changed_.SignalAll();
  return nullptr;
}

void GateListener::Serve(Connection& connection) {
  const net::WaitLimits limits = {SystemClock().Now() + spec_.connection_max,
                                  stop_serving_.get()};
  const absl::StatusOr<std::unique_ptr<rpc::TlsStream>> stream =
      rpc::TlsStream::Accept(*spec_.files->Get()->context,
                             std::move(connection.fd), limits);
  if (!stream.ok()) return;
  const absl::StatusOr<std::string> request = (*stream)->Receive();
  if (!request.ok()) return;
  const Gate::Answered answered = spec_.gate->Answer(
      *request, {connection.key, (*stream)->peer_chain_pem()});
  // A peer that is gone, or late, asks again: the same key gets the same grant.
  const absl::Status sent = (*stream)->Send(answered.bytes);
  if (answered.probe == v1::LINK_DIRECTION_UNSPECIFIED) return;
  if (sent.ok()) CarryProbe(answered.probe, **stream);
  spec_.gate->EndProbe(connection.key);
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
