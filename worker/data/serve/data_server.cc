#include "worker/data/serve/data_server.h"

#include <linux/sockios.h>
#include <microhttpd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "base/io/unique_fd.h"
#include "base/net/bounded_listener.h"
#include "base/net/http_daemon.h"
#include "base/net/places.h"
#include "base/obs/log.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/tls_source.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "base/time/token_bucket.h"

namespace atl::worker {
namespace {

// A name is of a data token.
constexpr net::Places::Limits kLimits = {.count_max = 256,
                                         .stranger_max = 128,
                                         .network_stranger_max = 64,
                                         .address_stranger_max = 32,
                                         .name_max = 64};
// For a connection's request line, headers and own state.
constexpr size_t kConnectionBytesMax = 16 << 10;
constexpr size_t kThreadStackBytes = 512 << 10;
constexpr size_t kPieceBytes = 64 << 10;
// Bytes that a connection must move within the stall timeout.
constexpr int64_t kStallBytes = 64 << 10;
// A connection must show its token within this time.
constexpr absl::Duration kStrangerMax = absl::Seconds(10);
constexpr char kTlsVersions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

struct Connection {
  net::BoundedListener::Id id = 0;
  int fd = -1;
  absl::Time window_begin;   // Start of the present stall window.
  int64_t window_bytes = 0;  // Bytes acknowledged before the window.
  int64_t moved = 0;         // Bytes of files that went to the socket.
  bool is_paced = false;     // It waits for our own bandwidth cap.
  bool is_known = false;     // It has shown a token that may read.
};

// How long a connection without a place may wait for our bandwidth cap.
constexpr absl::Duration kPlaceCheckInterval = absl::Seconds(1);

}  // namespace

class DataServer::Impl {
 public:
  Impl(const DataServerOptions& options, std::unique_ptr<ServedFiles> files,
       std::unique_ptr<rpc::TlsSource> tls,
       std::unique_ptr<net::BoundedListener> listener)
      : options_(options),
        files_(std::move(files)),
        tls_(std::move(tls)),
        listener_(std::move(listener)) {
    if (options.bytes_per_second > 0) {
      bucket_.emplace(options.bytes_per_second, absl::Milliseconds(100));
    }
  }

  ~Impl() {
    {
      MutexLock lock(&mutex_);
      stops_ = true;
      wake_.SignalAll();
    }
    if (watcher_.joinable()) watcher_.join();
    listener_->Stop();
  }

  absl::Status Start() {
    RETURN_IF_ERROR(StartDaemon(tls_->Get()));
    listener_->Run([this](UniqueFd fd,
                          const net::BoundedListener::Connection& connection) {
      Take(std::move(fd), connection);
    });
    watcher_ = std::thread([this] { Watch(); });
    return absl::OkStatus();
  }

  const ServedFiles& files() const { return *files_; }

  Counts counts() const {
    return {request_count_, refused_count_, sent_bytes_};
  }

 private:
  // An HTTPS daemon with one certificate. A later one takes new connections.
  struct Daemon {
    Impl& impl;
    std::shared_ptr<const rpc::TlsMaterial> material;
    std::unique_ptr<net::HttpDaemon> http = nullptr;
  };

  // A file while it is sent.
  struct Sending {
    Impl& impl;
    Connection& connection;
    DataAnswer answer;
  };

  absl::Status StartDaemon(std::shared_ptr<const rpc::TlsMaterial> material) {
    const auto pointer = [](const char* text) {
      return const_cast<char*>(text);  // Only read.
    };
    auto made =
        std::make_shared<Daemon>(Daemon{*this, std::move(material)});
    ASSIGN_OR_RETURN(
        made->http,
        net::HttpDaemon::Start(
            {.listener = listener_.get(),
             .flags = MHD_USE_POLL_INTERNAL_THREAD |
                      MHD_USE_THREAD_PER_CONNECTION | MHD_USE_TLS,
             .answer = &Impl::Answer,
             .answerer = made.get(),
             .options =
                 {{MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytesMax,
                   nullptr},
                  {MHD_OPTION_THREAD_STACK_SIZE, kThreadStackBytes, nullptr},
                  {MHD_OPTION_HTTPS_PRIORITIES, 0, pointer(kTlsVersions)},
                  {MHD_OPTION_HTTPS_MEM_KEY, 0,
                   pointer(made->material->key_pem.c_str())},
                  {MHD_OPTION_HTTPS_MEM_CERT, 0,
                   pointer(made->material->cert_pem.c_str())}},
             .connection_count_max = 2 * kLimits.count_max,
             .on_end = [this](net::BoundedListener::Id id) { Forget(id); }}));
    MutexLock lock(&mutex_);
    daemons_.push_back(std::move(made));
    return absl::OkStatus();
  }

