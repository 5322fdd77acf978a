#include "base/metrics/metrics_listener.h"

#include <microhttpd.h>
#include <sys/socket.h>

#include <atomic>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/io/own_file.h"
#include "base/io/unique_fd.h"
#include "base/metrics/connection_metrics.h"
#include "base/metrics/exposition.h"
#include "base/net/bounded_listener.h"
#include "base/net/http_daemon.h"
#include "base/net/places.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "prometheus/collectable.h"

namespace atl {
namespace {

// Connections of all peers together. Strangers have half of the places.
constexpr net::Places::Limits kLimits = {.count_max = 256,
                                         .stranger_max = 128,
                                         .network_stranger_max = 64,
                                         .address_stranger_max = 32,
                                         .name_max = 64};
// The name of connections whose first request is a probe's.
constexpr char kProbe[] = "probe";
// Memory for a connection's request line, headers and own state.
constexpr size_t kConnectionBytesMax = 8 << 10;
constexpr unsigned kIdleSecondsMax = 5;
constexpr absl::Duration kConnectionAgeMax = absl::Seconds(10);
// Bytes of metrics' texts that peers have not read yet.
constexpr int64_t kUnreadBytesMax = 16 << 20;

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

// Whether the connection's first bytes ask for health.
bool IsProbe(int fd) {
  char bytes[16];
  const ssize_t size = recv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
  absl::string_view request(bytes, size < 0 ? 0 : static_cast<size_t>(size));
  if (!absl::ConsumePrefix(&request, "GET ")) {
    absl::ConsumePrefix(&request, "HEAD ");
  }
  return absl::StartsWith(request, "/livez ") ||
         absl::StartsWith(request, "/healthz ") ||
         absl::StartsWith(request, "/readyz ");
}

}  // namespace

class MetricsListener::Impl {
 public:
  explicit Impl(Metrics& metrics) : metrics_(metrics) {}

  ~Impl() {
    if (listener_ != nullptr) listener_->Stop();
  }

  absl::Status Start(const HostPort& address) {
    absl::StatusOr<std::unique_ptr<net::BoundedListener>> listener =
        net::BoundedListener::Listen({.address = address,
                                      .limits = kLimits,
                                      .age_max = kConnectionAgeMax});
    RETURN_IF_ERROR(Annotate(listener.status(), "--metrics-listen"));
    listener_ = *std::move(listener);
    connection_metrics_ = MakeConnectionMetrics(listener_);
    metrics_.Add(connection_metrics_);
    for (auto* const daemon : {&scrapes_, &probes_}) {
      absl::StatusOr<std::unique_ptr<net::HttpDaemon>> started =
          net::HttpDaemon::Start(
              {.listener = listener_.get(),
               .flags = MHD_USE_EPOLL_INTERNAL_THREAD,
               .answer = &Impl::Answer,
               .answerer = this,
               .options = {
                   {MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytesMax,
                    nullptr},
                   {MHD_OPTION_CONNECTION_TIMEOUT, kIdleSecondsMax, nullptr}}});
      RETURN_IF_ERROR(Annotate(started.status(), "--metrics-listen"));
      *daemon = *std::move(started);
    }
    listener_->Run([this](UniqueFd fd,
                          const net::BoundedListener::Connection& connection) {
      const bool is_probe = IsProbe(fd.get());
      if (is_probe) listener_->Prove(connection.id, kProbe);
      (is_probe ? probes_ : scrapes_)->Serve(std::move(fd), connection);
    });
    return absl::OkStatus();
  }

  int port() const { return listener_->address().port; }

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

  Metrics& metrics_;
  std::atomic<int64_t> unread_bytes_ = 0;
  std::shared_ptr<net::BoundedListener> listener_;
  std::shared_ptr<prometheus::Collectable> connection_metrics_;
  // A thread each: a scrape that waits holds up no probe.
  std::unique_ptr<net::HttpDaemon> scrapes_;
  std::unique_ptr<net::HttpDaemon> probes_;
};

MetricsListener::MetricsListener() = default;
MetricsListener::~MetricsListener() = default;

absl::StatusOr<std::unique_ptr<MetricsListener>> MetricsListener::Start(
    const MetricsListenerOptions& options, Metrics& metrics) {
  if (options.address.empty()) return nullptr;
  ASSIGN_OR_RETURN(const HostPort address, ParseAddress(options.address));
  auto listener = std::unique_ptr<MetricsListener>(new MetricsListener);
  listener->impl_ = std::make_unique<Impl>(metrics);
  RETURN_IF_ERROR(listener->impl_->Start(address));
  listener->port_ = listener->impl_->port();
  listener->address_ = JoinHostPort(address.host, listener->port_);
  RETURN_IF_ERROR(
      WritePortFile(options.port_file, absl::StrCat(listener->port_)));
  LOG(INFO) << "metrics and health on " << listener->address_;
  return listener;
}

}  // namespace atl
