#include "base/metrics/metrics_listener.h"

#include <microhttpd.h>
#include <sys/socket.h>

#include <atomic>
#include <list>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/io/own_file.h"
#include "base/io/unique_fd.h"
#include "base/metrics/exposition.h"
#include "base/net/socket.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"

namespace atl {
namespace {

// Two, so that a scrape that waits does not hold up a probe.
constexpr unsigned kThreadCount = 2;
// Connections of all peers together.
constexpr unsigned kConnectionCountMax = 256;
// Connections of one address. Prometheus, the kubelet and other probes of a
// node share an address.
constexpr unsigned kPeerConnectionCountMax = 64;
// Memory for a connection's request line, headers and own state.
constexpr size_t kConnectionBytesMax = 8 << 10;
constexpr unsigned kIdleSecondsMax = 5;
// From accept to close, whatever the peer sends or reads meanwhile.
constexpr absl::Duration kConnectionAgeMax = absl::Seconds(10);
// How often connections are checked for their age.
constexpr absl::Duration kAgeCheckInterval = absl::Seconds(1);
// Bytes of metrics' texts that peers have not read yet.
constexpr int64_t kUnreadBytesMax = 16 << 20;
constexpr int kBacklog = 128;

constexpr char kPlainText[] = "text/plain; charset=utf-8";

// Reads --metrics-listen. Without a host it means loopback.
absl::StatusOr<HostPort> ParseAddress(absl::string_view flag) {
  std::string text(flag);
  if (!absl::StrContains(text, ":")) text.insert(0, ":");
  if (absl::StartsWith(text, ":")) text.insert(0, "127.0.0.1");
  absl::StatusOr<HostPort> address = ParseHostPort(text);
  if (!address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--metrics-listen: \"", flag,
        "\" is not HOST:PORT; 127.0.0.1:7490 and [::]:7490 are examples"));
  }
  return address;
}

// Open connections, each with its time of accept. Thread-safe.
class Connections {
 public:
  using Id = std::list<std::pair<int, absl::Time>>::iterator;

  Id Add(int fd) {
    MutexLock lock(&mutex_);
    return open_.emplace(open_.end(), fd, SystemClock().Now());
  }
  // The caller closes the socket only after this.
  void Remove(Id id) {
    MutexLock lock(&mutex_);
    open_.erase(id);
  }
  // Shuts down those accepted before `time`; their owner then closes them.
  void ShutDownOlder(absl::Time time) {
    MutexLock lock(&mutex_);
    for (const auto& [fd, accepted] : open_) {
      if (accepted < time) shutdown(fd, SHUT_RDWR);
    }
  }

 private:
  Mutex mutex_;
  // The oldest first.
  std::list<std::pair<int, absl::Time>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

class MetricsListener::Impl {
 public:
  explicit Impl(const Metrics& metrics) : metrics_(metrics) {}

  ~Impl() {
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
    {
      MutexLock lock(&mutex_);
      stops_ = true;
      wake_.SignalAll();
    }
    if (age_checker_.joinable()) age_checker_.join();
  }

  absl::Status Start(UniqueFd listening) {
    daemon_ = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, nullptr, nullptr, &Impl::Answer, this,
        MHD_OPTION_LISTEN_SOCKET, listening.get(),         //
        MHD_OPTION_THREAD_POOL_SIZE, kThreadCount,         //
        MHD_OPTION_CONNECTION_LIMIT, kConnectionCountMax,  //
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, kPeerConnectionCountMax,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytesMax,
        MHD_OPTION_CONNECTION_TIMEOUT, kIdleSecondsMax,  //
        MHD_OPTION_NOTIFY_CONNECTION, &Impl::Notify, this, MHD_OPTION_END);
    if (daemon_ == nullptr) {
      return absl::ResourceExhaustedError(
          "--metrics-listen: the HTTP server does not start: too few threads, "
          "files or too little memory");
    }
    (void)listening.Release();  // The daemon closes it.
    age_checker_ = std::thread([this] { CheckAges(); });
    return absl::OkStatus();
  }

 private:
  // An answer before its headers.
  struct Answering {
    unsigned status = MHD_HTTP_OK;
    std::string body;
    absl::string_view content_type = kPlainText;
  };

  // A body that libmicrohttpd frees once it is sent.
  struct Body {
    std::string text;
    std::atomic<int64_t>& unread_bytes;
  };