  void Take(UniqueFd fd, const net::BoundedListener::Connection& connection) {
    std::shared_ptr<Daemon> daemon;
    {
      MutexLock lock(&mutex_);
      connections_[connection.id] = {connection.id, fd.get(),
                                     SystemClock().Now()};
      daemon = daemons_.back();
    }
    daemon->http->Serve(std::move(fd), connection);
  }

  void Forget(net::BoundedListener::Id id) {
    MutexLock lock(&mutex_);
    connections_.erase(id);
  }

  Connection& Find(net::BoundedListener::Id id) {
    MutexLock lock(&mutex_);
    return connections_.at(id);
  }

  static std::string Header(MHD_Connection* handle, const char* name) {
    const char* const value =
        MHD_lookup_connection_value(handle, MHD_HEADER_KIND, name);
    return value == nullptr ? "" : value;
  }

  // Is called once the headers are there. Answers before a body is read:
  // libmicrohttpd then reads none, and closes the connection.
  static MHD_Result Answer(void* self, MHD_Connection* handle, const char* path,
                           const char* method, const char*, const char*,
                           size_t*, void**) {
    const Daemon& daemon = *static_cast<Daemon*>(self);
    Impl& impl = daemon.impl;
    Connection& connection = impl.Find(daemon.http->IdOf(handle));
    const DataRequest request = {
        .method = method,
        .path = path,
        .authorization = Header(handle, MHD_HTTP_HEADER_AUTHORIZATION),
        .range = Header(handle, MHD_HTTP_HEADER_RANGE),
        .if_range = Header(handle, MHD_HTTP_HEADER_IF_RANGE),
        .if_match = Header(handle, MHD_HTTP_HEADER_IF_MATCH)};
    DataAnswer answer = AnswerDataRequest(request, *impl.files_,
                                          impl.options_.access, absl::Now());
    ++(answer.file.fd.valid() ? impl.request_count_ : impl.refused_count_);
    if (!answer.caller.empty()) {
      impl.listener_->Prove(connection.id, answer.caller);
    }
    if (answer.file.fd.valid()) impl.NoteRequest(connection);
    return impl.Send(handle, connection, std::move(answer));
  }

  // MHD_NO closes the connection.
  MHD_Result Send(MHD_Connection* handle, Connection& connection,
                  DataAnswer answer) {
    const int code = answer.code;
    const HttpHeaders headers = answer.headers;
    MHD_Response* response = nullptr;
    if (answer.file.fd.valid()) {
      const auto size = static_cast<uint64_t>(answer.end - answer.begin);
      auto sending = std::make_unique<Sending>(
          Sending{*this, connection, std::move(answer)});
      response = MHD_create_response_from_callback(
          size, kPieceBytes, &Impl::Read, sending.get(), [](void* held) {
            const std::unique_ptr<Sending> sent(static_cast<Sending*>(held));
          });
      if (response != nullptr) (void)sending.release();
    } else {
      response = MHD_create_response_from_buffer(
          answer.text.size(), answer.text.data(), MHD_RESPMEM_MUST_COPY);
    }
    if (response == nullptr) return MHD_NO;
    bool ok = true;
    for (const auto& [name, value] : headers) {
      ok = ok && MHD_add_response_header(response, name.c_str(),
                                         value.c_str()) == MHD_YES;
    }
    if (code == 401 || code == 403) {  // A stranger keeps no connection.
      ok = ok && MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION,
                                         "close") == MHD_YES;
    }
    ok = ok && MHD_queue_response(handle, static_cast<unsigned>(code),
                                  response) == MHD_YES;
    MHD_destroy_response(response);
    return ok ? MHD_YES : MHD_NO;
  }

