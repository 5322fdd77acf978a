#include "base/http/metrics_listener.h"

#include <microhttpd.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/metrics/exposition.h"
#include "base/obs/log.h"
#include "base/rpc/host_port.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"

namespace atl {
namespace {

// One caller cannot take all connections from probes and scrapes.
constexpr unsigned kConnectionCountMax = 128;
constexpr unsigned kConnectionsPerAddressMax = 32;
// Of a request's line and headers, for each connection.
constexpr size_t kConnectionBytesMax = 16 << 10;
// A scrape may wait for values; probes must not wait for scrapes.
constexpr unsigned kThreadCount = 2;
// A connection serves one request and lives at most this long, whatever its
// peer sends.
constexpr absl::Duration kConnectionAgeMax = absl::Seconds(15);
constexpr unsigned kIdleSecondsMax = 5;
constexpr absl::Duration kWatchPeriod = absl::Milliseconds(500);

constexpr absl::string_view kPlainText = "text/plain; charset=utf-8";

struct Page {
  unsigned status = MHD_HTTP_OK;
  std::string type = std::string(kPlainText);
  std::string text;
};

Page MakePage(const Metrics& metrics, absl::string_view method,
              absl::string_view path, absl::string_view accept) {
  Page page;
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
    page.status = MHD_HTTP_METHOD_NOT_ALLOWED;
    page.text = "only GET and HEAD\n";
  } else if (path == "/metrics") {
    const ExpositionFormat format = ChooseFormat(accept);
    page.type = std::string(ContentType(format));
    page.text = Expose(metrics.Collect(), format);
  } else if (path == "/livez" || path == "/healthz") {
    page.text = "ok\n";
  } else if (path == "/readyz") {
    const absl::Status ready = metrics.ready();
    page.status = ready.ok() ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
    page.text = ready.ok() ? "ok\n" : absl::StrCat(ready.message(), "\n");
  } else {
    page.status = MHD_HTTP_NOT_FOUND;
    page.text = "there are /metrics, /livez, /healthz and /readyz\n";
  }
  return page;
}

absl::string_view Header(MHD_Connection* connection, const char* name) {
  const char* value =
      MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

bool HasBody(MHD_Connection* connection) {
  const absl::string_view length =
      Header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
  return !Header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING).empty() ||
         (!length.empty() && length != "0");
}

// "9100" and ":9100" mean loopback.
absl::StatusOr<rpc::HostPort> ParseAddress(absl::string_view text) {
  int port = 0;
  const std::string full =
      absl::SimpleAtoi(text, &port) ? absl::StrCat("127.0.0.1:", text)
      : absl::StartsWith(text, ":") ? absl::StrCat("127.0.0.1", text)
                                    : std::string(text);
  absl::StatusOr<rpc::HostPort> parsed = rpc::ParseHostPort(full);
  if (!parsed.ok()) {
    return Annotate(std::move(parsed).status(), "--metrics-listen");
  }
  return parsed;
}

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const rpc::HostPort& host_port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host_port.host.c_str(),
                  std::to_string(host_port.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-listen: cannot resolve \"", host_port.host,
                     "\": ", gai_strerror(error)));
  }
  return Addresses(found);
}

}  // namespace

class MetricsListener::Impl {
 public:
  explicit Impl(const Metrics& metrics) : metrics_(metrics) {}