  static void Notify(void* self, MHD_Connection* connection, void** context,
                     MHD_ConnectionNotificationCode code) {
    Connections& connections = static_cast<Impl*>(self)->connections_;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      const int fd =
          MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)
              ->connect_fd;
      *context = new Connections::Id(connections.Add(fd));
    } else {
      const std::unique_ptr<Connections::Id> id(
          static_cast<Connections::Id*>(*context));
      connections.Remove(*id);
    }
  }

  // Is called once the headers are there. Answers at once, before any body is
  // read: libmicrohttpd then reads none, and closes the connection.
  static MHD_Result Answer(void* self, MHD_Connection* connection,
                           const char* url, const char* method, const char*,
                           const char*, size_t*, void**) {
    Impl& impl = *static_cast<Impl*>(self);
    return impl.Send(connection, impl.MakeAnswer(connection, url, method));
  }

  static const char* Header(MHD_Connection* connection, const char* name) {
    const char* const value =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
    return value == nullptr ? "" : value;
  }

  Answering MakeAnswer(MHD_Connection* connection, absl::string_view url,
                       absl::string_view method) const {
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
      return {MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n"};
    }
    const absl::string_view length =
        Header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if ((!length.empty() && length != "0") ||
        *Header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING) != '\0') {
      return {MHD_HTTP_CONTENT_TOO_LARGE, "a request here has no body\n"};
    }
    if (url == "/livez" || url == "/healthz") return {MHD_HTTP_OK, "ok\n"};
    if (url == "/readyz") {
      const absl::Status ready = metrics_.ready();
      if (ready.ok()) return {MHD_HTTP_OK, "ok\n"};
      return {MHD_HTTP_SERVICE_UNAVAILABLE,
              absl::StrCat(ready.message(), "\n")};
    }
    if (url != "/metrics") {
      return {MHD_HTTP_NOT_FOUND,
              "try /metrics, /livez, /readyz or /healthz\n"};
    }
    if (unread_bytes_ > kUnreadBytesMax) {
      return {MHD_HTTP_SERVICE_UNAVAILABLE,
              "too many scrapes at once; try again in 10 seconds\n"};
    }
    const ExpositionFormat format =
        ChooseFormat(Header(connection, MHD_HTTP_HEADER_ACCEPT));
    return {MHD_HTTP_OK, Expose(metrics_.Collect(), format),
            ContentType(format)};
  }

  // MHD_NO closes the connection.
  MHD_Result Send(MHD_Connection* connection, Answering answer) {
    unread_bytes_ += static_cast<int64_t>(answer.body.size());
    auto* const body = new Body{std::move(answer.body), unread_bytes_};
    const auto free_body = [](void* held) {
      const std::unique_ptr<Body> sent(static_cast<Body*>(held));
      sent->unread_bytes -= static_cast<int64_t>(sent->text.size());
    };
    MHD_Response* const response =
        MHD_create_response_from_buffer_with_free_callback_cls(
            body->text.size(), body->text.data(), free_body, body);
    if (response == nullptr) {
      free_body(body);
      return MHD_NO;
    }
    // One request a connection, so that the age of a connection bounds the time
    // of a request.
    bool ok = MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION,
                                      "close") == MHD_YES &&
              MHD_add_response_header(
                  response, MHD_HTTP_HEADER_CONTENT_TYPE,
                  std::string(answer.content_type).c_str()) == MHD_YES;
    if (answer.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
      ok = ok && MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW,
                                         "GET, HEAD") == MHD_YES;
    }
    ok = ok &&
         MHD_queue_response(connection, answer.status, response) == MHD_YES;
    MHD_destroy_response(response);
    return ok ? MHD_YES : MHD_NO;
  }

  void CheckAges() {
    MutexLock lock(&mutex_);
    while (!stops_) {
      connections_.ShutDownOlder(SystemClock().Now() - kConnectionAgeMax);
      wake_.WaitWithTimeout(&mutex_, kAgeCheckInterval);
    }
  }

  const Metrics& metrics_;
  Connections connections_;
  std::atomic<int64_t> unread_bytes_ = 0;
  MHD_Daemon* daemon_ = nullptr;

  std::thread age_checker_;
  Mutex mutex_;
  CondVar wake_;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
};

MetricsListener::MetricsListener() = default;
MetricsListener::~MetricsListener() = default;

absl::StatusOr<std::unique_ptr<MetricsListener>> MetricsListener::Start(
    const MetricsListenerOptions& options, const Metrics& metrics) {
  if (options.address.empty()) return nullptr;
  ASSIGN_OR_RETURN(HostPort address, ParseAddress(options.address));
  absl::StatusOr<UniqueFd> listening = net::Listen(address, kBacklog);
  if (!listening.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--metrics-listen: ", listening.status().message()));
  }
  ASSIGN_OR_RETURN(const HostPort bound, net::LocalAddress(listening->get()));
  address.port = bound.port;
  auto listener = std::unique_ptr<MetricsListener>(new MetricsListener);
  listener->impl_ = std::make_unique<Impl>(metrics);
  RETURN_IF_ERROR(listener->impl_->Start(*std::move(listening)));
  listener->port_ = address.port;
  listener->address_ = JoinHostPort(address.host, address.port);
  if (!options.port_file.empty()) {
    RETURN_IF_ERROR(
        WritePortFile(options.port_file, absl::StrCat(address.port)));
  }
  LOG(INFO) << "metrics and health on " << listener->address_;
  return listener;
}

}  // namespace atl