  static ssize_t Read(void* self, uint64_t position, char* out, size_t room) {
    Sending& sending = *static_cast<Sending*>(self);
    const DataAnswer& answer = sending.answer;
    const int64_t begin = answer.begin + static_cast<int64_t>(position);
    const size_t wanted =
        std::min<size_t>(room, static_cast<size_t>(answer.end - begin));
    if (!sending.impl.Pace(sending.connection, static_cast<int64_t>(wanted))) {
      return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const ssize_t count = ::pread(answer.file.fd.get(), out, wanted, begin);
    if (count <= 0) {
      LOG(WARNING) << "cannot read a file that is served, at byte " << begin
                   << ": "
                   << (count < 0 ? std::strerror(errno) : "it is shorter");
      return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    sending.impl.NoteMoved(sending.connection, count);
    return count;
  }

  void NoteRequest(Connection& connection) {
    MutexLock lock(&mutex_);
    connection.window_begin = SystemClock().Now();
    connection.is_known = true;
  }

  void NoteMoved(Connection& connection, int64_t bytes) {
    sent_bytes_ += bytes;
    MutexLock lock(&mutex_);
    connection.moved += bytes;
  }

  // Waits until `bytes` may be sent. False: the server stops, or the connection
  // has lost its place.
  bool Pace(Connection& connection, int64_t bytes) {
    MutexLock lock(&mutex_);
    if (!bucket_.has_value()) return !stops_;
    const absl::Time due = bucket_->Take(bytes, SystemClock().Now());
    connection.is_paced = true;
    while (!stops_) {
      const absl::Duration left = due - SystemClock().Now();
      if (left <= absl::ZeroDuration()) break;
      if (!listener_->Has(connection.id)) return false;
      wake_.WaitWithTimeout(&mutex_, std::min(left, kPlaceCheckInterval));
    }
    connection.is_paced = false;
    return !stops_;
  }

  // Closes connections that are too slow; takes new certificates.
  void Watch() {
    while (true) {
      std::shared_ptr<const rpc::TlsMaterial> used;
      {
        MutexLock lock(&mutex_);
        if (!stops_) wake_.WaitWithTimeout(&mutex_, options_.watch_period);
        if (stops_) return;
        for (auto& [id, connection] : connections_) CutIfStalled(connection);
        used = daemons_.back()->material;
      }
      DropIdleDaemons();
      std::shared_ptr<const rpc::TlsMaterial> material = tls_->Get();
      if (material == used) continue;
      const absl::Status started = StartDaemon(std::move(material));
      if (!started.ok()) LOG(WARNING) << started.message();
    }
  }

  void CutIfStalled(Connection& connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Time now = SystemClock().Now();
    int unsent = 0;
    if (::ioctl(connection.fd, SIOCOUTQ, &unsent) != 0) unsent = 0;
    const int64_t arrived = connection.moved - unsent;
    if (connection.is_paced ||
        arrived - connection.window_bytes >= kStallBytes) {
      connection.window_begin = now;
      connection.window_bytes = arrived;
    } else if (now - connection.window_begin >=
               (connection.is_known
                    ? options_.stall_timeout
                    : std::min(options_.stall_timeout, kStrangerMax))) {
      listener_->Shut(connection.id);  // Its thread then closes it.
    }
  }

  void DropIdleDaemons() {
    std::list<std::shared_ptr<Daemon>> idle;  // Destroyed without the mutex.
    MutexLock lock(&mutex_);
    while (daemons_.size() > 1 && daemons_.front().use_count() == 1 &&
           daemons_.front()->http->count() == 0) {
      idle.splice(idle.end(), daemons_, daemons_.begin());
    }
  }

  const DataServerOptions options_;
  const std::unique_ptr<ServedFiles> files_;
  const std::unique_ptr<rpc::TlsSource> tls_;
  const std::unique_ptr<net::BoundedListener> listener_;
  std::atomic<int64_t> request_count_ = 0;
  std::atomic<int64_t> refused_count_ = 0;
  std::atomic<int64_t> sent_bytes_ = 0;

  Mutex mutex_;
  CondVar wake_;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  // Their addresses stay, for the threads that use them.
  std::map<net::BoundedListener::Id, Connection> connections_
      ABSL_GUARDED_BY(mutex_);
  std::optional<TokenBucket> bucket_ ABSL_GUARDED_BY(mutex_);

  // The last one takes new connections. These members are last because their
  // threads use all the others.
  std::list<std::shared_ptr<Daemon>> daemons_ ABSL_GUARDED_BY(mutex_);
  std::thread watcher_;
};

DataServer::DataServer() = default;
DataServer::~DataServer() = default;

const ServedFiles& DataServer::files() const { return impl_->files(); }
DataServer::Counts DataServer::counts() const { return impl_->counts(); }

absl::StatusOr<std::unique_ptr<DataServer>> DataServer::Start(
    const DataServerOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ServedFiles> files,
                   ServedFiles::Open(options.directory));
  // The third file, which TLS always has, is not needed here.
  ASSIGN_OR_RETURN(std::unique_ptr<rpc::TlsSource> tls,
                   rpc::TlsSource::Open(
                       {options.cert_path, options.key_path, options.cert_path},
                       rpc::KeyUse::kServer, "the data server"));
  ASSIGN_OR_RETURN(std::unique_ptr<net::BoundedListener> listener,
                   net::BoundedListener::Listen(
                       {.address = options.listen,
                        .limits = kLimits,
                        .trusted_proxies = options.trusted_proxies}));
  auto server = std::unique_ptr<DataServer>(new DataServer);
  server->address_ = listener->address();
  server->impl_ = std::make_unique<Impl>(options, std::move(files),
                                         std::move(tls), std::move(listener));
  RETURN_IF_ERROR(server->impl_->Start());
  return server;
}

}  // namespace atl::worker