  ~Impl() {
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
    }
    changed_.SignalAll();
    if (watcher_.joinable()) watcher_.join();
  }

  // Returns the port.
  absl::StatusOr<int> Listen(const std::string& address,
                             const addrinfo& target) {
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD;
    if (target.ai_family == AF_INET6) flags |= MHD_USE_IPv6;
    daemon_ = MHD_start_daemon(
        flags, 0, nullptr, nullptr, &Impl::Answer, this, MHD_OPTION_SOCK_ADDR,
        target.ai_addr, MHD_OPTION_THREAD_POOL_SIZE, kThreadCount,
        MHD_OPTION_CONNECTION_LIMIT, kConnectionCountMax,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, kConnectionsPerAddressMax,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytesMax,
        MHD_OPTION_CONNECTION_TIMEOUT, kIdleSecondsMax,
        MHD_OPTION_NOTIFY_CONNECTION, &Impl::Notify, this,
        MHD_OPTION_EXTERNAL_LOGGER, &Impl::Log, nullptr, MHD_OPTION_END);
    if (daemon_ == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--metrics-listen: cannot listen on ", address,
          ": the port is taken, or the host is not this machine's; `ss -ltnp` "
          "shows who has it"));
    }
    watcher_ = std::thread([this] { Watch(); });
    return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  }

 private:
  static MHD_Result Answer(void* self, MHD_Connection* connection,
                           const char* url, const char* method,
                           const char* /*version*/, const char* /*data*/,
                           size_t* /*size*/, void** /*request*/) {
    // Answered before its body is read, a request's connection is closed.
    const Page page =
        HasBody(connection)
            ? Page{MHD_HTTP_CONTENT_TOO_LARGE, std::string(kPlainText),
                   "a request has no body\n"}
            : MakePage(static_cast<Impl*>(self)->metrics_, method, url,
                       Header(connection, MHD_HTTP_HEADER_ACCEPT));
    MHD_Response* response = MHD_create_response_from_buffer(
        page.text.size(), const_cast<char*>(page.text.data()),
        MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            page.type.c_str());
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (page.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
      MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    const MHD_Result queued =
        MHD_queue_response(connection, page.status, response);
    MHD_destroy_response(response);
    return queued;
  }

  static void Notify(void* self, MHD_Connection* connection,
                     void** /*context*/,
                     MHD_ConnectionNotificationCode what) {
    Impl& impl = *static_cast<Impl*>(self);
    MutexLock lock(&impl.mutex_);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      const MHD_ConnectionInfo* info = MHD_get_connection_info(
          connection, MHD_CONNECTION_INFO_CONNECTION_FD);
      impl.open_[connection] = {info->connect_fd, absl::Now()};
    } else {
      impl.open_.erase(connection);
    }
  }

  // Faults of peers are no news.
  static void Log(void*, const char*, va_list) {}

  // Shuts sockets down that are too old; the daemon then closes them.
  void Watch() {
    MutexLock lock(&mutex_);
    while (!stopping_) {
      changed_.WaitWithTimeout(&mutex_, kWatchPeriod);
      const absl::Time oldest = absl::Now() - kConnectionAgeMax;
      for (const auto& [connection, socket] : open_) {
        if (socket.begin < oldest) shutdown(socket.descriptor, SHUT_RDWR);
      }
    }
  }

  struct Socket {
    int descriptor = -1;
    absl::Time begin;
  };

  const Metrics& metrics_;
  MHD_Daemon* daemon_ = nullptr;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The daemon tells of a connection's end before it closes the socket.
  std::map<MHD_Connection*, Socket> open_ ABSL_GUARDED_BY(mutex_);

  std::thread watcher_;
};

void AddMetricsFlags(CLI::App& app, MetricsListenerOptions& options) {
  app.add_option("--metrics-listen", options.address,
                 "host:port for health and metrics over plain HTTP (/metrics, "
                 "/livez, /readyz); a port alone means loopback; default: none");
  app.add_option("--metrics-port-file", options.port_file,
                 "File that the port of --metrics-listen is written to");
}

MetricsListener::MetricsListener() = default;
MetricsListener::~MetricsListener() = default;

absl::StatusOr<std::unique_ptr<MetricsListener>> MetricsListener::Start(
    const MetricsListenerOptions& options, const Metrics& metrics) {
  if (options.address.empty()) return nullptr;
  ASSIGN_OR_RETURN(const rpc::HostPort host_port,
                   ParseAddress(options.address));
  ASSIGN_OR_RETURN(const Addresses target, Resolve(host_port));
  auto listener = std::unique_ptr<MetricsListener>(new MetricsListener);
  listener->impl_ = std::make_unique<Impl>(metrics);
  ASSIGN_OR_RETURN(listener->port_,
                   listener->impl_->Listen(options.address, *target));
  listener->address_ = rpc::JoinHostPort(host_port.host, listener->port_);
  if (!options.port_file.empty()) {
    RETURN_IF_ERROR(Annotate(
        WriteFileAtomically(PosixFileSystem(), options.port_file,
                            absl::StrCat(listener->port_, "\n")),
        "--metrics-port-file"));
  }
  LOG(INFO) << "metrics and health on " << listener->address_;
  return listener;
}

}  // namespace atl
